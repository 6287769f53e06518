import dataclasses
import json

import numpy as np
from made_up import clean_rows, data_set

from bert_lightning.inspection.document import as_json
from bert_lightning.inspection.examination import inspect
from bert_lightning.inspection.results import Inspection, Subject, TokenCounts


def test_everything_is_in_the_json_and_its_keys_are_stable():
    rows = [*clean_rows("test"), clean_rows("train")[0]]
    subject = Subject("news", data_set(test=rows), digests={"train": "a", "val": "b", "test": "b"})
    inspection = inspect(subject)
    content = json.loads(as_json(inspection))
    assert list(content) == ["format", *(f.name for f in dataclasses.fields(Inspection))]
    assert content["format"] == 1
    assert content["identical"] == [["val", "test"]]
    assert content["splits"]["test"]["class_rows"] == {"体育": 7, "娱乐": 6, "家居": 6, "科技": 6}
    assert content["shared"][1]["by_key"] == 1
    assert [finding["code"] for finding in content["findings"]] == ["identical_splits", "leak"]


def test_what_is_no_number_becomes_null():
    counts = TokenCounts(np.full(80, 20), np.zeros(80, dtype=np.int64))
    subject = Subject("news", data_set(), tokens={"train": counts})
    text = as_json(inspect(subject, padding_waste=lambda lengths, batch_size: float("nan")))
    assert "NaN" not in text
    assert json.loads(text)["splits"]["train"]["pieces"]["padding_waste"] is None
    assert "体育" in text
