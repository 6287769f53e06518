import pytest
import torch

SPOILS = """
import math
import torch
from lightning.pytorch import Callback

class Token(Callback):
    def __init__(self, step: int, rank: int = 0) -> None:
        self.step, self.rank = step, rank

    def setup(self, trainer, module, stage):
        if stage != "fit":
            return
        embeddings = module.network.bert.embeddings.word_embeddings
        self.spoils = False
        def spoil(_, args, output):
            rows = torch.arange(len(args[0])).view(-1, 1, 1) == 1
            return output.masked_fill(rows, math.nan) if self.spoils else output
        embeddings.register_forward_hook(spoil)

    def on_train_batch_start(self, trainer, *_):
        self.spoils = trainer.global_rank == self.rank and trainer.global_step + 1 >= self.step

    def on_validation_start(self, *_):
        self.spoils = False

class Gradient(Callback):
    def on_before_optimizer_step(self, trainer, module, optimizer):
        if trainer.global_step + 1 == 4:
            for parameter in module.parameters():
                parameter.grad.fill_(math.nan)
"""


@pytest.fixture
def fit(run_cli, quick, tmp_path, monkeypatch):
    (tmp_path / "spoils.py").write_text(SPOILS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def run(callback, *words):
        return run_cli(
            *("fit", *quick, "--trainer.limit_train_batches", "8"),
            *("--trainer.callbacks", f"[{{class_path: spoils.{callback}}}]", *words),
        )

    return run


def kept(tmp_path):
    state = torch.load(tmp_path / "runs/1/checkpoints/last.ckpt", weights_only=True)
    assert all(value.isfinite().all() for value in state["state_dict"].values())
    return state["global_step"]


def test_step_module_and_row_of_a_loss_that_is_no_number_are_named(fit, tmp_path):
    status, out, err = fit(
        *("Token", "--trainer.callbacks.step", "6", "--save_every_steps", "2"),
        *("--trainer.log_every_n_steps", "8"),
    )
    assert status == 1, out + err
    assert "error: train/loss: expected a number – found nan at step 6\n" in err
    assert "first not finite, at step 6: output of bert.embeddings.word_embeddings; rows " in err
    assert "of train, counted from 0 (" in err
    assert "go on with --ckpt_path runs/1 and a lower --model.learning_rate" in err
    assert "without these rows" in err
    assert "Traceback" not in out + err
    assert kept(tmp_path) == 4  # the state after step 6 is not saved


def test_weights_that_grew_too_large_are_told_from_a_row(fit, tmp_path):
    status, _, err = fit("Gradient", "--save_every_steps", "3")
    assert status == 1
    assert "train/loss: expected a number – found nan at step 5\n" in err
    assert "gives numbers with the weights of the last checkpoint, of step 3" in err
    assert "without these rows" not in err
    assert kept(tmp_path) == 3


def test_weights_that_a_step_has_spoilt_are_not_saved_though_its_loss_is_a_number(fit, tmp_path):
    status, out, err = fit("Gradient", "--save_every_steps", "1")
    assert status == 1, out + err
    assert "embeddings.weight: expected numbers – found others after step 4, which is not" in err
    assert "last.ckpt: go on with fit --ckpt_path runs/1, with a lower --model.learning_r" in err
    assert "Traceback" not in out + err
    assert kept(tmp_path) == 3


def test_without_a_checkpoint_the_rows_of_the_batch_are_named(fit, tmp_path):
    status, _, err = fit("Gradient", "--trainer.log_every_n_steps", "2")
    assert status == 1
    assert "found nan at step 5\nits batch has rows " in err
    assert "no checkpoint was written yet: begin again with a lower --model.learning_rate" in err
    assert not (tmp_path / "runs/1/checkpoints/last.ckpt").exists()


def test_weights_that_the_last_step_spoilt_are_told_by_the_validation(fit, tmp_path):
    status, _, err = fit("Gradient", "--trainer.limit_train_batches", "4")
    assert status == 1
    assert "val/loss: expected a number – found nan after 4 steps" in err
    assert "begin again, or go on with an earlier checkpoint if there is one, with a lower" in err
    assert "bf16-mixed" not in err  # which helps fp16 alone
    assert not (tmp_path / "runs/1/checkpoints/last.ckpt").exists()


@pytest.mark.slow
def test_two_processes_stop_together_and_name_the_row_that_one_of_them_has(
    run_process, quick, tmp_path, fit
):
    status, out, err = run_process(
        *("fit", *quick, "--trainer.limit_train_batches", "8", "--config", "ddp.yaml"),
        *("--trainer.devices", "2", "--save_every_steps", "1"),
        *("--trainer.callbacks", "[{class_path: spoils.Token, init_args: {step: 3, rank: 1}}]"),
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert status == 1, out + err
    assert "train/loss: expected a number – found nan at step 3" in err
    assert "at step 3: output of bert.embeddings.word_embeddings; rows " in err
    assert "Traceback" not in out + err
