"""Settings, model and data of a fit → what it would run, as lines and as numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bert_lightning.amp import AmpSettings
from bert_lightning.banner import batch_line
from bert_lightning.checkpoint import read_checkpoint
from bert_lightning.conflicts import Facts, find_conflicts
from bert_lightning.console import Console
from bert_lightning.errors import BertLightningError
from bert_lightning.find_batch import plan_line
from bert_lightning.memory import Memory, memory_of
from bert_lightning.optim import SCHEDULES
from bert_lightning.plugins import named_precision
from bert_lightning.precision import MIXED, effective_precision


@dataclass
class Circumstances:
    """What the command line knows of a fit that is planned.

    Args:
        config: All settings.
        typed: What the user gave, by dotted key.
        opening: First lines of the plan by name.
        console: Where lines go.
        on_cpu: Whether it computes on the CPU.
        processes: Number of processes it asks for.
        strategy: Name of the strategy.
        amp: Loss scaling.
        checkpoint: Where it goes on from.
        refusals: Why it cannot run here; what is found later is added.
    """

    config: Any
    typed: Mapping[str, Any]
    opening: dict[str, str]
    console: Console
    on_cpu: bool
    processes: int
    strategy: str
    amp: AmpSettings
    checkpoint: Path | None
    refusals: list[str]


class Steps(NamedTuple):
    """Optimizer steps of a fit.

    ``batches`` and ``an_epoch`` (steps) are those of one epoch. ``in_epochs`` is the number that
    the limit on epochs gives, None without one, and ``total`` the number of the whole run.
    """

    batches: int
    an_epoch: int
    in_epochs: int | None
    total: int


class Position(NamedTuple):
    """Where a run goes on: steps and epochs that are done, and batches of the epoch begun."""

    steps: int = 0
    epochs: int = 0
    batches: int = 0


@dataclass
class Plan:
    """What fit would run.

    Args:
        lines: Texts by name, as on the screen.
        numbers: The same for programs.
        warnings: What is pointless or not what it seems.
    """

    lines: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_json(self, refusals: list[str]) -> str:
        """Return all of it, and why fit would be refused."""
        content = {**self.numbers, "warnings": self.warnings, "refusals": refusals}
        return json.dumps({**content, "lines": self.lines}, ensure_ascii=False, indent=2) + "\n"


def count_steps(
    batches: int,
    limit: int | float,
    windows: int,
    max_epochs: int | None,
    max_steps: int,
    done: Position | None = None,
) -> Steps:
    """Count optimizer steps as Lightning does: a short last window of an epoch is a step, too.

    Args:
        batches: Batches of an epoch on one process.
        limit: Most batches of an epoch, or a share of them.
        windows: Batches that are accumulated.
        max_epochs: Most epochs; None and -1 are no limit.
        max_steps: Most steps; -1 is no limit.
        done: Where a resumed run goes on; its epochs may have had other steps.
    """
    done = done or Position()
    used = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
    an_epoch = math.ceil(used / windows)
    in_epochs = None
    if max_epochs not in (None, -1):
        left = an_epoch * (int(max_epochs or 0) - done.epochs) - done.batches // windows
        in_epochs = done.steps + max(0, left)
    limits = [steps for steps in (in_epochs, None if max_steps == -1 else max_steps) if steps]
    is_empty = not an_epoch or in_epochs == 0 or max_steps == 0
    return Steps(int(used), an_epoch, in_epochs, 0 if is_empty else min(limits, default=0))


def run_steps(trainer: Any) -> str:
    """Return the optimizer steps of a fit that begins, and what they are made of, as a line.

    Args:
        trainer: At the start of training, where it knows its batches.
    """
    max_epochs, done = trainer.max_epochs, trainer.global_step
    steps = whole_run(trainer)
    made_of = f" = {_epochs(max_epochs)} × {steps.an_epoch:,}"
    if steps.total == steps.in_epochs != steps.an_epoch * max_epochs:
        made_of = f", {steps.an_epoch:,} an epoch from now on"
    elif steps.total != steps.in_epochs:
        made_of = f" (trainer.max_steps), {steps.an_epoch:,} an epoch"
    return f"{steps.total:,}{made_of}" + (f"; {done:,} done" if done else "")


def whole_run(trainer: Any) -> Steps:
    """Return the optimizer steps of a fit that begins or goes on.

    Args:
        trainer: At the start of training, where it knows its batches.
    """
    _, max_epochs, max_steps = _limits(trainer)
    batches = trainer.fit_loop.epoch_loop.batch_progress.current.processed
    return count_steps(
        trainer.num_training_batches,
        1.0,
        trainer.accumulate_grad_batches,
        max_epochs,
        max_steps,
        Position(trainer.global_step, trainer.current_epoch, batches),
    )


def _position(checkpoint: Mapping[str, Any]) -> Position:
    loop = checkpoint["loops"]["fit_loop"]
    epoch = loop["epoch_progress"]["current"]
    batches = loop["epoch_loop.batch_progress"]["current"]["processed"]
    is_over = epoch["processed"] == epoch["ready"]
    return Position(checkpoint["global_step"], epoch["processed"], 0 if is_over else batches)


def device_path(
    asked: Any, on_cpu: bool, strategy: str, amp: AmpSettings, plugins: Any = None
) -> tuple[str, str]:
    """Return the precision that is computed in, and what it means.

    Args:
        asked: Value of ``trainer.precision``.
        on_cpu: Whether the run computes on the CPU.
        strategy: Name of the strategy.
        amp: Loss scaling.
        plugins: Value of ``trainer.plugins``; a precision among them is taken as it is.
    """
    taken, _ = effective_precision(asked, on_cpu)
    name = MIXED.get(str(taken), str(taken))
    name = "32-true" if name in ("None", "32") else name
    plugin = "FSDPAmpPrecision" if "fsdp" in strategy.lower() else "AmpPrecision"
    if not on_cpu and torch.accelerator.is_available() and not torch.cuda.is_available():
        plugin = "Lightning's MixedPrecision"  # a device that Lightning knows better
    if named := named_precision(plugins):
        name, kind, is_own = named
        plugin = f"{kind} of trainer.plugins"
        if not is_own:
            return name, f"{name}: {plugin}, as it is"
    elif "deepspeed" in strategy.lower() and name in ("16-mixed", "bf16-mixed"):
        return name, _deepspeed_path(name)
    if name == "16-mixed":
        return name, (
            f"16-mixed: {plugin}, fp16 autocast, float32 weights; loss scale from"
            f" {amp.init_scale:g}, × {amp.growth_factor:g} after {amp.growth_interval:,} good"
            f" steps, × {amp.backoff_factor:g} at an overflow, stop at {amp.min_scale:g} or after"
            f" {amp.max_consecutive_skips} skips in a row"
        )
    if name == "bf16-mixed":
        return name, f"bf16-mixed: {plugin}, bf16 autocast, float32 weights, no loss scale"
    if name == "32-true":
        return name, "32: float32 throughout, no autocast, no loss scale"
    return name, f"{name}: as Lightning runs it, no loss scale of this project"


def _deepspeed_path(name: str) -> str:
    if name == "16-mixed":
        return "16-mixed: refused under DeepSpeed, which scales by its own configuration"
    return f"{name}: Lightning's DeepSpeedPrecision, bf16 weights, float32 ones in the optimizer"


def make_plan(trainer: Any, model: Any, data: Any, circumstances: Circumstances) -> Plan:
    """Work out what fit would run; data must be set up.

    Args:
        trainer: With the limits of the run; its devices do not count.
        model: The `BertClassifier`.
        data: The `THUCNewsDataModule`.
        circumstances: What the command line knows.
    """
    c, config, plan = circumstances, circumstances.config, Plan(dict(circumstances.opening))
    windows = max(1, trainer.accumulate_grad_batches)  # less is refused
    limit, max_epochs, max_steps = _limits(trainer)
    batches = data.training_batches(c.processes)
    done = _position(read_checkpoint(c.checkpoint)) if c.checkpoint else Position()
    steps = count_steps(batches, limit, windows, max_epochs, max_steps, done)
    warmup = round(model.warmup_ratio * steps.total)
    precision, path = device_path(
        config.trainer.precision, c.on_cpu, c.strategy, c.amp, config.trainer.plugins
    )
    rows = data.batch_size * c.processes * windows
    plan.numbers = {
        "rows": data.splits,
        "effective_batch": None if data.tokens_per_batch else rows,
        "batches_an_epoch": steps.batches,
        "steps_an_epoch": steps.an_epoch,
        "steps": steps.total,
        "warmup_steps": warmup,
        "precision": precision,
    }
    lines = plan.lines
    lines["batch"] = _batch_line(data, c, windows, batches)
    if config.find_batch.enabled and not c.checkpoint:
        lines["search"] = plan_line(config.find_batch, data.batch_size, windows)
    lines["steps"] = _steps_line(steps, windows, batches, max_epochs)
    if c.checkpoint:
        plan.numbers["steps_left"] = max(0, steps.total - done.steps)
        lines["steps"] += f"; {done.steps:,} done, {plan.numbers['steps_left']:,} left"
    share = f"model.warmup_ratio {model.warmup_ratio:g}"
    lines["warm-up"] = f"{warmup:,} of {steps.total:,} steps ({share})"
    plan.numbers["rates"], lines["schedule"] = _schedule(model, warmup, steps.total)
    lines["clipping"] = _clipping_line(config.trainer, precision == "16-mixed")
    lines["precision"] = path
    lines["tf32"] = _tf32_line(config.matmul.tf32, c.on_cpu)
    _add_memory(plan, model, data, c, precision)
    lines["keeps"] = _keeping_line(trainer, data, config)
    if config.seeds:
        numbers = ", ".join(map(str, config.seeds))
        lines["seeds"] = f"{len(config.seeds)} runs like this one, one after the other: {numbers}"
    if c.processes * windows > 1:
        one = count_steps(data.training_batches(1), limit, 1, max_epochs, max_steps)
        plan.warnings.append(_scaling_warning(model, data, c.processes * windows, steps, one))
    plan.warnings += _conflicts(c, _facts(model, data, c, plan.numbers, steps, batches))
    return plan


def _facts(
    model: Any, data: Any, c: Circumstances, numbers: dict[str, Any], steps: Steps, batches: int
) -> Facts:
    return Facts(
        on_cpu=c.on_cpu,
        is_mini=model.backbone.name.startswith("built-in mini"),
        processes=c.processes,
        strategy=c.strategy,
        precision=numbers["precision"],
        batches=batches,
        total_steps=steps.total,
        epoch_steps=steps.in_epochs,
        warmup_steps=numbers["warmup_steps"],
        has_test="test" in data.splits,
    )


def _batch_line(data: Any, c: Circumstances, windows: int, batches: int) -> str:
    if not data.tokens_per_batch:
        return batch_line(data.batch_size, c.processes, windows, c.strategy)
    mean = data.splits["train"] / max(1, batches) * windows
    return (
        f"up to {data.tokens_per_batch:,} positions × {c.processes} × {windows} accumulated,"
        f" on average {mean:.1f} rows a step, {c.strategy}"
    )


def _conflicts(c: Circumstances, facts: Facts) -> list[str]:
    refused = {line.split(":")[0] for text in c.refusals for line in text.splitlines()}
    return [
        line
        for line in find_conflicts(c.config, c.typed, facts)
        if line.split()[0].rstrip(":") not in refused  # it needs no second line
    ]


def later_refusals(trainer: Any, data: Any, c: Circumstances) -> list[str]:
    """Return why fit would stop when it has its batches, before the first step."""
    problems, processes = [], c.processes
    keeps_best = c.config.trainer.enable_checkpointing is not False
    is_tested = c.config.test_after_fit and keeps_best and trainer.limit_test_batches
    for split in ("val", "test") if is_tested else ("val",):
        try:
            data.check_processes(split, processes)
        except BertLightningError as error:
            problems.append(str(error))
    batches = data.training_batches(processes)
    limit, interval = trainer.limit_train_batches, trainer.val_check_interval
    if isinstance(limit, float) and limit > 0 and int(limit * batches) == 0:
        problems.append(
            f"trainer.limit_train_batches: expected a share of {batches} batches that is at least"
            f" one – found {limit:g}"
        )
    used = count_steps(batches, limit, 1, 1, -1).batches
    validates = trainer.limit_val_batches > 0 and trainer.check_val_every_n_epoch is not None
    if isinstance(interval, int) and interval > used > 0 and validates:
        problems.append(
            f"trainer.val_check_interval: expected at most {used}, the batches of an epoch"
            f" – found {interval}"
        )
    return problems


def _limits(trainer: Any) -> tuple[int | float, int | None, int]:
    return trainer.limit_train_batches, trainer.max_epochs, trainer.max_steps


def _steps_line(steps: Steps, windows: int, batches: int, max_epochs: int | None) -> str:
    of = f" of {batches:,}" if steps.batches != batches else ""
    short = steps.batches % windows
    window = f", the last one of {short}" if short and windows > 1 else ""
    epochs = "" if max_epochs in (None, -1) else f", {_epochs(max_epochs)}"
    return (
        f"{steps.an_epoch:,} an epoch ({steps.batches:,}{of} batches{window}){epochs},"
        f" {steps.total:,} in all"
    )


def _epochs(count: int | None) -> str:
    return f"{count} epoch{'' if count == 1 else 's'}"


def _schedule(model: Any, warmup: int, total: int) -> tuple[dict[str, float], str]:
    """Return the first, highest and last rate of the head, and a line of them."""
    if not total:
        return {}, f"{model.schedule}: no steps"
    factor, peak = SCHEDULES[model.schedule], model.learning_rate
    first, last = (peak * factor(step, warmup, total) for step in (0, total - 1))
    decay = f"; each layer × {model.layer_decay:g} of the one above" * (model.layer_decay != 1)
    return {"first": first, "peak": peak, "last": last}, (
        f"{model.schedule}: {first:.3g} at step 1,"
        + f" {peak:.3g} at step {warmup:,}," * (1 < warmup < total)
        + f" {last:.3g} at step {total:,}{decay}"
    )


def _clipping_line(trainer: Any, is_scaled: bool) -> str:
    value = trainer.gradient_clip_val
    if not value:
        return "none (trainer.gradient_clip_val)"
    kind = "each value" if trainer.gradient_clip_algorithm == "value" else "gradient norm"
    return f"{kind} to {value:g}" + ", after unscaling" * is_scaled


def _tf32_line(tf32: bool, on_cpu: bool) -> str:
    where = "; matters on a GPU only" if on_cpu else ""
    if tf32:
        return f"on: float32 products are rounded to TF32{where}"
    return f"off: float32 products are strict{where}"


def _keeping_line(trainer: Any, data: Any, config: Any) -> str:
    interval = trainer.val_check_interval
    when = "each epoch" if interval == 1.0 else f"every {interval} (trainer.val_check_interval)"
    tested = config.test_after_fit and "test" in data.splits
    steps = f" and every {config.save_every_steps:,} steps" if config.save_every_steps else ""
    return (
        f"validates {when} on {data.splits['val']:,} rows; best and last, last also every"
        f" {config.save_every_seconds:g} s{steps}"
        + (f"; tests best on {data.splits['test']:,} rows" if tested else "")
    )


def _scaling_warning(model: Any, data: Any, factor: int, steps: Steps, one: Steps) -> str:
    total, alone = steps.total, one.total
    size = f"{factor} × as many rows a step as one batch"
    if not data.tokens_per_batch:
        size = f"{data.batch_size * factor} rows a step, not data.batch_size {data.batch_size}"
    warmups = [round(model.warmup_ratio * number) for number in (total, alone)]
    return (
        f"batch: {size}; {total:,} steps instead of {alone:,}, {warmups[0]:,} of warm-up instead"
        f" of {warmups[1]:,}. The rate is not scaled: it stays {model.learning_rate:g}, linear"
        f" scaling would be --model.learning_rate {model.learning_rate * factor:g}"
    )


def _add_memory(plan: Plan, model: Any, data: Any, c: Circumstances, precision: str) -> None:
    """Add the line of memory; for mixed precision that a CPU does not run that of a GPU, too."""
    longest = data.longest_input

    def estimate(width: int, name: str) -> Memory:
        positions = data.tokens_per_batch or data.batch_size * width
        return _memory(model, max(positions, width), c, name)

    asked = MIXED.get(str(c.config.trainer.precision), "")
    if c.on_cpu and asked and asked != precision:
        _, path = device_path(asked, False, c.strategy, c.amp)
        gib = estimate(data.max_length, asked).total
        plan.lines["on a GPU"] = f"{path}; about {gib:.2f} GiB"
    if precision not in ("32-true", "16-mixed", "bf16-mixed"):
        plan.lines["memory"] = f"no estimate for {precision}"
        return
    full, here = (estimate(width, precision) for width in (data.max_length, longest))
    states = full.weights + full.gradients + full.adam
    plan.numbers["memory_gib"] = {**full._asdict(), "total": full.total, "longest": here.total}
    size = f"{data.batch_size} × {data.max_length}"
    size = f"{data.tokens_per_batch:,} positions" if data.tokens_per_batch else size
    plan.lines["memory"] = (
        f"about {full.total:.2f} GiB a device at {size}, an estimate for GPUs: weights, gradients,"
        f" Adam {states:.2f}, activations {full.activations:.2f}, rest {full.rest:.2f}"
        + f"; {here.total:.2f} at {longest}, the longest row of train"
        * (here != full)
    )


def _memory(model: Any, positions: int, c: Circumstances, name: str) -> Memory:
    strategy = c.strategy.lower()
    settings = getattr(c.config.trainer.strategy, "init_args", None) or {}
    is_view = bool(settings.get("gradient_as_bucket_view"))
    return memory_of(
        model.network,
        positions,
        is_mixed=name in ("16-mixed", "bf16-mixed"),
        shards=c.processes if "fsdp" in strategy else 1,
        buckets=c.processes > 1 and "fsdp" not in strategy and not is_view,
    )
