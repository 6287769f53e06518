"""AdamW over flat tensors: one pass over the memory for scale, clipping, update and cast.

Weights, gradients and moments of a kind lie behind each other in one tensor, and each parameter is
a view of its part. So a step is a handful of kernels that run at the speed of the memory, instead
of one pass each to unscale, to measure, to clip, to update and to cast some two hundred tensors.
Products get their weights in 16 bits from a copy that the update itself writes.

The state has the form of torch's AdamW, so that a checkpoint serves either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from typing_extensions import override

from bert_lightning.errors import TrainingError

ALIGNMENT = 8  # elements, 16 bytes of the smallest type; loads are slow from anywhere else


@dataclass
class Segment:
    """Parameters that are stepped alike, behind each other.

    Args:
        parameters: Those in it.
        offsets: Where each begins.
        weights: float32; the parameters are views of it.
        used: What products use: a copy of the weights in 16 bits, or the weights themselves.
        gradients: Of ``used``.
        means: First moments, float32.
        squares: Second moments, float32.
    """

    parameters: list[nn.Parameter]
    offsets: list[int]
    weights: Tensor
    used: Tensor
    gradients: Tensor
    means: Tensor
    squares: Tensor

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return the part of each parameter in one of the flat tensors."""
        return [
            flat[begin : begin + parameter.numel()].view_as(parameter)
            for begin, parameter in zip(self.offsets, self.parameters, strict=True)
        ]


def update(
    weights: Tensor,
    used: Tensor,
    gradients: Tensor,
    means: Tensor,
    squares: Tensor,
    factor: Tensor,
    kept: Tensor,
    step_size: Tensor,
    correction: Tensor,
    betas: tuple[float, float],
    epsilon: float,
    is_skipped: Tensor | None,
    clip_value: float | None,
) -> None:
    """Update flat weights, moments and the copy in place; elementwise, so one kernel if compiled.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.

    Args:
        weights: float32, shape (N,).
        used: A copy in the type of the products, or ``weights``.
        gradients: Any floating type, shape (N,).
        means: First moments.
        squares: Second moments.
        factor: What gradients are multiplied by: against the loss scale, and clipping.
        kept: Share of the weights that decay leaves.
        step_size: Learning rate over 1 - beta1^t.
        correction: Root of 1 - beta2^t.
        betas: Of AdamW.
        epsilon: Of AdamW.
        is_skipped: True leaves all as it is; None where nothing is ever skipped.
        clip_value: Largest gradient by amount, None without.
    """
    gradient = gradients.float() * factor
    if clip_value is not None:
        gradient = gradient.clamp(-clip_value, clip_value)
    mean = means + (gradient - means) * (1 - betas[0])
    square = squares * betas[1] + gradient * gradient * (1 - betas[1])
    weight = weights * kept - step_size * (mean / (square.sqrt() / correction + epsilon))
    if is_skipped is not None:
        mean = torch.where(is_skipped, means, mean)
        square = torch.where(is_skipped, squares, square)
        weight = torch.where(is_skipped, weights, weight)
    means.copy_(mean)
    squares.copy_(square)
    weights.copy_(weight)
    if used.dtype != weights.dtype:
        used.copy_(weight)


class FlatAdamW(AdamW):
    """AdamW whose parameters, gradients and states are views of a few flat tensors.

    Gradients are written by who computes them, into the tensors that `gradients_of` gives.

    Args:
        groups: As `bert_lightning.optim.parameter_groups` makes them; the parameters become views.
        products: Parameters that are used in ``dtype``; the others are used in float32.
        dtype: Type of the products.
        accumulates: Whether gradients of several batches are added up, which 16 bits are too
            few for.
        compiled: Whether to compile the update.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        products: set[nn.Parameter],
        dtype: torch.dtype,
        accumulates: bool = False,
        compiled: bool = False,
    ) -> None:
        super().__init__(groups)
        self.gradient_factor: Tensor | None = None
        self.clip_value: float | None = None
        self._update: Callable[..., None] = update
        if compiled:
            self._update = torch.compile(update, dynamic=True)
        self._segments: list[tuple[Segment, int]] = []
        self._place: dict[nn.Parameter, tuple[Segment, int]] = {}
        for number, group in enumerate(self.param_groups):
            used_as: dict[torch.dtype, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                kind = dtype if parameter in products else torch.float32
                used_as.setdefault(kind, []).append(parameter)
            for kind, chosen in used_as.items():
                self._add_segment(chosen, kind, accumulates, number)
        parameters = [p for segment, _ in self._segments for p in segment.parameters]
        self._steps = torch.zeros(len(parameters), device=parameters[0].device)
        self._write_states()
        self._versions = self._seen_versions()

    def _add_segment(
        self, parameters: list[nn.Parameter], dtype: torch.dtype, accumulates: bool, group: int
    ) -> None:
        offsets, end = [], 0
        for parameter in parameters:
            offsets.append(end)
            end += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        weights = torch.zeros(end, device=parameters[0].device)
        copied = dtype != torch.float32
        segment = Segment(
            parameters,
            offsets,
            weights,
            weights.to(dtype) if copied else weights,
            torch.zeros_like(weights, dtype=torch.float32 if accumulates else dtype),
            torch.zeros_like(weights),
            torch.zeros_like(weights),
        )
        for parameter, view in zip(parameters, segment.views(weights), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
            self._place[parameter] = (segment, len(self._place))
        self._segments.append((segment, group))
        self.refresh()

    def _write_states(self) -> None:
        """Let the state of each parameter be its views."""
        number = 0
        for segment, _ in self._segments:
            views = zip(
                segment.parameters,
                segment.views(segment.means),
                segment.views(segment.squares),
                strict=True,
            )
            for parameter, mean, square in views:
                self.state[parameter] = {
                    "step": self._steps[number],
                    "exp_avg": mean,
                    "exp_avg_sq": square,
                }
                number += 1

    @override
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if hasattr(self, "_segments"):
            raise TrainingError(
                "model.execution: expected all weights in the optimizer from the start – found a"
                " group that is added later\ntake --model.execution compiled"
            )
        super().add_param_group(param_group)

    @override
    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        loaded = {parameter: dict(state) for parameter, state in self.state.items() if state}
        self._write_states()
        for parameter in self._place:
            for name, own in self.state[parameter].items():
                own.copy_(loaded.get(parameter, {}).get(name, torch.zeros(())))

    def used(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        """Return what products use of parameters that lie behind each other, as one tensor."""
        return self._joined(parameters, "used")

    def gradients_of(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        """Return where the gradient of `used` of the same parameters belongs."""
        return self._joined(parameters, "gradients")

    def _joined(self, parameters: Sequence[nn.Parameter], name: str) -> Tensor:
        first = parameters[0]
        segment, _ = self._place[first]
        begin = segment.offsets[_index(segment.parameters, first)]
        end = begin
        for parameter in parameters:
            is_next = segment.offsets[_index(segment.parameters, parameter)] == end
            assert is_next, "parameters that are joined must lie behind each other"
            end += parameter.numel()
        flat: Tensor = getattr(segment, name)
        return flat[begin:end].view(-1, *first.shape[1:])

    @torch.no_grad()
    def refresh(self) -> None:
        """Write the copies again, after something else than a step changed the weights."""
        for segment, _ in self._segments:
            if segment.used is not segment.weights:
                segment.used.copy_(segment.weights)
        self._versions = self._seen_versions()

    @torch.no_grad()
    def refresh_if_changed(self) -> None:
        """Write the copies again if somebody else has changed a parameter.

        What was put in place of ``parameter.data`` is taken into the flat tensors. A change within
        ``parameter.data`` leaves no trace, and is used from the next step on.

        Raises:
            TrainingError: Somebody has frozen a parameter.
        """
        if self._versions == self._seen_versions():
            return
        if not all(parameter.requires_grad for parameter in self._place):
            raise TrainingError(
                "model.execution: expected the same weights to be trained throughout – found some"
                " that were frozen in the midst of the run\ntake --model.execution compiled"
            )
        for segment, _ in self._segments:
            views = segment.views(segment.weights)
            for parameter, view in zip(segment.parameters, views, strict=True):
                if parameter.data_ptr() != view.data_ptr():
                    view.copy_(parameter.detach())
                    parameter.data = view
        self.refresh()

    def _seen_versions(self) -> list[tuple[int, int, bool]]:
        # steps change the flat tensors, which count for themselves
        return [(p._version, p.data_ptr(), p.requires_grad) for p in self._place]

    def release(self) -> None:
        """Give back the memory, after the last step."""
        self._segments.clear()
        self._place.clear()

    def gradient_norm(self) -> Tensor:
        """Return the length of all gradients as they are, float32."""
        norms = [
            torch.linalg.vector_norm(segment.gradients, dtype=torch.float32)
            for segment, _ in self._segments
        ]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return norm

    @override
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all weights, unless ``found_inf`` is above 0; takes no closure.

        Gradients are multiplied by ``gradient_factor``, which is None for 1.
        """
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        is_skipped = None if found_inf is None else found_inf.reshape(()) > 0
        self._steps += 1.0 if is_skipped is None else (~is_skipped).float()
        step = self._steps[0].clamp(min=1.0)  # a skipped first step divides by nothing
        factor = self.gradient_factor
        if factor is None:
            factor = torch.ones_like(step)
        for segment, number in self._segments:
            group = self.param_groups[number]
            beta1, beta2 = group["betas"]
            rate = torch.as_tensor(group["lr"]).to(torch.float32)
            self._update(
                segment.weights,
                segment.used,
                segment.gradients,
                segment.means,
                segment.squares,
                factor,
                1 - rate * group["weight_decay"],
                rate / (1 - beta1**step),
                (1 - beta2**step).sqrt(),
                (beta1, beta2),
                group["eps"],
                is_skipped,
                self.clip_value,
            )


def _index(parameters: list[nn.Parameter], wanted: nn.Parameter) -> int:
    return next(number for number, parameter in enumerate(parameters) if parameter is wanted)
