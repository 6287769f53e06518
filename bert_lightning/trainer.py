"""Lightning's Trainer with the two options that its commands lack, and with `plan`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from typing_extensions import override

from bert_lightning.callbacks.checkpoints import BestAndLast
from bert_lightning.callbacks.prediction_writer import PredictionWriter
from bert_lightning.callbacks.run_folder import RunFolder
from bert_lightning.callbacks.run_report import RunReport
from bert_lightning.checkpoint import read_checkpoint
from bert_lightning.errors import BertLightningError, ConfigError, TrainingError
from bert_lightning.execution import choose_execution
from bert_lightning.failures import told_in_words
from bert_lightning.planning import Circumstances, later_refusals, make_plan
from bert_lightning.restoring import CheckpointConnector


class NewsTrainer(Trainer):
    """Lightning's Trainer; its arguments are documented at lightning.ai."""

    circumstances: Circumstances | None = None  # of a fit that is planned

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._checkpoint_connector = CheckpointConnector(self)

    @override
    def fit(  # type: ignore[override]
        self,
        model: LightningModule,
        datamodule: LightningDataModule,
        ckpt_path: str | None = None,
        test_after_fit: bool = True,
        seeds: list[int] | None = None,
    ) -> None:
        """Train and validate, keep the best and the last checkpoint, test the best at the end.

        Args:
            model: The classifier.
            datamodule: Its data.
            ckpt_path: Checkpoint to go on from: last, best, a run folder or a .ckpt file.
            test_after_fit: Test the best checkpoint at the end, where there is a test split.
            seeds: Train once for each of these seeds, in processes and folders of their own, and
                sum up the scores. The command line does it; this method trains once.
        """
        keeps_best = any(isinstance(c, BestAndLast) for c in self.callbacks)  # type: ignore[attr-defined]
        if test_after_fit and keeps_best and self.limit_test_batches:
            # before hours of training, and before more processes are there to say it again
            processes = self.num_devices * self.num_nodes
            cast(Any, datamodule).check_processes("test", processes)
        try:
            with self._told_in_words(datamodule, trains=True):
                super().fit(model, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True)
        except RuntimeError as error:
            if not self._detect_anomaly or " nan values in its " not in str(error):
                raise
            raise TrainingError(self._anomaly(str(error))) from error
        best = next((c.best_path for c in self.callbacks if isinstance(c, BestAndLast)), None)  # type: ignore[attr-defined]
        reports = [c for c in self.callbacks if isinstance(c, RunReport)]  # type: ignore[attr-defined]
        is_due = all(c.has_trained or c.lacks_test for c in reports)
        if not test_after_fit or self.interrupted or not is_due:
            return
        if best and "test" in datamodule.splits:  # type: ignore[attr-defined]
            # or loading best would put the weights that are trained in place of their average
            for callback in [c for c in self.callbacks if isinstance(c, WeightAveraging)]:  # type: ignore[attr-defined]
                self.callbacks.remove(callback)  # type: ignore[attr-defined]
            self.test(model, datamodule, str(best))
            return
        reason = (
            "no validation has scored a checkpoint that was kept" if not best else "no test file"
        )
        for report in reports:
            report.console.say(f"not tested: {reason}")
            report.say_where()

    def _told_in_words(self, datamodule: Any, trains: bool = False) -> AbstractContextManager[None]:
        runs = [c.path for c in self.callbacks if isinstance(c, RunFolder)]  # type: ignore[attr-defined]
        run = runs[0] if trains and runs else None
        launcher = self.strategy.launcher
        return told_in_words(datamodule.batch_size, run, launcher, self.world_size)

    def _anomaly(self, message: str) -> str:
        advice = "the lines above say where it was computed"
        if getattr(self.precision_plugin, "scaler", None) is not None:
            advice += (
                "; with a loss scale this may be an overflow, whose step is skipped where"
                " trainer.detect_anomaly is false"
            )
        return (
            "trainer.detect_anomaly: expected gradients that are numbers – found at step"
            f" {self.global_step + 1:,}: {message}\n{advice}"
        )

    def plan(
        self,
        model: LightningModule,
        datamodule: LightningDataModule,
        ckpt_path: str | None = None,
        test_after_fit: bool = True,
        seeds: list[int] | None = None,
        output: str | None = None,
    ) -> None:
        """Show what fit would run, with the same settings; train nothing.

        Args:
            model: The classifier.
            datamodule: Its data.
            ckpt_path: Checkpoint to go on from: last, best, a run folder or a .ckpt file.
            test_after_fit: As in fit.
            seeds: As in fit; the plan is that of each of them.
            output: A .json file for the plan; the only file that is written.

        Raises:
            ConfigError: Fit would be refused; with all reasons.
        """
        c, data, classifier = self.circumstances, cast(Any, datamodule), cast(Any, model)
        assert c is not None
        self.strategy.connect(model)
        data.trainer = self
        try:
            if ckpt_path:
                classifier.check_checkpoint(read_checkpoint(Path(ckpt_path)), trains=True)
            data.setup("fit")
        except BertLightningError as error:
            raise ConfigError("\n".join([*c.refusals, str(error)])) from error
        c.refusals += later_refusals(self, data, c)
        plan = make_plan(self, classifier, data, c)
        try:
            plan.lines["execution"] = choose_execution(classifier.execution, self, classifier).line
        except ConfigError as error:
            c.refusals.append(str(error))
        for name, text in plan.lines.items():
            c.console.say(f"{name:<9} {text}")
        for text in plan.warnings:
            c.console.say(f"{'warning':<9} {text}")
        outcome = "would be refused, see below" if c.refusals else "would run; nothing was trained"
        c.console.say(f"{'fit':<9} {outcome}")
        if output and self.is_global_zero:
            Path(output).write_text(plan.as_json(c.refusals), encoding="utf-8")
        if c.refusals:
            raise ConfigError("\n".join(c.refusals))

    @override
    def validate(  # type: ignore[override]
        self,
        model: LightningModule,
        datamodule: LightningDataModule,
        ckpt_path: str | None = None,
    ) -> Any:
        """Score a checkpoint on the validation split.

        Args:
            model: The classifier.
            datamodule: Its data.
            ckpt_path: Checkpoint to score: best, last, a run folder or a .ckpt file.
        """
        with self._told_in_words(datamodule):
            return super().validate(
                model, datamodule=datamodule, ckpt_path=ckpt_path, verbose=False, weights_only=True
            )

    @override
    def test(  # type: ignore[override]
        self,
        model: LightningModule,
        datamodule: LightningDataModule,
        ckpt_path: str | None = None,
    ) -> Any:
        """Score a checkpoint on the test split.

        Args:
            model: The classifier.
            datamodule: Its data.
            ckpt_path: Checkpoint to score: best, last, a run folder or a .ckpt file.
        """
        with self._told_in_words(datamodule):
            return super().test(
                model, datamodule=datamodule, ckpt_path=ckpt_path, verbose=False, weights_only=True
            )

    @override
    def predict(  # type: ignore[override]
        self,
        model: LightningModule,
        datamodule: LightningDataModule,
        ckpt_path: str | None = None,
        output: str | None = None,
    ) -> None:
        """Write label and probabilities of each text, in input order.

        Args:
            model: The classifier.
            datamodule: Its data; texts come from data.predict_path.
            ckpt_path: Checkpoint to use: best, last, a run folder or a .ckpt file.
            output: A .jsonl or .csv file; without it JSON lines go to standard output.
        """
        source = datamodule.predict_path  # type: ignore[attr-defined]
        if output and source and Path(output).resolve() == Path(source).resolve():
            raise ConfigError(
                f"output: expected another file than data.predict_path – found {output!r}, which"
                " would be replaced"
            )
        self.callbacks.append(PredictionWriter(output))  # type: ignore[attr-defined]
        with self._told_in_words(datamodule):
            super().predict(
                model,
                datamodule=datamodule,
                ckpt_path=ckpt_path,
                return_predictions=False,
                weights_only=True,
            )
