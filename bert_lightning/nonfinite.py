"""A batch that overflowed → the first module that was not finite, and the rows that did it.

The batch is run once more, forward and backward, with a hook on every module. Gradients are taken
without being stored, so nothing of the run is changed and DDP does not take part.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_SHOWN = 10


class Finding(NamedTuple):
    """The first that was not finite.

    Attributes:
        what: ``weight``, ``output``, ``loss`` or ``gradient``.
        module: Dotted name of the module, or of the weight.
        rows: Positions in the batch; empty if it cannot be told.
    """

    what: str
    module: str
    rows: list[int]

    @property
    def place(self) -> str:
        """What and where, in words."""
        return f"{self.what} of {self.module}" if self.module else self.what


def find_nonfinite(
    network: nn.Module, row_losses: Callable[[], Tensor], scale: float
) -> Finding | None:
    """Run a batch once more and return the first that is not finite, or None if all is.

    Args:
        network: Its modules are looked at.
        row_losses: Computes the loss of each row, shape (B,), from the network.
        scale: Loss scale, of the mean loss.
    """
    for name, parameter in network.named_parameters():
        if not parameter.isfinite().all():
            return Finding("weight", name, [])
    found: list[Finding] = []
    devices = {p.device for p in network.parameters() if p.device.type == "cuda"}
    with torch.enable_grad(), torch.random.fork_rng(list(devices)):
        losses = _run(network, row_losses, found)
        if not found and not losses.isfinite().all():
            found.append(Finding("loss", "", _rows(losses, len(losses))))
        if not found:
            _look_at_gradients(network, losses, scale, found)
        if found and not found[0].rows and found[0].what == "gradient":
            found[0] = found[0]._replace(rows=_rows_alone(network, row_losses, scale))
    return found[0] if found else None


def blame(
    module: Any,
    network: nn.Module,
    context: Callable[[], AbstractContextManager[Any]],
    step: int,
    batch: Any,
    scale: float,
) -> tuple[str, bool] | None:
    """Run a batch of a classifier once more, and say what was first not finite.

    Args:
        module: The classifier; it has the loss and the tokenizer.
        network: Its network, or one with other weights.
        context: Makes what the forward pass runs in.
        step: Of the batch, to be named.
        batch: As the classifier takes it.
        scale: Loss scale, of the mean loss.

    Returns:
        The words, and whether single rows are to blame; None if all is finite.
    """

    def row_losses() -> Tensor:
        # the network itself: its modules are watched, which compiled layers would pass by
        with context():
            ids, mask = batch["input_ids"], batch["attention_mask"]
            logits = network(input_ids=ids, attention_mask=mask).logits
            losses: Tensor = module.losses(logits, batch["labels"])
            return losses

    finding = find_nonfinite(network, row_losses, scale)
    if finding is None:
        return None
    rows = [int(batch["rows"][row]) for row in finding.rows]
    has_rows = 0 < len(rows) < max(2, len(batch["rows"]))  # all of a batch point at none
    which = "every row of the batch" if rows else "no row by itself"
    if has_rows:
        text = _text(module, batch["input_ids"][finding.rows[0]])
        which = f"rows {shown_rows(rows)} of train, counted from 0 ({text})"
    return f"first not finite, at step {step:,}: {finding.place}; {which}", has_rows


def shown_rows(rows: list[int]) -> str:
    """Return row numbers as a screen has room for."""
    return ", ".join(map(str, rows[:_SHOWN])) + (", …" if len(rows) > _SHOWN else "")


def _text(module: Any, ids: Any) -> str:
    tokenizer = getattr(module, "tokenizer", None)
    if tokenizer is None:
        return "no text"
    text: str = tokenizer.decode(ids.tolist(), skip_special_tokens=True)
    return text.replace(" ", "")[:40]


def _run(network: nn.Module, row_losses: Callable[[], Tensor], found: list[Finding]) -> Tensor:
    outputs: list[tuple[str, Tensor]] = []

    def look(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            outputs.extend((name, tensor.detach()) for tensor in _tensors(output))

        return hook

    handles = [
        module.register_forward_hook(look(name)) for name, module in network.named_modules() if name
    ]
    try:
        losses = row_losses()
    finally:
        for handle in handles:
            handle.remove()
    bad = next(((name, t) for name, t in outputs if not t.isfinite().all()), None)
    if bad:
        found.append(Finding("output", bad[0], _rows(bad[1], len(losses))))
    return losses


def _look_at_gradients(
    network: nn.Module, losses: Tensor, scale: float, found: list[Finding]
) -> None:
    """Take the gradients of the weights: where backward goes wrong, those of that module do."""
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    gradients = torch.autograd.grad(
        losses.mean() * scale, [p for _, p in named], allow_unused=True, retain_graph=False
    )
    # backward goes from the last module to the first
    for (name, _), gradient in reversed(list(zip(named, gradients, strict=True))):
        if gradient is not None and not gradient.isfinite().all():
            found.append(Finding("gradient", name.rpartition(".")[0], []))
            return


def _rows_alone(network: nn.Module, row_losses: Callable[[], Tensor], scale: float) -> list[int]:
    """Return the rows whose own part of the scaled gradient is not finite."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    losses = row_losses()
    parts = losses * (scale / len(losses))
    bad = []
    for row in range(len(losses)):
        gradients = torch.autograd.grad(
            parts[row], parameters, allow_unused=True, retain_graph=row + 1 < len(losses)
        )
        if not all(g is None or g.isfinite().all() for g in gradients):
            bad.append(row)
    return bad


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    values = output.values() if hasattr(output, "values") else output
    return [t for value in values for t in _tensors(value)] if _is_many(output) else []


def _is_many(output: Any) -> bool:
    return isinstance(output, (tuple, list)) or hasattr(output, "values")


def _rows(tensor: Tensor, size: int) -> list[int]:
    if not tensor.dim() or len(tensor) != size:
        return []
    rows: list[int] = (~tensor.isfinite()).reshape(size, -1).any(1).nonzero().flatten().tolist()
    return rows
