"""Made-up data sets for the tests of the inspection, clean unless a fault is planted."""

from bert_lightning.data.record_table import records_in_memory
from bert_lightning.data.records import Record

TITLES = {
    "体育": "第{}轮主场迎战强敌，球队教练赛前寄语",
    "家居": "第{}期客厅沙发选购，家具搭配一点通",
    "科技": "第{}款智能手机发布，处理器性能翻番",
    "娱乐": "第{}场演唱会落幕，歌手与歌迷合影",
}
CLASSES = list(TITLES)
ROWS = {"train": 80, "val": 24, "test": 24}
STARTS = {"train": 1000, "val": 2000, "test": 3000}


def clean_rows(split, rows=None):
    """Return (title, class) pairs, the classes in turn; no title stands in another split."""
    count = ROWS[split] if rows is None else rows
    return [
        (TITLES[name].format(STARTS[split] + row), name)
        for row in range(count)
        for name in [CLASSES[row % len(CLASSES)]]
    ]


def as_records(rows, file="train.txt"):
    """Return a table of (title, label) pairs."""
    return records_in_memory(
        [Record(title, label, file, line) for line, (title, label) in enumerate(rows, 1)]
    )


def data_set(**changed):
    """Return records of train, val and test: clean ones, or the pairs that are given."""
    return {
        split: as_records(changed.get(split, clean_rows(split)), f"{split}.txt") for split in ROWS
    }


def padded_share(lengths, batch_size):
    """Return the padding of batches in the order of the lengths, the plain way."""
    ordered = sorted(lengths.tolist())
    batches = [ordered[i : i + batch_size] for i in range(0, len(ordered), batch_size)]
    return 1 - sum(ordered) / sum(len(batch) * max(batch) for batch in batches)
