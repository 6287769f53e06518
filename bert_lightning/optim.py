"""Parameters → AdamW groups; real optimizer updates → learning rate.

The learning rate follows a count of real updates, not of attempts: a step that the loss scaler
skips leaves it where it is. Count, rates and the decision to skip stay on the device, so that a
step makes the host wait for nothing, and can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from typing_extensions import override

from bert_lightning.errors import ConfigError

Schedule = Literal["linear", "cosine", "constant"]
Factor = Callable[[int, int, int], float]


def parameter_groups(
    network: nn.Module, weight_decay: float, learning_rate: float, layer_decay: float = 1.0
) -> list[dict[str, Any]]:
    """Split trainable parameters: no decay for biases and LayerNorm weights, as BERT was trained.

    Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019, released
        code. Layer-wise rates: Sun et al., "How to Fine-Tune BERT for Text Classification?", 2019.

    Args:
        network: The model to train.
        weight_decay: Decay of weight matrices.
        learning_rate: Peak rate of the head.
        layer_decay: The rate of a layer over the rate of the layer above it; 1 is one rate for all.
    """
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    depths = [_depth(name) for name, _ in named]
    top = max((depth for depth in depths if depth is not None), default=0) + 1
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for (name, parameter), depth in zip(named, depths, strict=True):
        # told by name, since FSDP leaves nothing of the shapes
        is_plain = name.endswith(("bias", "LayerNorm.weight"))
        below = 0 if layer_decay == 1 or depth is None else top - depth
        group = groups.setdefault(
            (below, is_plain),
            {
                "params": [],
                "weight_decay": 0.0 if is_plain else weight_decay,
                "lr": learning_rate * layer_decay**below,
            },
        )
        group["params"].append(parameter)
    return [groups[key] for key in sorted(groups)]


def freeze_layers(network: nn.Module, layers: int) -> None:
    """Take the embeddings and the lowest encoder layers out of training.

    Args:
        network: A BERT.
        layers: Number of encoder layers; 0 leaves the embeddings as well.

    Raises:
        ConfigError: The network has fewer layers.
    """
    named = [(_depth(name), parameter) for name, parameter in network.named_parameters()]
    most = max((depth for depth, _ in named if depth is not None), default=0)
    if not 0 <= layers <= most:
        raise ConfigError(f"model.frozen_layers: expected 0 to {most} – found {layers}")
    for depth, parameter in named:
        if layers and depth is not None and depth <= layers:
            parameter.requires_grad_(False)


def _depth(name: str) -> int | None:
    """Return 0 for the embeddings, 1 and more for the layers above them, None for the head."""
    layer = re.search(r"encoder\.layer\.(\d+)\.", name)
    if layer:
        return int(layer[1]) + 1
    return 0 if "embeddings." in name else None


def warmup_linear(step: int, warmup_steps: int, total_steps: int) -> float:
    """Return the factor on the learning rate before optimizer step ``step`` (0-based).

    Rises from 1/warmup_steps to 1 over the warm-up, then falls linearly to 0 at ``total_steps``.

    >>> [warmup_linear(step, 2, 6) for step in range(7)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))


def warmup_cosine(step: int, warmup_steps: int, total_steps: int) -> float:
    """Return the factor of a rise as in `warmup_linear` and a fall along half a cosine.

    >>> [round(warmup_cosine(step, 2, 6), 2) for step in range(7)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15, 0.0]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return 0.5 - 0.5 * math.cos(math.pi * warmup_linear(step, warmup_steps, total_steps))


def warmup_constant(step: int, warmup_steps: int, total_steps: int) -> float:
    """Return the factor of a rise as in `warmup_linear` that then stays.

    >>> [warmup_constant(step, 2, 6) for step in range(4)]
    [0.5, 1.0, 1.0, 1.0]
    """
    return (step + 1) / warmup_steps if step < warmup_steps else 1.0


SCHEDULES: dict[Schedule, Factor] = {
    "linear": warmup_linear,
    "cosine": warmup_cosine,
    "constant": warmup_constant,
}


def course(schedule: Schedule, warmup_ratio: float, total_steps: int) -> Callable[[int], float]:
    """Return what maps real updates to the factor on the peak rates.

    Args:
        schedule: How the rate goes on after the warm-up.
        warmup_ratio: Share of ``total_steps`` that rises.
        total_steps: Optimizer steps of the whole run.
    """
    factor, warmup_steps = SCHEDULES[schedule], round(warmup_ratio * total_steps)
    return lambda step: factor(step, warmup_steps, total_steps)


class GatedAdamW(AdamW):
    """AdamW in plain tensor operations that is skipped on the device, as the fused one is.

    torch's own plain AdamW lets `torch.amp.GradScaler` read on the host, once a step, whether to
    skip. This one takes ``found_inf`` (set by the scaler) into its arithmetic: a skipped step
    leaves weights, moments and step count as they were.
    """

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, **settings)
        self._step_supports_amp_scaling = True  # asked by GradScaler.step

    @override
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the weights, unless ``found_inf`` is above 0; the scaler passes no closure."""
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        for group in self.param_groups:
            self._update(group, found_inf)

    def _update(self, group: dict[str, Any], found_inf: Tensor | None) -> None:
        params: list[Tensor] = []
        grads: list[Tensor] = []
        means: list[Tensor] = []
        squares: list[Tensor] = []
        steps: list[Tensor] = []
        self._init_group(group, params, grads, means, squares, [], steps)  # type: ignore[no-untyped-call]
        if not params:
            return
        taken: Any = 1.0
        if found_inf is not None:
            skipped = found_inf.reshape(()) > 0
            taken = (~skipped).to(torch.float32)
            grads = [grad.masked_fill(skipped, 0.0) for grad in grads]
        (beta1, beta2), rate = group["betas"], group["lr"] * taken
        # one tensor for each: with a single one for all, a GPU is waited for
        torch._foreach_add_(steps, [torch.as_tensor(taken)] * len(steps))
        torch._foreach_mul_(params, 1 - rate * group["weight_decay"])
        torch._foreach_mul_(means, 1 - (1 - beta1) * taken)
        torch._foreach_add_(means, grads, alpha=1 - beta1)
        torch._foreach_mul_(squares, 1 - (1 - beta2) * taken)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - beta2)
        counted = torch._foreach_clamp_min(steps, 1.0)  # a skipped first step divides by nothing
        first = _one_minus(torch._foreach_pow(beta1, counted))
        second = _one_minus(torch._foreach_pow(beta2, counted))
        divisors = torch._foreach_sqrt(squares)
        torch._foreach_div_(divisors, torch._foreach_sqrt(second))
        torch._foreach_add_(divisors, group["eps"])
        torch._foreach_mul_(divisors, first)
        changes = torch._foreach_div(means, divisors)
        torch._foreach_mul_(changes, rate)
        torch._foreach_sub_(params, changes)


def _one_minus(values: Any) -> Any:
    torch._foreach_neg_(values)
    torch._foreach_add_(values, 1.0)
    return values


class UpdateSchedule:
    """Learning rates that follow the number of real updates, all of it on the device.

    A hook of the optimizer counts each of its steps that was not skipped and sets the rates of the
    next one, so neither the precision plugin nor Lightning need to know. ``param_groups[i]["lr"]``
    are views of one tensor.

    Args:
        optimizer: Its groups hold the peak rates.
        factor: Real updates → factor on the peak rates.
        total_steps: Updates after which the factor stays.
        device: Where the weights are.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        factor: Callable[[int], float],
        total_steps: int,
        device: torch.device,
    ) -> None:
        # the fused kernels on a GPU read float32; on a CPU float64 rounds as a Python number does
        dtype = torch.float64 if device.type == "cpu" else torch.float32
        self.optimizer = optimizer
        self.optimizer_steps = torch.zeros((), dtype=torch.int64, device=device)
        self._settings = [
            {key: value for key, value in group.items() if key not in ("params", "lr")}
            for group in optimizer.param_groups
        ]
        self._peaks = torch.tensor(
            [float(group["lr"]) for group in optimizer.param_groups], dtype=dtype, device=device
        )
        self._rates = torch.empty_like(self._peaks)
        self.follow(factor, total_steps)
        self.take_over()
        optimizer.register_step_post_hook(self._count)

    def follow(self, factor: Callable[[int], float], total_steps: int) -> None:
        """Take another course, such as that of a resumed run whose epochs have other steps.

        Args:
            factor: Real updates → factor on the peak rates.
            total_steps: Updates after which the factor stays.
        """
        factors = [factor(step) for step in range(total_steps + 1)]
        self._factors = torch.tensor(factors, dtype=self._peaks.dtype, device=self._peaks.device)

    def take_over(self) -> None:
        """Put the configured settings in place of those that a checkpoint brought back.

        The number of updates stays, and with it the position in the schedule.
        """
        for group, settings, rate in zip(
            self.optimizer.param_groups, self._settings, self._rates, strict=True
        ):
            group.update(settings)
            group["lr"] = rate
            if group.get("fused") or group.get("capturable"):
                for parameter in group["params"]:  # else written where the count was on the host
                    state = self.optimizer.state.get(parameter, {})
                    if "step" in state:
                        state["step"] = state["step"].to(parameter.device, torch.float32)
        self._set_rates()

    def _count(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
        if found_inf is None:
            self.optimizer_steps += 1
        else:
            self.optimizer_steps += found_inf.reshape(()) == 0
        self._set_rates()

    def _set_rates(self) -> None:
        position = self.optimizer_steps.clamp(max=len(self._factors) - 1).reshape(1)
        torch.mul(self._peaks, self._factors.index_select(0, position), out=self._rates)

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the optimizer's hook has moved the rates, if there was an update."""

    def state_dict(self) -> dict[str, Any]:
        """Return the number of real updates; reads the device."""
        return {"optimizer_steps": int(self.optimizer_steps)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after so many updates; older checkpoints call them ``last_epoch``."""
        older = "last_epoch" in state_dict
        steps = state_dict["last_epoch" if older else "optimizer_steps"]
        self.optimizer_steps.fill_(steps)
        self._set_rates()


def build_optimizer(
    network: nn.Module,
    learning_rate: float,
    weight_decay: float,
    warmup_ratio: float,
    total_steps: int,
    *,
    schedule: Schedule = "linear",
    layer_decay: float = 1.0,
    fused: bool | None = None,
    scaled: bool = False,
    device: torch.device | None = None,
    flat: Callable[[list[dict[str, Any]]], AdamW] | None = None,
) -> tuple[AdamW, UpdateSchedule]:
    """Make AdamW and the schedule of its rates.

    Args:
        network: The model to train.
        learning_rate: Peak rate of the head; of all layers if ``layer_decay`` is 1.
        weight_decay: Decay of weight matrices.
        warmup_ratio: Share of ``total_steps`` that rises.
        total_steps: Optimizer steps of the whole run.
        schedule: How the rate goes on after the warm-up.
        layer_decay: The rate of a layer over the rate of the layer above it.
        fused: One kernel for the whole update; None takes it on CUDA and on a CPU.
        scaled: Whether a loss scaler may skip steps.
        device: Where the weights are; None is the CPU.
        flat: Makes another optimizer of the groups, whose step can be captured.
    """
    device = device or torch.device("cpu")
    on_cuda = device.type == "cuda"
    groups = parameter_groups(network, weight_decay, learning_rate, layer_decay)
    # on a CPU the plain form costs 17.9 ms a step of the mini BERT, the fused one 2.6, one thread
    fused = device.type in ("cuda", "cpu") if fused is None else fused
    # capturable: else the plain form takes no rate on the device, and neither can be captured
    kind: dict[str, Any] = {"capturable": on_cuda, **({"fused": True} if fused else {})}
    kind_of_adamw = GatedAdamW if scaled and not fused else AdamW
    optimizer = flat(groups) if flat else kind_of_adamw(groups, **kind)
    factor = course(schedule, warmup_ratio, total_steps)
    return optimizer, UpdateSchedule(optimizer, factor, total_steps, device)
