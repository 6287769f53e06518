import json
from pathlib import Path

import pytest

from bert_lightning.benchmark.peer_cells import GROUPS, Place, command
from bert_lightning.benchmark.peer_loops import PEERS
from bert_lightning.benchmark.stopwatch import Extent

PLACE = Place(*(Path("work", name) for name in Place.__dataclass_fields__))
CELLS = [(group, cell) for group in GROUPS for cell in group.cells]


def words_of(group, cell):
    return command(cell, group, PLACE, Extent(), 5.0)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_cells_of_a_group_have_names_of_their_own(group):
    assert len({cell.name for cell in group.cells}) == len(group.cells)


@pytest.mark.parametrize(("group", "cell"), CELLS)
def test_a_cell_is_a_command_with_its_options_last(group, cell):
    words = words_of(group, cell)
    assert words[1] == "-m"
    assert words[2:4] == (
        ["bert_lightning", cell.program]
        if cell.program in ("fit", "predict")
        else ["bert_lightning.benchmark.peer_loops", cell.program]
    )
    assert cell.program in {*PEERS, "fit", "predict"}
    assert words[len(words) - len(cell.options) :] == list(cell.options)
    assert any("work/output" in word for word in words)


def test_fit_understands_its_command_line(news_folder, tiny_bert_folder, run_cli, tmp_path):
    group, cell = next((g, c) for g, c in CELLS if c.name == "ours-16-mixed-lowmem")
    place = Place(
        tiny_bert_folder,
        news_folder,
        *[tmp_path / name for name in ("rows", "texts", "cache", "checkpoint", "runs", "output")],
    )
    words = command(cell, group, place, Extent(warmup=1, steps=3, repeats=1), 0.0)[3:]
    small = ("--data.batch_size", "8", "--trainer.accelerator", "cpu")
    result = run_cli(*words, *small)
    assert result.status == 0, result.err
    measured = json.loads(place.output.read_text("utf-8"))
    assert measured["steps"] == 3
    assert measured["samples_per_second"] > 0
