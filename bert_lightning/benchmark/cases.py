"""What `benchmark` measures: settings → cases, and a case → the command line of its ``fit``.

A case is a precision with switches (a variant), an order and width of the batches, and a batch. The
parts of a benchmark (equal batch, equal memory, the article's pairing, accuracy) are views of the
cases: where two parts need the same case it is measured once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bert_lightning.benchmark.case_timer import CaseTimer
from bert_lightning.benchmark.peer_cells import entry
from bert_lightning.benchmark.stopwatch import Extent

PRECISIONS = {
    "fp32": ("--trainer.precision", "32", "--matmul.tf32", "false"),
    "tf32": ("--trainer.precision", "32", "--matmul.tf32", "true"),
    "16-mixed": ("--trainer.precision", "16-mixed"),
    "bf16-mixed": ("--trainer.precision", "bf16-mixed"),
}
SWITCHES = {
    "eager": ("--model.execution", "eager"),
    "lowmem": ("--config", "lowmem.yaml"),
}
LENGTHS = ("bucketed", "random", "padded")
PARTS = ("equal_batch", "article", "equal_memory")
ARTICLE_BATCH = {"fp32": 16, "tf32": 16}  # and 32 under mixed precision
MIXED_ARTICLE_BATCH = 32
EPOCHS = 1000  # more than are ever run: the timer ends the fit


@dataclass(frozen=True)
class BenchmarkSettings:
    """What is measured, how long, and what is claimed of it.

    Args:
        cases: Variants of each part and lengths. Parts: equal_batch (``data.batch_size``), article
            (16 in float32, 32 in mixed precision), equal_memory (the largest batch). Lengths:
            bucketed (as fit does it: rows of like length, padded to the longest), random (any rows,
            padded to the longest), padded (all to ``data.max_length``). Variants: fp32, tf32,
            16-mixed, bf16-mixed, each with ``eager`` (no captured step) or ``lowmem`` after it.
        cpu_cases: The same, where there is no CUDA device.
        accuracy: Variants that are trained to the end with each of ``accuracy_seeds``.
        accuracy_seeds: Seeds of these runs; none means that accuracy is not measured.
        memory_gib: GiB that a case may take, as if the GPU were smaller; null is the whole card.
        warmup: Steps before the measured ones, counted anew where a shape of batch comes up for the
            first or second time, as its graph is made then; over after ``seconds``, too.
        steps: Steps of a window; the median of up to three windows counts.
        seconds: Most seconds of a window.
        full: Measure one whole epoch instead of windows.
        claims: What is to be checked, such as ``epoch time: -40%``.
        cpu_claims: What is to be checked besides where there is no CUDA device.
        output: Folder of the results; a second call goes on with what is missing there.
    """

    cases: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    cpu_cases: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    accuracy: list[str] = field(default_factory=list)
    accuracy_seeds: list[int] = field(default_factory=list)
    memory_gib: float | None = None
    warmup: int = 50
    steps: int = 200
    seconds: float = 4.0
    full: bool = False
    claims: list[dict[str, Any]] = field(default_factory=list)
    cpu_claims: list[dict[str, Any]] = field(default_factory=list)
    output: str = "benchmark"


@dataclass(frozen=True)
class Case:
    """One ``fit``.

    Args:
        variant: A precision and switches, such as ``16-mixed lowmem``.
        lengths: One of `LENGTHS`.
        batch: Rows a batch; 0 is the largest that has room.
        seed: Of a run that is trained to the end; None is one that is timed.
    """

    variant: str
    lengths: str = "bucketed"
    batch: int = 0
    seed: int | None = None

    @property
    def key(self) -> str:
        """Name in the tables."""
        batch = f"batch {self.batch}" if self.batch else "largest batch"
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.variant}, {self.lengths}, {batch}{seed}"

    @property
    def options(self) -> list[str]:
        """Options of ``fit`` that its variant stands for."""
        precision, *switches = self.variant.split()
        return [*PRECISIONS[precision], *(word for name in switches for word in SWITCHES[name])]


@dataclass(frozen=True)
class Subject:
    """What all cases have in common.

    Args:
        options: Options of ``fit`` that the user gave.
        batch_size: Rows a batch.
        max_length: Most pieces of a row.
        extent: How much is measured.
        memory_gib: GiB of a GPU that a case may take; None is the whole card.
        full: Whether one whole epoch is measured instead of windows.
    """

    options: tuple[str, ...]
    batch_size: int
    max_length: int
    extent: Extent
    memory_gib: float | None = None
    full: bool = False

    @property
    def asked(self) -> dict[str, Any]:
        """How much is measured of a case that is timed, as plain values."""
        return {**asdict(self.extent), "full": self.full}


def check_cases(settings: BenchmarkSettings) -> list[str]:
    """Return what is wrong with the cases, one line each."""
    problems = []
    for key in ("cases", "cpu_cases"):
        for part, by_lengths in getattr(settings, key).items():
            if part not in PARTS:
                problems.append(f"{key}: expected parts {', '.join(PARTS)} – found {part!r}")
            for lengths, variants in by_lengths.items():
                if lengths not in LENGTHS:
                    problems.append(
                        f"{key}.{part}: expected lengths {', '.join(LENGTHS)} – found {lengths!r}"
                    )
                problems += _check_variants(f"{key}.{part}.{lengths}", variants)
    problems += _check_variants("accuracy", settings.accuracy)
    for name in ("warmup", "steps", "seconds", "memory_gib"):
        value = getattr(settings, name)
        if value is not None and not 0 < value < float("inf"):
            problems.append(f"{name}: expected a number above 0 – found {value:g}")
    return problems


def is_variant(name: str) -> bool:
    """Tell whether a name stands for a variant."""
    precision, *switches = name.split() or [""]
    return precision in PRECISIONS and all(switch in SWITCHES for switch in switches)


def _check_variants(key: str, variants: Sequence[str]) -> list[str]:
    return [
        f"{key}: expected one of {', '.join(PRECISIONS)}, with {' or '.join(SWITCHES)} after it"
        f" where wanted – found {variant!r}"
        for variant in variants
        if not is_variant(variant)
    ]


def part_case(part: str, variant: str, lengths: str, batch_size: int) -> Case:
    """Return the case of a part of the benchmark."""
    if part == "equal_memory":
        return Case(variant, lengths)
    if part == "article":
        batch = ARTICLE_BATCH.get(variant.split()[0], MIXED_ARTICLE_BATCH)
        return Case(variant, lengths, batch)
    return Case(variant, lengths, batch_size)


def all_cases(
    settings: BenchmarkSettings, batch_size: int, on_cpu: bool, has_bf16: bool
) -> list[Case]:
    """Return all cases in the order in which they run, each once.

    Args:
        settings: Of the benchmark.
        batch_size: Rows of a batch where it is the same for all.
        on_cpu: Whether there is no CUDA device; what would be another case there is left out.
        has_bf16: Whether a CPU computes bf16.
    """
    wanted: Mapping[str, Mapping[str, Sequence[str]]]
    wanted = settings.cpu_cases if on_cpu else settings.cases
    cases = [
        part_case(part, variant, lengths, batch_size)
        for part, by_lengths in wanted.items()
        for lengths, variants in by_lengths.items()
        for variant in variants
    ]
    cases += [
        Case(variant, "bucketed", batch_size, seed)
        for seed in settings.accuracy_seeds
        for variant in settings.accuracy
    ]
    return [case for case in dict.fromkeys(cases) if not (on_cpu and _lack_of_cpu(case, has_bf16))]


def _lack_of_cpu(case: Case, has_bf16: bool) -> str:
    """Say why a case cannot be measured without a CUDA device, or nothing."""
    precision = case.variant.split()[0]
    if not case.batch:
        return "a largest batch needs a CUDA device"
    if precision == "bf16-mixed" and not has_bf16:
        return "this CPU does not compute bf16"
    if precision in ("tf32", "16-mixed"):
        return f"{precision} needs a CUDA device"
    return ""


def absence(case: Case, cases: Sequence[Case], on_cpu: bool, has_bf16: bool) -> str:
    """Say why a case has no result.

    Args:
        case: One that a claim needs.
        cases: All that are to be measured.
        on_cpu: Whether there is no CUDA device.
        has_bf16: Whether a CPU computes bf16.
    """
    if case in cases:
        return "not measured yet"
    lack = _lack_of_cpu(case, has_bf16) if on_cpu else ""
    return lack or f"not among {'cpu_cases' if on_cpu else 'the cases'}"


def fit_command(case: Case, subject: Subject, folder: Path, now: float) -> list[str]:
    """Return the command line of a case, without the program.

    Args:
        case: The case.
        subject: What all have in common.
        folder: Where it writes ``runs/1`` and ``measured.json``.
        now: time.time() at its start.
    """
    words = [
        "fit",
        *own_options(case, subject, case.batch),
        *("--trainer.default_root_dir", str(folder), "--trainer.enable_progress_bar", "false"),
        *("--test_after_fit", "false"),
    ]
    if case.seed is not None:
        return words
    timer = {
        "started": now,
        "output": str(folder / "measured.json"),
        **subject.asked,
        "memory_gib": subject.memory_gib,
        "largest": not case.batch,
        "random_order": case.lengths == "random",
    }
    return [
        *words,
        *("--trainer.callbacks", json.dumps([entry(CaseTimer, timer)])),
        *("--trainer.max_epochs", str(EPOCHS), "--trainer.limit_val_batches", "0"),
        *("--trainer.enable_checkpointing", "false"),
    ]


def own_options(case: Case, subject: Subject, batch: int) -> list[str]:
    """Return what a user gives to ``fit`` to train as a case does.

    Args:
        case: The case; the order of a random one cannot be asked for.
        subject: What all have in common.
        batch: Rows a batch; 0 leaves them open.
    """
    words = [*subject.options, *case.options]
    if batch:
        words += ["--data.batch_size", str(batch)]
    if case.lengths == "padded":
        words += ["--data.pad_to_multiple_of", str(subject.max_length)]
    if case.seed is not None:
        words += ["--seed_everything", str(case.seed)]
    return words
