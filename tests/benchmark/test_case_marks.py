import re
from xml.etree import ElementTree

import pytest

from bert_lightning.benchmark.case_marks import DASHES, HATCHES, colours_of, key, mark, names_beside
from bert_lightning.benchmark.cases import LENGTHS
from bert_lightning.inspection.plots import WIDTH, axes

X, _ = axes(1, 1)


def _names(points):
    return re.findall(r">([^<]+)<", "".join(names_beside(points, X)))


def test_the_variants_of_the_shipped_benchmark_have_colours_of_their_own():
    variants = ["fp32", "tf32", "16-mixed", "bf16-mixed", "16-mixed eager", "16-mixed lowmem"]
    colours = colours_of([{"variant": variant} for variant in [*variants, *variants]])
    assert list(colours) == variants
    assert len(set(colours.values())) == len(variants)


def test_lengths_are_told_apart_without_colour():
    assert len({ElementTree.fromstring(mark(kind, 9, 9, "red")).tag for kind in LENGTHS}) == 3
    for styles in (DASHES, HATCHES):
        assert list(styles) == list(LENGTHS)
        assert len(set(styles.values())) == 3


def test_what_a_point_is_called_is_escaped():
    assert "a &lt; b" in mark("bucketed", 9, 9, "red", "a < b")
    assert "a &lt; b" in key({"a < b": "red"}, [])


def test_points_apart_have_their_names():
    assert _names([(100, 20, "fp32"), (100, 60, "tf32"), (250, 20, "16-mixed")]) == [
        "fp32",
        "tf32",
        "16-mixed",
    ]


@pytest.mark.parametrize(("x", "anchor"), [(100, "start"), (WIDTH - 14, "end")])
def test_a_name_stands_where_it_has_room(x, anchor):
    (name,) = names_beside([(x, 50, "16-mixed")], X)
    assert f'text-anchor="{anchor}"' in name


def test_a_name_that_would_cover_another_is_left_out():
    crowd = [(60, 50 + shift, f"variant {shift}") for shift in range(8)]
    shown = _names(crowd)
    assert 0 < len(shown) < len(crowd)
    places = [float(y) for y in re.findall(r' y="([\d.]+)"', "".join(names_beside(crowd, X)))]
    assert all(abs(one - other) >= 12 for one in places for other in places if one != other)
    assert len(set(places)) == len(places)
