"""A run that was cut off anywhere ends at the weights of one that was not."""

import json
import shutil

import pytest
import torch

from bert_lightning.callbacks.checkpoints import BestAndLast

STEPS = 5
AVERAGE = ("--trainer.callbacks+=EMAWeightAveraging", "--trainer.callbacks.decay", "0.9")


@pytest.fixture
def every_state(monkeypatch, tmp_path):
    """Keep each state that a run saves, as 1.ckpt and so on."""
    saved = []
    save = BestAndLast._save

    def save_and_copy(self, trainer):
        save(self, trainer)
        saved.append(tmp_path / f"{len(saved) + 1}.ckpt")
        shutil.copy(self.run.checkpoints / "last.ckpt", saved[-1])

    with monkeypatch.context() as patch:
        patch.setattr(BestAndLast, "_save", save_and_copy)
        yield saved


def outcome(tmp_path, number):
    run = tmp_path / "runs" / str(number)
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    report = json.loads((run / "report" / "report.json").read_text(encoding="utf-8"))
    return state, report["history"]


def words_of(quick, *more):
    return (
        *("fit", *quick, "--trainer.limit_train_batches", str(STEPS)),
        *("--trainer.max_epochs", "2", "--trainer.log_every_n_steps", "1"),
        *("--model.dropout", "0.3", "--model.learning_rate", "1e-3"),
        *("--save_every_seconds", "0", *more),
    )


def assert_same_weights(state, whole, name):
    assert state["global_step"] == whole["global_step"]
    for key, value in whole["state_dict"].items():
        assert torch.equal(value, state["state_dict"][key]), (name, key)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="plain"),
        pytest.param(("--trainer.val_check_interval", "2"), id="validation_inside"),
        *(
            pytest.param(words, id=name, marks=pytest.mark.slow)
            for name, words in {
                "accumulation": ("--trainer.accumulate_grad_batches", "2"),
                "token_budget": ("--data.tokens_per_batch", "200"),
                "workers": ("--data.num_workers", "1"),
                "average": (
                    "--trainer.callbacks+=EMAWeightAveraging",
                    "--trainer.callbacks.decay",
                    "0.9",
                ),
            }.items()
        ),
    ],
)
def test_from_each_saved_state_a_run_ends_at_the_same_weights(
    run_cli, quick, tmp_path, every_state, words
):
    status, _, err = run_cli(*words_of(quick, *words))
    assert status == 0, err
    whole, history = outcome(tmp_path, 1)
    states = list(every_state)
    assert len(states) >= 6
    for number, path in enumerate(states[:-1], 2):
        callback = words if words == AVERAGE else ()  # each fit names it anew
        status, _, err = run_cli("fit", "--ckpt_path", path, *callback)
        assert status == 0, err
        assert "not resumable" not in err
        state, resumed = outcome(tmp_path, number)
        assert_same_weights(state, whole, path.name)
        assert resumed[-1] == history[-1], path.name


@pytest.mark.slow
def test_a_run_of_two_processes_that_is_killed_ends_at_the_same_weights(
    run_process, quick, tmp_path
):
    """The second process draws other numbers than the first, which must be put back, too."""
    two = ("--config", "ddp.yaml", "--trainer.devices", "2")
    assert run_process(*words_of(quick, *two)).status == 0
    whole, _ = outcome(tmp_path, 1)
    (tmp_path / "dies.py").write_text(
        "import os, signal\n"
        "from lightning.pytorch import Callback\n"
        "class Dies(Callback):\n"
        "    def on_train_batch_start(self, trainer, *args):\n"
        f"        if trainer.global_step == {STEPS + 1}:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n",
        encoding="utf-8",
    )
    dies = ("--trainer.callbacks", "[{class_path: dies.Dies}]")
    path = {"PYTHONPATH": str(tmp_path)}
    assert run_process(*words_of(quick, *two, *dies), env=path).status != 0
    again = ("fit", "--ckpt_path", "runs/2", *two, "--trainer.callbacks", "[]")
    status, _, err = run_process(*again)
    assert status == 0, err
    state, _ = outcome(tmp_path, 2)
    assert_same_weights(state, whole, "killed")
