"""Settings, model and data of a command → its trainer, and the first lines on the screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint, WeightAveraging
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.plugins.precision import Precision

from bert_lightning import __version__
from bert_lightning.arguments import TRAINING, first_reason
from bert_lightning.banner import (
    batch_line,
    carried_lines,
    data_lines,
    model_lines,
    rate_line,
    resume_line,
    trained_precision,
)
from bert_lightning.callbacks.amp_recorder import AmpRecorder
from bert_lightning.callbacks.checkpoints import BestAndLast
from bert_lightning.callbacks.data_summary import DataSummary
from bert_lightning.callbacks.finite_loss import FiniteLoss
from bert_lightning.callbacks.progress import progress_bar
from bert_lightning.callbacks.resume import ExactResume
from bert_lightning.callbacks.run_folder import RunFolder
from bert_lightning.callbacks.run_report import RunReport
from bert_lightning.callbacks.stop_signals import StopSignals
from bert_lightning.callbacks.throughput import Throughput
from bert_lightning.checkpoint import CHECKPOINTS, LAST
from bert_lightning.checkpoint_io import SafeCheckpointIO
from bert_lightning.compatibility import check_saving, check_settings
from bert_lightning.console import Console
from bert_lightning.decisions import decide_once, decided, is_first_process
from bert_lightning.devices import process_count, runs_on_cpu, strategy_name
from bert_lightning.errors import BertLightningError, ConfigError
from bert_lightning.execution import choose_execution
from bert_lightning.find_batch import Found, find_batch
from bert_lightning.loggers import refuse_overwriting, run_loggers
from bert_lightning.notices import is_about_settings
from bert_lightning.planning import Circumstances
from bert_lightning.precision import effective_precision, precision_plugin
from bert_lightning.runs import RUNS, UNDECIDED, hold_run, new_run_folder, run_of_checkpoint

_ANYWHERE: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "num_nodes": 1,
    "strategy": "auto",
    "precision": "32-true",
    "plugins": None,
}


@dataclass
class Request:
    """What a command line asks for, as far as it is known before anything is built.

    Args:
        command: fit, validate, test, predict or plan.
        console: Where lines go.
        typed: What the user gave, by dotted key.
        checkpoint: Where weights and settings come from.
        refusals: Why a planned fit cannot run.
    """

    command: str
    console: Console
    typed: dict[str, Any] = field(default_factory=dict)
    checkpoint: Path | None = None
    refusals: list[str] = field(default_factory=list)

    @property
    def is_training(self) -> bool:
        """Whether it is fit, or plan, which takes whatever fit takes."""
        return self.command in TRAINING

    def check(self, check: Callable[..., None], *args: Any) -> None:
        """Raise what a check finds; for a plan keep it, so that all reasons are shown at once."""
        try:
            check(*args)
        except ConfigError as error:
            if self.command != "plan":
                raise
            self.refusals.append(str(error))

    def run_folder(self, root: Path) -> Path:
        """Return the folder that the run writes to: a new one, or that of the resumed run."""
        resumed = run_of_checkpoint(self.checkpoint) if self.checkpoint else None
        if self.command == "fit" and resumed and self.checkpoint:
            last = resumed / CHECKPOINTS / LAST
            # from an older state a run of its own begins, or it would replace what came after
            if last.is_file() and last.samefile(self.checkpoint):
                return resumed
        if not is_first_process() and not decided("RUN"):
            return root / RUNS / UNDECIDED  # another machine picks the number; RunFolder learns it
        return Path(decide_once("RUN", lambda: str(self._new_run_folder(root))))

    def _new_run_folder(self, root: Path) -> Path:
        folder = new_run_folder(root)
        return hold_run(folder) if self.command == "fit" else folder


class Assembly:
    """Builds the trainer of a command.

    Args:
        request: What the command line asks for.
        settings: All settings of the command as plain values.
        settings_yaml: The same as text, for config.yaml.
        parts: The settings again, with objects where a class is named.
        model: The `BertClassifier`.
        datamodule: The `THUCNewsDataModule`.
        make_trainer: Builds Lightning's trainer; its arguments win over the settings.
    """

    def __init__(
        self,
        request: Request,
        settings: Any,
        settings_yaml: str,
        parts: Any,
        model: Any,
        datamodule: Any,
        make_trainer: Callable[..., Any],
    ) -> None:
        self.request = request
        self.settings = settings
        self.settings_yaml = settings_yaml
        self.parts = parts
        self.model = model
        self.datamodule = datamodule
        self.make_trainer = make_trainer
        self.on_cpu = runs_on_cpu(parts.trainer.accelerator)

    def trainer(self) -> Any:
        """Return the trainer, after all checks, and show the first lines.

        Raises:
            BertLightningError: Settings that do not fit; for a plan they are kept in the request.
        """
        request, config = self.request, self.parts.trainer
        callbacks = [
            callback
            for callback in _as_list(config.callbacks)
            # a fit's config.yaml may name one that keeps checkpoints
            if request.is_training or not isinstance(callback, Checkpoint)
        ]
        lengths = (self.datamodule.max_length, self.model.max_positions)
        request.check(check_settings, config, callbacks, *lengths, request.is_training)
        request.check(check_saving, self.settings.save_every_seconds)
        request.check(refuse_overwriting, _as_list(config.logger))
        for callback in callbacks:
            if isinstance(callback, ModelCheckpoint) and "/" in (callback.filename or ""):
                callback.auto_insert_metric_name = False  # or val/loss would make a folder
            if isinstance(callback, WeightAveraging):
                callback._use_buffers = False  # positions, which averaged as integers become others
        self.datamodule.expect_split(request.command)
        is_plan = request.command == "plan"
        return self._planning_trainer(callbacks) if is_plan else self._running_trainer(callbacks)

    def _running_trainer(self, own_callbacks: list[Callback]) -> Any:
        request, config = self.request, self.parts.trainer
        precision, precision_note = effective_precision(config.precision, self.on_cpu)
        precision_arguments = self._precision_arguments(precision)
        own = [p for p in _as_list(config.plugins) if isinstance(p, Precision)]
        named = f"{own[0].precision} – {type(own[0]).__name__} of trainer.plugins" if own else None
        banner = self._banner(named or precision_note or str(precision or "32-true"))
        scaled = _scales(precision_arguments["plugins"])
        if request.command == "fit":
            plugins = self._checkpoint_plugins(precision_arguments["plugins"])
            precision_arguments = {**precision_arguments, "plugins": plugins}
        if request.is_training and request.checkpoint:
            banner |= carried_lines(request.checkpoint, scaled, own_callbacks)
        is_kept = request.command != "predict" and not config.fast_dev_run
        root = Path(self.settings.trainer.default_root_dir or ".")
        folder = request.run_folder(root) if is_kept else None
        loggers: list[Logger] | bool = False
        callbacks: list[Callback] = [DataSummary(request.console)]
        if config.enable_progress_bar is not False:
            callbacks.append(progress_bar(request.console, config.log_every_n_steps or 50))
        if folder:
            banner["run"] = str(folder)
            loggers = run_loggers(config.logger, folder)
            callbacks += self._run_callbacks(folder, banner)
        if request.is_training and scaled:
            callbacks.insert(0, AmpRecorder(folder, request.console))
        elif request.command == "fit":
            callbacks.insert(0, FiniteLoss(folder))
        trainer = self.make_trainer(
            **precision_arguments,
            logger=loggers,
            callbacks=[*own_callbacks, *callbacks],
            enable_checkpointing=bool(folder) and self._keeps_checkpoints(),
        )
        chosen = choose_execution(self.model.execution, trainer, self.model)
        banner["execution"] = chosen.line
        if request.command == "fit":
            if self.parts.find_batch.enabled:
                banner["search"] = self._settle_batch(trainer)
            banner["batch"] = batch_line(
                self.datamodule.batch_size,
                trainer.world_size,
                trainer.accumulate_grad_batches,
                type(trainer.strategy).__name__,
            )
        request.console.say(f"bert_lightning {__version__} · {request.command}")
        for name, text in banner.items():
            request.console.say(f"{name:<9} {text}")
        return trainer

    def _settle_batch(self, trainer: Any) -> str:
        """Give the run the largest batch that fits, and return what to say of it.

        It is written down as if it had been typed, so that a run that goes on has the same.
        """
        model, data = self.model, self.datamodule
        if self.request.checkpoint:
            return f"none: the run goes on with its own {data.batch_size} rows a batch"

        def search() -> str:
            make, memory_gib = self.make_trainer, self.parts.find_batch.memory_gib
            return json.dumps(find_batch(trainer, model, data, make, memory_gib))

        found = Found(*json.loads(decide_once("BATCH", search)))
        data.batch_size, trainer.accumulate_grad_batches = found.rows, found.windows
        for run in [callback for callback in trainer.callbacks if isinstance(callback, RunFolder)]:
            run.change("data", batch_size=found.rows)
            run.change("trainer", accumulate_grad_batches=found.windows)
            run.change("find_batch", enabled=False)
        return found.line

    def _planning_trainer(self, callbacks: list[Callback]) -> Any:
        """Return fit's trainer without what writes, or one that fits here if fit is refused."""
        request, config = self.request, self.parts.trainer
        request.check(self.parts.amp.check)
        precision, note = effective_precision(config.precision, self.on_cpu)
        banner = self._banner("")
        del banner["precision"]
        if note:
            banner["note"] = note
        trainer = self._fits_trainer(precision, callbacks)
        strategy = strategy_name(config.strategy)
        if trainer is None:
            trainer = self._any_trainer(callbacks)
        else:
            strategy = type(trainer.strategy).__name__
        trainer.circumstances = Circumstances(
            config=self.settings,
            typed=request.typed,
            opening=banner,
            console=request.console,
            on_cpu=self.on_cpu,
            processes=process_count(config.accelerator, config.devices, config.num_nodes),
            strategy=strategy,
            amp=self.parts.amp,
            checkpoint=request.checkpoint,
            refusals=request.refusals,
        )
        request.console.say(f"bert_lightning {__version__} · plan")
        return trainer

    def _fits_trainer(self, precision: Any, callbacks: list[Callback]) -> Any:
        """Return fit's trainer, or None if fit is refused; the reason is kept."""
        if self.request.refusals:
            return None
        try:
            return self._silent_trainer(callbacks, **self._precision_arguments(precision))
        except Exception as error:
            is_refusal = isinstance(error, BertLightningError | MisconfigurationException)
            if not is_refusal and not is_about_settings(error):
                raise
            self.request.refusals.append(first_reason(str(error)))
            return None

    def _any_trainer(self, callbacks: list[Callback]) -> Any:
        try:
            return self._silent_trainer(callbacks, **_ANYWHERE)
        except MisconfigurationException as error:
            reasons = dict.fromkeys([*self.request.refusals, str(error)])
            raise ConfigError("\n".join(reasons)) from error

    def _silent_trainer(self, callbacks: list[Callback], **arguments: Any) -> Any:
        return self.make_trainer(
            logger=False,
            callbacks=[*callbacks],  # Lightning adds to the list
            enable_checkpointing=self.parts.trainer.enable_checkpointing,
            **arguments,
        )

    def _precision_arguments(self, precision: Any) -> dict[str, Any]:
        """Return what the trainer takes: the plain value, or the project's plugin in its place."""
        config, amp = self.parts.trainer, self.parts.amp
        amp.check()
        self.parts.matmul.apply()
        plugins = _as_list(config.plugins)
        if any(isinstance(plugin, Precision) for plugin in plugins):
            return {"precision": precision, "plugins": plugins}
        plugin = precision_plugin(precision, self.on_cpu, config.strategy, amp)
        if plugin is None:
            return {"precision": precision, "plugins": plugins or None}
        return {"precision": None, "plugins": [*plugins, plugin]}

    def _checkpoint_plugins(self, plugins: list[Any] | None) -> list[Any]:
        """Return the plugins, and what writes checkpoints unless one, or the strategy, has it."""
        given = plugins or []
        is_given = any(isinstance(plugin, CheckpointIO) for plugin in given)
        is_given |= bool(getattr(self.parts.trainer.strategy, "_checkpoint_io", None))
        return given if is_given else [*given, SafeCheckpointIO()]

    def _run_callbacks(self, folder: Path, banner: dict[str, str]) -> list[Callback]:
        settings = yaml.safe_load(self.settings_yaml)
        run = RunFolder(folder, self.settings_yaml, settings)
        throughput = Throughput()
        checkpoint = self.request.checkpoint
        trained_in = trained_precision(checkpoint) if checkpoint else ""
        report = RunReport(run, throughput, banner, trained_in, self.request.console)
        callbacks: list[Callback] = [run, throughput, report]
        if self.request.command == "fit":
            callbacks.insert(0, ExactResume(self.request.console))  # before steps are counted
        if self._keeps_checkpoints():
            every = settings["save_every_seconds"], settings["save_every_steps"]
            keeper = BestAndLast(run, *every)
            callbacks += [keeper, StopSignals(keeper.save, str(folder), self.request.console)]
        return callbacks

    def _keeps_checkpoints(self) -> bool:
        is_wanted = self.parts.trainer.enable_checkpointing is not False
        return self.request.command == "fit" and is_wanted

    def _banner(self, precision: str) -> dict[str, str]:
        request = self.request
        lines = model_lines(self.model, request.checkpoint)
        if request.command == "predict":
            typed = request.typed.get("data.predict_path", self.datamodule.predict_path)
            data = "standard input" if typed == "-" else str(typed or "none named")
            return {**lines, "data": data, "precision": precision}
        lines |= data_lines(self.datamodule)
        if request.is_training:
            if request.checkpoint:
                lines["resume"] = resume_line(lines.pop("weights"), request.checkpoint)
            is_automatic = self.settings.model.learning_rate == "auto"
            lines["rate"] = rate_line(self.model.learning_rate, is_automatic)
        return {**lines, "precision": precision}


def _scales(plugins: list[Any] | None) -> bool:
    """Tell whether one of the plugins scales the loss and keeps the steps for the recorder."""
    return any(getattr(p, "scaler", None) and hasattr(p, "ring") for p in plugins or [])


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]
