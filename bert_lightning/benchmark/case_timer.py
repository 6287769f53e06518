"""Inside the ``fit`` of a case: holds the memory to a budget, finds the largest batch, measures.

What depends on the card is measured in the same process: how fast it multiplies matrices in the
type of the case, and the energy that it takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from typing_extensions import override

from bert_lightning.benchmark.stopwatch import GIB, StepTimer, wait_for_device
from bert_lightning.data import batching
from bert_lightning.errors import ConfigError
from bert_lightning.execution import DTYPES
from bert_lightning.find_batch import CudaMeter, Trial, compiled_anew, largest_fitting
from bert_lightning.memory import memory_of
from bert_lightning.trainer import NewsTrainer

PRODUCT_SIZE = {"cuda": 8192, "cpu": 768}
PRODUCT_SECONDS = 0.3
EPOCH_SECONDS = 1e9  # a window of a whole epoch takes as long as it takes
OCTAVE_STEP = 2 ** (1 / 8)  # from one batch that is tried to the next: 9 %
MULTIPLE = 8  # of their rows


class CaseTimer(StepTimer):
    """Times a fit for `benchmark`.

    Args:
        started: time.time() when the process was started.
        output: JSON file that is written.
        warmup: Steps in a row without a new shape that are not measured.
        steps: Steps of a window.
        seconds: A window is over after this many, with fewer steps too, and so is the warm-up.
        repeats: Most windows.
        full: Whether one window as long as an epoch is measured instead.
        memory_gib: What the fit may take of a GPU; None is the whole card.
        largest: Whether the largest batch is looked for, instead of ``data.batch_size``.
        random_order: Whether batches hold rows as they come, not rows of like length.
    """

    def __init__(
        self,
        started: float,
        output: str,
        warmup: int,
        steps: int,
        seconds: float,
        repeats: int,
        full: bool = False,
        memory_gib: float | None = None,
        largest: bool = False,
        random_order: bool = False,
    ) -> None:
        super().__init__(started, output, warmup, steps, seconds, repeats, settling=seconds)
        self.full = full
        self.memory_gib = memory_gib
        self.largest = largest
        if random_order:
            batching.POOL_BATCHES = 1  # pools of one batch are random batches

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        device, data = trainer.strategy.root_device, trainer.datamodule  # type: ignore[attr-defined]
        precision = str(trainer.precision_plugin.precision)
        peak = product_tflops(DTYPES[precision], device)
        if self.largest:
            data.batch_size = largest_batch(trainer, pl_module, data.longest_input, self.memory_gib)
        if device.type == "cuda":
            limit_memory(device, self.memory_gib)
            self.watch.joules = energy_reader(device)
        rows = len(data.rows("train").lengths)
        if self.full:
            steps = math.ceil(rows / data.batch_size)
            self.watch.extent = replace(
                self.watch.extent, steps=steps, seconds=EPOCH_SECONDS, repeats=1
            )
        self.watch.facts = {
            "precision": precision,
            "tflops_peak": peak,
            "batch_size": data.batch_size,
            "train_rows": rows,
            **network_facts(pl_module.network, is_mixed="mixed" in precision),
        }


def network_facts(network: Any, is_mixed: bool) -> dict[str, float]:
    """Return what a position costs, and the memory that any batch needs."""
    wide, inside = network.config.hidden_size, network.config.intermediate_size
    products = network.config.num_hidden_layers * (4 * wide * wide + 2 * wide * inside)
    parts = memory_of(network, 0, is_mixed=is_mixed)
    return {
        # forward and backward, of products with weights: attention adds 3 % at length 128
        "flops_per_position": 6 * products,
        "weights_gib": round(parts.weights, 3),
        "optimizer_gib": round(parts.gradients + parts.adam, 3),
    }


def product_tflops(dtype: torch.dtype, device: torch.device) -> float | None:
    """Return the TFLOP/s of a large matrix product, or None if there is no room for one."""
    size = PRODUCT_SIZE.get(device.type, PRODUCT_SIZE["cpu"])
    try:
        left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        result = left @ right
        wait_for_device()
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < PRODUCT_SECONDS:
            for _ in range(5):
                torch.mm(left, right, out=result)
            wait_for_device()
            done += 5
        return round(2 * size**3 * done / (time.perf_counter() - begun) / 1e12, 3)
    except torch.OutOfMemoryError:
        return None
    finally:
        left = right = result = torch.empty(0)
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)


def limit_memory(device: torch.device, memory_gib: float | None) -> None:
    """Hold what this process takes of a GPU to a budget; None is the whole card."""
    if memory_gib is not None:
        total = torch.cuda.get_device_properties(device).total_memory / GIB
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory_gib / total), device)


def batch_sizes(most: int) -> list[int]:
    """Return the numbers of rows that are tried, ascending, about 9 % apart.

    >>> batch_sizes(100)
    [8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96]
    """
    sizes, rows = [], MULTIPLE
    while rows <= most:
        sizes.append(rows)
        rows = next_size(rows)
    return sizes


def next_size(rows: int) -> int:
    """Return the number of rows that is tried after one that has room."""
    return max(1, round(rows * (OCTAVE_STEP - 1) / MULTIPLE)) * MULTIPLE + rows


def largest_batch(
    trainer: Trainer, model: LightningModule, length: int, memory_gib: float | None
) -> int:
    """Return the most rows of a batch that train within the memory, found by short fits.

    Args:
        trainer: That of the fit, which has not begun.
        model: The `BertClassifier`.
        length: Pieces a row.
        memory_gib: What the fit may take; None is what is free.

    Raises:
        ConfigError: Not even the smallest batch has room.
    """

    def make_trainer(**settings: Any) -> NewsTrainer:
        return NewsTrainer(
            gradient_clip_val=trainer.gradient_clip_val,
            use_distributed_sampler=False,
            enable_model_summary=False,
            **settings,
        )

    meter = CudaMeter(trainer.strategy.root_device, memory_gib)
    trial = Trial(trainer, model, length, make_trainer)
    sizes = batch_sizes(len(trainer.datamodule.rows("train").lengths))  # type: ignore[attr-defined]
    likely = [rows for rows in sizes if trial.estimate(rows) <= meter.budget_gib]
    with compiled_anew():
        rows = largest_fitting(
            sizes,
            lambda rows: meter.measure(lambda: trial.run(rows, 1)) is not None,
            max(0, len(likely) - 1),
        )
    if rows is None:
        raise ConfigError(
            f"memory_gib: expected room for a batch of {MULTIPLE} rows – found"
            f" {meter.budget_gib:.3g} GiB, out of memory"
        )
    return rows


def energy_reader(device: torch.device) -> Callable[[], float | None]:
    """Return what reads the joules that a GPU has taken; it gives None where NVML does not say."""
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]

        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # no package, no driver that answers, a card without a meter
        return lambda: None
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
