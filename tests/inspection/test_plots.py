import re

import pytest

from bert_lightning.inspection.plots import length_plot, share_plot, ticks
from bert_lightning.inspection.results import Bar


@pytest.mark.parametrize("most", [0.0004, 0.02, 0.37, 1, 3, 7, 38, 128, 512, 45_000, 740_000])
def test_ticks_are_few_round_numbers_that_end_below_the_most(most):
    values = ticks(most)
    assert values[0] == 0
    assert 3 <= len(values) <= 6
    assert values[-1] <= most < values[-1] + 2 * (values[1] - values[0])


def test_a_share_has_a_label_of_its_own():
    svg = share_plot("shares", [8, 16], {"line1": [0.004, 0.0]}, {"chosen": 16})
    labels = re.findall(r'text-anchor="end">(.+?)<', svg)
    assert labels == ["0%", "0.1%", "0.2%", "0.3%", "0.4%"]


def test_bars_are_as_high_as_their_rows():
    svg = length_plot("rows", [Bar(0, 9, 50), Bar(10, 19, 100), Bar(20, 29, 0)], {"chosen": 30})
    heights = [float(height) for height in re.findall(r'<rect.+?height="(.+?)"', svg)]
    assert heights == [75, 150]


def test_shares_that_are_all_zero_are_drawn():
    assert "NaN" not in share_plot("shares", [8], {"line1": [0.0]}, {"chosen": 8})
