"""Mixed precision through the command line; a plugin runs fp16 and its scaler on the CPU, too."""

import csv
import json
import os

import pytest
import torch

from bert_lightning.checkpoint import read_checkpoint
from bert_lightning.demo.news import CORPUS_CLASSES, made_up_news
from bert_lightning.errors import ConfigError

FP16_ON_CPU = """
trainer:
  precision: null
  plugins:
  - class_path: bert_lightning.amp.AmpPrecision
    init_args:
      precision: 16-mixed
      device: cpu
      settings:
        init_scale: {scale}
        max_consecutive_skips: {skips}
"""


@pytest.fixture
def fp16(tmp_path):
    """Return arguments that train in fp16 with a scaler on the CPU."""

    def arguments(scale=1024.0, skips=15):
        file = tmp_path / f"fp16_{scale:g}.yaml"
        file.write_text(FP16_ON_CPU.format(scale=scale, skips=skips), encoding="utf-8")
        return ["--config", file]

    return arguments


def rows_of(folder, name="metrics.csv"):
    with (folder / name).open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def column(folder, name):
    return [float(row[name]) for row in rows_of(folder) if row.get(name)]


def test_skipped_steps_are_logged_said_and_reported(run_cli, quick, fp16, tmp_path):
    status, out, err = run_cli(
        *["fit", *quick, *fp16(2.0**20), "--trainer.limit_train_batches", "8"],
        *["--trainer.log_every_n_steps", "1", "--model.warmup_ratio", "0"],
    )
    assert status == 0, err
    run = tmp_path / "runs" / "1"
    report = json.loads((run / "report" / "report.json").read_text(encoding="utf-8"))["amp"]
    skipped, numbers = report["skipped"], report["skipped_steps"]
    assert 1 <= skipped == len(numbers) < 8
    assert report["loss_scale"] == 2.0 ** (20 - skipped)
    events = sum(number - 1 not in numbers for number in numbers)
    assert out.count("Gradient overflow detected") == events
    assert f"{skipped} so far; loss scale {2.0 ** (20 - skipped):g}" in out
    assert f"{skipped} of 8 steps skipped" in (run / "report" / "report.md").read_text("utf-8")
    assert column(run, "amp/skipped_steps")[-1] == skipped
    assert column(run, "amp/loss_scale")[-1] == 2.0 ** (20 - skipped)
    assert column(run, "train/optimizer_steps")[-1] == 8 - skipped
    rates = column(run, "train/learning_rate")  # the run ends before the last of 8 rates
    stays = [step for step in range(1, 8) if rates[step] == rates[step - 1]]
    assert stays == [number for number in numbers if number < 8]
    assert not (run / "amp_last_steps.csv").exists()


def test_a_run_that_only_overflows_is_stopped_and_can_be_resumed(
    run_cli, quick, fp16, tmp_path, monkeypatch
):
    again = ["fit", "--ckpt_path", "last", "--trainer.max_epochs", "2"]
    assert run_cli("fit", *quick, *fp16(), "--trainer.limit_train_batches", "8").status == 0
    spoil = tmp_path / "spoil.py"
    spoil.write_text(
        "import lightning.pytorch as L\n"
        "class Spoil(L.Callback):\n"
        "    def on_after_backward(self, trainer, pl_module):\n"
        "        pl_module.network.classifier.bias.grad[:] = float('nan')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    status, _, err = run_cli(
        *[*again, *fp16(2048.0, skips=2), "--trainer.callbacks+", "spoil.Spoil"],
        *["--trainer.log_every_n_steps", "1"],
    )
    assert status == 1
    assert err.startswith("error: amp.max_consecutive_skips: expected at most 2 skipped steps")
    run = tmp_path / "runs" / "1"
    assert [row["is_skipped"] for row in rows_of(run, "amp_last_steps.csv")] == ["True"] * 3
    status, out, err = run_cli(*again, *fp16())
    assert status == 0, err
    assert "loss scale 1024 goes on, after 8 good steps" in out
    steps = column(run, "train/optimizer_steps")
    assert steps[-1] == 16


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("fp16", "32", "16-mixed; its loss scale 1024 is not needed and dropped"),
        ("fp16", "bf16-mixed", "16-mixed; its loss scale 1024 is not needed and dropped"),
        ("32", "fp16", "the run had no loss scale; it begins with amp.init_scale"),
    ],
)
def test_a_run_goes_on_in_another_precision_and_says_so(
    run_cli, quick, fp16, tmp_path, first, second, expected
):
    def precision(name):
        return fp16() if name == "fp16" else ["--trainer.precision", name]

    status, out, err = run_cli("fit", *quick, *precision(first))
    assert status == 0, err
    assert "scale " not in out
    status, out, err = run_cli(
        "fit", "--ckpt_path", "last", "--trainer.max_epochs", "2", *precision(second)
    )
    assert status == 0, err
    assert expected in out
    last = read_checkpoint(tmp_path / "runs" / "1" / "checkpoints" / "last.ckpt")
    assert ("AmpPrecision" in last) is (second == "fp16")
    assert last["lr_schedulers"] == [{"optimizer_steps": 4}]
    assert last["bert_lightning"]["settings"]["amp"]["growth_interval"] == 2000


def test_a_run_goes_on_with_its_precision_plugin_unless_another_precision_is_typed(
    run_cli, quick, fp16, tmp_path
):
    again = ["fit", "--ckpt_path", "last"]
    assert run_cli("fit", *quick, *fp16()).status == 0
    status, out, err = run_cli(*again, "--trainer.max_epochs", "2", "--amp.growth_interval", "3")
    assert status == 0, err
    assert "precision 16-mixed – AmpPrecision of trainer.plugins" in out
    assert "loss scale 1024 goes on, after 2 good steps" in out
    last = read_checkpoint(tmp_path / "runs" / "1" / "checkpoints" / "last.ckpt")
    assert last["AmpPrecision"]["growth_interval"] == 3
    assert last["AmpPrecision"]["scale"] == 2048
    io = "lightning.pytorch.plugins.io.AsyncCheckpointIO"
    status, _, err = run_cli(*again, "--trainer.max_epochs", "3", "--trainer.plugins", io)
    assert status == 1
    assert err.startswith("error: trainer.plugins: expected AmpPrecision of the run among them")
    status, out, err = run_cli(*again, "--trainer.max_epochs", "3", "--trainer.plugins+", io)
    assert (status, "precision 16-mixed" in out) == (0, True), err
    status, out, err = run_cli(*again, "--trainer.max_epochs", "4", "--trainer.precision", "32")
    assert (status, "precision 32\n" in out) == (0, True), err


def test_a_plugin_of_the_users_is_kept_and_takes_the_amp_keys(
    run_cli, quick, tmp_path, monkeypatch
):
    (tmp_path / "own_plugin.py").write_text(
        "from bert_lightning.amp import AmpPrecision\nclass Own(AmpPrecision):\n    pass\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = ["--trainer.plugins", "own_plugin.Own", "--trainer.plugins.device", "cpu"]
    status, out, err = run_cli("fit", *quick, *own, "--amp.init_scale", "16")
    assert status == 0, err
    assert "precision 16-mixed – Own of trainer.plugins" in out
    last = read_checkpoint(tmp_path / "runs" / "1" / "checkpoints" / "last.ckpt")
    assert last["Own"]["scale"] == 16


def test_the_plan_shows_the_precision_of_a_plugin(run_cli, quick, fp16):
    status, out, err = run_cli("plan", *quick, *fp16(512.0))
    assert status == 0, err
    assert "precision 16-mixed: AmpPrecision of trainer.plugins, fp16 autocast" in out
    assert "loss scale from 512" in out
    assert "no effect without a loss scale" not in out
    double = ["--trainer.plugins", "lightning.pytorch.plugins.precision.DoublePrecision"]
    _, out, _ = run_cli("plan", *quick, *double)
    assert "precision 64-true: DoublePrecision of trainer.plugins, as it is" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--trainer.precision", "16-mixed"], "trainer.precision: expected either this key or"),
        (["--amp.init_scale", "2"], "amp.init_scale: expected in one place – found beside"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "plan"])
def test_what_a_plugin_says_as_well_is_refused(run_cli, quick, fp16, command, words, expected):
    status, _, err = run_cli(command, *quick, *fp16(), *words)
    assert status == 1
    assert err.startswith(f"error: {expected}")


def test_a_scaler_of_the_users_is_refused_and_the_amp_keys_named(run_cli, quick, tmp_path):
    file = tmp_path / "scaler.yaml"
    file.write_text(
        "trainer:\n  plugins:\n"
        "  - class_path: lightning.pytorch.plugins.precision.MixedPrecision\n"
        "    init_args:\n      precision: 16-mixed\n      device: cpu\n"
        "      scaler:\n        class_path: torch.amp.GradScaler\n"
        "        init_args:\n          device: cpu\n          init_scale: 8.0\n",
        encoding="utf-8",
    )
    status, _, err = run_cli("fit", *quick, "--config", file)
    assert status == 1
    assert err.startswith("error: trainer.plugins: expected MixedPrecision without scaler")
    assert "set amp.init_scale, amp.growth_factor" in err


def test_other_frozen_layers_are_refused_on_resume(run_cli, quick):
    assert run_cli("fit", *quick).status == 0
    status, _, err = run_cli(
        *["fit", "--ckpt_path", "last", "--trainer.max_epochs", "2", "--model.frozen_layers", "1"]
    )
    assert status == 1
    assert err.startswith("error: model.layer_decay, model.frozen_layers: expected those of the")


def test_a_scaled_run_resumed_after_an_epoch_ends_at_the_same_weights(
    run_cli, quick, fp16, tmp_path, saved_states
):
    epochs = ["--trainer.max_epochs", "3", *fp16(2.0**20)]
    assert run_cli("fit", *quick, "--model.dropout", "0", *epochs).status == 0
    assert run_cli("fit", "--ckpt_path", dict(saved_states)[2], *epochs).status == 0
    straight, resumed = (
        read_checkpoint(tmp_path / "runs" / n / "checkpoints" / "last.ckpt") for n in ("1", "2")
    )
    for key in ("AmpPrecision", "lr_schedulers"):
        assert straight[key] == resumed[key]
    assert straight["AmpPrecision"]["scale"] < 2.0**20  # steps were skipped
    for name, value in straight["state_dict"].items():
        assert torch.equal(value, resumed["state_dict"][name]), name


@pytest.mark.filterwarnings("error:To copy construct")
def test_lightnings_own_monitor_sees_the_rate(run_cli, quick, fp16, tmp_path):
    monitor = "lightning.pytorch.callbacks.LearningRateMonitor"
    status, _, err = run_cli(
        *["fit", *quick, *fp16(), "--trainer.callbacks+", monitor],
        *["--trainer.log_every_n_steps", "1"],
    )
    assert status == 0, err
    assert any(name.startswith("lr-") for name in rows_of(tmp_path / "runs" / "1")[0])


# --- options ------------------------------------------------------------------------------------


def test_all_training_options_work_together_with_a_scaler(run_cli, quick, fp16, tmp_path):
    status, _, err = run_cli(
        *["fit", *quick, *fp16(), "--config", "layerwise.yaml", "--config", "lowmem.yaml"],
        *["--model.label_smoothing", "0.1", "--model.frozen_layers", "1"],
        *["--model.schedule", "cosine", "--data.class_weights", "[1.0,2.0,1.0,0.5]"],
        *["--model.fused_optimizer", "true", "--trainer.accumulate_grad_batches", "2"],
        *["--trainer.limit_train_batches", "7", "--trainer.gradient_clip_val", "0.5"],
    )
    assert status == 0, err
    assert column(tmp_path / "runs" / "1", "train/optimizer_steps")[-1] == 4


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("model.layer_decay", "0", "model.layer_decay: expected above 0, up to 1 – found 0"),
        ("model.label_smoothing", "1", "model.label_smoothing: expected 0 up to, but not, 1"),
        ("data.class_weights", "[1.0]", "data.class_weights: expected 4 numbers above 0"),
        ("model.class_weights", "[1.0]", "model.class_weights: expected not to be set"),
        ("model.frozen_layers", "3", "model.frozen_layers: expected 0 to 1 – found 3"),
        ("amp.backoff_factor", "2", "amp.backoff_factor: expected a number between 0 and 1"),
    ],
)
def test_options_out_of_range_are_refused(run_cli, quick, option, value, expected):
    status, _, err = run_cli("fit", *quick, f"--{option}", value)
    assert status == 1
    assert err.startswith(f"error: {expected}")


@pytest.mark.filterwarnings("ignore:Error detected in")
def test_an_anomaly_is_told_in_words(run_cli, quick, fp16):
    status, _, err = run_cli(
        *["fit", *quick, *fp16(2.0**30), "--trainer.detect_anomaly", "true"],
    )
    assert status == 1
    assert err.startswith(
        "error: trainer.detect_anomaly: expected gradients that are numbers – found at step 1:"
        " Function 'AddmmBackward0' returned nan values"
    )
    assert "with a loss scale this may be an overflow" in err


EMA = ("--trainer.callbacks+", "lightning.pytorch.callbacks.EMAWeightAveraging")


def test_checkpoints_hold_the_averaged_weights_that_were_scored(run_cli, quick, tmp_path):
    status, _, err = run_cli(
        *["fit", *quick, *EMA, "--trainer.callbacks.decay", "0.9"],
        *["--model.learning_rate", "0.01", "--model.schedule", "constant"],
        *["--trainer.limit_train_batches", "8", "--trainer.precision", "32"],
    )
    assert status == 0, err
    run = tmp_path / "runs" / "1"
    best = read_checkpoint(run / "checkpoints" / "best.ckpt")
    averaged, trained = best["state_dict"], best["current_model_state"]
    assert not torch.equal(
        averaged["network.classifier.weight"], trained["network.classifier.weight"]
    )
    after_fit = json.loads((run / "report" / "report.json").read_text("utf-8"))["results"]
    for command in ("validate", "test"):
        assert run_cli(command, "--ckpt_path", "best").status == 0
    runs = sorted((tmp_path / "runs").iterdir(), key=lambda path: int(path.name))
    for path, split in zip(runs[1:], ("val", "test"), strict=True):
        alone = json.loads((path / "report" / "report.json").read_text("utf-8"))["results"]
        for score in ("loss", "accuracy", "macro_f1"):
            assert alone[split][score] == after_fit[split][score], (split, score)
    status, out, err = run_cli("fit", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    assert status == 0, err
    assert "average   the run averaged its weights; it goes on from the average" in out


def test_an_average_under_a_scaler_goes_on_in_a_resumed_run(run_cli, quick, fp16, tmp_path):
    status, _, err = run_cli("fit", *quick, *fp16(), *EMA)
    assert status == 0, err
    status, out, err = run_cli(
        "fit", "--ckpt_path", "last", "--trainer.max_epochs", "2", *fp16(), *EMA
    )
    assert status == 0, err
    assert "goes on from the average" not in out
    last = read_checkpoint(tmp_path / "runs" / "1" / "checkpoints" / "last.ckpt")
    assert int(last["averaging_state"]["n_averaged"]) == 4


@pytest.mark.parametrize("command", ["fit", "plan"])
def test_an_average_on_a_gpu_that_is_not_there_is_refused(run_cli, quick, command):
    status, _, err = run_cli(command, *quick, *EMA, "--trainer.callbacks.device", "cuda")
    assert status == 1
    assert err.startswith(
        "error: trainer.callbacks: expected EMAWeightAveraging to average on a device of"
        " this machine – found device cuda, and no GPU"
    )


# --- processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "windows", "execution"),
    [
        ("ddp.yaml", 1, "auto"),
        pytest.param("ddp_static.yaml", 1, "auto", marks=pytest.mark.slow),
        pytest.param("ddp.yaml", 2, "auto", marks=pytest.mark.slow),
        pytest.param("ddp.yaml", 2, "compiled", marks=pytest.mark.slow),
        pytest.param("ddp_static.yaml", 1, "compiled", marks=pytest.mark.slow),
    ],
)
def test_two_processes_learn_as_one_also_where_their_rows_are_unequal(
    run_process, tiny_bert_folder, tmp_path, strategy, windows, execution
):
    news = tmp_path / "news"
    news.mkdir()
    for split, rows in (("train", 63), ("val", 17)):  # 32 and 31 rows: 16 + 15 in the second step
        lines = [f"{record.text} {record.label}\n" for record in made_up_news(split)[:rows]]
        (news / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    (news / "class.txt").write_text("\n".join(CORPUS_CLASSES), encoding="utf-8")
    rows = 32 // windows
    common = [
        *["fit", "--data.path", news, "--model.pretrained", tiny_bert_folder],
        *["--trainer.max_epochs", "2", "--trainer.precision", "32", "--model.dropout", "0"],
        *["--model.learning_rate", "2e-5", "--trainer.log_every_n_steps", "1"],
        *["--trainer.accumulate_grad_batches", windows],
        # clipping would hide gradients that are too long or too short
        *["--trainer.gradient_clip_val", "null"],
    ]
    two = ["--config", strategy, "--trainer.devices", "2", "--model.execution", execution]
    for words in (["--data.batch_size", rows], [*two, "--data.batch_size", rows // 2]):
        status, _, err = run_process(*common, *words)
        assert status == 0, err
    runs = [tmp_path / "runs" / number for number in ("1", "2")]
    for name in ("train/loss", "val/loss"):
        losses = [torch.tensor(column(run, name)) for run in runs]
        assert len(losses[0]) == (4 if name == "train/loss" else 2)
        torch.testing.assert_close(*losses, atol=1e-5, rtol=0)
    last = [read_checkpoint(run / "checkpoints" / "last.ckpt") for run in runs]
    means = [  # Adam makes up for the length of gradients, its means do not
        torch.cat(
            [state["exp_avg"].flatten() for state in each["optimizer_states"][0]["state"].values()]
        )
        for each in last
    ]
    torch.testing.assert_close(*means, atol=1e-5 * float(means[0].abs().max()), rtol=0)
    weights = [each["state_dict"] for each in last]
    for name, value in weights[0].items():
        if not name.endswith("attention.self.key.bias"):  # their true gradient is 0
            torch.testing.assert_close(value, weights[1][name], atol=1e-5, rtol=0, msg=name)


@pytest.mark.slow
def test_two_processes_skip_the_same_steps_under_a_scaler(run_process, quick, fp16, tmp_path):
    status, out, err = run_process(
        *["fit", *quick, *fp16(2.0**20), "--config", "ddp.yaml", "--trainer.devices", "2"],
        *["--trainer.limit_train_batches", "4", "--trainer.log_every_n_steps", "1"],
    )
    assert status == 0, err
    run = tmp_path / "runs" / "1"
    report = json.loads((run / "report" / "report.json").read_text(encoding="utf-8"))["amp"]
    assert report["steps"] == 4
    assert report["skipped"] >= 1
    assert column(run, "train/optimizer_steps")[-1] == 4 - report["skipped"]
    assert out.count("Gradient overflow detected") == 1


@pytest.mark.slow
def test_a_row_that_spoils_one_of_two_processes_is_named_once(
    run_process, tiny_bert_folder, fp16, tmp_path
):
    news = tmp_path / "news"
    news.mkdir()
    lines = [f"{record.text} {record.label}\n" for record in made_up_news("train")[:16]]
    lines[5] = f"锌锌锌 {CORPUS_CLASSES[0]}\n"
    (news / "train.txt").write_text("".join(lines), encoding="utf-8")
    (news / "val.txt").write_text("".join(lines[6:]), encoding="utf-8")
    (news / "class.txt").write_text("\n".join(CORPUS_CLASSES), encoding="utf-8")
    (tmp_path / "spoil.py").write_text(
        "import lightning.pytorch as L\n"
        "from bert_lightning.demo.mini_bert import mini_tokenizer\n"
        "class Spoil(L.Callback):\n"
        "    def on_train_start(self, trainer, pl_module):\n"
        "        token = mini_tokenizer()('锌')['input_ids'][1]\n"
        "        def hook(module, args, output):\n"
        "            return output.masked_fill((args[0] == token).unsqueeze(-1), float('nan'))\n"
        "        embeddings = pl_module.network.bert.embeddings.word_embeddings\n"
        "        embeddings.register_forward_hook(hook)\n",
        encoding="utf-8",
    )
    status, _, err = run_process(
        *["fit", "--data.path", news, "--model.pretrained", tiny_bert_folder, *fp16(skips=2)],
        *["--config", "ddp.yaml", "--trainer.devices", "2", "--data.batch_size", "8"],
        *["--trainer.callbacks+", "spoil.Spoil", "--trainer.max_epochs", "9"],
        *["--trainer.check_val_every_n_epoch", "9", "--trainer.log_every_n_steps", "1"],
        env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )
    assert status == 1
    assert "first not finite, at step 3: output of bert.embeddings.word_embeddings;" in err
    assert "rows 5 of train, counted from 0 (锌锌锌)" in err
    last = rows_of(tmp_path / "runs" / "1", "amp_last_steps.csv")
    assert [row["is_skipped"] for row in last] == ["True"] * 3


def test_a_report_says_what_was_trained_in_and_what_was_scored_in(run_cli, quick, fp16, tmp_path):
    def said(number):
        folder = tmp_path / "runs" / str(number) / "report"
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        return report["precision"], (folder / "report.md").read_text(encoding="utf-8")

    assert run_cli("fit", *quick, *fp16()).status == 0
    precision, text = said(1)
    assert precision == {"trained": "16-mixed", "scored": "16-mixed"}
    assert "- trained in 16-mixed, scored in 16-mixed" in text
    for number, words, scored in ((2, ["--trainer.precision", "32"], "32-true"), (3, fp16(), None)):
        status, out, err = run_cli("test", "--ckpt_path", "runs/1", *words)
        assert status == 0, err
        assert "best.ckpt, trained in 16-mixed\n" in out
        precision, text = said(number)
        assert precision == {"trained": "16-mixed", "scored": scored or "16-mixed"}
        assert f"- trained in 16-mixed, scored in {scored or '16-mixed'}" in text


def test_the_precision_of_a_plugin_is_checked_as_that_of_the_key_is(run_cli, quick, monkeypatch):
    def refuse(precision, on_cpu, strategy):
        raise ConfigError(f"asked for {precision}")

    monkeypatch.setattr("bert_lightning.commands.run.check_precision", refuse)
    plugin = "{class_path: MixedPrecision, init_args: {precision: bf16-mixed, device: cpu}}"
    result = run_cli("fit", *quick, "--trainer.plugins", plugin)
    assert result.status == 1
    assert "asked for bf16-mixed" in result.err
