import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch.strategies import DDPStrategy
from scaled_runs import batches, tiny_classifier

from bert_lightning import find_batch as subject
from bert_lightning import module as module_of_classifier
from bert_lightning.amp import AmpPrecision
from bert_lightning.execution import Execution
from bert_lightning.find_batch import Found, Trial, WideningBatches, largest_fitting
from bert_lightning.trainer import NewsTrainer

REPO = Path(__file__).parent.parent
SEARCH = ("--find_batch.enabled", "true")


# --- the search ---------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 7, 32, 96, 256, 360])
def test_the_largest_part_that_fits_is_found_from_any_guess(step):
    parts = [rows for rows in range(1, step + 1) if step % rows == 0]
    for room in range(step + 2):
        expected = max((rows for rows in parts if rows <= room), default=None)
        for guess in range(len(parts)):
            tried = []

            def fits(rows, room=room, tried=tried):
                tried.append(rows)
                return rows <= room

            assert largest_fitting(parts, fits, guess) == expected
            assert len(tried) == len(set(tried))
            if expected == parts[guess]:
                assert len(tried) <= 2


@pytest.mark.parametrize(("guess", "most"), [(0, 20), (697, 6), (703, 6), (990, 18)])
def test_a_guess_costs_trials_by_how_far_it_is_off(guess, most):
    tried = []
    assert largest_fitting(range(1000), lambda n: tried.append(n) or n <= 700, guess) == 700
    assert len(tried) <= most


# --- the trial ----------------------------------------------------------------------------------


@pytest.fixture
def make_trainer():
    def make(**settings):
        return NewsTrainer(
            **{"enable_model_summary": False, "gradient_clip_val": 1.0, "logger": False, **settings}
        )

    return make


@pytest.fixture
def trial(tiny_bert_folder, make_trainer):
    def make(length=12, trainer=None, **settings):
        trainer = trainer or make_trainer(accelerator="cpu", devices=1)
        return Trial(trainer, tiny_classifier(tiny_bert_folder, **settings), length, make_trainer)

    return make


@pytest.fixture
def seen(monkeypatch):
    """Shapes of the batches that were trained on and validated, and the model."""
    noted = {"train": [], "val": []}
    training, validation = (
        module_of_classifier.BertClassifier.training_step,
        module_of_classifier.BertClassifier.validation_step,
    )

    def train(self, batch, batch_idx):
        noted["train"].append(tuple(batch["input_ids"].shape))
        noted["model"] = self
        return training(self, batch, batch_idx)

    def validate(self, batch, batch_idx):
        noted["val"].append(tuple(batch["input_ids"].shape))
        validation(self, batch, batch_idx)

    monkeypatch.setattr(module_of_classifier.BertClassifier, "training_step", train)
    monkeypatch.setattr(module_of_classifier.BertClassifier, "validation_step", validate)
    return noted


@pytest.mark.parametrize(("windows", "used"), [(1, 1), (2, 2), (16, 2)])
@pytest.mark.parametrize("execution", ["eager", "captured"])
def test_a_trial_takes_three_steps_of_each_length_and_validates(
    trial, seen, monkeypatch, windows, used, execution
):
    def chosen(asked, trainer, model):
        return Execution(execution, False)

    monkeypatch.setattr(subject, "choose_execution", chosen)
    monkeypatch.setattr(module_of_classifier, "choose_execution", chosen)
    trial(length=40).run(6, windows)
    assert seen["train"] == [(6, length) for length in (10, 20, 30, 40) for _ in range(3 * used)]
    assert seen["val"] == seen["train"]
    model = seen["model"]
    assert model.trainer.global_step == 12
    state = model.trainer.optimizers[0].state_dict()["state"]
    assert {int(values["step"]) for values in state.values()} == {12}
    assert all(values["exp_avg_sq"].any() for values in state.values())


def test_the_batches_are_full_and_their_ids_known():
    made = list(WideningBatches(5, 3, 2, 100, 4).train_dataloader())
    assert [tuple(batch["input_ids"].shape) for batch in made] == [
        (5, length) for length in (1, 1, 2, 2, 3, 3)
    ]
    for batch in made:
        assert batch["attention_mask"].all()
        assert batch["attention_mask"].shape == batch["input_ids"].shape
        assert batch["input_ids"].max() < 100
        assert batch.keys() == batches(1)[0].keys()


def test_a_trial_leaves_the_model_and_random_numbers_alone(trial, seen):
    made = trial(dropout=0.1)
    before = [p.detach().clone() for p in made.model.parameters()]
    state = torch.get_rng_state()
    made.run(4, 1)
    assert seen["model"] is not made.model
    assert all(torch.equal(a, b) for a, b in zip(made.model.parameters(), before, strict=True))
    assert all(p.grad is None for p in made.model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_a_trial_is_in_the_precision_of_the_run(trial, seen, make_trainer, precision):
    plugin = AmpPrecision(precision, "cpu")
    trial(trainer=make_trainer(accelerator="cpu", devices=1, plugins=[plugin])).run(4, 1)
    used = seen["model"].trainer.precision_plugin
    assert (type(used), used.precision) == (AmpPrecision, precision)
    assert used is not plugin
    assert plugin.ring.written == 0


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("auto", False), ("ddp", True), (DDPStrategy(gradient_as_bucket_view=True), False)],
)
def test_gradients_that_ddp_keeps_twice_are_counted(make_trainer, strategy, expected):
    devices = 1 if strategy == "auto" else 2
    trainer = make_trainer(accelerator="cpu", devices=devices, strategy=strategy)
    assert subject.has_buckets(trainer) is expected


def test_out_of_memory_is_no_room_and_other_errors_are_errors():
    def fail(error, after=None):
        try:
            raise error
        finally:
            if after:
                raise after

    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    assert subject._has_room(lambda: None)
    assert not subject._has_room(lambda: fail(full))
    assert not subject._has_room(lambda: fail(full, ValueError("torn down")))
    with pytest.raises(ValueError, match="another"):
        subject._has_room(lambda: fail(ValueError("another")))


# --- through the command line -------------------------------------------------------------------


@pytest.fixture
def made_up(monkeypatch):
    """Let the CPU pass for a GPU that has room for some positions; trials are run all the same."""

    class Meter:
        budget_gib = 1.5
        room = 8 * 30

        def __init__(self, device, memory_gib):
            self.asked = memory_gib

        def measure(self, work):
            sizes = []

            class Watched(WideningBatches):
                def __init__(self, rows, length, *rest):
                    sizes.append((rows, length))
                    super().__init__(rows, length, *rest)

            with monkeypatch.context() as patch:
                patch.setattr(subject, "WideningBatches", Watched)
                work()
            ((rows, length),) = sizes
            Meter.tried.append(sizes[0])
            return rows / 64 if rows * length <= self.room else None

    Meter.tried = []
    monkeypatch.setattr(subject, "CudaMeter", Meter)
    monkeypatch.setattr("bert_lightning.commands.run.check_search", lambda *_: None)
    return Meter


@pytest.fixture
def fit(run_cli, news_folder, tiny_bert_folder):
    def run(*args):
        return run_cli(
            *("fit", "--data.path", news_folder, "--model.pretrained", tiny_bert_folder),
            *("--trainer.max_epochs", "1", "--data.batch_size", "16"),
            *("--trainer.accumulate_grad_batches", "2", *args),
        )

    return run


def settings(folder, name="config.yaml"):
    return yaml.safe_load((folder / "runs" / "1" / name).read_text(encoding="utf-8"))


def test_a_smaller_batch_is_accumulated_said_and_written_down(made_up, fit, tmp_path):
    status, out, err = fit(*SEARCH)
    assert status == 0, err
    length = made_up.tried[0][1]
    assert (
        f"search    8 rows a batch fit 1.5 GiB (peak 0.125 GiB at length {length}); 32 rows a step"
        " on each device = 8 × 4 accumulated" in out.splitlines()
    )
    assert "8 rows × 1 device × 4 accumulated = 32 rows a step" in out
    written = settings(tmp_path)
    assert written["data"]["batch_size"] == 8
    assert written["trainer"]["accumulate_grad_batches"] == 4
    assert written["find_batch"]["enabled"] is False
    report = json.loads((tmp_path / "runs/1/report/report.json").read_text(encoding="utf-8"))
    assert report["banner"]["search"].startswith("8 rows a batch fit")
    assert not [name for name in os.environ if "BATCH" in name]


def test_the_length_tried_is_that_of_the_longest_row_of_train(made_up, fit, news_folder):
    fit(*SEARCH, "--data.pad_to_multiple_of", "4")
    longest = max(
        len(line.rsplit(" ", 1)[0])
        for line in (news_folder / "train.txt").read_text(encoding="utf-8").splitlines()
    )
    assert {length for _, length in made_up.tried} == {-(-(longest + 2) // 4) * 4}


def test_a_larger_batch_needs_less_accumulation(made_up, fit, tmp_path):
    made_up.room = 10**9
    assert fit(*SEARCH).status == 0
    assert settings(tmp_path)["data"]["batch_size"] == 32
    assert settings(tmp_path)["trainer"]["accumulate_grad_batches"] == 1


def test_a_search_changes_nothing_but_the_batch(made_up, fit, tmp_path):
    """Rows a step, order and dropout are drawn alike, so that equal splits give equal runs."""
    made_up.room = 10**9
    fit(*SEARCH)
    fit("--data.batch_size", "32", "--trainer.accumulate_grad_batches", "1")
    scores = [
        json.loads((tmp_path / f"runs/{run}/report/report.json").read_text("utf-8"))["results"]
        for run in (1, 2)
    ]
    assert scores[0] == scores[1]


def test_a_run_that_goes_on_keeps_its_batch_without_a_search(made_up, fit, run_cli, tmp_path):
    assert fit(*SEARCH).status == 0
    made_up.tried.clear()
    resumed = ("fit", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    status, out, err = run_cli(*resumed)
    assert status == 0, err
    assert "8 rows × 1 device × 4 accumulated" in out
    assert "search " not in out
    status, out, err = run_cli(*resumed[:-1], "3", *SEARCH)
    assert status == 0, err
    assert "search    none: the run goes on with its own 8 rows a batch" in out
    assert made_up.tried == []
    assert settings(tmp_path, "config_resumed_2.yaml")["data"]["batch_size"] == 8


def test_where_not_even_one_row_fits_it_says_what_to_do(made_up, fit, tmp_path):
    made_up.room = 3
    status, _, err = fit(*SEARCH)
    assert status == 1
    assert "find_batch.memory_gib: expected room to train on one row" in err
    assert "lowmem.yaml" in err
    assert "data.max_length" in err
    assert not (tmp_path / "runs").exists()


def test_processes_started_by_the_first_take_its_batch(made_up, fit, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_lightning.decisions.is_first_process", lambda: False)
    decided = Found(4, 8, 30, 0.5, 1.5)
    monkeypatch.setenv("BERT_LIGHTNING_DECIDED_BATCH", json.dumps(decided))
    assert fit(*SEARCH).status == 0
    assert made_up.tried == []


def test_a_plan_says_that_fit_will_search(made_up, run_cli, news_folder, tiny_bert_folder):
    words = ("--data.path", news_folder, "--model.pretrained", tiny_bert_folder)
    words += ("--data.batch_size", "16", "--trainer.accumulate_grad_batches", "2")
    out = run_cli("plan", *words, *SEARCH, "--find_batch.memory_gib", "24").out
    assert "search    fit will look for the largest batch that fits 24 GiB, keeping 32 rows" in out
    assert made_up.tried == []
    assert "search " not in run_cli("plan", *words).out


# --- refusals -----------------------------------------------------------------------------------


def test_all_reasons_against_a_search_come_at_once(fit, tmp_path):
    status, _, err = fit(
        *SEARCH,
        *("--find_batch.memory_gib", "0", "--data.tokens_per_batch", "900"),
        *("--trainer.limit_train_batches", "2", "--trainer.num_nodes", "2"),
    )
    assert status == 1
    assert "find_batch.memory_gib: expected a number above 0, or null – found 0" in err
    assert "find_batch.enabled: expected a CUDA device" in err
    assert "found data.tokens_per_batch 900" in err
    assert "trainer.limit_train_batches: expected a share such as 0.1" in err
    assert "one command that starts its own processes" in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("strategy", ["fsdp", "deepspeed"])
def test_a_step_that_is_shared_out_is_refused(run_cli, strategy):
    err = run_cli("plan", *SEARCH, "--trainer.strategy", strategy).err
    assert "expected one device or DDP, whose step can be tried on one – found" in err


def test_nothing_is_refused_where_nothing_is_searched(fit):
    assert fit("--data.tokens_per_batch", "900").status == 0
    assert fit("--find_batch.memory_gib", "0").status == 0


# --- several processes --------------------------------------------------------------------------

PROGRAM = """
import os, sys
from bert_lightning import cli, find_batch
from bert_lightning.commands import run

class Meter:
    budget_gib = 1.5
    def __init__(self, *_):
        assert "LOCAL_RANK" not in os.environ, "only the first process searches"
    def measure(self, work):
        work()
        sizes.append(1)
        return 0.5 if len(sizes) > 2 else None  # 16, 8 do not fit, 2 and 4 do

sizes = []
find_batch.CudaMeter = Meter
run.check_search = lambda *_: None
sys.exit(cli.main())
"""


@pytest.mark.slow
def test_all_processes_of_ddp_train_with_the_batch_of_the_first(
    tmp_path, news_folder, tiny_bert_folder
):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    words = ["fit", "--data.path", news_folder, "--model.pretrained", tiny_bert_folder]
    words += ["--config", "ddp.yaml", "--trainer.devices", "2", "--data.batch_size", "16"]
    words += ["--trainer.max_epochs", "2", *SEARCH]
    done = subprocess.run(
        [sys.executable, str(program), *map(str, words)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "4 rows × 2 devices × 4 accumulated = 32 rows a step, DDPStrategy" in done.stdout
    report = json.loads((tmp_path / "runs/1/report/report.json").read_text(encoding="utf-8"))
    assert report["steps"] == 4  # 64 rows twice
