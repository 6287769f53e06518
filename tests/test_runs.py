from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bert_lightning.errors import ConfigError
from bert_lightning.runs import (
    discard_if_empty,
    hold_run,
    new_run_folder,
    release_runs,
    run_numbers,
    run_of_checkpoint,
)


def _runs(root, *names):
    for name in names:
        (root / "runs" / name).mkdir(parents=True)


def test_without_runs_there_are_no_numbers(tmp_path):
    assert run_numbers(tmp_path) == []
    assert run_numbers(tmp_path / "missing") == []


def test_numbers_are_sorted_as_numbers(tmp_path):
    _runs(tmp_path, "10", "9", "2")
    assert run_numbers(tmp_path) == [2, 9, 10]


@pytest.mark.parametrize("name", ["old", "3b", "-1", ".5", "²", "①"])
def test_folders_of_other_names_are_no_runs(tmp_path, name):
    _runs(tmp_path, "1", name)
    assert run_numbers(tmp_path) == [1]


def test_a_file_is_no_run(tmp_path):
    _runs(tmp_path, "1")
    (tmp_path / "runs" / "2").write_text("")
    assert run_numbers(tmp_path) == [1]


def test_the_first_run_is_number_one(tmp_path):
    folder = new_run_folder(tmp_path / "not" / "there")
    assert folder == tmp_path / "not" / "there" / "runs" / "1"
    assert folder.is_dir()


def test_the_next_run_follows_the_highest_number(tmp_path):
    _runs(tmp_path, "2", "9")
    assert new_run_folder(tmp_path).name == "10"


def test_a_file_in_the_way_is_passed_over(tmp_path):
    _runs(tmp_path, "1")
    (tmp_path / "runs" / "2").write_text("")
    assert new_run_folder(tmp_path).name == "3"


def test_runs_that_start_together_get_numbers_of_their_own(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_run_folder(tmp_path), range(40)))
    assert sorted(int(folder.name) for folder in folders) == list(range(1, 41))


def test_a_checkpoint_knows_its_run(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    checkpoint = tmp_path / "runs" / "7" / "checkpoints" / "last.ckpt"
    assert run_of_checkpoint(checkpoint) == tmp_path / "runs" / "7"


def test_a_run_below_the_working_folder_is_named_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_of_checkpoint(Path("runs/7/checkpoints/last.ckpt")) == Path("runs/7")


@pytest.mark.parametrize("place", ["last.ckpt", "models/7/checkpoints/a.ckpt", "runs/b/c/a.ckpt"])
def test_a_checkpoint_elsewhere_has_no_run(tmp_path, place):
    assert run_of_checkpoint(tmp_path / place) is None


def test_a_checkpoint_of_a_seed_knows_the_folder_of_the_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = Path("runs/7/seed_3/checkpoints/last.ckpt")
    assert run_of_checkpoint(checkpoint) == Path("runs/7/seed_3")
    assert run_of_checkpoint(Path("runs/x/seed_3/checkpoints/last.ckpt")) is None


def test_the_process_of_a_seed_takes_the_folder_it_was_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_LIGHTNING_RUN_FOLDER", str(tmp_path / "runs" / "4" / "seed_1"))
    assert new_run_folder(Path()) == Path("runs/4/seed_1")
    assert (tmp_path / "runs" / "4" / "seed_1").is_dir()


def test_an_empty_seed_leaves_the_folder_of_the_command(tmp_path):
    _runs(tmp_path, "4/seed_1")
    discard_if_empty(str(tmp_path / "runs" / "4" / "seed_1"))
    assert (tmp_path / "runs" / "4").is_dir()
    discard_if_empty(str(tmp_path / "runs" / "4"))
    assert not (tmp_path / "runs").exists()


def test_a_run_is_held_by_one_process_until_it_is_killed(tmp_path, holder):
    other = holder(tmp_path)
    with pytest.raises(ConfigError) as error:
        hold_run(tmp_path)
    assert f"in use by process {other.pid} of " in str(error.value)
    other.kill()
    other.wait()
    try:
        assert hold_run(tmp_path) == tmp_path
        assert hold_run(tmp_path) == tmp_path  # it may ask again
    finally:
        release_runs()


def test_a_run_folder_that_cannot_be_written_is_refused_with_a_way_on(tmp_path):
    (tmp_path / ".lock").mkdir()  # to the program of root no folder is read-only
    with pytest.raises(ConfigError) as error:
        hold_run(tmp_path)
    assert f"expected a run folder that can be written – found Is a directory at {tmp_path}" in str(
        error.value
    )
    assert "copy the checkpoint elsewhere: fit --ckpt_path COPY" in str(error.value)
