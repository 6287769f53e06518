"""The data module: what it makes of keys, what it keeps, and what it hands to the model."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bert_lightning.data.encoding import encode
from bert_lightning.data.loading import BUILTIN
from bert_lightning.datamodule import THUCNewsDataModule, resolve_data_path
from bert_lightning.demo.mini_bert import mini_tokenizer
from bert_lightning.errors import ConfigError
from bert_lightning.module import BertClassifier


def _cache_entries(cache, name):
    return sorted(path.name for path in cache.glob(f"{name}-*") if path.is_dir())


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("batch_size", 0, "data.batch_size: expected 1 or more – found 0"),
        ("max_length", 2, "data.max_length: expected 3 or more – found 2"),
        ("num_workers", -1, "data.num_workers: expected 0 or more – found -1"),
        ("pad_to_multiple_of", 0, "data.pad_to_multiple_of: expected 1 or more – found 0"),
        ("tokens_per_batch", 0, "data.tokens_per_batch: expected 1 or more – found 0"),
        ("num_proc", 0, "data.num_proc: expected 1 or more – found 0"),
        ("holdout_ratio", 0.5, "data.holdout_ratio: expected above 0, below 0.5 – found 0.5"),
        ("encoding", "utf-16", "data.encoding: expected auto, utf-8, gb18030"),
        ("encoding", "klingon", "data.encoding: expected auto, utf-8, gb18030"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_key(key, value, expected):
    with pytest.raises(ConfigError, match=expected.replace(".", r"\.")):
        THUCNewsDataModule(**{key: value})


def test_all_values_out_of_range_are_told_at_once():
    with pytest.raises(ConfigError, match=r"batch_size.*\n.*num_proc"):
        THUCNewsDataModule(batch_size=0, num_proc=-1)


def test_a_dataset_of_the_hub_is_no_folder():
    assert resolve_data_path("hf://owner/news:small") == ("hf://owner/news:small", None)


def test_a_tilde_is_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_data_path("~/news") == (str(tmp_path / "news"), None)


@pytest.mark.parametrize("key", ["path", "cache_dir"])
def test_the_home_of_an_unknown_user_is_refused_with_its_key(key):
    with pytest.raises(ConfigError, match=rf"data\.{key}: .* found ~nobody-here"):
        THUCNewsDataModule(**{key: "~nobody-here/news"})


def test_another_class_file_makes_another_summary(tmp_path):
    (tmp_path / "train.txt").write_text("甲\t0\n乙\t1\n丙\t0\n丁\t1\n" * 5, encoding="utf-8")
    (tmp_path / "val.txt").write_text("戊\t0\n己\t1\n", encoding="utf-8")
    cache = tmp_path / "cache"
    for names in ("体育\n娱乐\n", "娱乐\n体育\n", "体育\n娱乐\n"):
        (tmp_path / "class.txt").write_text(names, encoding="utf-8")
        data = THUCNewsDataModule(str(tmp_path), cache_dir=str(cache))
        data.trainer = SimpleNamespace(lightning_module=SimpleNamespace(tokenizer=mini_tokenizer()))
        data.summary()
    assert len(_cache_entries(cache, "summary")) == 2


def test_balanced_weights_are_inverse_to_the_rows_of_each_class(tmp_path):
    rows = [
        f"第{number}条新闻\t{label}\n" for number, label in enumerate("体体体体体体家家科科科科")
    ]
    (tmp_path / "train.txt").write_text("".join(rows), encoding="utf-8")
    (tmp_path / "val.txt").write_text("另一条\t体\n再一条\t家\n", encoding="utf-8")
    data = THUCNewsDataModule(
        str(tmp_path), class_weights="balanced", cache_dir=str(tmp_path / "cache")
    )
    assert data.label_names == ["体", "家", "科"]
    assert data.loss_weights == pytest.approx([12 / (3 * 6), 12 / (3 * 2), 12 / (3 * 4)])


def test_listed_weights_are_taken_as_they_are(news_folder):
    assert THUCNewsDataModule(str(news_folder), class_weights=[1, 2, 3, 4]).loss_weights == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("weights", [[1.0, 2.0], [1, 1, 1, 0], [1, 1, 1, float("nan")]])
def test_other_than_one_positive_weight_a_class_is_refused(news_folder, weights):
    with pytest.raises(ConfigError, match=r"data\.class_weights: expected 4 numbers above 0"):
        _ = THUCNewsDataModule(str(news_folder), class_weights=weights).loss_weights


def test_weights_change_the_training_loss_and_no_other():
    batch = encode(["主场大胜", "客厅翻新"], [0, 1], mini_tokenizer(), 16).__getitems__([0, 1])
    losses = []
    for weights in (None, [9.0, 1.0]):
        torch.manual_seed(1)
        model = BertClassifier("builtin", ["体育", "家居"], dropout=0.0, class_weights=weights)
        model._weights = None if weights is None else torch.tensor(weights)
        model._evaluate(batch)
        losses.append((model.row_losses(batch), model.metrics.summary()["loss"]))
    (plain, evaluated), (weighted, evaluated_too) = losses
    assert plain.mean().item() == pytest.approx(evaluated)
    assert torch.allclose(weighted, plain * torch.tensor([9.0, 1.0]))
    assert evaluated_too == evaluated


def test_rows_are_tokenised_once_and_found_again(quick, run_cli, tmp_path):
    cache = tmp_path / "cache"
    for _ in range(2):
        status, _, err = run_cli("fit", *quick, "--data.cache_dir", cache)
        assert status == 0, err
    encoded = _cache_entries(cache, "encoded")
    assert len(encoded) == 3  # train, val, test
    run_cli("fit", *quick, "--data.cache_dir", cache, "--data.max_length", 16)
    assert len(_cache_entries(cache, "encoded")) == 6
    assert set(encoded) < set(_cache_entries(cache, "encoded"))
    assert len(_cache_entries(cache, "records")) == 1


def test_a_changed_file_is_read_and_tokenised_anew(quick, news_folder, run_cli, tmp_path):
    cache = tmp_path / "cache"
    run_cli("fit", *quick, "--data.cache_dir", cache)
    train = news_folder / "train.txt"
    text = train.read_text(encoding="utf-8")
    train.write_text(text.replace("体育", "娱乐", 1), encoding="utf-8", newline="\n")
    assert train.stat().st_size == len(text.encode())
    run_cli("fit", *quick, "--data.cache_dir", cache)
    assert len(_cache_entries(cache, "records")) == 2


def test_a_cache_that_cannot_be_written_is_an_error_with_its_key(quick, run_cli, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    status, _, err = run_cli("fit", *quick, "--data.cache_dir", tmp_path / "file" / "cache")
    assert status == 1
    assert "data.cache_dir: expected a folder to write to" in err


def test_bad_rows_are_refused_or_left_out_and_listed(quick, news_folder, run_cli, tmp_path):
    with (news_folder / "train.txt").open("a", encoding="utf-8") as file:
        file.write("只有标题没有类别的一行 天气\n孤零零\n")
    status, _, err = run_cli("fit", *quick)
    assert status == 1
    assert "train.txt:65: " in err
    assert "train.txt:66: expected a title, a blank and a label" in err
    assert "data.on_bad_row: skip" in err
    status, out, err = run_cli("fit", *quick, "--data.on_bad_row", "skip")
    assert status == 0, err
    assert "2 bad rows left out" in out
    listed = (tmp_path / "runs" / "1" / "dropped_rows.csv").read_text(encoding="utf-8-sig")
    assert [row[:2] for row in csv.reader(listed.splitlines())] == [
        ["file", "line"],
        ["train.txt", "66"],
        ["train.txt", "65"],
    ]


def test_leaked_titles_are_told_and_left_out_of_train(quick, news_folder, run_cli):
    test = (news_folder / "test.txt").read_text(encoding="utf-8").splitlines()
    with (news_folder / "train.txt").open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in test[:5])
    status, out, err = run_cli("fit", *quick)
    assert status == 0, err
    assert "titles of test that stand in train too: 5 – data.drop_leaked: true" in out
    status, out, err = run_cli("fit", *quick, "--data.drop_leaked", "true")
    assert status == 0, err
    assert "5 rows of train left out, since later splits have their titles" in out
    assert "stand in train too" not in out


def test_the_banner_says_what_each_file_was_taken_for_and_why(quick, run_cli):
    _, out, _ = run_cli("fit", *quick)
    assert "train.txt: utf-8, a title, a blank and a label (4 different values at the end" in out


def test_a_test_file_without_labels_is_left_out_of_a_fit(quick, news_folder, run_cli):
    lines = (news_folder / "test.txt").read_text(encoding="utf-8").splitlines()
    rows = [
        json.dumps({"id": i, "sentence": line.rsplit(" ", 1)[0]}) for i, line in enumerate(lines)
    ]
    (news_folder / "test.txt").unlink()
    (news_folder / "test.json").write_text("\n".join(rows), encoding="utf-8")
    status, out, err = run_cli("fit", *quick)
    assert status == 0, err
    assert "test.json holds no labels and is left out: predict takes it" in out
    assert "not tested" in out


@pytest.mark.parametrize("truncation", ["head", "tail", "head_tail"])
def test_cut_rows_are_counted_in_the_report(quick, run_cli, tmp_path, truncation):
    status, _, err = run_cli(
        "fit", *quick, "--data.max_length", "8", "--data.truncation", truncation
    )
    assert status == 0, err
    report = json.loads((tmp_path / "runs/1/report/report.json").read_text(encoding="utf-8"))
    assert report["truncated_rows"]["train"] > 0


def test_batches_by_tokens_hold_each_row_once(news_folder, tmp_path):
    data = THUCNewsDataModule(
        str(news_folder), tokens_per_batch=256, cache_dir=str(tmp_path / "cache")
    )
    rows = data.tokens.rows(data.news.records["train"], data.news.entry, mini_tokenizer())
    batches = list(data._sampler(rows.lengths, shuffle=True))
    assert sorted(np.concatenate(batches)) == list(range(64))
    assert max(len(b) * rows.lengths[b].max() for b in batches) <= 256


def test_padding_to_a_multiple_reaches_the_batches(quick, news_folder, tmp_path):
    data = THUCNewsDataModule(
        str(news_folder), pad_to_multiple_of=8, cache_dir=str(tmp_path / "cache")
    )
    rows = data.tokens.rows(data.news.records["train"], data.news.entry, mini_tokenizer())
    batch = rows.__getitems__([0, 1, 2])
    assert batch["input_ids"].shape[1] % 8 == 0
    assert torch.all(batch["attention_mask"].sum(dim=1) == torch.tensor(rows.lengths[:3]))


def test_the_built_in_corpus_is_kept_like_any_other(tmp_path):
    data = THUCNewsDataModule(BUILTIN, cache_dir=str(tmp_path))
    assert data.splits == {"train": 16_000, "val": 2_000, "test": 2_000}
    assert len(_cache_entries(tmp_path, "records")) == 1
