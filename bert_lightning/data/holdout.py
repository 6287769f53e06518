"""Train records → val and test where these have no file, class by class."""

from __future__ import annotations

import random

import numpy as np

from bert_lightning.data.record_table import Records
from bert_lightning.data.records import Split
from bert_lightning.errors import DataError


def hold_out(records: dict[Split, Records], ratio: float, seed: int) -> list[str]:
    """Split val and test off train where they have no file.

    Args:
        records: Records of each split; changed in place.
        ratio: Share of each class for each of val and test.
        seed: With a class's label it decides which rows go.

    Returns:
        A line about what was done, if anything was.

    Raises:
        DataError: A class has too few rows to be in each split.
    """
    missing: list[Split]
    if "val" not in records and "test" not in records:
        missing = ["val", "test"]
    elif "val" not in records:
        missing = ["val"]
    else:
        return []
    train = records["train"]
    codes, kinds = train.label_codes()
    rows_of = {label: np.flatnonzero(codes == code).tolist() for code, label in enumerate(kinds)}
    _refuse_small_classes(train, rows_of, 1 + len(missing))
    parts: dict[Split, list[int]] = {split: [] for split in missing}
    for label in sorted(rows_of, key=str):
        rows = rows_of[label]
        random.Random(f"{seed} {label}").shuffle(rows)
        # at least one row stays in train
        count = max(1, min(round(ratio * len(rows)), (len(rows) - 1) // len(missing)))
        for position, split in enumerate(missing):
            parts[split] += rows[position * count : (position + 1) * count]
    stays = np.ones(len(train), dtype=bool)
    for split, rows in parts.items():
        records[split] = train.select(np.array(rows))
        stays[rows] = False
    records["train"] = train.select(stays)
    sizes = ", ".join(f"{split} {len(records[split]):,}" for split in ("train", *missing))
    return [f"no file for {' and '.join(missing)}: split off train by class, seed {seed} ({sizes})"]


def _refuse_small_classes(
    train: Records, rows_of: dict[str | None, list[int]], needed: int
) -> None:
    problems = [
        f"{train[rows[0]].where}: expected at least {needed} rows of class {label!r} to split the"
        f" file – found {len(rows)}"
        for label, rows in rows_of.items()
        if len(rows) < needed
    ]
    if problems:
        raise DataError(problems, "add rows, or give val and test files of your own")
