"""Claims and results → what was measured, a verdict, and where one fails the reason in the numbers.

A verdict needs a difference from the limit that is larger than what the measurement can be off by,
with 95 % confidence; else the claim stays open. A claim of ``±`` holds only if the whole interval
lies within its limit, so that few or noisy measurements never make things equal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_lightning.benchmark.case_timer import next_size
from bert_lightning.benchmark.cases import Case, part_case
from bert_lightning.benchmark.claims import MEASURES, Claim

Result = dict[str, Any]
NOISY = ("epoch time", "samples a second", "energy")
PROCESS_SPREAD = 0.02  # a second process of the same case differs by about as much
# of Student's distribution, 95 % on both sides, by degrees of freedom; see `_t`
T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
STEADY = 0.8  # of the rate of a matrix product that another case of the same type has reached
LAUNCH_BOUND = 0.15  # share of the card's peak
BUSY = 0.4
ROUNDING = 1e-9


@dataclass(frozen=True)
class Judgement:
    """What became of a claim.

    Args:
        claim: In words.
        measured: The difference as it is shown, or empty.
        verdict: ``holds``, ``fails``, ``open`` (the limit lies within what the measurement may be
            off by) or ``not judged``.
        reason: Why it is not ``holds``.
    """

    claim: str
    measured: str
    verdict: str
    reason: str = ""


def judge(
    claims: Sequence[Claim],
    results: Mapping[str, Result],
    batch_size: int,
    absent: Callable[[Case], str] = lambda case: "not among the cases",
) -> list[Judgement]:
    """Return what became of each claim.

    Args:
        claims: The claims.
        results: By key of the case.
        batch_size: Rows of a batch where it is the same for all.
        absent: Says why a case that a claim needs has no result.
    """
    return [
        _judge_accuracy(claim, results)
        if claim.measure == "accuracy"
        else _judge_ratio(claim, results, batch_size, absent)
        for claim in claims
    ]


def _judge_ratio(
    claim: Claim, results: Mapping[str, Result], batch_size: int, absent: Callable[[Case], str]
) -> Judgement:
    cases = [
        part_case(claim.at, variant, lengths, batch_size)
        for variant, lengths in (
            (claim.of, claim.lengths),
            (claim.against, claim.against_lengths),
        )
    ]
    name = MEASURES[claim.measure]
    missing = [text for case in cases if (text := _missing(case, results, name, absent))]
    if missing:
        return Judgement(claim.text, "", "not judged", "; ".join(missing))
    own, other = (results[case.key] for case in cases)
    if not other[name]:
        return Judgement(claim.text, "", "not judged", f"{cases[1].key}: {claim.measure} is 0")
    change = own[name] / other[name] - 1
    disturbed = [text for row in (own, other) if (text := _disturbance(row, results))]
    if claim.measure in NOISY and disturbed:
        shown = f"{_shown(other[name])} → {_shown(own[name])}, {change:+.0%}"
        return Judgement(claim.text, shown, "open", "; ".join(disturbed))
    noise = (1 + change) * _uncertainty(claim.measure, own, other)
    verdict = _verdict(claim, change, noise)
    measured = f"{change:+.0%}" + (f" (±{noise:.1%})" if noise else "")
    shown = f"{_shown(other[name])} → {_shown(own[name])}, {measured}"
    return Judgement(claim.text, shown, verdict, _reason(claim, own, other, verdict))


def _disturbance(row: Result, results: Mapping[str, Result]) -> str:
    """Say that the machine was slower while a case was measured than in others, or nothing."""
    precision = row["variant"].split()[0]
    peaks = [
        other["tflops_peak"]
        for other in results.values()
        if other["variant"].split()[0] == precision and other.get("tflops_peak")
    ]
    own = row.get("tflops_peak")
    if not own or own >= STEADY * max(peaks):
        return ""
    return (
        f"{row['key']}: the machine reached {own:.3g} TFLOP/s, in another case {max(peaks):.3g}:"
        " something else ran, measure again with another --output"
    )


def _missing(
    case: Case, results: Mapping[str, Result], name: str, absent: Callable[[Case], str]
) -> str:
    """Say why a case has no value, or nothing."""
    result = results.get(case.key)
    if result is None:
        return f"{case.key}: {absent(case)}"
    if "reason" in result:
        return f"{case.key}: {result['reason']}"
    return "" if result.get(name) is not None else f"{case.key}: not measured here"


def _uncertainty(measure: str, own: Result, other: Result) -> float:
    """Return what a ratio of two results may be off by, as a share of it."""
    if measure in NOISY:
        return math.hypot(_spread(own), _spread(other))
    if measure == "max batch":  # the next size that is tried had no room, those between may have
        sizes: list[int] = [row["batch_size"] for row in (own, other)]
        return max(next_size(size) / size - 1 for size in sizes)
    return 0.0


def _spread(result: Result) -> float:
    """Return what the rate of a case may be off by, as a share of it."""
    rates = result.get("repeats", [])
    if len(rates) < 2:
        return PROCESS_SPREAD
    error = statistics.stdev(rates) / statistics.fmean(rates) / math.sqrt(len(rates))
    return math.hypot(_t(len(rates) - 1) * error, PROCESS_SPREAD)


def _t(freedom: int) -> float:
    """Return how many standard errors a mean may be off by, with a probability of 95 %."""
    return T_95[min(freedom, len(T_95)) - 1]


def _verdict(claim: Claim, change: float, noise: float) -> str:
    """Judge a change: a limit that is nearer than the noise leaves the claim open."""
    if claim.sign == "±":
        beyond = abs(change) - claim.limit
    else:
        beyond = claim.limit - (change if claim.sign == "+" else -change)
    if abs(beyond) < noise:
        return "open"
    return "holds" if beyond <= ROUNDING else "fails"


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
    shown = f"{statistics.fmean(other):.2%} → {statistics.fmean(own):.2%}, {points:+.2f}"
    seeds = f"{len(other)} and {len(own)} seeds"
    if min(len(own), len(other)) < 2:
        reason = "one seed does not tell what seeds differ by: take more accuracy_seeds"
        return Judgement(claim.text, f"{shown} ({seeds})", "open", reason)
    variance = sum(statistics.variance(scores) / len(scores) for scores in (own, other))
    noise = 100 * _t(len(own) + len(other) - 2) * math.sqrt(variance)
    verdict = _verdict(claim, points, noise)
    reasons = {
        "open": "the seeds differ by more than what is left to the limit: take more accuracy_seeds",
        "fails": "the difference is beyond the limit and beyond what the seeds differ by",
    }
    measured = f"{shown} (±{noise:.2f}, {seeds})"
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
    if verdict == "open" and claim.measure == "max batch":
        return "the sizes that are tried lie further apart than what is left to the limit"
    if verdict == "open":
        return "measurements differ by more than what is left to the limit: take more steps"
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
