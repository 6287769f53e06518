"""Inside the ``fit`` of a case: holds the memory to a budget, finds the largest batch, measures.

What depends on the card is measured in the same process: how fast it multiplies matrices in the
type of the case, and the energy that it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from typing_extensions import override

from bert_lightning.benchmark.stopwatch import GIB, StepTimer, wait_for_device
from bert_lightning.data import batching
from bert_lightning.errors import ConfigError
from bert_lightning.execution import DTYPES
from bert_lightning.find_batch import CudaMeter, Trial, largest_fitting
from bert_lightning.memory import memory_of
from bert_lightning.trainer import NewsTrainer

PRODUCT_SIZE = {"cuda": 8192, "cpu": 768}
PRODUCT_SECONDS = 0.3
STEPS_AN_OCTAVE = 8  # of the batches that are tried: 9 % apart
MULTIPLE = 8  # of their rows


class CaseTimer(StepTimer):
    """Times a fit for `benchmark`.

    Args:
        started: time.time() when the process was started.
        output: JSON file that is written.
        warmup: Steps that are not measured.
        steps: Steps of a window.
        seconds: A window is over after this many, with fewer steps too.
        repeats: Most windows.
        memory_gib: What the fit may take of a GPU; None is the whole card.
        largest: Whether the largest batch is looked for, instead of ``data.batch_size``.
        random_order: Whether batches hold rows as they come, not rows of like length.
    """

    def __init__(
        self,
        started: float,
        output: str,
        warmup: int = 50,
        steps: int = 200,
        seconds: float = 8.0,
        repeats: int = 3,
        memory_gib: float | None = None,
        largest: bool = False,
        random_order: bool = False,
    ) -> None:
        super().__init__(started, output, warmup, steps, seconds, repeats)
        self.memory_gib = memory_gib
        self.largest = largest
        if random_order:
            batching.POOL_BATCHES = 1  # pools of one batch are random batches

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        device, data = trainer.strategy.root_device, trainer.datamodule  # type: ignore[attr-defined]
        network: Any = pl_module.network
        precision = str(trainer.precision_plugin.precision)
        facts = self.watch.facts
        facts["tflops_peak"] = product_tflops(DTYPES.get(precision, torch.float32), device)
        if self.largest:
            data.batch_size = largest_batch(trainer, pl_module, data.longest_input, self.memory_gib)
        if device.type == "cuda":
            limit_memory(device, self.memory_gib)
            self.watch.joules = energy_reader(device)
        parts = memory_of(network, 0, is_mixed="mixed" in precision)
        wide, inside = network.config.hidden_size, network.config.intermediate_size
        products = network.config.num_hidden_layers * (4 * wide * wide + 2 * wide * inside)
        facts |= {
            "precision": precision,
            "batch_size": data.batch_size,
            "train_rows": len(data.rows("train").lengths),
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
    sizes, rows = [], float(MULTIPLE)
    while rows <= most:
        sizes.append(round(rows / MULTIPLE) * MULTIPLE)
        rows = max(rows * 2 ** (1 / STEPS_AN_OCTAVE), sizes[-1] + MULTIPLE)
    return sizes


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
