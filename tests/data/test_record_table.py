import numpy as np
import pytest

from bert_lightning.data.keys import key_of, normalised
from bert_lightning.data.record_table import open_records, records_in_memory, write_records
from bert_lightning.data.records import Record

RECORDS = [
    Record("雪豹队 逆转", "体育", "a.txt", 1),
    Record("新片上映\u2028🎬", "娱乐", "a.txt", 3),
    Record("无题", None, "b.txt", 1),
    Record("！！", "体育", "b.txt", 2),
]


@pytest.fixture(params=["on disk", "in memory"])
def table(request, tmp_path):
    """Make a table of records."""

    def table(records):
        if request.param == "in memory":
            return records_in_memory(records)
        write_records(tmp_path / "a.arrow", records)
        return open_records(tmp_path / "a.arrow")

    return table


def test_records_come_back_as_they_were(table):
    records = table(RECORDS)
    assert list(records) == RECORDS
    assert [records[number] for number in range(4)] == RECORDS
    assert (records[-1], records[1:3], len(records)) == (RECORDS[-1], RECORDS[1:3], 4)
    with pytest.raises(IndexError):
        records[4]


def test_selected_records_keep_the_order_that_was_asked_for(table):
    records = table(RECORDS).select(np.array([3, 0, 1]))
    assert list(records) == [RECORDS[3], RECORDS[0], RECORDS[1]]
    masked = records.select(np.array([True, False, True]))
    assert list(masked) == [RECORDS[3], RECORDS[1]]
    assert list(masked.strings("text")) == ["！！", RECORDS[1].text]
    assert masked.numbers("line").tolist() == [2, 3]


def test_keys_stand_beside_the_texts(table):
    records = table(RECORDS)
    assert records.numbers("text_key").tolist() == [key_of(record.text) for record in RECORDS]
    assert records.numbers("normalised_key")[0] == key_of(normalised("雪豹队逆转"))


def test_a_text_of_signs_alone_has_its_own_key(table):
    first, second = table([Record("！！", "体育", "a", 1), Record("？？", "体育", "a", 2)]).numbers(
        "normalised_key"
    )
    assert first != second


def test_label_codes_are_positions_of_the_labels(table):
    codes, kinds = table(RECORDS).label_codes()
    assert [kinds[code] for code in codes] == ["体育", "娱乐", None, "体育"]
    codes, kinds = table(RECORDS).select(np.array([1])).label_codes()
    assert (codes.tolist(), kinds) == ([0], ["娱乐"])


def test_a_table_of_no_records_is_empty(table):
    records = table([])
    assert (list(records), len(records)) == ([], 0)
    assert records.label_codes()[1] == []
    assert records.numbers("text_key").shape == (0,)


def test_more_records_than_a_batch_keep_their_order(table):
    many = [Record(f"新片{number}", str(number % 3), "a.txt", number) for number in range(45_000)]
    records = table(many)
    assert records[44_999] == many[-1]
    assert list(records.strings("text")) == [record.text for record in many]
    codes, kinds = records.label_codes()
    assert [kinds[code] for code in codes[-3:]] == [record.label for record in many[-3:]]
