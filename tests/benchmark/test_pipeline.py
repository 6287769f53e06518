import json

import numpy as np
import pytest

from bert_lightning.benchmark import pipeline
from bert_lightning.demo.mini_bert import mini_vocabulary


@pytest.fixture
def small(monkeypatch):
    for name in ("FETCHED_ROWS", "TOKENISED_ROWS", "LOOP_ROWS", "KEY_SAMPLE"):
        monkeypatch.setattr(pipeline, name, 50)
    monkeypatch.setattr(pipeline, "REPEATS", 1)
    monkeypatch.setattr(pipeline, "FULL_ROWS", 60)


@pytest.mark.slow  # it starts processes of all kinds
def test_the_whole_report_is_printed_and_written(small, tmp_path, capsys):
    pipeline.main(["--output", str(tmp_path / "out"), "--full"])
    text = (tmp_path / "out" / "pipeline.md").read_text("utf-8")
    result = json.loads((tmp_path / "out" / "pipeline.json").read_text("utf-8"))
    assert capsys.readouterr().out == text
    assert "16,000 texts of `builtin`" in text
    assert set(result["environment"]) >= {"cpu", "cores", "torch", "tokenizers", "pyarrow"}
    assert all(
        rate > 0 for rates in result["fetched_rows_per_second"].values() for rate in rates.values()
    )
    assert set(result["tokenising"]) == {"loop", "num_proc null", "num_proc 1", "num_proc 2"}
    waste = result["padding_waste"]
    assert waste["sorted"]["1"] < waste["pools"]["1"] < 0.03 < waste["random"]["1"]
    assert waste["pools"]["1"] < waste["pools"]["8"]
    assert result["full"]["texts"] == 60
    assert result["full"]["open"]["peak_mib"] > 50
    assert set(result["full"]["disk_mib"]) == {"records.arrow", "rows.arrow"}


def test_no_path_of_this_machine_is_in_the_report(monkeypatch, tmp_path):
    folder = tmp_path / "private" / "news"
    folder.mkdir(parents=True)
    for split in ("train", "val", "test"):
        lines = [
            f"{split}{number}标题 {label}\n" for number in range(40) for label in ("体育", "科技")
        ]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    monkeypatch.setattr(pipeline, "tokenising", lambda texts: {"loop": len(texts)})
    monkeypatch.setattr(pipeline, "REPEATS", 1)
    monkeypatch.setattr(pipeline, "FETCHED_ROWS", 50)
    pipeline.main(["--output", str(tmp_path / "out"), "--data", str(folder)])
    for file in (tmp_path / "out").iterdir():
        assert "private" not in file.read_text("utf-8")
        assert "news" in file.read_text("utf-8")


def test_texts_of_full_size_are_the_same_each_time_and_known_to_the_tokenizer():
    records = list(pipeline.made_up_records(30))
    assert records == list(pipeline.made_up_records(30))
    assert len({record.text for record in records}) == 30
    assert {len(record.text) for record in records} == {500}
    assert len({record.label for record in records}) == 14
    assert set("".join(record.text for record in records)) <= set(mini_vocabulary())


def test_peak_memory_is_that_of_this_process():
    before = pipeline._peak_mib()
    block = np.ones(40 * 2**20)  # 320 MiB
    assert pipeline._peak_mib() >= before
    assert pipeline._peak_mib() > block.nbytes / 2**20
