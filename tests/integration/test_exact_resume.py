"""A run that was cut off anywhere ends at the weights of one that was not."""

import csv
import json

import pytest
import torch
import yaml

from bert_lightning.module import BertClassifier

STEPS = 5
AVERAGE = ("--trainer.callbacks+=EMAWeightAveraging", "--trainer.callbacks.decay", "0.9")


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
        pytest.param(("--trainer.max_steps", str(2 * STEPS)), id="steps_counted"),
        *(
            pytest.param(words, id=name, marks=pytest.mark.slow)
            for name, words in {
                "accumulation": ("--trainer.accumulate_grad_batches", "2"),
                "token_budget": ("--data.tokens_per_batch", "200"),
                "workers": ("--data.num_workers", "1"),
                "average": AVERAGE,
                "validation_by_steps": (
                    *("--trainer.check_val_every_n_epoch", "null"),
                    *("--trainer.val_check_interval", "3"),
                ),
                "overfitting": ("--trainer.overfit_batches", "4"),
            }.items()
        ),
    ],
)
def test_from_each_saved_state_a_run_ends_at_the_same_weights(
    run_cli, quick, tmp_path, saved_states, words
):
    status, _, err = run_cli(*words_of(quick, *words))
    assert status == 0, err
    whole, history = outcome(tmp_path, 1)
    states = list(saved_states)
    assert len(states) >= 6
    for number, (_, path) in enumerate(states[:-1], 2):
        callback = words if words == AVERAGE else ()  # each fit names it anew
        status, _, err = run_cli("fit", "--ckpt_path", path, *callback)
        assert status == 0, err
        assert "not resumable" not in err
        state, resumed = outcome(tmp_path, number)
        assert_same_weights(state, whole, path.name)
        assert resumed == history, path.name  # no validation was left out


# --- three holes of the obvious way, each by itself ---------------------------------------------


@pytest.fixture
def seen_rows(monkeypatch):
    """Keep the rows that are trained on: a list of epoch and rows of each batch."""
    seen = []
    step = BertClassifier.training_step

    def training_step(self, batch, batch_idx):
        seen.append((self.current_epoch, batch["rows"].tolist()))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(BertClassifier, "training_step", training_step)
    return seen


@pytest.fixture
def whole_rows(run_cli, quick, saved_states, seen_rows):
    """The rows of a run of two epochs, saved after each step; both are left in their lists."""
    words = ("--trainer.limit_train_batches", "1.0", "--save_every_steps", "1")
    status, _, err = run_cli(*words_of(quick, *words))
    assert status == 0, err
    whole = list(seen_rows)
    seen_rows.clear()
    for epoch in (0, 1):
        rows = [row for number, batch in whole if number == epoch for row in batch]
        assert sorted(rows) == list(range(64))
    return whole


def test_after_a_state_of_an_epochs_last_step_no_epoch_is_left_out(
    run_cli, whole_rows, saved_states, seen_rows
):
    """A stateful loader says that it is at its end, and the next epoch is over at once."""
    (path,) = [path for step, path in saved_states[:-1] if step == len(whole_rows) // 2]
    status, _, err = run_cli("fit", "--ckpt_path", path)
    assert status == 0, err
    assert seen_rows == [(epoch, rows) for epoch, rows in whole_rows if epoch == 1]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_after_a_state_inside_an_epoch_no_row_comes_twice(
    run_cli, whole_rows, saved_states, seen_rows, workers
):
    """A stateful sampler is never saved under a plain loader, and begins anew."""
    for step, path in list(saved_states)[:3]:
        seen_rows.clear()
        status, _, err = run_cli("fit", "--ckpt_path", path, "--data.num_workers", workers)
        assert status == 0, err
        assert seen_rows == whole_rows[step:]


def test_a_validation_that_a_run_was_killed_in_comes_after_all(
    run_cli, run_process, quick, tmp_path
):
    """A state of the last step, saved before that validation, would have no more to do."""
    words = words_of(quick, "--save_every_steps", "1")
    assert run_cli(*words).status == 0
    whole, history = outcome(tmp_path, 1)
    (tmp_path / "dies.py").write_text(
        "import os, signal\n"
        "from lightning.pytorch import Callback\n"
        "class Dies(Callback):\n"
        "    def on_validation_batch_end(self, trainer, *args):\n"
        f"        if trainer.global_step == {STEPS}:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n",
        encoding="utf-8",
    )
    dies = ("--trainer.callbacks", "[{class_path: dies.Dies}]")
    assert run_process(*words, *dies, env={"PYTHONPATH": str(tmp_path)}).status < 0
    last = tmp_path / "runs" / "2" / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] == STEPS - 1
    status, _, err = run_cli("fit", "--ckpt_path", "last")
    assert status == 0, err
    state, resumed = outcome(tmp_path, 2)
    assert_same_weights(state, whole, "killed")
    assert resumed == history
    assert len(history) == 2


def test_how_often_is_saved_and_whether_is_tested_come_back(run_cli, quick, tmp_path):
    words = ("--save_every_steps", "2", "--save_every_seconds", "7", "--test_after_fit", "false")
    assert run_cli("fit", *quick, *words).status == 0
    more = ("--trainer.max_epochs", "2", "--save_every_seconds", "9")
    status, _, err = run_cli("fit", "--ckpt_path", "last", *more)
    assert status == 0, err
    (file,) = (tmp_path / "runs" / "1").glob("config_resumed_*.yaml")
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert settings["save_every_steps"] == 2
    assert settings["save_every_seconds"] == 9  # typed
    assert settings["test_after_fit"] is False


def test_a_newer_run_without_a_checkpoint_is_told(run_cli, quick, tmp_path):
    assert run_cli("fit", *quick).status == 0
    assert run_cli("test", "--ckpt_path", "best").status == 0  # no run to go on with
    config = tmp_path / "runs" / "1" / "config.yaml"
    more = ("--trainer.max_epochs", "2")
    told = "runs/3 has no last checkpoint; the newest that has one is runs/1"
    assert told not in run_cli("plan", "--ckpt_path", "last", *more).out
    (tmp_path / "runs" / "3").mkdir()  # killed before it saved
    (tmp_path / "runs" / "3" / "config.yaml").write_bytes(config.read_bytes())
    assert told in run_cli("plan", "--ckpt_path", "last", *more).out
    (tmp_path / "runs" / "3" / "config.yaml").unlink()  # killed while it read its data
    assert told in run_cli("plan", "--ckpt_path", "last", *more).out
    assert told in run_cli("fit", "--ckpt_path", "last", *more).out


def test_another_number_of_devices_is_told(run_cli, run_process, quick, tmp_path):
    two = ("--config", "ddp.yaml", "--trainer.devices", "2")
    status, _, err = run_process("fit", *quick, *two)
    assert status == 0, err
    told = "number of devices 2 before, 1 now: name strategy and devices again"
    more = ("--trainer.max_epochs", "2")
    assert told in run_cli("fit", "--ckpt_path", "last", *more).out
    assert "number of devices" not in run_cli("fit", "--ckpt_path", "last", *more).out


def test_other_data_of_as_many_rows_are_told(run_cli, quick, news_folder, saved_states):
    assert run_cli(*words_of(quick)).status == 0
    done, path = saved_states[0]
    said = "resume    the data are others than those of the checkpoint: its best score"
    assert said not in run_cli("fit", "--ckpt_path", path).out
    file = news_folder / "train.txt"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[::-1]), encoding="utf-8")
    result = run_cli("fit", "--ckpt_path", path, "--data.path", news_folder)
    assert result.status == 0, result.err
    assert said in result.out
    assert f"; {done} batches of this epoch are skipped all the same" in result.out


def test_random_states_that_are_missing_are_told(run_cli, quick, saved_states):
    assert run_cli(*words_of(quick)).status == 0
    _, path = saved_states[0]
    content = torch.load(path, weights_only=True)
    del content["random_states"]
    path.unlink()
    torch.save(content, path)
    result = run_cli("fit", "--ckpt_path", path)
    assert result.status == 0, result.err
    assert "holds no random states: dropout differs from that of a run that went on" in result.out


def test_a_checkpoint_of_the_users_before_a_validation_is_told(run_cli, quick, tmp_path):
    """Lightning's own callback saves after an epoch's last step; ``last`` is written later."""
    own = {"dirpath": str(tmp_path / "own"), "every_n_train_steps": STEPS, "save_top_k": -1}
    callback = {"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": own}
    words = words_of(quick, "--trainer.callbacks", json.dumps([callback]))
    assert run_cli(*words).status == 0
    missing = "saved after the last step of epoch 1 and before its validation, which is left out"
    (path,) = (tmp_path / "own").glob(f"*step={STEPS}.ckpt")
    status, out, err = run_cli("fit", "--ckpt_path", path)
    assert status == 0, err
    assert missing in out
    state, history = outcome(tmp_path, 2)
    assert_same_weights(state, outcome(tmp_path, 1)[0], path.name)
    assert [row["epoch"] for row in history] == [2]
    assert missing not in run_cli("fit", "--ckpt_path", "runs/1", "--trainer.max_epochs", "3").out


def test_an_epoch_that_has_other_batches_now_is_told(run_cli, quick, saved_states):
    assert run_cli(*words_of(quick)).status == 0
    first, path = saved_states[0]
    for words, is_told in (((), False), (("--data.batch_size", "16"), True)):
        status, out, err = run_cli("fit", "--ckpt_path", path, *words)
        assert status == 0, err
        assert (f"epoch 1 was cut off after {first} of 5 batches and has 4 now" in out) is is_told


def test_an_epoch_after_a_whole_one_has_all_its_batches_whatever_their_size(
    run_cli, quick, tmp_path
):
    words = ("--data.batch_size", "16", "--trainer.limit_train_batches", "1.0")
    assert run_cli("fit", *quick, *words, "--trainer.max_epochs", "1").status == 0
    before, _ = outcome(tmp_path, 1)
    more = ("--data.batch_size", "8", "--trainer.max_epochs", "2")
    status, _, err = run_cli("fit", "--ckpt_path", "last", *more)
    assert status == 0, err
    state, history = outcome(tmp_path, 1)
    assert before["batches_an_epoch"] < state["batches_an_epoch"]
    assert state["global_step"] == before["batches_an_epoch"] + state["batches_an_epoch"]
    assert [row["epoch"] for row in history] == [1, 2]  # the second one was validated, too


def test_the_rate_falls_to_the_end_of_a_resumed_run_whose_epochs_have_fewer_steps(
    run_cli, quick, tmp_path
):
    words = ("--trainer.limit_train_batches", "1.0", "--trainer.log_every_n_steps", "1")
    one = ("--data.batch_size", "8", "--trainer.max_epochs", "1")
    assert run_cli("fit", *quick, *words, *one).status == 0
    done = outcome(tmp_path, 1)[0]["global_step"]
    more = ("--data.batch_size", "32", "--trainer.max_epochs", "2", "--model.warmup_ratio", "0")
    planned = run_cli("plan", "--ckpt_path", "last", *more).out
    status, out, err = run_cli("fit", "--ckpt_path", "last", *more)
    assert status == 0, err
    state = outcome(tmp_path, 1)[0]
    total = state["global_step"]
    assert f"{total} in all; {done} done, {total - done} left" in planned
    assert f"steps     {total}, {total - done} an epoch from now on; {done} done" in out
    with (tmp_path / "runs/1/metrics.csv").open(encoding="utf-8") as file:
        rates = [row["train/learning_rate"] for row in csv.DictReader(file)]
    last = [float(rate) for rate in rates if rate][-1]
    assert last == pytest.approx(state["bert_lightning"]["learning_rate"] / total)


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
