"""Runs on a real file system that has no room left: they end in words, and nothing is lost."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bert_lightning import checkpoint_io
from bert_lightning.checkpoint import damage
from bert_lightning.checkpoint_io import SafeCheckpointIO
from bert_lightning.errors import TrainingError

SIZE = 32 << 20
FILLS = """
import shutil
from pathlib import Path
from lightning.pytorch import Callback

class Fills(Callback):
    '''Leaves so many bytes free on a disk, from a moment on.'''

    def __init__(self, disk: str, leaves: int = 0, step: int = 0, hook: str = "") -> None:
        self.disk, self.leaves, self.step = Path(disk), leaves, step
        if hook:
            setattr(self, hook, lambda *_, **__: self.fill())

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            self.fill()

    def fill(self):
        free = shutil.disk_usage(self.disk).free
        with (self.disk / "ballast").open("wb") as ballast:
            ballast.write(bytes(max(0, free - self.leaves)))
"""


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A file system of its own, of 32 MiB; where none can be mounted the test is skipped."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here (needs Linux and its CAP_SYS_ADMIN)")
    (tmp_path / "fills.py").write_text(FILLS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    sys.modules.pop("fills", None)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def fit(run_cli, disk, news_folder, tiny_bert_folder):
    """Run a fit of 16 steps in two epochs on the small disk."""

    def run(*words, **fills):
        settings = ", ".join(f"{name}: {value}" for name, value in fills.items())
        callback = f"[{{class_path: fills.Fills, init_args: {{disk: {disk}, {settings}}}}}]"
        return run_cli(
            *("fit", "--data.path", news_folder, "--model.pretrained", tiny_bert_folder),
            *("--data.batch_size", "8", "--trainer.max_epochs", "2"),
            *("--save_every_steps", "3", "--trainer.log_every_n_steps", "1", *words),
            *(("--trainer.callbacks", callback) if fills else ()),
            cwd=disk,
        )

    return run


def weights(disk, number):
    path = disk / "runs" / str(number) / "checkpoints" / "last.ckpt"
    return torch.load(path, weights_only=True)["state_dict"]


def leftovers(disk):
    return [path.name for path in disk.rglob("*.tmp")]


def assert_told(result):
    status, out, err = result
    assert status == 1, out + err
    assert "Traceback" not in out + err
    assert "Exception" not in out + err
    assert "room" in err or "free for a checkpoint" in err


def whole_run(fit, disk):
    """Return the final weights of a run that has room, and clear the disk."""
    assert fit().status == 0
    final = {name: value.clone() for name, value in weights(disk, 1).items()}
    shutil.rmtree(disk / "runs")
    return final


@pytest.mark.parametrize(
    "leaves",
    [pytest.param(0, id="nothing left"), pytest.param(600 << 10, id="too little for a checkpoint")],
)
def test_a_full_disk_ends_a_fit_in_words_and_with_room_it_goes_on_to_the_same_weights(
    fit, run_cli, disk, leaves
):
    final = whole_run(fit, disk)
    ended = fit(step=5, leaves=leaves)
    assert_told(ended)
    assert "go on with fit --ckpt_path runs/1\n" in ended.err
    checkpoints = disk / "runs" / "1" / "checkpoints"
    assert damage(checkpoints / "last.ckpt") is None
    assert torch.load(checkpoints / "last.ckpt", weights_only=True)["global_step"] == 3
    assert leftovers(disk) == []
    again = run_cli("fit", "--ckpt_path", "last", cwd=disk)  # still no room
    assert_told(again)
    assert leftovers(disk) == []
    (disk / "ballast").unlink()
    status, _, err = run_cli("fit", "--ckpt_path", "last", cwd=disk)
    assert status == 0, err
    resumed = weights(disk, 1)
    assert all(torch.equal(value, resumed[name]) for name, value in final.items())


@pytest.mark.parametrize("left", [0, 4096, 1 << 20, 4_000_000])  # the last one lacks the end
def test_a_disk_that_others_fill_while_a_checkpoint_is_written(disk, monkeypatch, left):
    state = {"weight": torch.rand(1000, 1000)}
    io, last = SafeCheckpointIO(), disk / "last.ckpt"
    io.save_checkpoint(state, last)
    monkeypatch.setattr(checkpoint_io, "_expect_room", lambda *_: None)
    (disk / "ballast").write_bytes(bytes(shutil.disk_usage(disk).free - left))
    with pytest.raises(TrainingError, match="expected 4 MiB free for a checkpoint – found") as told:
        io.save_checkpoint({"weight": torch.rand(1000, 1000)}, last)
    assert "the checkpoints that are there are whole" in str(told.value)
    assert torch.equal(torch.load(last, weights_only=True)["weight"], state["weight"])
    assert [path.name for path in disk.glob("last*")] == ["last.ckpt"]


@pytest.mark.parametrize("logger", ["MetricsCSV", "TensorBoardLogger"])
def test_a_full_disk_while_logging(fit, disk, monkeypatch, logger):
    """Without checkpoints, which would find it first; the other logger has nothing to write."""
    from bert_lightning import loggers

    for other in {"MetricsCSV", "TensorBoardLogger"} - {logger}:
        monkeypatch.setattr(getattr(loggers, other), "log_metrics", lambda *_, **__: None)
    words = ("--trainer.enable_checkpointing", "false", "--data.batch_size", "1")
    assert_told(fit(*words, step=1))


@pytest.mark.parametrize("hook", ["setup", "on_test_start", "on_fit_end"])
def test_a_full_disk_at_the_start_and_while_the_report_is_written(fit, disk, hook):
    assert_told(fit(hook=hook))
    if hook != "setup":
        assert damage(disk / "runs" / "1" / "checkpoints" / "last.ckpt") is None
        assert leftovers(disk) == []


def test_a_full_disk_while_data_is_kept(fit, disk):
    status, out, err = fit("--data.cache_dir", _filled(disk) / "cache")
    assert status == 1
    assert "data.cache_dir: expected a folder to write to – found No space left on device" in err
    assert "Traceback" not in out + err


def _filled(disk: Path) -> Path:
    (disk / "ballast").write_bytes(bytes(shutil.disk_usage(disk).free))
    return disk


def test_a_full_disk_while_predictions_are_written(run_cli, trained_folder, disk, news_folder):
    checkpoint = trained_folder / "runs" / "1" / "checkpoints" / "best.ckpt"
    text = news_folder / "test.txt"
    output = disk / "out.jsonl"
    output.write_text("an earlier one")
    _filled(disk)
    result = run_cli(
        *("predict", "--ckpt_path", checkpoint, "--data.predict_path", text, "--output", output)
    )
    assert_told(result)
    assert "fit" not in result.err
    assert output.read_text() == "an earlier one"
    assert leftovers(disk) == []
