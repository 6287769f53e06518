"""Probabilities of all processes → one file in input order."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from typing_extensions import override

from bert_lightning.console import Console
from bert_lightning.data.records import Record
from bert_lightning.data.texts import LONGEST_TEXT
from bert_lightning.errors import ConfigError
from bert_lightning.replacing import replacing
from bert_lightning.spreadsheets import as_cell, is_formula

SUFFIXES = (".jsonl", ".csv")
# what JSON would leave as it is, and a terminal obeys or many programs take for the end of a line
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029]")
_encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make one for each row
_CHUNK_ROWS = 4096
DIGITS = 6  # beyond these, probabilities depend on how rows were batched


class PredictionWriter(Callback):
    """Writes text, label and the probability of each class, one row a line of input.

    Args:
        output: A .jsonl or .csv file, or None for JSON lines on standard output. A .csv file starts
            with a byte order mark, so that Excel shows Chinese text, and has an apostrophe before
            what a spreadsheet would take for a formula.

    Raises:
        ConfigError: Another suffix, or a folder that does not exist.
    """

    def __init__(self, output: str | None) -> None:
        self.output = Path(output) if output else None
        if self.output and self.output.suffix.lower() not in SUFFIXES:
            raise ConfigError(
                f"output: expected a file ending in {' or '.join(SUFFIXES)} – found {output!r}"
            )
        if self.output and not self.output.absolute().parent.is_dir():
            raise ConfigError(
                f"output: expected an existing folder – found none at"
                f" {self.output.absolute().parent}\nmake the folder first"
            )
        self._rows: list[np.ndarray[Any, Any]] = []
        self._probabilities: list[Tensor] = []

    @override
    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._rows.append(outputs["rows"])
        self._probabilities.append(outputs["probabilities"])  # copied at the end: no wait a batch

    @override
    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        names = list(pl_module.class_names)  # type: ignore[arg-type]
        own = (
            np.concatenate([*self._rows, np.empty(0, np.int64)]).astype(np.int64),
            torch.cat([torch.empty(0, len(names)), *self._on_host()]).numpy(),
        )
        gathered = [own]
        if dist.is_initialized():
            gathered = [own for _ in range(trainer.world_size)]
            dist.all_gather_object(gathered, own)
        if trainer.is_global_zero:
            records: list[Record] = trainer.datamodule.predict_records  # type: ignore[attr-defined]
            probabilities = np.full((len(records), len(names)), np.nan, np.float32)
            for rows, values in gathered:
                probabilities[rows] = values
            self._write(records, names, probabilities)
            self._say_counts(trainer, records, np.isnan(probabilities).any(axis=1))

    def _on_host(self) -> list[Tensor]:
        return [torch.cat(self._probabilities).cpu()] if self._probabilities else []

    def _say_counts(self, trainer: Trainer, records: list[Record], is_left: Any) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        cut, overlong = data.rows("predict").truncated, data.overlong_texts
        is_csv = self.output is not None and self.output.suffix.lower() == ".csv"
        formulas = sum(is_formula(record.text) for record in records) if is_csv else 0
        empty = sum(not record.text for record in records)
        left = int(is_left.sum())
        Console(to_stderr=True).say(
            f"{'out':<9} {self.output or 'standard output'}: {len(records):,} texts, {empty:,}"
            f" empty, {cut:,} cut at data.max_length"
            + (
                f", {overlong:,} of only their first {LONGEST_TEXT:,} characters"
                if overlong
                else ""
            )
            + (f", {formulas:,} with ' before what looks like a formula" if formulas else "")
            + (f", {left:,} not scored (trainer.limit_predict_batches)" if left else "")
        )

    def _write(
        self, records: list[Record], names: list[str], probabilities: np.ndarray[Any, Any]
    ) -> None:
        if self.output is None:
            _write_jsonl(sys.stdout, records, names, probabilities)
            return
        is_csv = self.output.suffix.lower() == ".csv"
        encoding = "utf-8-sig" if is_csv else "utf-8"
        newline = "" if is_csv else "\n"
        with replacing(self.output, encoding=encoding, newline=newline) as stream:
            write = _write_csv if is_csv else _write_jsonl
            write(stream, records, names, probabilities)


def _predictions(
    records: list[Record], names: list[str], probabilities: np.ndarray[Any, Any]
) -> Iterator[tuple[str, str | None, list[float | None]]]:
    """Yield text, label and probabilities; an empty text has neither, nor one not scored."""
    # many at once is faster than one by one, and than all, which the garbage collector goes through
    for start in range(0, len(records), _CHUNK_ROWS):
        part = probabilities[start : start + _CHUNK_ROWS]
        best = part.argmax(axis=1).tolist()
        is_scored = (~np.isnan(part).any(axis=1)).tolist()
        rounded = np.round(part.astype(np.float64), DIGITS).tolist()
        rows = zip(records[start : start + _CHUNK_ROWS], best, is_scored, rounded, strict=True)
        for record, winner, known, row in rows:
            if record.text and known:
                yield record.text, names[winner], row
            else:
                yield record.text, None, [None] * len(names)


def _write_jsonl(
    stream: TextIO, records: list[Record], names: list[str], probabilities: np.ndarray[Any, Any]
) -> None:
    labels = {name: _as_json(name) for name in names}
    shares = ", ".join(f"{label.replace('%', '%%')}: %r" for label in labels.values())
    # one form for all rows: to encode a dict for each takes three times as long
    scored = f'{{"text": %s, "label": %s, "probabilities": {{{shares}}}}}\n'
    for text, label, values in _predictions(records, names, probabilities):
        if label is None:
            row = {"text": text, "label": None, "probabilities": None}
            stream.write(_as_json(row) + "\n")
        else:
            stream.write(scored % (_as_json(text), labels[label], *values))


def _as_json(value: Any) -> str:
    return _ESCAPED.sub(_as_escape, _encode(value))


def _as_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _write_csv(
    stream: TextIO, records: list[Record], names: list[str], probabilities: np.ndarray[Any, Any]
) -> None:
    writer = csv.writer(stream)
    writer.writerow(["text", "label", *map(as_cell, names)])
    for text, label, values in _predictions(records, names, probabilities):
        writer.writerow([as_cell(text), label and as_cell(label), *values])
