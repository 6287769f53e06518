"""The lines at the start of a command: what was taken, and why where it was not given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import WeightAveraging

from bert_lightning.amp import scaler_state
from bert_lightning.backbone import RANDOM
from bert_lightning.checkpoint import read_checkpoint


def model_lines(model: Any, checkpoint: Path | None) -> dict[str, str]:
    """Say which BERT it is.

    Args:
        model: The `BertClassifier`.
        checkpoint: Where its weights come from, if that is a checkpoint.
    """
    backbone = model.backbone
    weights = sum(parameter.numel() for parameter in model.network.parameters())
    # the weights of a checkpoint are trained, whatever they began as
    name = backbone.name.removesuffix(RANDOM) if checkpoint else backbone.name
    lines = {
        "model": f"{name}, {weights / 1e6:.1f} M weights"
        + (f" – auto: {backbone.reason}" if backbone.reason else ""),
    }
    if model.backbone_note:
        lines["head"] = model.backbone_note
    if checkpoint:
        trained_in = trained_precision(checkpoint)
        lines["weights"] = f"from {checkpoint}" + (trained_in and f", trained in {trained_in}")
    return lines


def trained_precision(checkpoint: Path) -> str:
    """Return the precision that the weights of a checkpoint were trained in; empty if unknown."""
    found = read_checkpoint(checkpoint)["bert_lightning"].get("precision")
    return found if isinstance(found, str) else ""


def data_lines(data: Any) -> dict[str, str]:
    """Say which rows and classes there are.

    Args:
        data: The `THUCNewsDataModule`.
    """
    sizes = ", ".join(f"{split} {rows:,}" for split, rows in data.splits.items())
    lines = {
        "data": f"{data.news.name}: {sizes}; {len(data.label_names)} classes"
        + (f" – auto: {data.reason}" if data.reason else "")
    }
    files = [
        f"{file.source}: {', '.join(filter(None, [file.encoding, file.layout]))}"
        for file in data.news.files
        if file.layout
    ]
    notes = [*files, *data.news.notes]
    return lines | {f"data {i}": note for i, note in enumerate(notes, start=1)}


def resume_line(source: str, checkpoint: Path) -> str:
    """Say where a run goes on."""
    return f"{source}, after step {read_checkpoint(checkpoint)['global_step']:,}"


def scale_line(checkpoint: Path, is_scaled: bool) -> str | None:
    """Say what becomes of the loss scale of a run that goes on, or None if there never was one.

    Args:
        checkpoint: Where it goes on from.
        is_scaled: Whether it goes on with a loss scale, under 16-mixed.
    """
    state = scaler_state(read_checkpoint(checkpoint))
    if state is None:
        return "the run had no loss scale; it begins with amp.init_scale" if is_scaled else None
    if is_scaled:
        return f"loss scale {state['scale']:g} goes on, after {state['_growth_tracker']} good steps"
    return f"the run was in 16-mixed; its loss scale {state['scale']:g} is not needed and dropped"


def carried_lines(checkpoint: Path, is_scaled: bool, callbacks: Sequence[Any]) -> dict[str, str]:
    """Say what becomes of the loss scale and the averaged weights of a run that goes on.

    Args:
        checkpoint: Where it goes on from.
        is_scaled: Whether it goes on with a loss scale.
        callbacks: The user's own callbacks.
    """
    scale, lines = scale_line(checkpoint, is_scaled), {}
    if scale:
        lines["scale"] = scale
    averages = any(isinstance(callback, WeightAveraging) for callback in callbacks)
    if "averaging_state" in read_checkpoint(checkpoint) and not averages:
        lines["average"] = "the run averaged its weights; it goes on from the average, without it"
    return lines


def rate_line(learning_rate: float, is_automatic: bool) -> str:
    """Say the peak learning rate."""
    reason = " – auto: what this model needs" if is_automatic else ""
    return f"learning rate {learning_rate:g}{reason}"


def batch_line(batch_size: int, devices: int, windows: int, strategy: str) -> str:
    """Say how many rows an optimizer step sees.

    Args:
        batch_size: Rows a batch on one device.
        devices: Number of processes.
        windows: Batches that are accumulated.
        strategy: Name of the strategy.
    """
    return (
        f"{batch_size} rows × {devices} device{'' if devices == 1 else 's'} × {windows} accumulated"
        f" = {batch_size * devices * windows} rows a step, {strategy}"
    )
