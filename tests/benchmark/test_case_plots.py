import re
from xml.etree import ElementTree

import pytest
from made_up_results import RESULTS, failed, timed, trained

from bert_lightning.benchmark.case_plots import (
    HEIGHT,
    accuracy_strips,
    batch_key,
    batch_plot,
    epoch_bars,
    memory_bars,
)
from bert_lightning.inspection.plots import WIDTH


def test_bars_are_as_long_as_their_share_of_the_longest():
    widths = re.findall(r"width:([\d.]+)%", epoch_bars(RESULTS))
    assert widths == ["100.00", "50.00", "66.65"]
    assert "20.0 s" in epoch_bars(RESULTS)


def test_memory_is_drawn_in_its_parts():
    rows = re.findall(r"<tr>.*?</tr>", memory_bars(RESULTS))
    parts = [re.findall(r"width:([\d.]+)%;background:([^\"]+)", row) for row in rows]
    assert [width for width, _ in parts[1]] == ["16.67", "33.33", "16.67"]
    assert len({shade for _, shade in parts[1]}) == 3
    assert "2.00 GiB" in rows[1]


def test_a_variant_has_one_colour_in_all_plots():
    fp32, *mixed = re.findall(r"background:(#\w+)", epoch_bars(RESULTS))
    assert mixed == [mixed[0]] * 2
    assert fp32 != mixed[0]
    drawn = batch_plot(RESULTS)
    assert (drawn.count(f'fill="{fp32}"'), drawn.count(f'fill="{mixed[0]}"')) == (1, 1)
    assert set(re.findall(r"background:(#\w+)", accuracy_strips(RESULTS))) == {fp32}


def test_there_is_no_plot_of_memory_or_accuracy_without_them():
    rows = [timed("fp32", activations_gib=None)]
    assert memory_bars(rows) == accuracy_strips(rows) == batch_plot([failed("fp32", "no")]) == ""


def _marks(drawn):
    return [
        element
        for element in ElementTree.fromstring(drawn).iter()
        if element.get("class") == "mark"
    ]


@pytest.mark.parametrize("rows", [RESULTS, [timed("fp32", batch=1)], [timed("fp32", batch=1000)]])
def test_points_of_a_batch_lie_inside_the_plot_and_grow_upwards(rows):
    points = {
        mark.find("title").text: (float(mark.get("data-x")), float(mark.get("data-y")))
        for mark in _marks(batch_plot(rows))
    }
    assert len(points) == sum("epoch_seconds" in row for row in rows)
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points.values())
    if rows is RESULTS:
        slow, fast = points["fp32, bucketed, batch 32"], points["16-mixed, bucketed, batch 32"]
        assert slow[0] == fast[0]
        assert fast[1] < slow[1]


def test_a_line_goes_from_the_smallest_batch_to_the_largest_and_is_named_once():
    rows = [timed("fp32", batch=32, rate=200.0), timed("fp32", batch=16), timed("fp32", batch=64)]
    root = ElementTree.fromstring(batch_plot(rows))
    (line,) = root.iter("polyline")
    places = [float(point.partition(",")[0]) for point in line.get("points").split()]
    assert places == sorted(set(places))
    assert [name.text for name in root.iter("text") if name.get("class") == "name"] == ["fp32"]


def test_each_seed_is_a_dot_and_their_mean_a_stroke_between():
    strip = accuracy_strips(RESULTS)
    low, high = sorted(map(float, re.findall(r'<i style="left:([\d.]+)%', strip)))
    (mean,) = map(float, re.findall(r'<b style="left:([\d.]+)%', strip))
    assert 0 < low < high < 100
    assert mean == pytest.approx((low + high) / 2, abs=0.01)
    assert "91.00%" in strip


def test_equal_accuracies_are_drawn_too():
    rows = [trained("fp32", 1, 1.0), trained("fp32", 2, 1.0)]
    assert len(re.findall(r"<i style=", accuracy_strips(rows))) == 2


def test_the_key_names_the_variants_and_lengths_that_are_shown():
    rows = [*RESULTS, failed("tf32", "out of memory")]
    names = re.findall(r"</svg>([^<]+)<", batch_key(rows))
    assert names == ["fp32", "16-mixed", "bucketed", "padded"]
