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

Result = dict[str, Any]
FILE = "benchmark.json"
OUT_OF_MEMORY = "out of memory"


class Results:
    """What is measured under the same circumstances, written anew with each case.

    Args:
        folder: Of benchmark.json.
        circumstances: What all results depend on beside their case.

    Raises:
        ConfigError: The folder holds results of other circumstances.
    """

    def __init__(self, folder: Path, circumstances: Mapping[str, Any]) -> None:
        self.folder = folder
        self.circumstances = dict(circumstances)
        self.by_key: dict[str, Result] = {}
        file = folder / FILE
        if file.is_file():
            content = json.loads(file.read_text(encoding="utf-8"))
            self._expect_same(content["circumstances"])
            self.by_key = {result["key"]: result for result in content["results"]}

    def _expect_same(self, stored: Mapping[str, Any]) -> None:
        own = json.loads(json.dumps(self.circumstances))
        other = [
            f"{name} {stored.get(name)!r} instead of {value!r}"
            for name, value in own.items()
            if stored.get(name) != value
        ]
        if other:
            raise ConfigError(
                f"output: expected results of this machine and these settings in {self.folder} –"
                f" found {'; '.join(other)}\ngive another --output, or delete the folder"
            )

    def is_known(self, case: Case, extent: Mapping[str, Any]) -> bool:
        """Tell whether a case needs no run: measured to this extent, or had no room."""
        result = self.by_key.get(case.key)
        if result is None or (case.seed is None and result["asked"] != dict(extent)):
            return False
        return "reason" not in result or result["reason"] == OUT_OF_MEMORY

    def add(self, case: Case, extent: Mapping[str, Any], measured: Result) -> None:
        """Keep the result of a case, in the place of an earlier one."""
        row = {"key": case.key, **asdict(case), "asked": dict(extent), **completed(measured)}
        self.by_key[case.key] = row

    def write(self, judgements: Sequence[Mapping[str, str]], subject: Mapping[str, str]) -> None:
        """Write benchmark.json; a call that is cut off leaves the one before."""
        content = {
            "circumstances": self.circumstances,
            "subject": dict(subject),
            "claims": list(judgements),
            "results": list(self.by_key.values()),
        }
        replace(self.folder / FILE, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


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
    writer.writerows(results)
    return stream.getvalue()


def replace(path: Path, text: str) -> None:
    """Write a file so that it is there whole or as before."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
