import re
from xml.etree import ElementTree

import pytest
from made_up_results import RESULTS, failed, timed, trained

from bert_lightning.benchmark.case_plots import (
    accuracy_plot,
    batch_plot,
    epoch_bars,
    lengths_key,
    memory_bars,
)
from bert_lightning.inspection.plots import HEIGHT, WIDTH


def test_bars_are_as_long_as_their_share_of_the_longest():
    widths = re.findall(r"width:([\d.]+)%", epoch_bars(RESULTS))
    assert widths == ["100.00", "50.00", "66.65"]
    assert "20.0 s" in epoch_bars(RESULTS)


def test_memory_is_drawn_in_its_parts():
    rows = re.findall(r"<tr>.*?</tr>", memory_bars(RESULTS))
    parts = [re.findall(r"class=b(\d) style=\"width:([\d.]+)%", row) for row in rows]
    assert parts[1] == [("1", "16.67"), ("2", "33.33"), ("3", "16.67")]
    assert "2.00 GiB" in rows[1]


def test_there_is_no_plot_of_memory_or_accuracy_without_them():
    rows = [timed("fp32", activations_gib=None)]
    assert memory_bars(rows) == accuracy_plot(rows) == batch_plot([failed("fp32", "no")]) == ""


@pytest.mark.parametrize("rows", [RESULTS, [timed("fp32", batch=1)], [timed("fp32", batch=1000)]])
def test_points_of_a_batch_lie_inside_the_plot_and_grow_upwards(rows):
    root = ElementTree.fromstring(batch_plot(rows))
    points = {
        circle.find("title").text: (float(circle.get("cx")), float(circle.get("cy")))
        for circle in root.iter("circle")
    }
    assert len(points) == sum("epoch_seconds" in row for row in rows)
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points.values())
    if rows is RESULTS:
        slow, fast = points["fp32, bucketed, batch 32"], points["16-mixed, bucketed, batch 32"]
        assert slow[0] == fast[0]
        assert fast[1] < slow[1]


def test_each_seed_is_a_point_and_their_mean_a_line_between():
    root = ElementTree.fromstring(accuracy_plot(RESULTS))
    low, high = sorted(float(circle.get("cy")) for circle in root.iter("circle"))
    (mean,) = [float(line.get("y1")) for line in root.iter("line") if line.get("class") == "mean"]
    assert mean == pytest.approx((low + high) / 2)


def test_equal_accuracies_are_drawn_too():
    rows = [trained("fp32", 1, 1.0), trained("fp32", 2, 1.0)]
    assert len(list(ElementTree.fromstring(accuracy_plot(rows)).iter("circle"))) == 2


def test_the_key_names_the_lengths_that_are_shown():
    assert re.findall(r">(\w+)<", lengths_key(RESULTS)) == ["bucketed", "padded"]
