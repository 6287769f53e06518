"""Settings that are allowed together but do nothing, or not what they seem to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bert_lightning.amp import AmpSettings
from bert_lightning.precision import MIXED


@dataclass(frozen=True)
class Facts:
    """What is known of a run beside its settings.

    Args:
        on_cpu: Whether it computes on the CPU.
        is_mini: Whether the model is the built-in mini BERT.
        processes: Number of processes.
        strategy: Name or class name of the strategy.
        precision: The precision that it runs in.
        batches: Training batches of an epoch on one process, all of them.
        total_steps: Optimizer steps of the run.
        epoch_steps: Optimizer steps of all epochs, without a limit on steps; None without an end.
        warmup_steps: Optimizer steps over which the rate rises.
        has_test: Whether there are rows to test on.
    """

    on_cpu: bool
    is_mini: bool
    processes: int
    strategy: str
    precision: str
    batches: int
    total_steps: int
    epoch_steps: int | None
    warmup_steps: int
    has_test: bool


def find_conflicts(config: Any, typed: Mapping[str, Any], facts: Facts) -> list[str]:
    """Return one line for each setting that is pointless or works against another.

    Args:
        config: All settings of the run.
        typed: What the user gave, by dotted key.
        facts: What follows from them.
    """
    return [
        *_of_precision(config, facts),
        *_of_schedule(config, facts),
        *_of_batches(config, typed, facts),
        *_of_devices(config, facts),
        *_of_keeping(config, facts),
    ]


def _of_precision(config: Any, facts: Facts) -> Iterator[str]:
    if facts.precision != "16-mixed":
        asked = MIXED.get(str(config.trainer.precision), config.trainer.precision)
        why = f"trainer.precision is {asked}" if asked else f"the run is in {facts.precision}"
        if asked == "16-mixed":
            why = f"16-mixed runs as {facts.precision} here"
        for field in dataclasses.fields(AmpSettings):
            value = config.amp[field.name]
            if value != field.default:
                yield f"amp.{field.name} {value:g}: no effect without a loss scale, as {why}"
    if facts.precision == "16-true":
        yield (
            "trainer.precision 16-true: no loss scale, and weights and sums of AdamW in fp16, where"
            " small ones vanish and the loss is soon nan; 16-mixed keeps them in float32"
        )
    if config.trainer.detect_anomaly and facts.precision == "16-mixed":
        yield (
            "trainer.detect_anomaly true: may end the run at an overflow, whose step the loss scale"
            " would skip"
        )
    if config.matmul.tf32 and facts.on_cpu:
        yield "matmul.tf32 true: no effect on a CPU"
    elif config.matmul.tf32 and facts.precision.startswith(("16", "bf16")):
        yield f"matmul.tf32 true: hardly any effect, as {facts.precision} multiplies in 16 bits"
    if config.model.gradient_checkpointing and facts.is_mini:
        yield (
            "model.gradient_checkpointing true: takes time and saves next to nothing on the"
            " built-in mini BERT"
        )


def _of_schedule(config: Any, facts: Facts) -> Iterator[str]:
    trainer, ratio = config.trainer, config.model.warmup_ratio
    steps, limit = facts.epoch_steps, trainer.max_steps
    if ratio > 0 and facts.total_steps and facts.warmup_steps == 0:
        yield (
            f"model.warmup_ratio {ratio:g}: no warm-up, as {facts.total_steps} steps are too few"
            f" for one step of it; --model.warmup_ratio {1 / facts.total_steps:.2g} gives one"
        )
    if facts.total_steps and facts.warmup_steps == facts.total_steps:
        yield f"model.warmup_ratio {ratio:g}: the rate rises to the last step and never falls"
    if limit not in (None, -1) and steps is not None:
        yield (
            f"trainer.max_steps {limit:,}: never reached, trainer.max_epochs"
            f" {trainer.max_epochs} ends the run after {steps:,}"
            if limit > steps
            else f"trainer.max_epochs {trainer.max_epochs}: trainer.max_steps {limit:,} ends the"
            f" run, of {steps:,} steps"
        )
    if trainer.max_time is not None:
        yield (
            f"trainer.max_time {trainer.max_time}: may end the run before its last step, where"
            " the rate has not come down"
        )
    if not trainer.gradient_clip_val and trainer.gradient_clip_algorithm:
        yield (
            f"trainer.gradient_clip_algorithm {trainer.gradient_clip_algorithm}: no effect without"
            " trainer.gradient_clip_val"
        )


def _of_batches(config: Any, typed: Mapping[str, Any], facts: Facts) -> Iterator[str]:
    data, windows = config.data, config.trainer.accumulate_grad_batches or 1
    if data.tokens_per_batch is not None:
        if "data.batch_size" in typed:
            yield (
                f"data.batch_size {data.batch_size}: no effect on training batches, which"
                f" data.tokens_per_batch {data.tokens_per_batch:,} fills"
            )
        if data.tokens_per_batch < data.max_length:
            yield (
                f"data.tokens_per_batch {data.tokens_per_batch}: less than data.max_length"
                f" {data.max_length}, a longer row takes a batch of its own beyond it"
            )
    if data.pad_to_multiple_of > data.max_length:
        yield (
            f"data.pad_to_multiple_of {data.pad_to_multiple_of}: more than data.max_length"
            f" {data.max_length}, so that every batch is padded to {data.max_length}"
        )
    if windows > facts.batches:
        yield (
            f"trainer.accumulate_grad_batches {windows}: an epoch has {facts.batches} batches, so"
            " that it is one step"
        )
    if config.find_batch.memory_gib is not None and not config.find_batch.enabled:
        yield (
            f"find_batch.memory_gib {config.find_batch.memory_gib:g}: no effect without"
            " find_batch.enabled true"
        )
    if data.predict_path is not None:
        also = " and data.class_weights is left out" if data.class_weights is not None else ""
        yield f"data.predict_path {data.predict_path}: fit does not read it{also}; remove the key"


def _of_devices(config: Any, facts: Facts) -> Iterator[str]:
    if facts.processes == 1 and facts.strategy.lower().startswith(("ddp", "fsdp")):
        yield f"trainer.strategy {facts.strategy}: nothing to share out on one device"
    needs_gpus = any(name in facts.strategy.lower() for name in ("fsdp", "deepspeed"))
    if facts.processes > 1 and facts.on_cpu and not needs_gpus:
        yield (
            f"trainer.devices {config.trainer.devices}: {facts.processes} processes share the cores"
            " of one CPU, which one process uses as well; meant for trying DDP out"
        )


def _of_keeping(config: Any, facts: Facts) -> Iterator[str]:
    trainer, seconds = config.trainer, config.save_every_seconds
    if seconds <= 0:
        yield (
            f"save_every_seconds {seconds:g}: a checkpoint at every"
            f" {trainer.log_every_n_steps or 50} batches, which may take most of the time"
        )
    if trainer.fast_dev_run:
        yield f"trainer.fast_dev_run {trainer.fast_dev_run}: nothing is kept or tested"
        return
    if trainer.enable_checkpointing is False:
        yield "trainer.enable_checkpointing false: nothing is kept, so nothing is tested"
    elif trainer.limit_val_batches == 0:
        yield "trainer.limit_val_batches 0: no best checkpoint, so nothing is tested"
    elif config.test_after_fit and not facts.has_test:
        yield "test_after_fit true: the data has no test file"
