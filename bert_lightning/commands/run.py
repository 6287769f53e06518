"""``fit``, ``validate``, ``test``, ``predict`` and ``plan``: the LightningCLI of the project.

Order of what counts: flags and ``--config`` files (later wins), then the settings in the
checkpoint, then ``configs/base.yaml``.
"""

from __future__ import annotations

import json
from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from typing_extensions import override

from bert_lightning import __version__
from bert_lightning.amp import AmpSettings
from bert_lightning.arguments import (
    COMMANDS,
    INSPECT,
    TRAINING,
    configs_folder,
    explain,
    order_arguments,
    typed_values,
)
from bert_lightning.assembly import Assembly, Request
from bert_lightning.checkpoint import BEST, LAST, find_checkpoint, read_checkpoint
from bert_lightning.console import Console
from bert_lightning.data.labels import Trained
from bert_lightning.data.texts import standard_input_to_file
from bert_lightning.datamodule import THUCNewsDataModule
from bert_lightning.decisions import decide_once
from bert_lightning.devices import check_devices, runs_on_cpu, strategy_name
from bert_lightning.errors import BertLightningError, ConfigError
from bert_lightning.module import BertClassifier
from bert_lightning.precision import MatmulSettings, check_precision
from bert_lightning.seeds import check_seeds, refuse_checkpoint, run_seeds
from bert_lightning.trainer import NewsTrainer


class NewsCLI(LightningCLI):
    """fit, validate, test, predict and plan.

    Args:
        args: Command line without the program name.
    """

    def __init__(self, args: Sequence[str]) -> None:
        command = next((arg for arg in args if arg in COMMANDS), None)
        self.request = Request(command, Console(to_stderr=command == "predict"))
        self.status = 0
        self.seeds: list[int] = []
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
                "epilog": f"Besides: {INSPECT}, what is in a data set and what is wrong"
                f" with it (bert-lightning {INSPECT} --help).",
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
        command = self.request.command
        if command:
            given = order_arguments(given, command)
            self.request.typed = typed_values(given)
            refuse_checkpoint(self.request.typed)
            given = self._add_checkpoint_settings(given, command)
        try:
            self.config = parser.parse_args(given)
        except ArgumentError as error:
            keys = self._subcommand_parsers[command].get_defaults().keys() if command else ()
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
        name = typed.get("ckpt_path")
        if name in (None, "null"):
            return args
        root = Path(typed.get("trainer.default_root_dir") or ".")
        default = LAST if command in TRAINING else BEST
        path = decide_once("CHECKPOINT", lambda: str(find_checkpoint(str(name), root, default)))
        self.request.checkpoint = Path(path)
        settings = read_checkpoint(self.request.checkpoint)["bert_lightning"]["settings"]
        if command not in TRAINING:
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
        if self.request.console.to_stderr and config.data.predict_path == "-":
            config.data.predict_path = decide_once("STDIN", standard_input_to_file)
        config.data.seed = int(config.seed_everything)  # known now, also where it is random
        trainer = config.trainer
        strategy = strategy_name(trainer.strategy)
        self.request.check(check_devices, trainer.accelerator, trainer.devices, strategy)
        on_cpu = runs_on_cpu(trainer.accelerator)
        self.request.check(check_precision, trainer.precision, on_cpu, strategy)
        if self.subcommand == "fit" and config.seeds is not None:
            check_seeds(config.seeds, trainer)
            self.seeds = config.seeds
        self.config_yaml = self._parser(self.subcommand).dump(config, skip_unset=False)
        if self.request.checkpoint:
            config.ckpt_path = str(self.request.checkpoint)
            config.model.pretrained = str(self.request.checkpoint)
            self._expect_trained_data(config, self.request.checkpoint)

    def _expect_trained_data(self, config: Any, checkpoint: Path) -> None:
        stored = read_checkpoint(checkpoint)["bert_lightning"]
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


def _without_none(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return settings
    return {key: _without_none(value) for key, value in settings.items() if value is not None}
