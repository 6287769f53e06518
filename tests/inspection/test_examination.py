"""Planted faults are found, each exactly, and nothing else."""

import numpy as np
import pytest
from made_up import CLASSES, as_records, clean_rows, data_set, padded_share

from bert_lightning.data.records import Fault, LabelTable
from bert_lightning.demo.mini_bert import mini_tokenizer
from bert_lightning.inspection.examination import inspect
from bert_lightning.inspection.results import Subject, TokenCounts

IDS = {str(number): name for number, name in enumerate(CLASSES)}


def _inspect(records=None, **options):
    return inspect(Subject("news", records or data_set(), **options))


def _counts(inspection):
    return {finding.code: finding.count for finding in inspection.findings}


def _only(inspection, code):
    assert [finding.code for finding in inspection.findings] == [code]
    return inspection.findings[0]


def _with(split, *rows):
    """Return clean data with more rows at the end of a split."""
    return data_set(**{split: [*clean_rows(split), *rows]})


def test_clean_data_have_no_finding():
    assert _inspect().findings == []
    assert _inspect(labels=LabelTable(CLASSES)).findings == []


def test_bad_rows_are_named_with_the_key_that_skips_them():
    finding = _only(
        _inspect(faults=[Fault("train.txt", 7, "a title, a TAB and a label", "no TAB")]), "bad_rows"
    )
    assert finding.severity == "fault"
    assert finding.examples == ["train.txt:7: expected a title, a TAB and a label – found no TAB"]
    assert str(finding) == (
        "files: expected a title and a label in each row – found 1 other rows"
        " – correct them, or leave them out with data.on_bad_row: skip"
    )


@pytest.mark.parametrize(("other", "exact"), [("", 1), ("（组图）", 0), ("！", 0)])
@pytest.mark.parametrize("split", ["val", "test"])
def test_a_title_of_train_in_another_split_is_a_leak(split, other, exact):
    title, label = clean_rows("train")[4]
    inspection = _inspect(_with(split, (title + other, label)))
    finding = _only(inspection, "leak")
    assert (finding.severity, finding.count) == ("fault", 1)
    assert f"found 1 ({exact} to the letter)" in finding.message
    assert "data.drop_leaked: true" in finding.remedy
    assert finding.examples == [f"{split}.txt:25: {title}{other} – as train.txt:5"]


def test_a_title_in_val_and_test_is_a_note():
    inspection = _inspect(_with("test", clean_rows("val")[0]))
    assert (_only(inspection, "shared_titles").severity, inspection.faults) == ("note", [])


def test_files_of_the_same_bytes_are_one_fault_not_many_leaks():
    records = data_set(val=clean_rows("test"))
    digests = {"test": "b" * 64, "train": "a" * 64, "val": "b" * 64}
    finding = _only(_inspect(records, digests=digests), "identical_splits")
    assert finding.message == "val, test: expected two files – found the same bytes in both"
    assert (finding.severity, finding.count) == ("fault", 24)


def test_a_title_with_two_labels_is_a_fault_wherever_its_rows_stand():
    title = clean_rows("train")[0][0]
    inspection = _inspect(_with("train", (title, "娱乐")))
    assert _counts(inspection) == {"two_labels": 1, "repeats": 1}
    assert inspection.two_labels.examples == [
        f"train.txt:1: {title} – '体育', but '娱乐' at train.txt:81"
    ]
    assert inspection.splits["train"].two_labels == 1
    inspection = _inspect(_with("test", (title, "娱乐")))
    assert _counts(inspection) == {"leak": 1, "two_labels": 1}
    assert [split.two_labels for split in inspection.splits.values()] == [0, 0, 0]


def test_ids_without_a_name_are_counted():
    rows = [(title, str(CLASSES.index(name))) for title, name in clean_rows("train")]
    records = {"train": as_records([*rows, ("第七天天气晴朗", "4"), ("第八天天气晴朗", "11")])}
    finding = _only(_inspect(records, labels=LabelTable(CLASSES, IDS)), "unnamed_labels")
    assert "expected a class id from 0 to 3 – found 2 other labels in 2 rows" in finding.message
    assert finding.examples == ["'4': 1 rows", "'11': 1 rows"]


def test_names_without_rows_are_a_note():
    inspection = _inspect(labels=LabelTable([*CLASSES, "汽车"]))
    assert _only(inspection, "unused_names").examples == ["汽车"]
    assert inspection.faults == []


def test_a_class_absent_from_one_split_is_named():
    rows = [row for row in clean_rows("val") if row[1] != "家居"]
    finding = _only(_inspect(data_set(val=rows)), "absent_class")
    assert finding.message.startswith("val: ")
    assert finding.examples == ["家居"]


def test_one_label_for_all_rows_is_no_test_set():
    rows = [(title, "体育") for title, _ in clean_rows("test")]
    finding = _only(_inspect(data_set(test=rows)), "constant_labels")
    assert finding.message == ("test: expected labels of 4 classes – found 体育 in all 24 rows")


def test_rows_without_a_label_are_a_fault_and_no_absent_class():
    rows = [(title, None) for title, _ in clean_rows("test")]
    finding = _only(_inspect(data_set(test=rows)), "missing_labels")
    assert "data.label_column" in finding.remedy
    assert "found none in test 24 rows (none at all in test)" in finding.message
    assert _counts(_inspect(_with("train", ("无题一则新闻", None)))) == {"missing_labels": 1}


def test_names_of_two_classes_exchanged_are_found():
    names = {"体育": "家居", "家居": "体育"}
    records = {
        split: as_records([(t, names.get(n, n)) for t, n in clean_rows(split)], f"{split}.txt")
        for split in ("train", "val", "test")
    }
    inspection = _inspect(records)
    finding = _only(inspection, "wrong_names")
    assert (finding.severity, finding.count) == ("fault", 2)
    assert {(w.name, w.likely) for w in inspection.wrong_names} == {
        ("体育", "家居"),
        ("家居", "体育"),
    }
    assert inspection.wrong_names[0].titles == 32


def test_a_class_list_in_another_order_is_found():
    lists = {"class.txt": CLASSES, "label.json": CLASSES[::-1], "copy.txt": CLASSES}
    finding = _only(_inspect(class_lists=lists), "class_lists_differ")
    assert (finding.severity, finding.count) == ("note", 1)
    assert "beside class.txt" in finding.message
    ids = {
        split: as_records([(t, str(CLASSES.index(n))) for t, n in clean_rows(split)])
        for split in ("train", "test")
    }
    inspection = _inspect(ids, class_lists=lists, labels=LabelTable(CLASSES, IDS))
    assert _only(inspection, "class_lists_differ").severity == "fault"


def test_a_label_that_looks_like_another_is_found():
    rows = [(t, "体育\u200b" if i % 8 == 0 else n) for i, (t, n) in enumerate(clean_rows("train"))]
    inspection = _inspect({"train": as_records(rows)})
    assert _only(inspection, "invisible_in_label").examples == ["'\\u4f53\\u80b2\\u200b'"]


def test_repeats_and_sorted_files_are_notes():
    rows = sorted(clean_rows("train"), key=lambda row: row[1])
    inspection = _inspect(data_set(train=[*rows, rows[-1]]))
    assert _counts(inspection) == {"repeats": 1, "sorted": 4}
    assert inspection.faults == []
    assert "found 4 stretches of equal labels where random order has 62" in str(
        inspection.findings[1]
    )


@pytest.mark.parametrize(
    ("sign", "code"),
    [
        ("\ufffd", "replacement_character"),
        ("&nbsp;", "html_entity"),
        ("&#8226;", "html_entity"),
        ("\t", "control_character"),
        ("\u2028", "control_character"),
        ("\u200b", "invisible_character"),
    ],
)
def test_odd_characters_are_notes(sign, code):
    inspection = _inspect(_with("val", (f"今日{sign}头条新闻", "体育")))
    assert _counts(inspection) == {code: 1}
    assert inspection.faults == []


@pytest.mark.parametrize("text", ["张三 & 李四;", "两个  空格", "全角\u3000空格", "“引号”"])
def test_usual_characters_are_no_finding(text):
    assert _inspect(_with("val", (text, "体育"))).findings == []


def test_empty_titles_are_faults_and_short_ones_notes():
    inspection = _inspect(_with("train", ("\u3000 ", "体育"), ("赢了", "体育")))
    assert _counts(inspection) == {"empty_texts": 1, "short_texts": 1}
    assert [finding.severity for finding in inspection.findings] == ["fault", "note"]


def test_titles_of_signs_only_are_not_the_same_title():
    assert _counts(_inspect(_with("train", ("？？？", "体育"), ("！！！", "娱乐")))) == {}


def _with_tokens(lengths, unknown=None, **options):
    rows = clean_rows("train", len(lengths))
    unknown = [0] * len(lengths) if unknown is None else unknown
    counts = TokenCounts(np.array(lengths), np.array(unknown))
    subject = Subject("news", {"train": as_records(rows)}, tokens={"train": counts})
    return inspect(subject, **options)


def test_truncation_is_a_note_with_the_length_that_is_advised():
    inspection = _with_tokens([20] * 190 + [44] * 10, max_length=32, batch_size=8)
    finding = _only(inspection, "truncated")
    assert finding.count == 10
    assert "found 32, which cuts 5.0% (train 10)" in finding.message
    assert finding.remedy == "data.max_length: 48"
    assert _with_tokens([20] * 200 + [44], max_length=32).findings == []  # 0.498 %


def test_padding_comes_from_the_function_that_is_given():
    lengths = [10] * 8 + [20] * 8
    waste = _with_tokens(lengths, max_length=16, batch_size=16, padding_waste=padded_share)
    assert waste.splits["train"].pieces.padding_waste == 1 - (80 + 128) / (16 * 16)
    assert {p.max_length: p.truncated for p in waste.tokens.curve} == {8: 1.0, 16: 0.5, 24: 0.0}
    assert _with_tokens(lengths).splits["train"].pieces.padding_waste is None


def test_what_became_unknown_is_counted():
    tokenizer = mini_tokenizer()
    rows = [("今日嘂嘂新闻α9", "体育"), ("没有生僻字的新闻", "娱乐"), ("又见嘂字", "体育")]
    records = {"train": as_records(rows)}
    encoded = [tokenizer(title).input_ids for title, _ in rows]
    unknown = [ids.count(tokenizer.unk_token_id) for ids in encoded]
    assert sum(unknown) > 0
    tokens = {"train": TokenCounts(np.array([len(ids) for ids in encoded]), np.array(unknown))}
    subject = Subject("news", records, tokens=tokens, tokenizer=tokenizer)
    finding = _only(inspect(subject), "unknown_pieces")
    assert (finding.severity, finding.count) == ("note", 2)
    assert finding.examples == ["嘂 × 3", "α9 × 1"]


def test_no_rows_at_all_are_no_crash():
    inspection = _inspect({"train": as_records([])})
    assert inspection.findings == []
    assert inspection.splits["train"].characters is None


def test_texts_of_a_selection_are_its_own():
    records = as_records([("甲\t乙", "体育"), *clean_rows("train"), ("丙&nbsp;丁", "体育")])
    chosen = records.select(np.array([81, 3, 1]))
    marks = _inspect({"train": chosen}).splits["train"].marks
    assert marks["html_entity"].examples == ["train.txt:82: 丙&nbsp;丁"]
    assert marks["control_character"].count == 0
