import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from bert_lightning.data.columnar import load_saved, read_dataset, read_parquet
from bert_lightning.data.columns import BY_NAME, Columns
from bert_lightning.data.records import Fault, Record
from bert_lightning.errors import DataError

NAMES = ["体育", "娱乐", "科技"]


@pytest.fixture
def table(tmp_path):
    """Write a Parquet file: `table(name, column=values) -> path`."""

    def table(name, **columns):
        parquet.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    return table


def _rows(paths, columns=BY_NAME):
    layout, items = read_parquet(paths, lambda path: path.name, columns)
    return layout, list(items)


def test_each_row_of_parquet_is_a_record(table):
    layout, items = _rows([table("a.parquet", id=[7, 8], text=[" 甲 ", "乙"], label=[0, 1])])
    assert items == [Record("甲", "0", "a.parquet", 1), Record("乙", "1", "a.parquet", 2)]
    assert (layout.text, layout.label, layout.form) == ("text", "label", "columns")
    assert "text in 'text', label in 'label'" in str(layout)


def test_parts_are_read_one_after_another(table):
    paths = [
        table(f"train-0000{n}-of-00002.parquet", text=[f"新片{n}"], label=["娱乐"])
        for n in range(2)
    ]
    _, items = _rows(paths)
    assert [(item.text, item.where) for item in items] == [
        ("新片0", "train-00000-of-00002.parquet:1"),
        ("新片1", "train-00001-of-00002.parquet:1"),
    ]


def test_labels_of_any_type_are_read(table):
    text = ["甲", "乙", "丙"]
    for labels in (["0", "1", "2"], [0, 1, 2], [0.0, 1.0, 2.0], [["0"], ["1"], ["2"]]):
        _, items = _rows([table("a.parquet", text=text, label=labels)])
        assert [item.label for item in items] == ["0", "1", "2"]


def test_rows_without_text_or_label_are_faults(table):
    _, items = _rows([table("a.parquet", text=["甲", None, "丙"], label=["体育", "体育", None])])
    assert [type(item) for item in items] == [Record, Fault, Fault]
    assert [item.place for item in items[1:]] == ["a.parquet:2", "a.parquet:3"]


def test_columns_that_the_user_names_are_read(table):
    path = table("a.parquet", title=["甲"], body=["乙"], label=[0], kind=["体育"])
    _, items = _rows([path], Columns("body", "kind"))
    assert items == [Record("乙", "体育", "a.parquet", 1)]


def test_parquet_without_label_column_has_records_without_label(table):
    layout, items = _rows([table("a.parquet", sentence=["甲"])])
    assert items == [Record("甲", None, "a.parquet", 1)]
    assert layout.label is None


def test_parquet_without_text_column_is_refused(table):
    with pytest.raises(DataError, match=r"a\.parquet: expected a column of texts – found a, b"):
        _rows([table("a.parquet", a=[1], b=[2])])


def test_what_is_no_parquet_is_refused_by_name(write):
    with pytest.raises(DataError, match=r"a\.parquet: expected Parquet – found"):
        _rows([write("a.parquet", "新片\t娱乐\n")])


# --- datasets ---------------------------------------------------------------------------------


def _dataset(labels, names=NAMES):
    feature = datasets.ClassLabel(names=names) if names else datasets.Value("string")
    features = datasets.Features({"text": datasets.Value("string"), "label": feature})
    texts = [f"新片{number}" for number in range(len(labels))]
    return datasets.Dataset.from_dict({"text": texts, "label": labels}, features)


def test_a_class_label_is_read_as_its_name():
    _, items = read_dataset(_dataset([2, 0]), "train", BY_NAME)
    assert list(items) == [Record("新片0", "科技", "train", 1), Record("新片1", "体育", "train", 2)]


def test_a_row_without_class_label_is_a_fault():
    _, items = read_dataset(_dataset([0, -1, None]), "train", BY_NAME)
    assert [str(item) for item in list(items)[1:]] == [
        "train:2: expected one label – found None, '新片1'",
        "train:3: expected one label – found None, '新片2'",
    ]


def test_labels_that_are_strings_are_read_as_they_stand():
    _, items = read_dataset(_dataset(["体育"], names=None), "train", BY_NAME)
    assert next(items).label == "体育"


def test_a_dataset_without_label_column_has_records_without_label():
    layout, items = read_dataset(datasets.Dataset.from_dict({"text": ["甲"]}), "test", BY_NAME)
    assert (layout.label, next(items).label) == (None, None)


def test_a_saved_folder_is_opened_again(tmp_path):
    saved = {"train": _dataset([0, 1]), "validation": _dataset([1])}
    datasets.DatasetDict(saved).save_to_disk(tmp_path / "all")
    _dataset([0]).save_to_disk(tmp_path / "one")
    assert {name: len(part) for name, part in load_saved(str(tmp_path / "all")).items()} == {
        "train": 2,
        "validation": 1,
    }
    assert list(load_saved(str(tmp_path / "one"))) == ["all"]


@pytest.mark.parametrize("path", ["hf://owner/no-such-news", "/no/such/folder"])
def test_a_dataset_that_is_not_there_is_refused_with_the_way_out(path):
    with pytest.raises(DataError, match=r"data\.path: expected a dataset at") as caught:
        load_saved(path)
    assert path in str(caught.value)
    assert "hf://owner/name" in str(caught.value)


def test_a_dataset_of_the_hub_is_asked_for_by_name_and_configuration(monkeypatch):
    asked = []
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *names: asked.append(names) or _dataset([0])
    )
    load_saved("hf://clue/clue:tnews")
    load_saved("hf://owner/news")
    assert asked == [("clue/clue", "tnews"), ("owner/news", None)]


# --- found by trying --------------------------------------------------------------------------


def test_class_labels_in_parquet_are_read_as_their_names(tmp_path):
    _dataset([2, 0, -1]).to_parquet(tmp_path / "a.parquet")
    _, items = _rows([tmp_path / "a.parquet"])
    assert [getattr(item, "label", None) for item in items] == ["科技", "体育", None]


@pytest.mark.parametrize("kind", ["parquet", "dataset"])
@pytest.mark.parametrize("label", [-1, None])
def test_rows_that_all_lack_a_class_have_no_label(tmp_path, kind, label):
    dataset = _dataset([label] * 3)
    if kind == "parquet":
        dataset.to_parquet(tmp_path / "a.parquet")
        layout, items = _rows([tmp_path / "a.parquet"])
    else:
        layout, items = read_dataset(dataset, "test", BY_NAME)
    assert layout.label is None
    assert [item.label for item in items] == [None] * 3
    assert "no label in 'label'" in layout.reason


def test_parquet_that_is_damaged_inside_is_refused_by_name(table):
    path = table(
        "a.parquet", text=[f"新片{number}" * 50 for number in range(2_000)], label=["体育"] * 2_000
    )
    content = bytearray(path.read_bytes())
    content[200:2_000] = bytes(1_800)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: expected Parquet – found"):
        _rows([path])


def test_parts_of_other_columns_are_refused_by_name(table):
    paths = [table("a.parquet", text=["甲"], label=[0]), table("b.parquet", text=["乙"], kind=[0])]
    with pytest.raises(DataError, match=r"b\.parquet: expected the columns of a\.parquet"):
        _rows(paths)
