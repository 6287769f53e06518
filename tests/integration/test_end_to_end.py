"""Train, validate, test and predict through the command line, as a user does."""

import csv
import json
import shutil
import time

import pytest
import torch
import yaml


def report(folder, number):
    return json.loads((folder / "runs" / str(number) / "report" / "report.json").read_text("utf-8"))


def metrics(folder, number):
    with (folder / "runs" / str(number) / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trained(trained_folder, tmp_path):
    """A copy of a folder with news/ and runs/1."""
    folder = tmp_path / "trained"
    shutil.copytree(trained_folder, folder)
    return folder


def test_each_fit_has_a_numbered_folder_of_its_own(run_cli, quick, tmp_path):
    assert run_cli("fit", *quick).status == 0
    first = {
        file: file.read_bytes() for file in (tmp_path / "runs" / "1").rglob("*") if file.is_file()
    }
    assert run_cli("fit", *quick).status == 0
    names = {str(file.relative_to(tmp_path / "runs" / "1")) for file in first}
    wanted = {"config.yaml", "metrics.csv", "checkpoints/best.ckpt", "checkpoints/last.ckpt"}
    assert wanted | {"report/report.md", "report/report.json"} <= names
    assert any(name.startswith("tensorboard/") for name in names)
    assert all(file.read_bytes() == content for file, content in first.items())
    assert (tmp_path / "runs" / "2" / "config.yaml").is_file()


def test_fit_shows_what_it_took_and_where_results_are(run_cli, quick):
    result = run_cli("fit", *quick)
    assert "102" not in result.err
    for words in ("model ", "data ", "train 64, val 17, test 33", "test/accuracy", "report.md"):
        assert words in result.out


def test_saved_config_serves_all_commands(run_cli, trained):
    config = trained / "runs" / "1" / "config.yaml"
    content = yaml.safe_load(config.read_text("utf-8"))
    assert "unable to serialize" not in config.read_text("utf-8")
    assert content["trainer"]["max_epochs"] == 1
    (trained / "p.txt").write_text("球队赢了\n", encoding="utf-8")
    assert run_cli("fit", "--config", config, cwd=trained).status == 0
    for command in ("validate", "test"):
        words = (command, "--config", config, "--ckpt_path", "runs/1")
        assert run_cli(*words, cwd=trained).status == 0
    words = ("--config", config, "--ckpt_path", "runs/1", "--data.predict_path", "p.txt")
    assert run_cli("predict", *words, cwd=trained).status == 0


@pytest.mark.parametrize("name", ["best", "last", "runs/1", "runs/1/checkpoints/best.ckpt"])
def test_a_checkpoint_needs_nothing_else(run_cli, trained, name):
    assert run_cli("test", "--ckpt_path", name, cwd=trained).status == 0
    assert report(trained, 2)["results"]["test"] == report(trained, 1)["results"]["test"]
    assert report(trained, 2)["results"]["test"]["rows"] == 33


def test_a_checkpoint_outlives_the_model_folder(run_cli, quick, tiny_bert_folder, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(tiny_bert_folder, model)
    assert run_cli("fit", *quick, "--model.pretrained", model).status == 0
    shutil.rmtree(model)
    assert run_cli("test", "--ckpt_path", "best").status == 0
    assert report(tmp_path, 2)["results"] == {"test": report(tmp_path, 1)["results"]["test"]}


def test_changed_data_is_refused_unless_it_is_named(run_cli, quick, news_folder, tmp_path):
    assert run_cli("fit", *quick).status == 0
    with (news_folder / "test.txt").open("a", encoding="utf-8") as file:
        file.write("新来的一行 体育\n")
    result = run_cli("test", "--ckpt_path", "best")
    assert result.status == 1
    assert "has changed since" in result.err
    assert run_cli("test", "--ckpt_path", "best", "--data.path", news_folder).status == 0
    assert report(tmp_path, 2)["results"]["test"]["rows"] == 34


def test_other_classes_are_refused_with_both_lists(run_cli, trained):
    (trained / "other").mkdir()
    rows = "".join(f"标题{i} {name}\n" for i in range(4) for name in ("房产", "教育", "体育"))
    (trained / "other" / "test.txt").write_text(rows, encoding="utf-8")
    words = ("--ckpt_path", "best", "--data.path", "other")
    result = run_cli("test", *words, cwd=trained)
    assert result.status == 1
    assert "房产" in result.err


def test_data_without_a_test_file_is_said_not_to_be_tested(run_cli, quick, news_folder):
    (news_folder / "test.txt").unlink()
    result = run_cli("fit", *quick)
    assert result.status == 0
    assert "not tested: no test file" in result.out
    assert "report.md" in result.out


def test_the_rows_of_a_lone_file_are_all_tested(run_cli, trained):
    lone = trained / "lone.txt"
    shutil.copy(trained / "news" / "train.txt", lone)
    assert run_cli("test", "--ckpt_path", "best", "--data.path", lone, cwd=trained).status == 0
    assert report(trained, 2)["results"]["test"]["rows"] == 64


def test_the_own_file_of_a_run_is_split_as_it_was(run_cli, tmp_path, tiny_bert_folder):
    lone = tmp_path / "lone.txt"
    rows = [f"{'甲乙丙丁'[i % 4]}队第{i}场 {'体育' if i % 2 else '娱乐'}\n" for i in range(80)]
    lone.write_text("".join(rows), encoding="utf-8")
    words = ("fit", "--data.path", lone, "--model.pretrained", tiny_bert_folder)
    assert run_cli(*words, "--trainer.max_epochs", "1").status == 0
    again = ("test", "--ckpt_path", "best", "--data.holdout_ratio", "0.3", "--seed_everything", "5")
    assert run_cli(*again).status == 0
    assert run_cli(*again, "--data.path", lone).status == 0
    assert [report(tmp_path, n)["results"]["test"]["rows"] for n in (1, 2, 3)] == [8, 8, 8]
    first = report(tmp_path, 1)["results"]["test"]
    assert first == report(tmp_path, 2)["results"]["test"] == report(tmp_path, 3)["results"]["test"]


def test_resume_goes_on_in_the_same_folder_and_keeps_history(run_cli, trained):
    before = metrics(trained, 1)
    words = ("--ckpt_path", "last", "--trainer.max_epochs", "2")
    result = run_cli("fit", *words, cwd=trained)
    assert result.status == 0
    assert "steps     4 = 2 epochs × 2; 2 done\n" in result.out
    assert not (trained / "runs" / "2").exists()
    after = metrics(trained, 1)
    old = [{key: value for key, value in row.items() if value} for row in after[: len(before)]]
    assert old == [{key: value for key, value in row.items() if value} for row in before]
    assert len(after) > len(before)
    assert [row["epoch"] for row in report(trained, 1)["history"]] == [1, 2]
    assert report(trained, 1)["steps"] == 4


def test_a_run_resumed_after_an_epoch_ends_at_the_same_weights(
    run_cli, quick, tmp_path, saved_states
):
    words = ("fit", *quick, "--trainer.max_epochs", "3", "--model.dropout", "0")
    assert run_cli(*words).status == 0
    state = dict(saved_states)[2]
    assert run_cli("fit", "--ckpt_path", state, "--trainer.max_epochs", "3").status == 0
    straight, resumed = (
        torch.load(tmp_path / "runs" / n / "checkpoints" / "last.ckpt", weights_only=True)
        for n in ("1", "2")
    )
    assert straight["global_step"] == resumed["global_step"] == 6
    for name, value in straight["state_dict"].items():
        assert torch.equal(value, resumed["state_dict"][name]), name


def write_callback(folder, text):
    (folder / "own.yaml").write_text(f"trainer:\n  callbacks: [{{{text}}}]\n", encoding="utf-8")
    return ("--config", folder / "own.yaml")


def test_a_setting_that_was_switched_off_stays_off_in_a_resumed_run(run_cli, quick, tmp_path):
    off = ("--trainer.gradient_clip_val", "null")
    assert run_cli("fit", *quick, *off, "--trainer.max_epochs", "1").status == 0
    status, _, err = run_cli("fit", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    assert status == 0, err
    for name in ("config.yaml", "config_resumed_1.yaml"):
        assert "gradient_clip_val: null" in (tmp_path / "runs" / "1" / name).read_text("utf-8")


def test_early_stopping_goes_on_counting_after_a_resume(run_cli, quick, tmp_path):
    early = "class_path: EarlyStopping, init_args: {monitor: val/macro_f1, mode: max, patience: 2}"
    words = (*write_callback(tmp_path, early), "--model.learning_rate", "1e-9")
    assert run_cli("fit", *quick, *words, "--trainer.max_epochs", "2").status == 0
    again = ("fit", "--ckpt_path", "last", *words, "--trainer.max_epochs", "9")
    assert run_cli(*again).status == 0
    assert [row["epoch"] for row in report(tmp_path, 1)["history"]] == [1, 2, 3]


def test_what_early_stopping_ended_stays_so_until_it_has_more_patience(run_cli, quick, tmp_path):
    early = "class_path: EarlyStopping, init_args: {{monitor: val/loss, mode: max, patience: {}}}"
    few = ("--model.learning_rate", "1e-9", "--trainer.max_epochs", "5")
    words = (*write_callback(tmp_path, early.format(1)), *few)
    assert run_cli("fit", *quick, *words).status == 0
    before = report(tmp_path, 1)
    epochs = len(before["history"])
    assert epochs < 5
    result = run_cli("fit", "--ckpt_path", "last", *words)
    assert result.status == 0, result.err
    words_then = f"nothing left to train: the run was ended in epoch {epochs} by EarlyStopping"
    assert f"{words_then} or trainer.max_time; to train on, give it more patience" in result.out
    assert report(tmp_path, 1) == before
    words = (*write_callback(tmp_path, early.format(2)), *few)
    assert run_cli("fit", "--ckpt_path", "last", *words).status == 0
    assert len(report(tmp_path, 1)["history"]) > epochs


def test_early_stopping_says_when_and_why_it_ended_the_run(run_cli, quick):
    early = "{class_path: EarlyStopping, init_args: {monitor: val/loss, mode: max, patience: 1}}"
    words = ["fit", *quick, "--trainer.callbacks", f"[{early}]", "--trainer.max_epochs"]
    status, out, err = run_cli(*words, "4")
    assert status == 0, err
    assert (
        "stopped   in epoch 2 of 4 by EarlyStopping: Monitored metric val/loss did not improve in"
        " the last 1 records. Best score: "
    ) in out
    assert "Signaling" not in out
    assert "stopped " not in run_cli(*words, "1").out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--trainer.max_epochs", "3"), "6 = 3 epochs × 2"),
        (("--trainer.accumulate_grad_batches", "2"), "1 = 1 epoch × 1"),
        (("--trainer.max_epochs", "3", "--trainer.max_steps", "5"), "5 (trainer.max_steps), 2 an"),
        (("--trainer.max_epochs", "null", "--trainer.max_steps", "5"), "5 (trainer.max_steps), 2"),
    ],
)
def test_fit_says_how_many_steps_it_takes(run_cli, quick, tmp_path, words, line):
    status, out, err = run_cli("fit", *quick, *words)
    assert status == 0, err
    assert f"\nsteps     {line}" in out
    report = (tmp_path / "runs" / "1" / "report" / "report.md").read_text(encoding="utf-8")
    assert f"- **steps**: {line}" in report


def test_a_checkpoint_callback_of_the_user_writes_beside_ours(run_cli, quick, tmp_path):
    own = (
        "class_path: ModelCheckpoint, init_args: {monitor: val/macro_f1, mode: max,"
        " filename: '{epoch}-{val/macro_f1:.1f}'}"
    )
    assert run_cli("fit", *quick, *write_callback(tmp_path, own)).status == 0
    checkpoints = tmp_path / "runs" / "1" / "checkpoints"
    assert len(list(checkpoints.glob("0-0.*.ckpt"))) == 1
    assert {file.parent for file in tmp_path.rglob("*.ckpt")} == {checkpoints}
    words = ("--config", "runs/1/config.yaml", "--ckpt_path", "runs/1")
    for command in ("validate", "test"):
        assert run_cli(command, *words).status == 0


@pytest.mark.parametrize("name", ["EarlyStopping", "ModelCheckpoint"])
def test_a_monitored_name_that_is_never_logged_is_refused(run_cli, quick, tmp_path, name):
    own = f"class_path: {name}, init_args: {{monitor: val_F1}}"
    result = run_cli("fit", *quick, *write_callback(tmp_path, own))
    assert result.status == 1
    assert "found 'val_F1'\ndid you mean val/macro_f1?" in result.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("key", ["callbacks.patience", "plugins.precision"])
def test_an_argument_before_its_class_is_refused_in_words(run_cli, quick, tmp_path, key):
    result = run_cli("fit", *quick, f"--trainer.{key}", "2")
    assert result.status == 1
    group, argument = key.split(".")
    assert f"trainer.{group}: expected the name of a class before {argument}" in result.err
    assert f"--trainer.{group}+=CLASS" in result.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "instead"),
    [
        ("StochasticWeightAveraging", ("swa_lrs", "0.1"), "EMAWeightAveraging"),
        ("LearningRateFinder", (), "model.learning_rate"),
        ("GradientAccumulationScheduler", ("scheduling", "{0: 2}"), "trainer.accumulate_grad"),
        ("BackboneFinetuning", (), "model.frozen_layers"),
    ],
)
def test_a_callback_with_a_schedule_of_its_own_is_refused(
    run_cli, quick, tmp_path, name, arguments, instead
):
    own = [f"--trainer.callbacks.{word}" for word in arguments[:1]] + list(arguments[1:])
    result = run_cli("fit", *quick, f"--trainer.callbacks+={name}", *own)
    assert result.status == 1
    assert f"found {name}, which " in result.err
    assert f"\ntake {instead}" in result.err
    assert not (tmp_path / "runs").exists()


def test_an_epoch_shorter_than_the_logging_interval_is_logged(run_cli, quick, tmp_path):
    assert run_cli("fit", *quick).status == 0
    assert any(row["train/loss"] for row in metrics(tmp_path, 1))


def test_a_csv_logger_of_the_user_never_deletes_a_history(run_cli, quick, tmp_path):
    own = tmp_path / "own.yaml"
    logger = "{class_path: CSVLogger, init_args: {save_dir: own, name: a, version: 0}}"
    own.write_text(f"trainer:\n  logger: {logger}\n", encoding="utf-8")
    assert run_cli("fit", *quick, "--config", own).status == 0
    history = (tmp_path / "own" / "a" / "version_0" / "metrics.csv").read_bytes()
    for words in (["fit", *quick], ["test", "--ckpt_path", "best"]):
        result = run_cli(*words, "--config", own)
        assert result.status == 1
        assert "trainer.logger: expected a folder without metrics.csv" in result.err
    assert (tmp_path / "own" / "a" / "version_0" / "metrics.csv").read_bytes() == history


def test_a_finished_run_says_that_nothing_is_left(run_cli, trained):
    before = (trained / "runs" / "1" / "report" / "report.json").read_bytes()
    for key, done in (
        (("--trainer.max_epochs", "1"), "epoch"),
        (("--trainer.max_steps", "2"), "step"),
    ):
        result = run_cli("fit", "--ckpt_path", "last", *key, cwd=trained)
        assert result.status == 0
        assert f"nothing left to train: the run is at {done} {key[1]} of {key[0][2:]}" in result.out
    after = (trained / "runs" / "1" / "report" / "report.json").read_bytes()
    assert after == before


def test_a_typed_learning_rate_wins_over_the_checkpoint(run_cli, trained):
    words = ("--ckpt_path", "last", "--trainer.max_epochs", "2", "--model.learning_rate", "0.5")
    assert run_cli("fit", *words, "--trainer.log_every_n_steps", "1", cwd=trained).status == 0
    rates = [
        float(row["train/learning_rate"])
        for row in metrics(trained, 1)[-4:]
        if row["train/learning_rate"]
    ]
    assert rates
    assert all(rate > 0.01 for rate in rates)


def test_settings_come_from_line_then_config_then_checkpoint_then_base(run_cli, trained, tmp_path):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("data: {max_length: 40, batch_size: 7}\n", encoding="utf-8")
    words = ("test", "--data.batch_size", "5", "--config", overlay, "--ckpt_path", "best")
    result = run_cli(*words, "--print_config", cwd=trained)
    config = yaml.safe_load(result.out)
    assert config["data"]["batch_size"] == 5
    assert config["data"]["max_length"] == 40
    assert config["data"]["path"].endswith("/news")
    assert config["save_every_seconds"] == 300


def test_predict_keeps_order_and_place_of_empty_lines(run_cli, trained):
    lines = ["球队三比一取胜", "", "新款手机今天发布", "   ", "客厅怎样装修"]
    (trained / "p.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = run_cli("predict", "--ckpt_path", "best", "--data.predict_path", "p.txt", cwd=trained)
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["text"] for row in rows] == [line.strip() for line in lines]
    assert [row["label"] is None for row in rows] == [False, True, False, True, False]
    for row in rows[::2]:
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        assert row["label"] == max(row["probabilities"], key=row["probabilities"].get)
    assert "bert_lightning" in result.err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.jsonl", '{"title": "甲 乙"}\n{"title": "丙,丁"}\n'),
        ("p.csv", 'id,text\n1,甲 乙\n2,"丙,丁"\n'),
        ("p.txt", "甲 乙\r\n丙,丁\r\n"),
    ],
    ids=["jsonl", "csv", "crlf"],
)
def test_predict_reads_text_json_lines_and_csv(run_cli, trained, name, content):
    (trained / name).write_text(content, encoding="utf-8", newline="")
    words = ("--ckpt_path", "best", "--data.predict_path", name, "--output", "o.csv")
    assert run_cli("predict", *words, cwd=trained).status == 0
    assert (trained / "o.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    with (trained / "o.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ["甲 乙", "丙,丁"]


def test_predictions_do_not_depend_on_the_number_of_processes(run_cli, run_process, trained):
    lines = [f"第{i}条" + "消息" * (i % 9) for i in range(33)]
    (trained / "p.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("predict", "--ckpt_path", "runs/1", "--data.predict_path")
    one = run_cli(*words, "p.txt", cwd=trained)
    # piped, as the second process must be given what the first has read
    piped = run_process(
        *words, "-", "--trainer.devices", "2", cwd=trained, stdin="\n".join(lines) + "\n"
    )
    assert (one.status, piped.status) == (0, 0)
    assert "\nprecision 32-true\n" in one.err
    assert len(one.out.splitlines()) == 33
    assert one.out == piped.out


def test_a_test_with_fewer_rows_than_processes_is_refused_before_the_training(
    run_cli, run_process, quick, news_folder, tmp_path
):
    rows = (news_folder / "test.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (news_folder / "test.txt").write_text(rows[0], encoding="utf-8")
    words = ("fit", *quick, "--config", "ddp.yaml", "--trainer.devices", "2")
    status, out, err = run_process(*words)
    assert status == 1
    assert err == "error: trainer.devices: expected at most 1, as many as test has rows – found 2\n"
    assert "epoch 1/1" not in out
    assert not (tmp_path / "runs").exists()
    planned = run_cli("plan", *words[1:])
    assert planned.status == 1
    assert "expected at most 1, as many as test has rows – found 2" in planned.out + planned.err
    assert run_cli("plan", *words[1:], "--test_after_fit", "false").status == 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp.yaml", "ddp_static.yaml"])
@pytest.mark.parametrize("precision", ["fp32.yaml", "amp.yaml", "bf16.yaml"])
def test_two_processes_score_as_one(run_process, quick, tmp_path, precision, strategy):
    words = ("--config", precision, "--config", strategy, "--trainer.devices", "2")
    assert run_process("fit", *words, *quick).status == 0
    for devices in (1, 2):
        words = ("--ckpt_path", "runs/1", "--trainer.devices", devices, "--config", strategy)
        assert run_process("validate", *words).status == 0
    one, two = (report(tmp_path, number)["results"]["val"] for number in (2, 3))
    assert one["rows"] == two["rows"] == 17
    assert one["confusion"] == two["confusion"]
    assert {name: one[name] for name in ("accuracy", "macro_f1", "f1")} == {
        name: two[name] for name in ("accuracy", "macro_f1", "f1")
    }
    assert one["loss"] == pytest.approx(two["loss"], rel=1e-2 if precision != "fp32.yaml" else 1e-5)


def test_encoder_trains_in_train_mode_and_evaluates_in_eval_mode(run_cli, quick, monkeypatch):
    from bert_lightning.module import BertClassifier

    seen = {"train": set(), "val": set()}
    training_step, validation_step = BertClassifier.training_step, BertClassifier.validation_step

    def spy(stage, step):
        def run(self, batch, batch_idx):
            seen[stage] |= {module.training for module in self.network.modules()}
            return step(self, batch, batch_idx)

        return run

    monkeypatch.setattr(BertClassifier, "training_step", spy("train", training_step))
    monkeypatch.setattr(BertClassifier, "validation_step", spy("val", validation_step))
    assert run_cli("fit", *quick, "--trainer.max_epochs", "2").status == 0
    assert seen == {"train": {True}, "val": {False}}


def test_a_loss_that_is_no_number_stops_the_run_and_is_never_best(run_cli, quick, tmp_path):
    result = run_cli("fit", *quick, "--model.learning_rate", "1e30", "--trainer.max_epochs", "2")
    assert result.status == 1
    assert "train/loss: expected a number" in result.err
    best = tmp_path / "runs" / "1" / "checkpoints" / "best.ckpt"
    if best.exists():
        state = torch.load(best, weights_only=True)["state_dict"]
        assert all(value.isfinite().all() for value in state.values())


def test_no_logger_leaves_nothing_in_the_working_folder(run_cli, trained):
    before = set(trained.iterdir())
    assert run_cli("test", "--ckpt_path", "best", "--trainer.logger=false", cwd=trained).status == 0
    assert set(trained.iterdir()) == before


def write_rows(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


GOOD = "".join(f"标题第{i}号 {'甲乙'[i % 2]}\n" for i in range(20))


@pytest.mark.parametrize(
    ("files", "words", "expected"),
    [
        (None, ["--data.path", "nowhere"], "data.path: expected a folder or a file"),
        ({"train": ""}, [], "empty file"),
        ({"train": GOOD, "val": GOOD + "没有分隔符\n"}, [], "val.txt:21: expected a title"),
        ({"train": GOOD, "val": GOOD + "标题 丙\n"}, [], "val.txt:21: expected one of"),
        ({"train": GOOD + "标题 丙\n"}, [], "train.txt:21: expected a label that occurs"),
        (
            {"train": "标题\t0\n标题二\t1\n标题三\t2\n", "class": "甲\n乙\n"},
            [],
            "train.txt:3: expected a class id from 0 to 1",
        ),
        ({"train": "标题\t0\n   \t1\n", "class": "甲\n乙\n"}, [], "train.txt:2: expected a title"),
        ({"train": GOOD}, ["--trainer.devices", "99"], "trainer.devices: expected"),
        ({"train": GOOD}, ["--trainer.accelerator", "gpu"], "found 0 GPUs"),
        ({"train": GOOD}, ["--data.max_length", "600"], "data.max_length: expected at most 128"),
        ({"train": GOOD}, ["--ckpt_path", "nowhere.ckpt"], "ckpt_path: expected a checkpoint file"),
        ({"train": GOOD}, ["--ckpt_path", "last"], "ckpt_path: expected a run with a last"),
        ({"train": GOOD}, ["--model.lr", "1"], "did you mean model.learning_rate"),
        ({"train": GOOD}, ["--data.batch_size", "many"], "data.batch_size: expected int"),
        ({"train": GOOD}, ["--data.batch_size", "0"], "data.batch_size: expected 1 or more"),
        ({"train": GOOD}, ["--trainer.precision", "fp16"], "trainer.precision: expected"),
        ({"train": GOOD}, ["--trainer.strategy", "dpp"], "did you mean ddp"),
        ({"train": GOOD}, ["--model.class_names", "[x]"], "model.class_names: expected not"),
        ({"train": GOOD}, ["--config", "ampp.yaml"], "did you mean amp.yaml"),
        ({"train": GOOD}, ["--trainer.max_epochs", "-1"], "trainer.max_epochs: expected"),
        ({"train": GOOD}, ["--optimizer.lr", "1"], "expected a known key"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:40],
)
def test_bad_input_ends_in_one_screen(run_cli, tmp_path, tiny_bert_folder, files, words, expected):
    data = write_rows(tmp_path / "data", **files) if files else tmp_path
    arguments = ["--model.pretrained", tiny_bert_folder, "--data.path", data, *words]
    result = run_cli("fit", *arguments)
    assert result.status == 1
    assert expected in result.err
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) <= 24
    assert not list(tmp_path.rglob("*.ckpt"))
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").rglob("*"))


@pytest.mark.parametrize("command", ["test", "validate", "predict"])
def test_evaluating_without_a_checkpoint_is_refused(run_cli, command):
    result = run_cli(command)
    assert result.status == 1
    assert "ckpt_path: expected a checkpoint" in result.err


def test_a_foreign_file_is_refused_as_checkpoint(run_cli, tmp_path):
    (tmp_path / "x.ckpt").write_bytes(b"not a checkpoint" * 100)
    result = run_cli("test", "--ckpt_path", "x.ckpt")
    assert result.status == 1
    assert "cannot be read" in result.err


def test_texts_that_were_not_scored_have_no_label(run_cli, trained):
    (trained / "p.txt").write_text("".join(f"第{n}条新闻\n" for n in range(40)), encoding="utf-8")
    words = ("--data.predict_path", "p.txt", "--trainer.limit_predict_batches", "1")
    result = run_cli("predict", "--ckpt_path", "runs/1", *words, cwd=trained)
    rows = [json.loads(line) for line in result.out.splitlines()]
    scored = [row for row in rows if row["label"]]
    assert len(rows) == 40
    assert 0 < len(scored) < 40
    assert all(abs(sum(row["probabilities"].values()) - 1) < 1e-4 for row in scored)
    assert all(row["probabilities"] is None for row in rows if row not in scored)
    assert f"{40 - len(scored)} not scored" in result.err


def test_predict_says_how_many_texts_were_cut(run_cli, trained):
    (trained / "p.txt").write_text("长" * 500 + "\n\n短\n", encoding="utf-8")
    words = ("--ckpt_path", "runs/1", "--data.predict_path", "p.txt")
    assert "3 texts, 1 empty, 1 cut" in run_cli("predict", *words, cwd=trained).err


def test_predict_does_not_replace_its_input(run_cli, trained):
    (trained / "p.csv").write_text("id,text\n1,球队赢了\n", encoding="utf-8")
    words = ("--ckpt_path", "runs/1", "--data.predict_path", "p.csv", "--output", "./p.csv")
    result = run_cli("predict", *words, cwd=trained)
    assert result.status == 1
    assert "output: expected another file" in result.err
    assert (trained / "p.csv").read_text("utf-8").startswith("id,text")


def test_predict_takes_suffixes_in_capitals(run_cli, trained):
    (trained / "P.CSV").write_text("id,text\n1,球队赢了\n", encoding="utf-8")
    words = ("--ckpt_path", "runs/1", "--data.predict_path", "P.CSV", "--output", "OUT.CSV")
    assert run_cli("predict", *words, cwd=trained).status == 0
    with (trained / "OUT.CSV").open(encoding="utf-8-sig") as file:
        assert [row["text"] for row in csv.DictReader(file)] == ["球队赢了"]


def test_resuming_from_an_older_state_leaves_the_newer_one_alone(run_cli, trained):
    checkpoints = trained / "runs" / "1" / "checkpoints"
    shutil.copy(checkpoints / "last.ckpt", checkpoints / "first.ckpt")
    assert (
        run_cli("fit", "--ckpt_path", "last", "--trainer.max_epochs", "2", cwd=trained).status == 0
    )
    last = (checkpoints / "last.ckpt").read_bytes()
    words = ("--ckpt_path", checkpoints / "first.ckpt", "--trainer.max_epochs", "1")
    assert run_cli("fit", *words, cwd=trained).status == 0
    assert (checkpoints / "last.ckpt").read_bytes() == last
    assert len(report(trained, 1)["history"]) == 2


def test_a_run_from_a_checkpoint_elsewhere_has_a_best_of_its_own_and_is_tested(run_cli, trained):
    (trained / "runs" / "1" / "checkpoints" / "last.ckpt").rename(trained / "x.ckpt")
    words = ("--ckpt_path", "x.ckpt", "--trainer.max_epochs", "2")
    assert run_cli("fit", *words, cwd=trained).status == 0
    assert (trained / "runs" / "2" / "checkpoints" / "best.ckpt").is_file()
    assert "test" in report(trained, 2)["results"]


def test_a_run_resumed_inside_an_epoch_has_a_speed(run_cli, quick, tmp_path, saved_states):
    words = ("--trainer.log_every_n_steps", "1", "--save_every_seconds", "0")
    assert run_cli("fit", *quick, *words).status == 0
    assert run_cli("fit", "--ckpt_path", dict(saved_states)[1]).status == 0
    assert report(tmp_path, 2)["samples_per_second"][0] > 0.5


def test_saving_is_no_part_of_the_speed(run_cli, quick, monkeypatch, tmp_path):
    from lightning.pytorch import Trainer

    save = Trainer.save_checkpoint

    def save_slowly(self, *args, **kwargs):
        save(self, *args, **kwargs)
        time.sleep(3)

    monkeypatch.setattr(Trainer, "save_checkpoint", save_slowly)
    assert run_cli("fit", *quick).status == 0
    assert report(tmp_path, 1)["epoch_seconds"][0] < 3


def test_a_fit_without_validation_says_that_nothing_was_tested(run_cli, quick):
    result = run_cli("fit", *quick, "--trainer.max_steps", "1")
    assert result.status == 0
    assert "not tested" in result.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--trainer.val_check_interval", "1000"), "val_check_interval"),
        (("--trainer.barebones", "true"), "barebones"),
        (("--seed_everything", "-1"), "-1"),
        (("--trainer.strategy", "ddp_spawn"), "take ddp"),
    ],
)
def test_what_lightning_refuses_ends_in_one_screen(run_cli, quick, words, expected):
    result = run_cli("fit", *quick, *words)
    assert result.status == 1
    assert result.err.startswith("error: ")
    assert expected in result.err


def test_a_root_that_cannot_be_written_is_named(run_cli, quick, tmp_path):
    (tmp_path / "runs").write_text("", encoding="utf-8")
    result = run_cli("fit", *quick)
    assert result.status == 1
    assert "trainer.default_root_dir" in result.err


def test_a_missing_split_is_told_before_a_run_folder_is_made(run_cli, trained):
    (trained / "news" / "test.txt").unlink()
    result = run_cli("test", "--ckpt_path", "runs/1", "--data.path", "news", cwd=trained)
    assert result.status == 1
    assert not (trained / "runs" / "2").exists()


def test_a_run_that_trains_is_not_trained_by_another(trained, run_cli, holder):
    last = trained / "runs" / "1" / "checkpoints" / "last.ckpt"
    before = last.read_bytes()
    other = holder(trained / "runs" / "1")
    for name in ("last", "runs/1", last):
        result = run_cli("fit", "--ckpt_path", name, "--trainer.max_epochs", "2", cwd=trained)
        assert result.status == 1
        assert f"found runs/1 in use by process {other.pid}" in result.err, name
    assert last.read_bytes() == before
    assert run_cli("test", "--ckpt_path", "best", cwd=trained).status == 0
    other.kill()
    other.wait()
    words = ("fit", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    assert run_cli(*words, cwd=trained).status == 0
