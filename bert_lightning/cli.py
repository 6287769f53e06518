"""Command line → classes → run: the LightningCLI of the project.

``main`` is callable with an argument list. Order of what counts: flags and ``--config`` files
(later wins), then the settings in the checkpoint, then ``configs/base.yaml``.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentError
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.precision import Precision
from typing_extensions import override

from bert_lightning import __version__
from bert_lightning.amp import AmpSettings
from bert_lightning.arguments import (
    configs_folder,
    explain,
    first_reason,
    order_arguments,
    typed_values,
)
from bert_lightning.banner import (
    batch_line,
    carried_lines,
    data_lines,
    model_lines,
    rate_line,
    resume_line,
)
from bert_lightning.callbacks.amp_recorder import AmpRecorder
from bert_lightning.callbacks.checkpoints import BestAndLast
from bert_lightning.callbacks.data_summary import DataSummary
from bert_lightning.callbacks.progress import progress_bar
from bert_lightning.callbacks.run_folder import RunFolder
from bert_lightning.callbacks.run_report import RunReport
from bert_lightning.callbacks.throughput import Throughput
from bert_lightning.checkpoint import BEST, CHECKPOINTS, LAST, find_checkpoint, read_checkpoint
from bert_lightning.commands import inspect
from bert_lightning.compatibility import check_settings
from bert_lightning.console import Console
from bert_lightning.data.labels import Trained
from bert_lightning.data.texts import standard_input_to_file
from bert_lightning.datamodule import THUCNewsDataModule
from bert_lightning.decisions import decide_once, decided, forget_decisions, is_first_process
from bert_lightning.devices import check_devices, process_count, runs_on_cpu, strategy_name
from bert_lightning.errors import BertLightningError, ConfigError
from bert_lightning.loggers import refuse_overwriting, run_loggers
from bert_lightning.module import BertClassifier
from bert_lightning.notices import is_about_settings, quieten
from bert_lightning.planning import Circumstances
from bert_lightning.plugins import (
    check_plugin_device,
    fill_plugins,
    settle_plugins,
    trainer_settings_to_resume,
)
from bert_lightning.precision import (
    MatmulSettings,
    check_precision,
    effective_precision,
    precision_plugin,
)
from bert_lightning.runs import (
    RUNS,
    UNDECIDED,
    discard_if_empty,
    new_run_folder,
    run_of_checkpoint,
)
from bert_lightning.seeds import check_seeds, refuse_checkpoint, run_seeds
from bert_lightning.trainer import NewsTrainer

COMMANDS = ("fit", "validate", "test", "predict", "plan")
TRAINING = ("fit", "plan")  # plan takes whatever fit takes
_ANYWHERE: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "num_nodes": 1,
    "strategy": "auto",
    "precision": "32-true",
    "plugins": None,
}


class NewsCLI(LightningCLI):
    """fit, validate, test, predict and plan.

    Args:
        args: Command line without the program name.
    """

    def __init__(self, args: Sequence[str]) -> None:
        command = next((arg for arg in args if arg in COMMANDS), None)
        self.console = Console(to_stderr=command == "predict")
        self.status = 0
        self.seeds: list[int] = []
        self.typed: dict[str, Any] = {}
        self.checkpoint: Path | None = None
        self.resumed_plugins: list[Any] = []  # for the precision of the run that goes on
        self.run: RunFolder | None = None
        self.refusals: list[str] = []  # why a planned fit cannot run
        base = {
            "default_config_files": [str(configs_folder() / "base.yaml")],
            "allow_abbrev": False,  # a key must be known by its whole name, or precedence fails
            "exit_on_error": False,
        }
        self.args = list(args)
        super().__init__(
            model_class=BertClassifier,
            datamodule_class=THUCNewsDataModule,
            trainer_class=NewsTrainer,
            save_config_callback=None,
            trainer_defaults={"use_distributed_sampler": False, "enable_model_summary": False},
            seed_everything_default=42,
            parser_kwargs={
                "description": "Fine-tune BERT on Chinese text classes.",
                "epilog": f"Besides: {inspect.COMMAND}, what is in a data set and what is wrong"
                f" with it (bert-lightning {inspect.COMMAND} --help).",
                "exit_on_error": False,
                "allow_abbrev": False,
                "prog": "bert-lightning",
                "version": __version__,
                **{name: dict(base) for name in COMMANDS},
            },
            args=list(args),
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    @staticmethod
    @override
    def subcommands() -> dict[str, set[str]]:
        return {command: {"model", "datamodule"} for command in COMMANDS}

    @override
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument(
            "--save_every_seconds",
            type=float,
            default=300.0,
            help="Most seconds of training that a killed run can lose.",
        )
        parser.add_class_arguments(AmpSettings, "amp")
        parser.add_class_arguments(MatmulSettings, "matmul")
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)
        parser.link_arguments("data.label_names", "model.class_names", apply_on="instantiate")
        parser.link_arguments("data.loss_weights", "model.class_weights", apply_on="instantiate")

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        given: list[str] = list(args)  # type: ignore[arg-type]
        command = next((arg for arg in given if arg in COMMANDS), None)
        if command:
            given = order_arguments(given, command)
            self.typed = typed_values(given)
            refuse_checkpoint(self.typed)
            given = self._add_checkpoint_settings(given, command)
        try:
            self.config = parser.parse_args(given)
        except ArgumentError as error:
            keys = self._subcommand_parsers[command].get_defaults().keys() if command else ()
            raise ConfigError(explain(str(error), keys)) from error
        if command not in TRAINING and self.checkpoint is None:
            raise ConfigError(
                f"ckpt_path: expected a checkpoint – found none, and {command} without one would"
                " score a head with random weights\n"
                "give --ckpt_path best, last, a run folder or a .ckpt file"
            )

    def _add_checkpoint_settings(self, args: list[str], command: str) -> list[str]:
        """Put the settings in the checkpoint before what was typed."""
        name = self.typed.get("ckpt_path")
        if name in (None, "null"):
            return args
        root = Path(self.typed.get("trainer.default_root_dir") or ".")
        default = LAST if command in TRAINING else BEST
        path = decide_once("CHECKPOINT", lambda: str(find_checkpoint(str(name), root, default)))
        self.checkpoint = Path(path)
        settings = read_checkpoint(self.checkpoint)["bert_lightning"]["settings"]
        if command in TRAINING:
            self.resumed_plugins = settings["trainer"].get("plugins", [])
            settings["trainer"] = trainer_settings_to_resume(settings["trainer"], self.typed)
        else:
            precision = settings["trainer"].get("precision")
            settings = {
                "seed_everything": settings["seed_everything"],
                "trainer": {"precision": precision} if precision is not None else {},
                "data": settings["data"],
            }
        return [command, "--config", json.dumps(_without_none(settings)), *args[1:]]

    @override
    def _parse_ckpt_path(self) -> None:
        """Nothing: Lightning would lay stored hyper-parameters over what the user typed."""

    @override
    def before_instantiate_classes(self) -> None:
        config = self.config[self.subcommand]
        if self.console.to_stderr and config.data.predict_path == "-":
            config.data.predict_path = decide_once("STDIN", standard_input_to_file)
        config.data.seed = int(config.seed_everything)  # known now, also where it is random
        self._check(settle_plugins, config, self.typed, self.resumed_plugins)
        trainer = config.trainer
        strategy = strategy_name(trainer.strategy)
        self._check(check_devices, trainer.accelerator, trainer.devices, strategy)
        on_cpu = runs_on_cpu(trainer.accelerator)
        self._check(check_precision, trainer.precision, on_cpu, strategy)
        self._check(check_plugin_device, trainer.plugins, on_cpu)
        if self.subcommand == "fit" and config.seeds is not None:
            check_seeds(config.seeds, trainer)
            self.seeds = config.seeds
        self.config_yaml = self._parser(self.subcommand).dump(config, skip_unset=False)
        fill_plugins(config)
        if self.checkpoint:
            config.ckpt_path = str(self.checkpoint)
            config.model.pretrained = str(self.checkpoint)
            self._expect_trained_data(config, self.checkpoint)

    def _check(self, check: Callable[..., None], *args: Any) -> None:
        """Raise what a check finds; for a plan keep it, so that all reasons are shown at once."""
        try:
            check(*args)
        except ConfigError as error:
            if self.subcommand != "plan":
                raise
            self.refusals.append(str(error))

    @override
    def instantiate_classes(self) -> None:
        if self.seeds:  # the process of each seed has its own
            return
        try:
            super().instantiate_classes()
        except BertLightningError as error:
            if not self.refusals:
                raise
            raise ConfigError("\n".join([*self.refusals, str(error)])) from error

    def _expect_trained_data(self, config: Any, checkpoint: Path) -> None:
        stored = read_checkpoint(checkpoint)["bert_lightning"]
        other_data = "data.path" in self.typed
        if not (other_data and self.subcommand in TRAINING):
            config.data.trained = Trained(
                stored["class_names"],
                must_be_same=not other_data,
                **stored["data"],
            )

    @override
    def _run_subcommand(self, subcommand: str) -> None:
        if not self.seeds:
            super()._run_subcommand(subcommand)
            return
        self.status = run_seeds(self.args, self.seeds, self._run_folder(), self.console)

    @override
    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        config = self._get(self.config_init, "trainer")
        is_fit = self.subcommand in TRAINING
        own_callbacks = [
            callback
            for callback in _as_list(config.callbacks)
            if is_fit or not isinstance(callback, Checkpoint)  # as a fit's config.yaml may name one
        ]
        lengths = (self.datamodule.max_length, self.model.max_positions)
        self._check(check_settings, config, own_callbacks, *lengths, is_fit)
        self._check(refuse_overwriting, _as_list(config.logger))
        for callback in own_callbacks:
            if isinstance(callback, ModelCheckpoint) and "/" in (callback.filename or ""):
                callback.auto_insert_metric_name = False  # or val/loss would make a folder
        self.datamodule.expect_split(self.subcommand)
        on_cpu = runs_on_cpu(config.accelerator)
        if self.subcommand == "plan":
            return self._planning_trainer(config, own_callbacks, on_cpu)
        precision, precision_note = effective_precision(config.precision, on_cpu)
        precision_arguments = self._precision_arguments(precision, on_cpu, config)
        own = [p for p in _as_list(config.plugins) if isinstance(p, Precision)]
        named = f"{own[0].precision} – {type(own[0]).__name__} of trainer.plugins" if own else None
        banner = self._banner(named or precision_note or str(precision or "32-true"))
        scaled = _scales(precision_arguments["plugins"])
        if is_fit and self.checkpoint:
            banner |= carried_lines(self.checkpoint, scaled, own_callbacks)
        folder = None if self.subcommand == "predict" or config.fast_dev_run else self._run_folder()
        loggers: list[Logger] | bool = False
        callbacks: list[Callback] = [DataSummary(self.console)]
        if config.enable_progress_bar is not False:
            callbacks.append(progress_bar(self.console, config.log_every_n_steps or 50))
        if folder:
            banner["run"] = str(folder)
            loggers = run_loggers(config.logger, folder)
            callbacks += self._run_callbacks(folder, banner, config.enable_checkpointing)
        if is_fit and scaled:
            callbacks.insert(0, AmpRecorder(folder, self.console))
        trainer = super().instantiate_trainer(
            **precision_arguments,
            logger=loggers,
            callbacks=[*own_callbacks, *callbacks],
            enable_checkpointing=self.subcommand == "fit"
            and bool(folder)
            and config.enable_checkpointing is not False,
            **kwargs,
        )
        if self.subcommand == "fit":
            banner["batch"] = batch_line(
                self.datamodule.batch_size,
                trainer.world_size,
                trainer.accumulate_grad_batches,
                type(trainer.strategy).__name__,
            )
        self.console.say(f"bert_lightning {__version__} · {self.subcommand}")
        for name, text in banner.items():
            self.console.say(f"{name:<9} {text}")
        return trainer

    def _planning_trainer(self, config: Any, callbacks: list[Any], on_cpu: bool) -> NewsTrainer:
        """Return fit's trainer without what writes, or one that fits here if fit is refused."""
        amp: AmpSettings = self._get(self.config_init, "amp")
        self._check(amp.check)
        precision, note = effective_precision(config.precision, on_cpu)
        banner = self._banner("")
        del banner["precision"]
        if note:
            banner["note"] = note
        common = {
            "logger": False,
            "callbacks": tuple(callbacks),  # a list is added to
            "enable_checkpointing": config.enable_checkpointing,
        }
        trainer: Any = None
        if not self.refusals:
            try:
                arguments = self._precision_arguments(precision, on_cpu, config)
                trainer = super().instantiate_trainer(
                    **{**common, "callbacks": [*callbacks]}, **arguments
                )
            except Exception as error:
                is_refusal = isinstance(error, BertLightningError | MisconfigurationException)
                if not is_refusal and not is_about_settings(error):
                    raise
                self.refusals.append(first_reason(str(error)))
        strategy = strategy_name(config.strategy)
        if trainer is None:
            try:
                trainer = super().instantiate_trainer(**common, **_ANYWHERE)
            except MisconfigurationException as error:
                raise ConfigError("\n".join(dict.fromkeys([*self.refusals, str(error)]))) from error
        else:
            strategy = type(trainer.strategy).__name__
        nodes = config.num_nodes
        trainer.circumstances = Circumstances(
            config=self.config[self.subcommand],
            typed=self.typed,
            opening=banner,
            console=self.console,
            on_cpu=on_cpu,
            processes=process_count(config.accelerator, config.devices, nodes),
            strategy=strategy,
            amp=amp,
            checkpoint=self.checkpoint,
            refusals=self.refusals,
        )
        self.console.say(f"bert_lightning {__version__} · plan")
        return trainer  # type: ignore[no-any-return]

    def _precision_arguments(self, precision: Any, on_cpu: bool, config: Any) -> dict[str, Any]:
        """Return what the trainer takes: the plain value, or the project's plugin in its place."""
        amp: AmpSettings = self._get(self.config_init, "amp")
        matmul: MatmulSettings = self._get(self.config_init, "matmul")
        amp.check()
        matmul.apply()
        plugins = _as_list(config.plugins)
        if any(isinstance(plugin, Precision) for plugin in plugins):
            return {"precision": precision, "plugins": plugins}
        plugin = precision_plugin(precision, on_cpu, config.strategy, amp)
        if plugin is None:
            return {"precision": precision, "plugins": plugins or None}
        return {"precision": None, "plugins": [*plugins, plugin]}

    def _run_folder(self) -> Path:
        root = Path(self._get(self.config, "trainer").default_root_dir or ".")
        resumed = run_of_checkpoint(self.checkpoint) if self.checkpoint else None
        if self.subcommand == "fit" and resumed and self.checkpoint:
            last = resumed / CHECKPOINTS / LAST
            # from an older state a run of its own begins, or it would replace what came after
            if last.is_file() and last.samefile(self.checkpoint):
                return resumed
        if not is_first_process() and not decided("RUN"):
            return root / RUNS / UNDECIDED  # another machine picks the number; RunFolder learns it
        return Path(decide_once("RUN", lambda: str(new_run_folder(root))))

    def _run_callbacks(
        self, folder: Path, banner: dict[str, str], checkpointing: bool | None
    ) -> list[Callback]:
        settings = yaml.safe_load(self.config_yaml)
        self.run = RunFolder(folder, self.config_yaml, settings)
        throughput = Throughput()
        callbacks = [self.run, throughput, RunReport(self.run, throughput, banner, self.console)]
        if self.subcommand == "fit" and checkpointing is not False:
            callbacks.append(BestAndLast(self.run, settings["save_every_seconds"]))
        return callbacks

    def _banner(self, precision: str) -> dict[str, str]:
        lines = model_lines(self.model, self.checkpoint)
        if self.subcommand == "predict":
            typed = self.typed.get("data.predict_path", self.datamodule.predict_path)
            return {**lines, "data": "standard input" if typed == "-" else str(typed)}
        lines |= data_lines(self.datamodule)
        if self.subcommand in TRAINING:
            if self.checkpoint:
                lines["resume"] = resume_line(lines.pop("weights"), self.checkpoint)
            is_automatic = self._get(self.config, "model").learning_rate == "auto"
            lines["rate"] = rate_line(self.model.learning_rate, is_automatic)
        return {**lines, "precision": precision}


def _scales(plugins: list[Any] | None) -> bool:
    """Tell whether one of the plugins scales the loss and keeps the steps for the recorder."""
    return any(getattr(p, "scaler", None) and hasattr(p, "ring") for p in plugins or [])


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def _without_none(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return settings
    return {key: _without_none(value) for key, value in settings.items() if value is not None}


def _refuse(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 1


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        args: Arguments without the program name; None takes those of the process.

    Returns:
        Exit status: 0 done, 1 an error that the user can act on, shown on one screen, or a seed
        that failed; 128 + a signal that ended the seeds.
    """
    quieten()
    given = sys.argv[1:] if args is None else list(args)
    try:
        if given[:1] == [inspect.COMMAND]:
            return inspect.inspect_data(given[1:])
        return NewsCLI(given).status
    except (BertLightningError, MisconfigurationException) as error:
        return _refuse(str(error))
    except OSError as error:
        if error.filename is None:
            raise
        return _refuse(f"{error.filename}: expected to read or write here – found {error.strerror}")
    except (ValueError, TypeError, RuntimeError, ImportError) as error:
        if not is_about_settings(error):
            raise
        return _refuse(first_reason(str(error)))
    finally:
        discard_if_empty(decided("RUN"))
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()  # gloo threads alive at exit can abort the interpreter
        forget_decisions()
