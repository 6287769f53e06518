"""What a found batch promises on a GPU: python -m pytest -m gpu tests/gpu."""

import csv
import json

import pytest
import torch
import yaml
from transformers import BertForSequenceClassification

from bert_lightning.demo.mini_bert import mini_config, mini_tokenizer
from bert_lightning.demo.news import CORPUS_CLASSES, made_up_news
from bert_lightning.find_batch import CudaMeter

pytestmark = pytest.mark.gpu
ROWS = 512
BUDGET_GIB = 0.4  # the model's 512 rows take more, its weights and libraries much less


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Arguments of a fit whose every step has all rows of train, in any split."""
    folder = tmp_path_factory.mktemp("find_batch")
    config = mini_config(num_labels=len(CORPUS_CLASSES))
    config.hidden_size, config.intermediate_size = 256, 1024
    config.num_hidden_layers = config.num_attention_heads = 4
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(folder / "bert")
    mini_tokenizer().save_pretrained(folder / "bert")
    (folder / "news").mkdir()
    for split, rows in (("train", ROWS), ("val", 32)):
        lines = [f"{record.text} {record.label}\n" for record in made_up_news(split)[:rows]]
        (folder / "news" / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    return [
        *("fit", "--model.pretrained", str(folder / "bert"), "--data.path", str(folder / "news")),
        *("--data.batch_size", str(ROWS), "--model.dropout", "0", "--trainer.max_epochs", "3"),
        *("--model.learning_rate", "1e-4", "--trainer.log_every_n_steps", "1"),
        *("--find_batch.enabled", "true"),
    ]


def settings(folder, number):
    text = (folder / "runs" / str(number) / "config.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def losses(folder, number):
    with (folder / "runs" / str(number) / "metrics.csv").open(encoding="utf-8") as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]


@pytest.mark.parametrize("execution", ["eager", "compiled", "captured"])
def test_a_small_budget_gives_a_smaller_batch_and_the_same_losses(
    run_process, words, tmp_path, execution
):
    words = [*words, "--trainer.precision", "32", "--model.execution", execution]
    for more in ((), ("--find_batch.memory_gib", BUDGET_GIB)):
        # each in a process of its own, so that nothing else counts among its peak
        status, out, err = run_process(*words, *more, env={"CUDA_VISIBLE_DEVICES": "0"})
        assert status == 0, err
        assert "rows a batch fit" in out
    whole, split = (settings(tmp_path, number) for number in (1, 2))
    rows, windows = split["data"]["batch_size"], split["trainer"]["accumulate_grad_batches"]
    assert whole["data"]["batch_size"] == ROWS
    assert rows < ROWS
    assert rows * windows == ROWS
    report = json.loads((tmp_path / "runs/2/report/report.json").read_text(encoding="utf-8"))
    assert 0 < report["peak_memory_gib"] < BUDGET_GIB
    assert len(losses(tmp_path, 1)) == 3
    assert losses(tmp_path, 2) == pytest.approx(losses(tmp_path, 1), rel=1e-4)


@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_a_batch_is_found_in_mixed_precision_too(run_cli, words, tmp_path, precision):
    budget = ("--find_batch.memory_gib", BUDGET_GIB)
    status, _, err = run_cli(*words, *budget, "--trainer.precision", precision)
    assert status == 0, err
    assert settings(tmp_path, 1)["data"]["batch_size"] < ROWS


def test_too_little_for_one_row_is_refused(run_cli, words, tmp_path):
    status, _, err = run_cli(*words, "--find_batch.memory_gib", "0.02")
    assert status == 1
    assert "find_batch.memory_gib: expected room to train on one row" in err
    assert not (tmp_path / "runs").exists()


def test_the_run_is_the_same_as_without_a_search(run_cli, words, tmp_path):
    words = [*words, "--model.dropout", "0.1"]
    assert run_cli(*words).status == 0
    assert run_cli(*words, "--find_batch.enabled", "false").status == 0
    assert losses(tmp_path, 1) == pytest.approx(losses(tmp_path, 2), rel=1e-4)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_processes_of_ddp_take_the_batch_that_the_first_found(run_process, words, tmp_path):
    more = ("--config", "ddp.yaml", "--trainer.devices", "2", "--find_batch.memory_gib", BUDGET_GIB)
    status, out, err = run_process(*words, *more, env={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert status == 0, err
    assert out.count("rows a batch fit") == 1
    assert settings(tmp_path, 1)["data"]["batch_size"] < ROWS


def test_the_budget_holds_and_nothing_of_a_trial_stays():
    device = torch.device("cuda", 0)
    meter = CudaMeter(device, 0.5)
    before = torch.cuda.memory_reserved(device)

    def work(gib):
        torch.zeros(int(gib * 2**28), device=device)

    assert meter.measure(lambda: work(0.25)) == pytest.approx(0.25, rel=0.1)
    assert meter.measure(lambda: work(0.6)) is None
    assert torch.cuda.memory_reserved(device) <= before
    work(0.6)  # the limit is lifted
