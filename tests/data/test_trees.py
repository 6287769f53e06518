import os

import pytest

from bert_lightning.data.records import Fault, Record
from bert_lightning.data.trees import Tree, class_folders
from bert_lightning.errors import DataError


@pytest.fixture
def tree(write, tmp_path):
    """Write a tree of class folders below news/ and open it."""

    def tree(files, encoding="auto", written="utf-8"):
        for name, content in files.items():
            write(f"news/{name}", content, written)
        return Tree(tmp_path / "news", tmp_path, encoding)

    return tree


@pytest.mark.parametrize("written", ["utf-8", "utf-8-sig", "gb18030"])
def test_each_file_is_a_text_of_the_class_of_its_folder(tree, written):
    files = {"体育/2.txt": "雪豹队逆转", "体育/10.txt": "决赛开打", "娱乐/1.txt": "新片上映"}
    assert list(tree(files, written=written).read()) == [
        Record("雪豹队逆转", "体育", "news/体育/2.txt", 1),
        Record("决赛开打", "体育", "news/体育/10.txt", 1),
        Record("新片上映", "娱乐", "news/娱乐/1.txt", 1),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_lines_of_a_text_are_joined_by_blanks(tree, end):
    (record,) = tree(
        {"体育/1.txt": end.join(["  标题", "", "正文 一\u2028", "\u3000二", ""])}
    ).read()
    assert record.text == "标题 正文 一 二"


def test_the_encoding_is_told_from_files_all_over_the_tree(tree, write):
    files = {f"体育/{number}.txt": "plain" for number in range(300)}
    assert tree({**files, "娱乐/1.txt": b"\xd0\xc2\xc6\xac\xc9\xcf\xd3\xb3"}).encoding == "gb18030"


def test_the_encoding_that_the_user_names_is_taken(tree):
    (record,) = tree({"電影/1.txt": "電影首映"}, "big5", "big5").read()
    assert record.text == "電影首映"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param(b"\xff\xff", Fault("news/体育/2.txt", 1, "utf-8 text", ""), id="bytes"),
        pytest.param(
            "甲\n乙\n".encode() + b"a\xff\n\xff",
            Fault("news/体育/2.txt", 3, "utf-8 text", ""),
            id="third line",
        ),
        pytest.param(b"", Fault("news/体育/2.txt", 0, "a text", "an empty file"), id="empty"),
        pytest.param(b" \r\n ", Fault("news/体育/2.txt", 1, "a text", "blanks"), id="blank"),
        pytest.param(
            "\u3000".encode(), Fault("news/体育/2.txt", 1, "a text", "blanks"), id="U+3000"
        ),
        pytest.param(
            b"PK\x03\x04", Fault("news/体育/2.txt", 0, "a text", "a zip archive"), id="zip"
        ),
    ],
)
def test_a_file_that_is_no_text_is_one_fault_and_the_rest_is_read(tree, content, fault):
    files = {
        "体育/1.txt": "雪豹队",
        "体育/2.txt": content,
        "体育/3.txt": "决赛",
        "娱乐/1.txt": "新片",
    }
    first, found, *rest = tree(files).read()
    assert [record.text for record in (first, *rest)] == ["雪豹队", "决赛", "新片"]
    assert (found.source, found.line, found.expected) == (fault.source, fault.line, fault.expected)
    assert fault.found in found.found


def test_hidden_files_and_folders_are_left_out(tree, tmp_path):
    files = {"体育/1.txt": "雪豹队", "娱乐/1.txt": "新片"}
    hidden = {
        "体育/.DS_Store": b"\x00",
        "体育/._1.txt": b"\x00",
        ".git/a": "x",
        ".DS_Store": b"\x00",
    }
    assert len(list(tree({**files, **hidden}).read())) == 2
    assert class_folders(tmp_path / "news") == ["体育", "娱乐"]


def test_folders_without_files_are_no_classes(write, tmp_path):
    write("体育/1.txt", "雪豹队")
    write("all/体育/1.txt", "雪豹队")
    (tmp_path / "空").mkdir()
    assert class_folders(tmp_path) == ["体育"]


def test_a_tree_without_files_is_refused(tmp_path):
    (tmp_path / "news").mkdir()
    with pytest.raises(DataError, match="expected text files in folders of classes – found none"):
        Tree(tmp_path / "news", tmp_path, "auto")


def test_a_tree_of_no_known_encoding_is_refused_by_name(tree):
    with pytest.raises(DataError, match="news: expected UTF-8 or GB18030 text"):
        tree({"体育/1.txt": b"\xff\xff"})


def test_the_state_follows_names_sizes_and_times(tree, write, tmp_path):
    first = tree({"体育/1.txt": "雪豹队", "娱乐/1.txt": "新片"}).state()
    assert Tree(tmp_path / "news", tmp_path, "auto").state() == first
    path = tmp_path / "news/体育/1.txt"
    times = path.stat()
    path.write_text("云城队", encoding="utf-8")  # as long as before
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = Tree(tmp_path / "news", tmp_path, "auto").state()
    path.rename(path.with_name("2.txt"))
    third = Tree(tmp_path / "news", tmp_path, "auto").state()
    assert len({first, second, third}) == 3


def test_the_digest_follows_names_and_content_and_not_the_place(write, tmp_path):
    def digest(place, name="1.txt", text="雪豹队"):
        write(f"{place}/news/体育/{name}", text)
        tree = Tree(tmp_path / place / "news", tmp_path / place, "auto")
        list(tree.read())
        return tree.digest

    assert digest("a") == digest("b")
    assert len({digest("a"), digest("c", name="2.txt"), digest("d", text="云城队")}) == 3


def test_names_of_folders_in_gb18030_are_classes(tmp_path):
    for label in ("体育", "娱乐"):
        folder = tmp_path / "news" / os.fsdecode(label.encode("gb18030"))
        folder.mkdir(parents=True)
        (folder / os.fsdecode("新片.txt".encode("gbk"))).write_text("新片", encoding="utf-8")
    tree = Tree(tmp_path / "news", tmp_path / "news", "auto")
    assert [(r.label, r.source) for r in tree.read()] == [
        (label, f"{label}/新片.txt") for label in ("体育", "娱乐")
    ]
    assert tree.state()
