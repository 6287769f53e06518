import numpy as np

from bert_lightning.benchmark.peer_data import (
    CLASSES,
    HEADLINE_PIECES,
    LONG_PIECES,
    made_up_texts,
    peer_rows,
    store_rows,
    write_data,
)
from bert_lightning.demo.mini_bert import mini_tokenizer


def test_headlines_have_the_lengths_of_thucnews():
    pieces = np.array([len(text) + 2 for text in made_up_texts(4_000, HEADLINE_PIECES)])
    assert abs(pieces.mean() - 21) < 0.3
    assert abs(pieces.std() - 4) < 0.2
    assert pieces.max() <= 40


def test_long_texts_fill_every_row():
    assert {len(text) for text in made_up_texts(20, LONG_PIECES)} == {126}


def test_other_seeds_give_other_texts():
    assert list(made_up_texts(5, HEADLINE_PIECES)) == list(made_up_texts(5, HEADLINE_PIECES))
    assert set(made_up_texts(50, HEADLINE_PIECES)).isdisjoint(made_up_texts(50, HEADLINE_PIECES, 1))


def test_peers_get_the_rows_that_fit_finds_in_its_cache(tmp_path, tiny_bert_folder):
    data, cache, file = tmp_path / "news", tmp_path / "cache", tmp_path / "rows.npz"
    write_data(data, 30, HEADLINE_PIECES)
    store_rows(data, tiny_bert_folder, cache, 18, file)
    rows, classes = peer_rows(file)
    tokenizer = mini_tokenizer()
    lines = (data / "train.txt").read_text("utf-8").splitlines()
    assert classes == len(CLASSES) == 4
    assert len(rows) == len(lines) == 30
    names = {}
    for row, line in zip(rows, lines, strict=True):
        text, name = line.split("\t")
        assert row["input_ids"] == tokenizer(text, truncation=True, max_length=18)["input_ids"]
        assert row["attention_mask"] == [1] * len(row["input_ids"])
        assert names.setdefault(name, row["labels"]) == row["labels"]
    assert sorted(names.values()) == [0, 1, 2, 3]


def encoded(cache):
    return [path for path in cache.glob("encoded-*") if path.is_dir()]


def test_a_fit_over_the_same_data_does_not_tokenise_train_again(
    tmp_path, tiny_bert_folder, run_cli
):
    data, cache = tmp_path / "news", tmp_path / "cache"
    write_data(data, 30, HEADLINE_PIECES)
    store_rows(data, tiny_bert_folder, cache, 128, tmp_path / "rows.npz")
    assert len(encoded(cache)) == 1
    result = run_cli(
        *("fit", "--data.path", data, "--data.cache_dir", cache),
        *("--model.pretrained", tiny_bert_folder, "--trainer.max_steps", 1),
        *("--trainer.limit_val_batches", 0, "--trainer.enable_checkpointing", "false"),
    )
    assert result.status == 0, result.err
    assert len(encoded(cache)) == 3  # val and test were added, train was there
