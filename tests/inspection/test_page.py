import re
from html.parser import HTMLParser

import numpy as np
from made_up import as_records, clean_rows, data_set, padded_share

from bert_lightning.inspection.examination import inspect
from bert_lightning.inspection.page import as_page
from bert_lightning.inspection.results import Subject, TokenCounts


class _Reader(HTMLParser):
    """Checks that tags close in order; gathers tags, addresses and text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.addresses, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def _read(page):
    reader = _Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def _page(records=None, **options):
    records = records or data_set()
    tokens = {
        split: TokenCounts(np.full(len(rows), 20) + np.arange(len(rows)) % 7, np.zeros(len(rows)))
        for split, rows in records.items()
    }
    subject = Subject("news", records, tokens=tokens)
    return as_page(inspect(subject, padding_waste=padded_share, **options))


def test_the_page_needs_nothing_from_outside():
    page = _page()
    reader = _read(page)
    assert reader.addresses == []
    assert not {"script", "link", "img", "iframe"} & set(reader.tags)
    assert "url(" not in page
    assert "@import" not in page
    assert reader.tags.count("svg") == 2


def test_titles_and_names_are_escaped():
    evil = "<script>alert(1)</script>\"'&amp;"
    rows = [*clean_rows("train"), (evil, evil), (evil, evil)]
    reader = _read(_page({"train": as_records(rows)}))
    assert "script" not in reader.tags
    text = "".join(reader.text)
    assert f"train.txt:82: {evil} – as train.txt:81" in text  # of the finding
    assert text.count(evil) >= 2


def test_the_matrix_of_leaks_shows_both_counts():
    rows = [*clean_rows("test"), clean_rows("train")[0], (f"{clean_rows('train')[1][0]}！", "娱乐")]
    page = _page(data_set(test=rows))
    assert page.count("<td class=leaky>1 / 2</td>") == 2
    assert page.count("<td>0 / 0</td>") == 4
    assert "data.drop_leaked: true" in page


def test_a_hundred_and_twenty_classes_each_have_a_line():
    rows = [(f"第{i}条", f"名字很长的类别{i % 120:03}") for i in range(480)]
    page = _page({"train": as_records(rows)})
    assert (
        len(re.findall(r"<tr><td>名字很长的类别\d{3}</td><td><i style=\"width:100.0%", page)) == 120
    )


def test_the_lines_of_max_length_stand_where_it_is():
    page = _page(max_length=32)
    # 360 units, 56 left of the scale and 14 right of it; the scale ends at 32 pieces
    assert page.count('<line class="chosen" x1="346.0" x2="346.0"') == 2
    assert "dashed: data.max_length 32; dotted: advised 32" in page


def test_no_rows_are_no_crash():
    for records in ({"train": as_records([])}, {}):
        page = as_page(inspect(Subject("news", records)))
        assert _read(page).open == []
        assert "news" in page
