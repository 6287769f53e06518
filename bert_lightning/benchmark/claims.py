"""Claims in YAML → what was measured, a verdict, and where one fails the reason in the numbers.

A claim names a measure and what is said of it: ``epoch time: -40%``. A sign is needed: at most
that much for ``-``, at least for ``+``, within for ``±``. It compares a variant with another one.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bert_lightning.benchmark.cases import LENGTHS, PARTS, is_variant, part_case

Result = dict[str, Any]
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
LAUNCH_BOUND = 0.15  # share of the card's peak
BUSY = 0.4
SPREADS = 2.0  # standard errors that a difference may be off


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


@dataclass(frozen=True)
class Judgement:
    """What became of a claim.

    Args:
        claim: In words.
        measured: The difference as it is shown, or empty.
        verdict: ``holds``, ``fails``, ``open`` (within what repeated measurements differ by) or
            ``not judged``.
        reason: Why it is not ``holds``.
    """

    claim: str
    measured: str
    verdict: str
    reason: str = ""


def read_claims(entries: Sequence[Mapping[str, Any]], problems: list[str]) -> list[Claim]:
    """Return the claims; what is wrong with them is added to the problems."""
    claims = []
    for number, entry in enumerate(entries, 1):
        found = _faults(entry)
        problems += [f"claims, number {number}: {fault}" for fault in found]
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


def judge(
    claims: Sequence[Claim],
    results: Mapping[str, Result],
    batch_size: int,
    absent: str = "not among the cases",
) -> list[Judgement]:
    """Return what became of each claim.

    Args:
        claims: The claims.
        results: By key of the case.
        batch_size: Rows of a batch where it is the same for all.
        absent: Why a case that a claim needs has no result.
    """
    return [
        _judge_accuracy(claim, results)
        if claim.measure == "accuracy"
        else _judge_ratio(claim, results, batch_size, absent)
        for claim in claims
    ]


def _judge_ratio(
    claim: Claim, results: Mapping[str, Result], batch_size: int, absent: str
) -> Judgement:
    keys = [
        part_case(claim.at, variant, lengths, batch_size).key
        for variant, lengths in (
            (claim.of, claim.lengths),
            (claim.against, claim.against_lengths),
        )
    ]
    name = MEASURES[claim.measure]
    missing = [text for key in keys if (text := _missing(key, results, name, absent))]
    if missing:
        return Judgement(claim.text, "", "not judged", "; ".join(missing))
    own, other = (results[key] for key in keys)
    if not other[name]:
        return Judgement(claim.text, "", "not judged", f"{keys[1]}: {claim.measure} is 0")
    change = own[name] / other[name] - 1
    noise = 0.0
    if claim.measure in ("epoch time", "samples a second"):
        noise = (1 + change) * math.hypot(_spread(own), _spread(other))
    verdict = _verdict(claim, change, noise)
    measured = f"{change:+.0%}" + (f" (±{noise:.1%})" if noise else "")
    shown = f"{_shown(other[name])} → {_shown(own[name])}, {measured}"
    return Judgement(claim.text, shown, verdict, _reason(claim, own, other, verdict))


def _missing(key: str, results: Mapping[str, Result], name: str, absent: str) -> str:
    """Say why a case has no value, or nothing."""
    result = results.get(key)
    if result is None:
        return f"{key}: {absent}"
    if "reason" in result:
        return f"{key}: {result['reason']}"
    return "" if result.get(name) is not None else f"{key}: not measured here"


def _spread(result: Result) -> float:
    """Return the standard error of the windows' rates, as a share of their mean."""
    rates = result.get("repeats", [])
    if len(rates) < 2:
        return 0.0
    return float(statistics.stdev(rates) / statistics.fmean(rates) / math.sqrt(len(rates)))


def _verdict(claim: Claim, change: float, noise: float) -> str:
    """Judge a change: a limit that is nearer than the noise leaves the claim open."""
    if claim.sign == "±":
        beyond = abs(change) - claim.limit
    else:
        beyond = claim.limit - (change if claim.sign == "+" else -change)
    if noise and abs(beyond) < noise:
        return "open"
    return "holds" if beyond <= 1e-9 else "fails"


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _judge_accuracy(claim: Claim, results: Mapping[str, Result]) -> Judgement:
    runs = {variant: _accuracies(variant, results) for variant in (claim.of, claim.against)}
    lacking = [variant for variant, scores in runs.items() if not scores]
    if lacking:
        reason = f"no run with {' nor '.join(lacking)} was trained to the end: set accuracy_seeds"
        return Judgement(claim.text, "", "not judged", reason)
    own, other = runs[claim.of], runs[claim.against]
    points = 100 * (statistics.fmean(own) - statistics.fmean(other))
    noise = 0.0
    if min(len(own), len(other)) > 1:
        variances = [statistics.variance(scores) / len(scores) for scores in (own, other)]
        noise = 100 * SPREADS * math.sqrt(sum(variances))
    verdict = _verdict(claim, points, noise)
    measured = (
        f"{statistics.fmean(other):.2%} → {statistics.fmean(own):.2%},"
        f" {points:+.2f} (±{noise:.2f}, {len(own)} seeds)"
    )
    reasons = {
        "open": "the seeds differ by more than what is left to the limit: take more accuracy_seeds",
        "fails": "the difference is beyond the limit and beyond what the seeds differ by",
    }
    return Judgement(claim.text, measured, verdict, reasons.get(verdict, ""))


def _accuracies(variant: str, results: Mapping[str, Result]) -> list[float]:
    return [
        result["accuracy"]
        for result in results.values()
        if result.get("accuracy") is not None and result["variant"] == variant
    ]


def _reason(claim: Claim, own: Result, other: Result, verdict: str) -> str:
    if verdict == "holds":
        return ""
    if verdict == "open":
        return "the windows differ by more than what is left to the limit: take more steps"
    if claim.measure == "padding":
        return f"{own['padding']:.1%} of the positions are padding, against {other['padding']:.1%}"
    if claim.measure in ("peak memory", "max batch"):
        return _memory_reason(own)
    return _speed_reason(own)


def _memory_reason(own: Result) -> str:
    fixed, peak = own["weights_gib"] + own["optimizer_gib"], own["allocated_gib"]
    share = fixed / peak
    text = (
        f"weights, gradients and optimizer take {fixed:.2f} of {peak:.2f} GiB ({share:.0%}) in any"
        " precision"
    )
    if share > 0.5:
        return f"{text}, so they dominate"
    return f"{text}; activations shrink by less than the claim, as some stay in float32"


def _speed_reason(own: Result) -> str:
    share = own.get("peak_share")
    if share is None:
        return "no share of the card's peak was measured"
    text = f"{own['variant']} reaches {share:.0%} of the card's {own['tflops_peak']:.4g} TFLOP/s"
    if share > BUSY:
        return f"{text}: the card is busy, and there is little left to gain"
    if own["execution"].startswith("eager") and share < LAUNCH_BOUND:
        return f"{text}: launch-bound, the card waits for its next kernel"
    return (
        f"{text}: its products are small ({own['positions_a_step']:,.0f} positions a step), memory"
        " traffic and the optimizer weigh more; longer rows or a larger batch would gain more"
    )


def as_rows(judgements: Sequence[Judgement]) -> list[dict[str, str]]:
    """Return judgements as plain values."""
    return [asdict(judgement) for judgement in judgements]
