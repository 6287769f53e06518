"""Results of cases on disk: what a call has measured, a later one finds again."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bert_lightning.benchmark.cases import Case
from bert_lightning.errors import ConfigError
from bert_lightning.spreadsheets import as_cell

Result = dict[str, Any]
FILE = "benchmark.json"
OUT_OF_MEMORY = "out of memory"


class Results:
    """What is measured under the same circumstances, read from an earlier call if there was one.

    Args:
        folder: Of benchmark.json.
        circumstances: What all results depend on beside their case, each in words.

    Raises:
        ConfigError: The folder holds results of other circumstances.
    """

    def __init__(self, folder: Path, circumstances: Mapping[str, str]) -> None:
        self.folder = folder
        self.circumstances = dict(circumstances)
        self.by_key: dict[str, Result] = {}
        file = folder / FILE
        if file.is_file():
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
                stored, rows = content["circumstances"], content["results"]
                self.by_key = {row["key"]: row for row in rows}
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"output: expected results of `benchmark` in {file} – found other content\n"
                    "give another --output, or delete the file"
                ) from error
            self._expect_same(stored)

    def _expect_same(self, stored: Mapping[str, Any]) -> None:
        other = [
            f"{name} {stored.get(name)!r} instead of {value!r}"
            for name, value in self.circumstances.items()
            if stored.get(name) != value
        ]
        if other:
            raise ConfigError(
                f"output: expected results of this machine and these settings in {self.folder} –"
                f" found {'; '.join(other)}\ngive another --output, or delete the folder"
            )

    def is_known(self, case: Case, asked: Mapping[str, Any]) -> bool:
        """Tell whether a case needs no run: measured as is asked, or had no room."""
        result = self.by_key.get(case.key)
        if result is None or (case.seed is None and result["asked"] != asked):
            return False
        return "reason" not in result or result["reason"] == OUT_OF_MEMORY

    def add(self, case: Case, asked: Mapping[str, Any], measured: Result) -> None:
        """Keep the result of a case, in the place of an earlier one."""
        row = {"key": case.key, **asdict(case), "asked": asked, **completed(measured)}
        self.by_key[case.key] = row

    def as_json(self, judgements: Sequence[Mapping[str, str]]) -> str:
        """Return the content of benchmark.json."""
        content = {
            "circumstances": self.circumstances,
            "claims": judgements,
            "results": list(self.by_key.values()),
        }
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def completed(measured: Result) -> Result:
    """Add what follows from what was measured: an epoch, and the share of the card's peak."""
    result = dict(measured)
    rate, rows = measured.get("samples_per_second"), measured.get("train_rows")
    if rate and rows:
        result["epoch_seconds"] = round(rows / rate, 2)
        if "joules_per_sample" in measured:
            result["epoch_wh"] = round(measured["joules_per_sample"] * rows / 3600, 3)
    if rate and measured.get("tflops_peak"):
        positions = measured["positions_per_second"]
        done = positions * measured["flops_per_position"] / 1e12
        result["peak_share"] = round(done / measured["tflops_peak"], 4)
        result["positions_a_step"] = round(positions / rate * measured["batch_size"])
    if measured.get("allocated_gib"):
        rest = measured["allocated_gib"] - measured["weights_gib"] - measured["optimizer_gib"]
        result["activations_gib"] = round(max(0.0, rest), 3)
    return result


def as_csv(results: Sequence[Result]) -> str:
    """Return one line a case, all plain values of it."""
    names = dict.fromkeys(
        name for row in results for name, value in row.items() if not isinstance(value, dict | list)
    )
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(names), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: as_cell(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in results
    )
    return stream.getvalue()
