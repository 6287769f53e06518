"""Claims in YAML → what is to be compared, or what is wrong with them.

A claim names a measure and what is said of it: ``epoch time: -40%``. A sign is needed: at most
that much for ``-``, at least for ``+``, within for ``±``. It compares a variant with another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_lightning.benchmark.cases import LENGTHS, PARTS, is_variant

MEASURES = {  # and the key of a result
    "epoch time": "epoch_seconds",
    "samples a second": "samples_per_second",
    "peak memory": "allocated_gib",
    "max batch": "batch_size",
    "energy": "epoch_wh",
    "padding": "padding",
    "accuracy": "accuracy",
}
PART_OF = {"max batch": "equal_memory"}  # unless `at` says otherwise
OPTIONS = ("of", "against", "at", "lengths", "against_lengths")


@dataclass(frozen=True)
class Claim:
    """What is said of two variants.

    Args:
        measure: One of `MEASURES`.
        said: As it stands in the YAML.
        sign: ``-`` at most, ``+`` at least, ``±`` within.
        limit: A share of the other's value; of accuracy, points out of a hundred.
        of: Variant that it is about.
        against: Variant that it is compared with.
        at: Part of the benchmark.
        lengths: Of the variant that it is about.
        against_lengths: Of the other one.
    """

    measure: str
    said: str
    sign: str
    limit: float
    of: str
    against: str
    at: str
    lengths: str
    against_lengths: str

    @property
    def text(self) -> str:
        """Say what is claimed of what."""
        other = f"{self.against} {self.against_lengths}".removesuffix(f" {self.lengths}")
        if self.against == self.of:
            other = self.against_lengths
        where = "" if self.measure == "accuracy" else f", {self.at.replace('_', ' ')}"
        lengths = "" if self.measure == "accuracy" else f" {self.lengths}"
        return f"{self.measure} {self.said}: {self.of}{lengths} against {other}{where}"


def read_claims(
    entries: Sequence[Mapping[str, Any]], problems: list[str], key: str = "claims"
) -> list[Claim]:
    """Return the claims of a key; what is wrong with them is added to the problems."""
    claims = []
    for number, entry in enumerate(entries, 1):
        found = _faults(entry)
        problems += [f"{key}, number {number}: {fault}" for fault in found]
        if not found:
            claims.append(_claim(entry))
    return claims


def _faults(entry: Mapping[str, Any]) -> list[str]:
    measures = [key for key in entry if key in MEASURES]
    unknown = [key for key in entry if key not in MEASURES and key not in OPTIONS]
    faults = [
        f"expected one of {', '.join((*MEASURES, *OPTIONS))} – found {key!r}" for key in unknown
    ]
    if len(measures) != 1:
        faults.append(f"expected one measure of {', '.join(MEASURES)} – found {len(measures)}")
    for key in measures:
        if not _parsed(key, entry[key]):
            form = "a number such as ±0.3" if key == "accuracy" else "a share such as -40% or +100%"
            faults.append(f"{key}: expected {form}, with its sign – found {entry[key]!r}")
    variants = [entry[key] for key in ("of", "against") if key in entry]
    faults += [f"expected a variant – found {name!r}" for name in variants if not is_variant(name)]
    for key, known in (("at", PARTS), ("lengths", LENGTHS), ("against_lengths", LENGTHS)):
        if entry.get(key, known[0]) not in known:
            faults.append(f"{key}: expected one of {', '.join(known)} – found {entry[key]!r}")
    return faults


def _parsed(measure: str, said: object) -> tuple[str, float] | None:
    percent = "" if measure == "accuracy" else "%"
    match = re.fullmatch(rf"([-+±])\s*(\d+(?:\.\d+)?)\s*{percent}", str(said).replace("−", "-"))
    if not match:
        return None
    return match[1], float(match[2]) / (100 if percent else 1)


def _claim(entry: Mapping[str, Any]) -> Claim:
    measure = next(key for key in entry if key in MEASURES)
    parsed = _parsed(measure, entry[measure])
    assert parsed
    lengths = entry.get("lengths", "bucketed")
    against_lengths = entry.get("against_lengths", lengths)
    of = entry.get("of", "16-mixed")
    other = of if against_lengths != lengths else "fp32"
    return Claim(
        measure=measure,
        said=str(entry[measure]),
        sign=parsed[0],
        limit=parsed[1],
        of=of,
        against=entry.get("against", other),
        at=entry.get("at", PART_OF.get(measure, "equal_batch")),
        lengths=lengths,
        against_lengths=against_lengths,
    )
