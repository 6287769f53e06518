"""Checkpoints that are cut, changed, half written, or lie beside damaged ones."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bert_lightning import checkpoint as subject
from bert_lightning import checkpoint_io
from bert_lightning.checkpoint import (
    copy_at_once,
    damage,
    intact_checkpoints,
    read_checkpoint,
    replace_damaged,
    seal,
)
from bert_lightning.checkpoint_io import SafeCheckpointIO, tensor_bytes
from bert_lightning.errors import CheckpointError, TrainingError

REPO = Path(__file__).parent.parent
CASES = 100


def content(step):
    return {
        "state_dict": {"weight": torch.full((50, 50), float(step))},
        "global_step": step,
        "bert_lightning": {
            **{key: kind() for key, kind in subject._ENTRIES.items()},
            "format_version": subject.FORMAT_VERSION,
        },
    }


def save(path, step=1):
    SafeCheckpointIO().save_checkpoint(content(step), path)
    return path


def spoil(path):
    """Change one bit in the midst of the weights, in the file itself."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    subject._damage.cache_clear()
    return path


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def step_of(path):
    return read_checkpoint(path)["global_step"]


# --- what is found ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sealed(trained_folder):
    """The bytes of a checkpoint that a run has written."""
    return (trained_folder / "runs" / "1" / "checkpoints" / "last.ckpt").read_bytes()


@pytest.fixture(scope="module")
def plain(sealed, tmp_path_factory):
    """The same state as torch, or Lightning, or an earlier release writes it: without a seal."""
    path = tmp_path_factory.mktemp("plain") / "a.ckpt"
    path.write_bytes(sealed)
    state = torch.load(path, weights_only=True)
    torch.save(state, path)
    return path.read_bytes()


def cuts(size):
    """Random lengths, and all that end in the last bytes, where the seal is."""
    dice = random.Random(7)
    return [dice.randrange(size) for _ in range(CASES)] + list(range(size - CASES, size))


def flips(size):
    """Random bits, and as many of the last bytes."""
    dice = random.Random(8)
    anywhere = [dice.randrange(8 * size) for _ in range(CASES)]
    return anywhere + [dice.randrange(8 * (size - 60), 8 * size) for _ in range(CASES)]


def flipped(whole, bit):
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    return changed


def test_a_run_writes_sealed_checkpoints_that_are_intact(sealed, tmp_path):
    path = tmp_path / "a.ckpt"
    path.write_bytes(sealed)
    assert sealed[-subject._SEAL_BYTES :].startswith(subject._SEAL)
    assert damage(path) is None
    assert torch.load(path, weights_only=True)["global_step"] == 2


@pytest.mark.parametrize("kind", ["sealed", "plain"])
def test_every_cut_is_found(kind, request, tmp_path):
    whole = request.getfixturevalue(kind)
    for number, size in enumerate(cuts(len(whole))):
        path = tmp_path / f"{number}.ckpt"
        path.write_bytes(whole[:size])
        assert damage(path), f"{size} of {len(whole)} bytes"
        with pytest.raises(CheckpointError, match="damaged or not a checkpoint"):
            read_checkpoint(path)
        path.unlink()


def test_every_changed_bit_of_a_sealed_checkpoint_is_found(sealed, tmp_path):
    for number, bit in enumerate(flips(len(sealed))):
        path = tmp_path / f"{number}.ckpt"
        path.write_bytes(flipped(sealed, bit))
        assert damage(path), f"bit {bit}"
        with pytest.raises(CheckpointError, match="damaged or not a checkpoint"):
            read_checkpoint(path)
        path.unlink()


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_a_changed_bit_without_a_seal_is_found_or_changes_nothing(plain, tmp_path):
    """What lies between the entries of a zip file has no checksum, and no meaning."""
    path = tmp_path / "whole.ckpt"
    path.write_bytes(plain)
    state = torch.load(path, weights_only=True)
    found = 0
    for number, bit in enumerate(flips(len(plain))):
        path = tmp_path / f"{number}.ckpt"
        path.write_bytes(flipped(plain, bit))
        try:
            assert same(read_checkpoint(path), state), f"bit {bit}"
        except CheckpointError:
            found += 1
        path.unlink()
    assert found > CASES * 0.8


def test_bytes_after_the_seal_are_found(sealed, tmp_path):
    path = tmp_path / "a.ckpt"
    path.write_bytes(sealed + b"\0")
    assert damage(path)


def test_a_checkpoint_that_is_replaced_is_looked_at_anew(tmp_path):
    """Size and time of two files can be the same, as the clock of a file system is coarse."""
    path, other = save(tmp_path / "a.ckpt"), spoil(save(tmp_path / "b.ckpt"))
    assert damage(path) is None
    state = path.stat()
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(path)
    assert damage(path)


def test_tensors_that_share_memory_count_once():
    weight = torch.zeros(10, 10)
    assert tensor_bytes({"a": [weight, weight.T], "b": (weight[:1],), "c": "text"}) == 400


# --- a kill at any byte -------------------------------------------------------------------------

# Past a limit to the size of files the kernel ends the process, in the midst of a write.
KILLED_AT_A_BYTE = """
import resource, signal
def at(place):
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (place, place))
places = sorted({*random.Random(5).sample(range(whole), 100), 0, *range(whole - 35, whole)})
"""
KILLED_AT_A_STEP = """
import signal
from pathlib import Path
def at(place):
    owner, name, which, after = place
    inner, calls = getattr(owner, name), []
    def step(*args):
        calls.append(args)
        if len(calls) == which:
            if after: inner(*args)
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*args)
    setattr(owner, name, step)
steps = [(torch, "save", 1), (checkpoint_io, "seal", 1), (os, "fsync", 1)]
steps += [(Path, "replace", 1), (os, "fsync", 2)]
places = [(*step, after) for step in steps for after in (False, True)]
"""
SAVES = """
import os, random, sys
import torch
from bert_lightning import checkpoint_io
file, state = sys.argv[1], torch.load(sys.argv[2], weights_only=True)
def save():
    checkpoint_io.SafeCheckpointIO().save_checkpoint(state, file)
whole = os.stat(sys.argv[2]).st_size
{places}
torch.set_num_threads(1)
for place in places:
    child = os.fork()
    if not child:
        at(place)
        save()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else "whole", flush=True)
    input()
save()
print("saved", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.parametrize("places", [KILLED_AT_A_BYTE, KILLED_AT_A_STEP], ids=["byte", "step"])
def test_a_kill_at_any_byte_leaves_a_whole_checkpoint(tmp_path, places):
    file, new = save(tmp_path / "last.ckpt", 1), save(tmp_path / "new.ckpt", 2)
    process = subprocess.Popen(
        [sys.executable, "-c", SAVES.format(places=places), str(file), str(new)],
        env={**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    killed, steps = 0, []
    while (line := process.stdout.readline().strip()) not in ("saved", ""):
        assert line in (str(signal.SIGXFSZ.value), str(signal.SIGKILL.value)), line
        killed += 1
        assert damage(file) is None
        steps.append(step_of(file))
        if places is KILLED_AT_A_BYTE:
            assert steps[-1] == 1
        process.stdin.write("\n")
        process.stdin.flush()
    process.communicate()
    assert line == "saved"
    assert process.returncode == 0
    assert killed >= (CASES if places is KILLED_AT_A_BYTE else 10)
    assert steps == sorted(steps)  # the old one up to the moment that the new one takes its place
    assert step_of(file) == 2
    assert names_in(tmp_path) == ["last.ckpt", "new.ckpt"]


@pytest.mark.parametrize("step", ["torch.save", "seal", "_wait_for_disk", "Path.replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError], ids=str)
def test_an_error_while_writing_leaves_the_old_one_and_nothing_else(
    tmp_path, monkeypatch, step, error
):
    def fail(*_):
        raise error("here")

    file = save(tmp_path / "last.ckpt", 1)
    monkeypatch.setattr(f"bert_lightning.checkpoint_io.{step}", fail)
    with pytest.raises(error, match="here"):
        save(file, 2)
    monkeypatch.undo()
    assert step_of(file) == 1
    assert names_in(tmp_path) == ["last.ckpt"]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(errno.EIO, "Input/output error"), id="a broken disk"),
        pytest.param(
            RuntimeError(
                "[enforce fail at inline_container.cc:861] . "
                "PytorchStreamWriter failed writing file data/0: file write failed"
            ),
            id="in torch's words",
        ),
    ],
)
def test_a_disk_that_fails_is_told_in_words(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    file = save(tmp_path / "runs/7/checkpoints/last.ckpt", 1)
    monkeypatch.setattr(checkpoint_io.torch, "save", fail)
    with pytest.raises(TrainingError, match="expected to write a checkpoint – found") as caught:
        save(file, 2)
    assert str(file) in str(caught.value)
    assert f"go on with fit --ckpt_path {tmp_path / 'runs/7'}" in str(caught.value)
    assert step_of(file) == 1


# --- a damaged one beside intact ones -----------------------------------------------------------


def folder_of(path, steps):
    path.mkdir(parents=True)
    for name, step in steps.items():
        save(path / f"{name}.ckpt", step)
    return path


def test_the_newest_intact_state_takes_the_place_of_a_damaged_last(tmp_path):
    folder = folder_of(tmp_path / "c", {"last": 9, "previous": 7, "best": 5, "epoch=1": 8})
    spoil(folder / "last.ckpt")
    spoil(folder / "epoch=1.ckpt")
    said = replace_damaged(folder / "last.ckpt")
    assert said == (
        f"{folder / 'last.ckpt'} is damaged, its checksum is another: from previous.ckpt instead"
    )
    assert step_of(folder / "last.ckpt") == 7
    assert (folder / "last.damaged").is_file()
    assert replace_damaged(folder / "last.ckpt") == ""


def test_best_and_last_of_one_damaged_file_give_way_to_previous(tmp_path):
    folder = folder_of(tmp_path / "c", {"last": 9, "previous": 7})
    copy_at_once(folder / "last.ckpt", folder / "best.ckpt")
    assert (folder / "best.ckpt").samefile(folder / "last.ckpt")
    spoil(folder / "last.ckpt")
    assert "from previous.ckpt instead" in replace_damaged(folder / "last.ckpt")
    assert step_of(folder / "last.ckpt") == 7
    with pytest.raises(CheckpointError, match=r"intact beside it: .*last\.ckpt, .*previous\.ckpt"):
        read_checkpoint(folder / "best.ckpt")


def test_a_kill_while_last_gives_way_leaves_a_last(tmp_path, monkeypatch):
    last = spoil(folder_of(tmp_path / "c", {"last": 9, "previous": 7}) / "last.ckpt")

    def killed(source, target):
        if target == last:
            sys.exit()
        copy_at_once(source, target)

    monkeypatch.setattr(subject, "copy_at_once", killed)
    with pytest.raises(SystemExit):
        replace_damaged(last)
    assert last.is_file()


def test_where_all_are_damaged_nothing_is_moved_and_it_is_refused(tmp_path):
    folder = folder_of(tmp_path / "c", {"last": 9, "previous": 7})
    for path in folder.iterdir():
        spoil(path)
    assert replace_damaged(folder / "last.ckpt") == ""
    with pytest.raises(CheckpointError, match="none beside it is intact"):
        read_checkpoint(folder / "last.ckpt")
    assert names_in(folder) == ["last.ckpt", "previous.ckpt"]


def test_a_folder_of_parts_is_no_intact_file_and_stops_nothing(tmp_path):
    """What FSDP and DeepSpeed write where each process saves its own part."""
    folder = folder_of(tmp_path / "c", {"last": 9, "previous": 7})
    (folder / "parts.ckpt").mkdir()
    (folder / "parts.ckpt" / "meta.pt").write_bytes(b"1")
    spoil(folder / "last.ckpt")
    assert intact_checkpoints(folder) == [folder / "previous.ckpt"]


def test_a_folder_of_parts_becomes_best_and_keeps_its_content(tmp_path):
    last, best = tmp_path / "last.ckpt", tmp_path / "best.ckpt"
    for text in ("first", "second"):
        last.mkdir(exist_ok=True)
        (last / "part.pt").write_text(text)
        copy_at_once(last, best)
        assert (best / "part.pt").read_text() == text
        (last / "part.pt").write_text("written anew, in the same file")
        assert (best / "part.pt").read_text() == text
    assert names_in(tmp_path) == ["best.ckpt", "last.ckpt"]


def test_without_links_a_copy_is_made(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    source, target = save(tmp_path / "last.ckpt", 3), save(tmp_path / "best.ckpt", 1)
    copy_at_once(source, target)
    assert not source.samefile(target)
    assert step_of(target) == 3
    assert names_in(tmp_path) == ["best.ckpt", "last.ckpt"]


def test_a_copy_that_fails_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch):
    def full(source, target):
        target.write_bytes(source.read_bytes()[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    source, target = save(tmp_path / "last.ckpt", 3), save(tmp_path / "best.ckpt", 1)
    with pytest.raises(OSError, match="No space left"):
        copy_at_once(source, target)
    assert step_of(target) == 1
    assert names_in(tmp_path) == ["best.ckpt", "last.ckpt"]


# --- through the command line -------------------------------------------------------------------


@pytest.fixture
def run(trained_folder, tmp_path):
    """A run of its own, in a folder with Chinese characters and a space in its name."""
    root = tmp_path / "新闻 分类"
    shutil.copytree(trained_folder, root)
    checkpoints = root / "runs" / "1" / "checkpoints"
    shutil.copy(checkpoints / "last.ckpt", checkpoints / "previous.ckpt")
    return checkpoints


def state_of(folder):
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in folder.iterdir()}


@pytest.mark.parametrize("named", ["last", "runs/1"])
def test_fit_goes_on_from_the_intact_one_and_says_so(run, run_cli, named):
    assert (run / "last.ckpt").samefile(run / "best.ckpt") or shutil.copy(
        run / "last.ckpt", run / "best.ckpt"
    )
    spoil(run / "last.ckpt")
    status, out, err = run_cli(
        *("fit", "--ckpt_path", named, "--trainer.max_epochs", "2"), cwd=run.parents[2]
    )
    assert status == 0, err
    assert "last.ckpt is damaged, its checksum is another: from previous.ckpt instead" in out
    assert step_of(run / "last.ckpt") == 4


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("validate", "--ckpt_path", "last"), id="validate"),
        pytest.param(("test", "--ckpt_path", "last"), id="test"),
        pytest.param(("fit", "--ckpt_path", "runs/1/checkpoints/last.ckpt"), id="the file itself"),
    ],
)
def test_only_fit_from_last_moves_files(run, run_cli, words):
    spoil(run / "last.ckpt")
    before = state_of(run)
    status, _, err = run_cli(*words, cwd=run.parents[2])
    assert status == 1
    assert "its checksum is another" in err
    assert "intact beside it: " in err
    assert "previous.ckpt" in err
    assert "Traceback" not in err
    assert state_of(run) == before


@pytest.mark.parametrize("named", ["last", "runs/1"])
def test_plan_says_what_fit_would_go_on_from_and_moves_nothing(run, run_cli, named):
    spoil(run / "last.ckpt")
    before = state_of(run)
    words = ("--ckpt_path", named, "--trainer.max_epochs", "2")
    planned = run_cli("plan", *words, cwd=run.parents[2])
    assert planned.status == 0, planned.err
    assert state_of(run) == before
    done = run_cli("fit", *words, cwd=run.parents[2])
    for out, name in ((planned.out, "previous.ckpt"), (done.out, "last.ckpt")):
        said, place = (line for line in out.splitlines() if line.startswith("resume"))
        assert said.endswith("its checksum is another: from previous.ckpt instead")
        assert place.endswith(f"{name}, trained in 32-true, after step 2")


@pytest.mark.parametrize("command", ["fit", "plan"])
def test_it_is_refused_in_words_where_all_are_damaged(run, run_cli, command):
    for path in run.iterdir():
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.unlink()
        path.write_bytes(damaged)
    before = state_of(run)
    status, _, err = run_cli(command, "--ckpt_path", "last", cwd=run.parents[2])
    assert status == 1
    assert "none beside it is intact" in err
    assert "Traceback" not in err
    assert state_of(run) == before


def test_seal_changes_nothing_that_torch_reads(tmp_path):
    path = tmp_path / "a.ckpt"
    torch.save(content(3), path)
    assert damage(path) is None
    seal(path)
    assert damage(path) is None
    assert same(torch.load(path, weights_only=True, mmap=True), content(3))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            (
                *("--trainer.strategy", "SingleDeviceStrategy", "--trainer.strategy.device", "cpu"),
                *("--trainer.strategy.checkpoint_io", "TorchCheckpointIO"),
            ),
            id="of the strategy",
        ),
        pytest.param(("--trainer.plugins+=TorchCheckpointIO",), id="among the plugins"),
    ],
)
def test_what_the_user_writes_checkpoints_with_is_left_to_do_it(run_cli, quick, tmp_path, words):
    status, _, err = run_cli("fit", *quick, *words)
    assert status == 0, err
    last = tmp_path / "runs" / "1" / "checkpoints" / "last.ckpt"
    assert subject._SEAL not in last.read_bytes()[-100:]
    assert damage(last) is None
