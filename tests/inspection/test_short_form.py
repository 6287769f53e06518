import numpy as np
from made_up import clean_rows, data_set

from bert_lightning.inspection.examination import inspect
from bert_lightning.inspection.results import Subject, TokenCounts
from bert_lightning.inspection.short_form import short_form


def test_clean_data_are_two_lines():
    counts = TokenCounts(np.array([20] * 79 + [40]), np.array([0] * 76 + [1] * 4))
    subject = Subject("news", data_set(), tokens={"train": counts})
    inspection = inspect(subject, max_length=32, padding_waste=lambda lengths, batch_size: 0.016)
    assert short_form(inspection) == [
        "titles that stand again in their split: none",
        "1.25% of rows cut at data.max_length 32, 1.6% padding in batches of train,"
        " 5.0% of rows hold an [UNK]",
    ]


def test_leaks_repeats_and_wrong_names_are_told_with_the_key_to_turn():
    names = {"体育": "家居", "家居": "体育"}
    rows = {
        split: [(title, names.get(name, name)) for title, name in clean_rows(split)]
        for split in ("train", "val", "test")
    }
    rows["test"] += [rows["train"][0], rows["test"][0]]
    assert short_form(inspect(Subject("news", data_set(**rows)))) == [
        "titles that stand again in their split: test 1",
        "titles of test that stand in train too: 1 – data.drop_leaked: true leaves them out of"
        " train",
        "class names likely wrong: 体育 is likely 家居, 家居 is likely 体育 – see data.class_names",
    ]
