"""The largest batch that a GPU has room for, by trying; rows a step stay what was asked for.

A number of rows is tried by a short fit of a copy of the model, in the precision and execution of
the run, on batches up to the length of the longest row, with the device's memory held to the
budget. So what fits is seen and not computed: graphs, optimizer and evaluation included.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.memory import is_oom_error
from torch.utils.data import DataLoader

from bert_lightning.data.encoding import Batch
from bert_lightning.devices import is_one_of_many, strategy_name
from bert_lightning.errors import ConfigError
from bert_lightning.execution import choose_execution
from bert_lightning.memory import GIB, memory_of

UPDATES = 3  # of each length: launched, recorded as graphs, replayed
LENGTHS = 4
FREE_SHARE = 0.95  # of what is free; the rest is for NCCL, and for memory in pieces
_COUNTS_OF_BATCHES = (
    "limit_train_batches",
    "limit_val_batches",
    "limit_test_batches",
    "val_check_interval",
    "overfit_batches",
)
_SHORT: dict[str, Any] = {  # of a trainer's settings; all others are those of the run
    "num_nodes": 1,
    "strategy": "auto",
    "precision": None,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "profiler": None,
    "fast_dev_run": False,
    "overfit_batches": 0.0,
    "max_epochs": 1,
    "min_epochs": None,
    "max_steps": -1,
    "min_steps": None,
    "max_time": None,
    "limit_train_batches": 1.0,
    "limit_val_batches": 1.0,
    "val_check_interval": 1.0,
    "check_val_every_n_epoch": 1,
    "num_sanity_val_steps": 0,
}

MakeTrainer = Callable[..., Any]


@dataclass
class FindBatchSettings:
    """The largest batch that a GPU has room for, found before the run.

    Args:
        enabled: Whether fit looks for it. Rows a step on each device stay ``data.batch_size`` ×
            ``trainer.accumulate_grad_batches``; what does not fit at once is accumulated.
        memory_gib: GiB that the run may take on a device, as if the GPU were smaller; null takes
            what is free there.
    """

    enabled: bool = False
    memory_gib: float | None = None


class Found(NamedTuple):
    """The outcome of a search.

    ``rows`` are those of a batch and ``windows`` the batches of a step, on each device. ``length``
    is that of the batches that were tried, in pieces, ``peak_gib`` what tensors took.
    """

    rows: int
    windows: int
    length: int
    peak_gib: float
    budget_gib: float

    @property
    def line(self) -> str:
        """What was chosen, in words."""
        return (
            f"{self.rows} rows a batch fit {self.budget_gib:.3g} GiB (peak {self.peak_gib:.3g} GiB"
            f" at length {self.length}); {self.rows * self.windows} rows a step on each device ="
            f" {self.rows} × {self.windows} accumulated"
        )


def check_search(config: Any, on_cpu: bool) -> None:
    """Refuse a search where nothing can be tried, or where its outcome would change the run.

    Args:
        config: All settings of a fit.
        on_cpu: Whether it computes on the CPU.

    Raises:
        ConfigError: All faults found.
    """
    settings, trainer = config.find_batch, config.trainer
    if not settings.enabled:
        return
    strategy, key, problems = strategy_name(trainer.strategy), "find_batch.enabled", []
    if settings.memory_gib is not None and not 0 < settings.memory_gib < math.inf:
        problems.append(
            "find_batch.memory_gib: expected a number above 0, or null – found"
            f" {settings.memory_gib:g}"
        )
    if on_cpu or not torch.cuda.is_available():
        problems.append(
            f"{key}: expected a CUDA device, whose memory is tried – found none in this run\nleave"
            " the key out, and set data.batch_size"
        )
    if config.data.tokens_per_batch is not None:
        problems.append(
            f"{key}: expected batches of data.batch_size rows – found data.tokens_per_batch"
            f" {config.data.tokens_per_batch}, which fills them in its own way\nleave one out"
        )
    if strategy not in ("auto", "single_device") and "ddp" not in strategy.lower():
        problems.append(
            f"{key}: expected one device or DDP, whose step can be tried on one – found"
            f" trainer.strategy {strategy}\nleave the key out, or take --config ddp.yaml"
        )
    if trainer.num_nodes > 1 or is_one_of_many():
        problems.append(
            f"{key}: expected one command that starts its own processes, so that one searches for"
            " all – found one of several, as torchrun, srun or trainer.num_nodes start them\nsearch"
            " with --trainer.devices 1, and give here the batch_size and accumulate_grad_batches"
            " that its config.yaml holds"
        )
    problems += [
        f"trainer.{name}: expected a share such as 0.1 beside {key} – found {trainer[name]},"
        " batches whose rows would change with the batch that is found"
        for name in _COUNTS_OF_BATCHES
        if isinstance(trainer[name], int) and trainer[name] > 0
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def plan_line(settings: Any, rows: int, windows: int) -> str:
    """Say what fit would look for.

    Args:
        settings: Those of the search.
        rows: Rows a batch as configured.
        windows: Batches a step as configured.
    """
    room = "what is free" if settings.memory_gib is None else f"{settings.memory_gib:g} GiB"
    return (
        f"fit will look for the largest batch that fits {room}, keeping {rows * windows} rows a"
        f" step on each device; all else here is for {rows} × {windows} accumulated"
    )


def largest_fitting(
    numbers: Sequence[int], fits: Callable[[int], bool], guess: int = 0
) -> int | None:
    """Return the largest number that fits, or None; what fits a number fits all smaller ones.

    From a guess that is d places off it takes about 2 log d trials.

    Args:
        numbers: Ascending.
        fits: Tries a number, which takes time; called once for each number that is tried.
        guess: Index of the number that is tried first. If it is right, or the next smaller one is,
            two trials are enough.
    """
    low, high, index = -1, len(numbers), guess  # numbers[low] fits, numbers[high] does not
    stride = 1
    while high - low > 1:
        if fits(numbers[index]):
            low = index
        else:
            high = index
        if low < 0:
            index = max(0, high - stride)
        elif high == len(numbers):
            index = min(len(numbers) - 1, low + stride)
        else:
            index = (low + high) // 2
        stride *= 2
    return numbers[low] if low >= 0 else None


class CudaMeter:
    """Runs work with no more memory than a budget, and says what it took.

    Args:
        device: Where it runs.
        memory_gib: The budget; None is what is free.
    """

    def __init__(self, device: torch.device, memory_gib: float | None) -> None:
        self.device = device
        free, self._total = torch.cuda.mem_get_info(device)
        usable = FREE_SHARE * free / GIB
        self.budget_gib = usable if memory_gib is None else min(memory_gib, usable)

    def measure(self, work: Callable[[], None]) -> float | None:
        """Return the peak in GiB, or None if the memory was not enough; nothing stays behind."""
        share = min(1.0, self.budget_gib * GIB / self._total)
        torch.cuda.set_per_process_memory_fraction(share, self.device)
        try:
            self._release()
            has_room = _has_room(work)
            return torch.cuda.max_memory_allocated(self.device) / GIB if has_room else None
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, self.device)
            self._release()

    def _release(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)


@contextlib.contextmanager
def compiled_anew() -> Iterator[None]:
    """Forget at the end what was compiled inside.

    The second number of rows that is tried is compiled for any number, which serves all others; a
    run would be slower with it.
    """
    try:
        yield
    finally:
        torch.compiler.reset()


def _has_room(work: Callable[[], None]) -> bool:
    try:
        work()
    except Exception as error:
        cause: BaseException | None = error  # what was torn down may have failed after it
        while cause is not None and not is_oom_error(cause):
            cause = cause.__context__
        if cause is None:
            raise
        return False
    return True


class WideningBatches(LightningDataModule):
    """Random batches for training and validation, full and without padding, up to the worst case.

    They get longer, as memory of graphs falls into most pieces that way.

    Args:
        rows: Rows a batch.
        length: Most pieces a row.
        count: Number of batches of each length.
        vocabulary: Number of token ids.
        classes: Number of classes.
    """

    def __init__(self, rows: int, length: int, count: int, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.batch_size = rows
        self.longest_input = length
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(vocabulary, (rows, length), generator=generator)
        labels = torch.randint(classes, (rows,), generator=generator)
        self._batches = [
            {
                "input_ids": ids[:, :width],
                "attention_mask": torch.ones(rows, width, dtype=torch.int64),
                "labels": labels,
                "rows": torch.arange(rows),
            }
            for width in sorted({-(-length * part // LENGTHS) for part in range(1, LENGTHS + 1)})
            for _ in range(count)
        ]

    def train_dataloader(self) -> DataLoader[Batch]:
        """All of them."""
        return DataLoader(self._batches, batch_size=None)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader[Batch]:
        """The same."""
        return self.train_dataloader()


class Trial:
    """A short fit of a copy of the model, which leaves model, weights and random state alone.

    Args:
        trainer: That of the run.
        model: The `BertClassifier`.
        length: Pieces a row.
        make_trainer: Builds a trainer of the run's settings; its arguments win over them.
    """

    def __init__(self, trainer: Any, model: Any, length: int, make_trainer: MakeTrainer) -> None:
        self.trainer = trainer
        self.model = model
        self.length = length
        self.make_trainer = make_trainer
        self.device = trainer.strategy.root_device
        self.execution = choose_execution(model.execution, trainer, model).name
        self.has_buckets = has_buckets(trainer)

    def run(self, rows: int, windows: int) -> None:
        """Train and validate.

        Args:
            rows: Rows a batch.
            windows: Batches a step; the second stands for all that follow.
        """
        used = min(windows, 2)
        on_cuda = self.device.type == "cuda"
        with torch.random.fork_rng(devices=[self.device] if on_cuda else []):
            model = copy.deepcopy(self.model)
            model.execution = self.execution
            model.learning_rate = 0.0  # so that no weight can leave the numbers
            batches = WideningBatches(
                rows,
                self.length,
                UPDATES * used,
                model.network.config.vocab_size,
                len(model.class_names),
            )
            trainer = self.make_trainer(
                **_SHORT,
                accelerator="gpu" if on_cuda else "cpu",
                devices=[self.device.index] if on_cuda else 1,
                callbacks=[],
                plugins=[copy.deepcopy(self.trainer.precision_plugin)],
                accumulate_grad_batches=used,
            )
            _buckets = self._buckets()  # held while the trial runs
            trainer.fit(model, datamodule=batches, test_after_fit=False)

    def estimate(self, rows: int) -> float:
        """Return the GiB that are likely to be needed for so many rows a batch."""
        is_mixed = str(self.trainer.precision_plugin.precision) in ("16-mixed", "bf16-mixed")
        return memory_of(
            self.model.network,
            rows * self.length,
            is_mixed=is_mixed,
            buckets=self.has_buckets,
        ).total

    def _buckets(self) -> torch.Tensor | None:
        """Return as much memory as DDP's second copy of the gradients takes."""
        if not self.has_buckets:
            return None
        trained = [p.numel() for p in self.model.network.parameters() if p.requires_grad]
        return torch.empty(sum(trained), device=self.device)


def has_buckets(trainer: Any) -> bool:
    """Tell whether DDP keeps gradients a second time, to send them."""
    strategy = trainer.strategy
    if not isinstance(strategy, DDPStrategy) or trainer.world_size == 1:
        return False
    return not strategy._ddp_kwargs.get("gradient_as_bucket_view")


def find_batch(
    trainer: Any, model: Any, data: Any, make_trainer: MakeTrainer, memory_gib: float | None
) -> Found:
    """Return the largest whole part of the rows of a step whose training fits.

    Args:
        trainer: That of the run, which has not begun.
        model: The `BertClassifier`.
        data: The `THUCNewsDataModule`.
        make_trainer: Builds a trainer of the run's settings; its arguments win over them.
        memory_gib: What the run may take; None is what is free.

    Raises:
        ConfigError: Not even one row fits.
    """
    trainer.strategy.connect(model)
    data.trainer = trainer
    data.setup("fit")
    meter = CudaMeter(trainer.strategy.root_device, memory_gib)
    trial = Trial(trainer, model, data.longest_input, make_trainer)
    step = data.batch_size * trainer.accumulate_grad_batches
    parts = [rows for rows in range(1, step + 1) if step % rows == 0]
    peaks: dict[int, float] = {}

    def fits(rows: int) -> bool:
        peak = meter.measure(lambda: trial.run(rows, step // rows))
        if peak is not None:
            peaks[rows] = peak
        return peak is not None

    likely = [rows for rows in parts if trial.estimate(rows) <= meter.budget_gib]
    with compiled_anew():
        rows = largest_fitting(parts, fits, max(0, len(likely) - 1))
    if rows is None:
        raise ConfigError(
            f"find_batch.memory_gib: expected room to train on one row of {trial.length} pieces"
            f" – found {meter.budget_gib:.3g} GiB, which is not enough\ntake --config lowmem.yaml,"
            " a shorter --data.max_length, or a GPU with more memory free"
        )
    return Found(rows, step // rows, trial.length, peaks[rows], meter.budget_gib)
