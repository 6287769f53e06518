import errno
import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from bert_lightning.data.storage import Storage, default_cache_folder, open_arrow, write_arrow
from bert_lightning.errors import DataError

KEY = {"texts": "甲", "length": 16}


def _build(content="whole"):
    def build(folder):
        (folder / "a.txt").write_text(content, encoding="utf-8")
        (folder / "b.txt").write_text(content, encoding="utf-8")

    return build


def _no_build(folder):
    pytest.fail("it was there already")


def _entries(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_an_entry_is_built_once_and_found_again(tmp_path):
    place = Storage(tmp_path / "cache").entry("rows", KEY, _build())
    assert (place / "a.txt").read_text() == "whole"
    assert place.name.startswith("rows-")
    assert Storage(tmp_path / "cache").entry("rows", KEY, _no_build) == place


def test_the_order_of_a_key_does_not_matter_but_its_values_do(tmp_path):
    storage = Storage(tmp_path)
    place = storage.entry("rows", KEY, _build())
    assert storage.entry("rows", dict(reversed(KEY.items())), _no_build) == place
    others = [{**KEY, "length": 17}, {**KEY, "length": "16"}, {**KEY, "more": None}, {}]
    places = {storage.entry("rows", key, _build()) for key in others}
    places.add(storage.entry("records", KEY, _build()))
    assert len(places | {place}) == 6


def test_an_entry_says_what_it_was_built_from(tmp_path):
    content = (Storage(tmp_path).entry("rows", KEY, _build()) / "content.json").read_text("utf-8")
    assert json.loads(content)["key"] == KEY


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: os.truncate(place / "a.txt", 3),
        lambda place: (place / "a.txt").unlink(),
        lambda place: (place / "content.json").unlink(),
        lambda place: (place / "content.json").write_text('{"key": '),
        lambda place: (place / "content.json").write_text("[]"),
        lambda place: (place / "content.json").write_text("null"),
        lambda place: (place / "content.json").write_text('{"files": []}'),
        lambda place: (place / "a.txt").write_bytes(b"\x00" * (place / "a.txt").stat().st_size),
        lambda place: (place / "content.json").write_bytes(b"\xff\xfe"),
    ],
    ids=[
        "cut",
        "file gone",
        "no content",
        "half",
        "list",
        "null",
        "files a list",
        "same size",
        "not UTF-8",
    ],
)
def test_a_damaged_entry_is_built_again(tmp_path, damage):
    storage = Storage(tmp_path)
    place = storage.entry("rows", KEY, _build("first"))
    damage(place)
    assert storage.entry("rows", KEY, _build("again")) == place
    assert (place / "a.txt").read_text() == "again"
    assert storage.entry("rows", KEY, _no_build) == place


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), OSError(5, "bad")])
def test_a_build_that_fails_leaves_nothing(tmp_path, error):
    def build(folder):
        (folder / "a.txt").write_text("half")
        raise error

    with pytest.raises(type(error)):
        Storage(tmp_path).entry("rows", KEY, build)
    assert _entries(tmp_path) == []
    Storage(tmp_path).entry("rows", KEY, _build())
    assert len(_entries(tmp_path)) == 1


def test_a_missing_file_of_the_user_is_not_taken_for_a_fault_of_the_cache(tmp_path):
    with pytest.raises(FileNotFoundError):
        Storage(tmp_path / "cache").entry("rows", KEY, lambda _: (tmp_path / "news").read_text())


def test_a_folder_that_cannot_be_written_is_named_with_its_option(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError) as caught:
        Storage(tmp_path / "file" / "cache").entry("rows", KEY, _build())
    assert str(caught.value) == (
        "data.cache_dir: expected a folder to write to – found Not a directory at"
        f" {tmp_path / 'file' / 'cache'}\ngive another folder with --data.cache_dir"
    )


def test_a_full_disk_is_named_with_its_option(tmp_path):
    def build(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError) as caught:
        Storage(tmp_path).entry("rows", KEY, build)
    assert str(caught.value) == (
        "data.cache_dir: expected a folder to write to – found No space left on device at"
        f" {tmp_path}\ngive another folder with --data.cache_dir"
    )


SLOW_BUILD = """
import sys, time
from pathlib import Path
from bert_lightning.data.storage import Storage

folder, log = Path(sys.argv[1]), Path(sys.argv[2])

def build(draft):
    (draft / "a.txt").write_text("half")
    with log.open("a") as file:
        file.write("built\\n")
    print("building", flush=True)
    time.sleep(float(sys.argv[3]))
    (draft / "a.txt").write_text("whole")

place = Storage(folder).entry("rows", {"a": 1}, build)
print("done", place, (place / "a.txt").read_text(), flush=True)
"""


def _start(tmp_path, seconds):
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILD, str(tmp_path / "cache"), str(tmp_path / "log"), seconds],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_build_leaves_nothing_that_is_trusted(tmp_path):
    with _start(tmp_path, "60") as process:
        assert process.stdout.readline() == "building\n"
        process.send_signal(signal.SIGKILL)
    place = Storage(tmp_path / "cache").entry("rows", {"a": 1}, _build("again"))
    assert (place / "a.txt").read_text() == "again"
    assert _entries(tmp_path / "cache") == [place.name]


def test_processes_that_start_together_get_the_same_whole_entry_built_once(tmp_path):
    started = time.monotonic()
    processes = [_start(tmp_path, "1") for _ in range(2)]
    last_lines = {process.communicate(timeout=60)[0].splitlines()[-1] for process in processes}
    assert len(last_lines) == 1
    assert last_lines.pop().endswith(" whole")
    assert (tmp_path / "log").read_text() == "built\n"
    assert time.monotonic() - started < 60


def test_the_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "bert_lightning"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache_folder() == tmp_path / "home" / ".cache" / "bert_lightning"


def test_arrow_batches_come_back_in_order(tmp_path):
    schema = pa.schema([("text", pa.string()), ("number", pa.int64())])
    batches = [
        {"text": ["甲", None], "number": [1, 2]},
        {"text": pa.array(["乙"]), "number": pa.array([3])},
    ]
    write_arrow(tmp_path / "a.arrow", schema, iter(batches))
    table = open_arrow(tmp_path / "a.arrow")
    assert table.to_pydict() == {"text": ["甲", None, "乙"], "number": [1, 2, 3]}
    assert table.column("text").num_chunks == 2


def test_a_table_without_batches_can_be_opened(tmp_path):
    write_arrow(tmp_path / "a.arrow", pa.schema([("text", pa.string())]), [])
    assert open_arrow(tmp_path / "a.arrow").num_rows == 0
