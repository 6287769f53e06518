"""``fit``, ``validate``, ``test``, ``predict`` and ``plan``: the LightningCLI of the project.

Order of what counts: flags and ``--config`` files (later wins), then the settings in the
checkpoint, then ``configs/base.yaml``.
"""

from __future__ import annotations

import json
import os
import signal
from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from jsonargparse.typing import PositiveInt
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities.exceptions import SIGTERMException
from typing_extensions import override

from bert_lightning.amp import AmpSettings
from bert_lightning.arguments import (
    COMMANDS,
    FIT_KEYS,
    TRAINING,
    configs_folder,
    explain,
    order_arguments,
    typed_values,
)
from bert_lightning.assembly import Assembly, Request
from bert_lightning.checkpoint import (
    BEST,
    LAST,
    expect_state,
    find_checkpoint,
    read_run,
    replace_damaged,
    stand_in,
    unsaved_runs,
)
from bert_lightning.console import Console
from bert_lightning.data.labels import Trained
from bert_lightning.data.texts import standard_input_to_file
from bert_lightning.datamodule import THUCNewsDataModule
from bert_lightning.decisions import decide_once, is_first_process
from bert_lightning.devices import check_devices, runs_on_cpu, strategy_name
from bert_lightning.errors import BertLightningError, ConfigError
from bert_lightning.find_batch import FindBatchSettings, check_search
from bert_lightning.module import BertClassifier
from bert_lightning.notices import quieten
from bert_lightning.plugins import (
    check_plugin_device,
    fill_plugins,
    named_precision,
    settle_plugins,
    trainer_settings_to_resume,
)
from bert_lightning.precision import MatmulSettings, check_precision
from bert_lightning.runs import hold_run, run_of_checkpoint, run_of_job
from bert_lightning.seeds import (
    check_seeds,
    follow_starter,
    is_of_seed,
    refuse_checkpoint,
    run_seeds,
)
from bert_lightning.trainer import NewsTrainer

RESUMED = ("seed_everything", "model", "amp", "matmul", "data", *FIT_KEYS)  # beside the trainer's


def run_command(args: Sequence[str]) -> int:
    """Run fit, validate, test, predict or plan.

    Args:
        args: Command line without the program name.

    Returns:
        Exit status, as that of the program.

    Raises:
        BertLightningError: Whatever the user can act on.
    """
    quieten()
    follow_starter()
    try:
        done = NewsCLI(args)
        is_unheard = done.request.console.is_lost and not is_of_seed()  # whose starter says it
        return done.status or (128 + signal.SIGPIPE if is_unheard else 0)
    except MisconfigurationException as error:
        raise ConfigError(str(error)) from error
    except SIGTERMException:  # where no checkpoints are kept; Lightning would end with 0
        return 128 + signal.SIGTERM
    finally:
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()  # gloo threads alive at exit can abort the interpreter


class NewsCLI(LightningCLI):
    """Settings of a command, then its model, data and trainer.

    Args:
        args: Command line without the program name; it names a command.
    """

    def __init__(self, args: Sequence[str]) -> None:
        command = next(arg for arg in args if arg in COMMANDS)
        console = Console(to_stderr=command == "predict", goes_on=command != "plan")
        self.request = Request(command, console)
        self.status = 0
        self.seeds: list[int] = []
        self.resumed_plugins: list[Any] = []  # for the precision of the run that goes on
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
                "exit_on_error": False,
                "allow_abbrev": False,
                "prog": "bert-lightning",
                command: base,
            },
            args=list(args),
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    @override
    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        # of the command that is named only: each parser takes a moment to build
        return {self.request.command: {"model", "datamodule"}}

    @override
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument(
            "--save_every_seconds",
            type=float,
            default=300.0,
            help="Most seconds of training that a killed run can lose.",
        )
        parser.add_argument(
            "--save_every_steps",
            type=PositiveInt | None,
            default=None,
            help="Steps between two saves of last.ckpt, besides; null for none.",
        )
        parser.add_class_arguments(AmpSettings, "amp")
        parser.add_class_arguments(MatmulSettings, "matmul")
        parser.add_class_arguments(FindBatchSettings, "find_batch")
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)
        parser.link_arguments("data.label_names", "model.class_names", apply_on="instantiate")
        parser.link_arguments("data.loss_weights", "model.class_weights", apply_on="instantiate")

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        given: list[str] = list(args)  # type: ignore[arg-type]
        command = self.request.command
        given = order_arguments(given, command)
        self.request.typed = typed_values(given)
        refuse_checkpoint(self.request.typed)
        given = self._add_checkpoint_settings(given, command)
        try:
            self.config = parser.parse_args(given)
        except ArgumentError as error:
            keys = self._subcommand_parsers[command].get_defaults().keys()
            raise ConfigError(explain(str(error), keys)) from error
        if command not in TRAINING and self.request.checkpoint is None:
            raise ConfigError(
                f"ckpt_path: expected a checkpoint – found none, and {command} without one would"
                " score a head with random weights\n"
                "give --ckpt_path best, last, a run folder or a .ckpt file"
            )

    def _add_checkpoint_settings(self, args: list[str], command: str) -> list[str]:
        """Put the settings in the checkpoint before what was typed."""
        typed = self.request.typed
        root = Path(typed.get("trainer.default_root_dir") or ".")
        name = typed.get("ckpt_path")
        if name in (None, "null"):
            name = self._requeued_run(root) if command == "fit" else None
            if name is None:
                return args
        default = LAST if command in TRAINING else BEST
        path = decide_once("CHECKPOINT", lambda: self._found(str(name), root, default))
        self.request.checkpoint = Path(path)
        settings = read_run(self.request.checkpoint)["settings"]
        if command in TRAINING:
            expect_state(self.request.checkpoint)
            self.resumed_plugins = settings["trainer"].get("plugins", [])
            trainer = trainer_settings_to_resume(settings["trainer"], typed)
            groups = {key: settings[key] for key in RESUMED if key in settings}
            settings = {**groups, "trainer": trainer}
        else:
            precision = settings["trainer"].get("precision")
            settings = {
                "seed_everything": settings["seed_everything"],
                "trainer": {"precision": precision} if precision is not None else {},
                "data": settings["data"],
            }
        return [command, "--config", json.dumps(settings), *args[1:]]

    def _found(self, name: str, root: Path, default: str) -> str:
        path = find_checkpoint(name, root, default)
        for newer in unsaved_runs(path, root) if name in ("best", "last") else ():
            taken = f"the newest that has one is {path.parent.parent}"
            self.request.console.say(f"{name:<9} {newer} has no {name} checkpoint; {taken}")
        goes_on = self.request.command == "fit" and path.name == LAST and is_first_process()
        if goes_on and (run := run_of_checkpoint(path)):
            hold_run(run)
        means_last = path.name == LAST and not Path(name).is_file()
        if not means_last or self.request.command not in TRAINING:
            return str(path)
        if self.request.command == "plan":  # writes nothing
            path, note = stand_in(path)
        else:
            note = replace_damaged(path)
        if note:
            self.request.console.say(f"{'resume':<9} {note}")
        return str(path)

    def _requeued_run(self, root: Path) -> Path | None:
        """Return the run that this job was working on when it was put back into its queue."""
        started_again = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        return run_of_job(root, os.environ["SLURM_JOB_ID"]) if started_again else None

    @override
    def _parse_ckpt_path(self) -> None:
        """Nothing: Lightning would lay stored hyper-parameters over what the user typed."""

    @override
    def before_instantiate_classes(self) -> None:
        config = self.config[self.subcommand]
        if self.request.console.to_stderr and config.data.predict_path == "-":
            config.data.predict_path = decide_once("STDIN", standard_input_to_file)
        config.data.seed = int(config.seed_everything)  # known now, also where it is random
        self.request.check(settle_plugins, config, self.request.typed, self.resumed_plugins)
        trainer = config.trainer
        strategy = strategy_name(trainer.strategy)
        self.request.check(check_devices, trainer.accelerator, trainer.devices, strategy)
        on_cpu = runs_on_cpu(trainer.accelerator)
        named = named_precision(trainer.plugins)
        precision = named[0] if named else trainer.precision
        self.request.check(check_precision, precision, on_cpu, strategy)
        self.request.check(check_plugin_device, trainer.plugins, on_cpu)
        if self.request.is_training:
            self.request.check(check_search, config, on_cpu)
        if self.request.is_training and config.seeds is not None:
            self.request.check(check_seeds, config.seeds, trainer)
            self.seeds = config.seeds if self.subcommand == "fit" else []
        self.config_yaml = self._parser(self.subcommand).dump(config, skip_unset=False)
        fill_plugins(config)
        if self.request.checkpoint:
            config.ckpt_path = str(self.request.checkpoint)
            config.model.pretrained = str(self.request.checkpoint)
            self._expect_trained_data(config, self.request.checkpoint)

    def _expect_trained_data(self, config: Any, checkpoint: Path) -> None:
        stored = read_run(checkpoint)
        other_data = "data.path" in self.request.typed
        if not (other_data and self.request.is_training):
            config.data.trained = Trained(
                stored["class_names"],
                must_be_same=not other_data,
                **stored["data"],
            )

    @override
    def instantiate_classes(self) -> None:
        if self.seeds:  # the process of each seed has its own
            return
        try:
            super().instantiate_classes()
        except BertLightningError as error:
            refusals = self.request.refusals
            if not refusals:
                raise
            raise ConfigError("\n".join([*refusals, str(error)])) from error

    @override
    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        assembly = Assembly(
            self.request,
            settings=self.config[self.subcommand],
            settings_yaml=self.config_yaml,
            parts=self.config_init[self.subcommand],
            model=self.model,
            datamodule=self.datamodule,
            make_trainer=super().instantiate_trainer,
        )
        return assembly.trainer()  # type: ignore[no-any-return]

    @override
    def _run_subcommand(self, subcommand: str) -> None:
        if not self.seeds:
            super()._run_subcommand(subcommand)
            return
        root = Path(self._get(self.config, "trainer").default_root_dir or ".")
        folder = self.request.run_folder(root)
        self.status = run_seeds(self.args, self.seeds, folder, self.request.console)
