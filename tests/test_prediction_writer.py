import io
import json

import numpy as np
import pytest

from bert_lightning.callbacks import prediction_writer
from bert_lightning.callbacks.prediction_writer import _write_jsonl
from bert_lightning.data.records import Record

NAMES = ["100%", '引"号', "%s\u2028", "家居"]


@pytest.mark.parametrize("chunk", [2, 4096])
def test_a_row_is_what_json_makes_of_it_whatever_names_and_texts_hold(monkeypatch, chunk):
    monkeypatch.setattr(prediction_writer, "_CHUNK_ROWS", chunk)
    texts = ["%d %s", 'a "b"\\', "\u2028\x7f控", "", "不评分"]
    probabilities = np.array(
        [[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0], [1e-7, 1 / 3, 0, 2 / 3], [0.25] * 4, [np.nan] * 4],
        np.float32,
    )
    stream = io.StringIO()
    records = [Record(text, None, "texts.txt", number) for number, text in enumerate(texts, 1)]
    _write_jsonl(stream, records, NAMES, probabilities)
    lines = stream.getvalue().split("\n")
    assert lines.pop() == ""
    winners = ["家居", "100%", "家居", None, None]
    for line, text, winner, row in zip(lines, texts, winners, probabilities, strict=True):
        shares = [round(float(value), 6) for value in row]
        expected = {
            "text": text,
            "label": winner,
            "probabilities": winner and dict(zip(NAMES, shares, strict=True)),
        }
        assert json.loads(line) == expected
        plain = json.dumps(expected, ensure_ascii=False)
        assert line == plain.replace("\u2028", "\\u2028").replace("\x7f", "\\u007f")


def test_no_rows_are_no_lines():
    stream = io.StringIO()
    _write_jsonl(stream, [], NAMES, np.empty((0, 4), np.float32))
    assert stream.getvalue() == ""
