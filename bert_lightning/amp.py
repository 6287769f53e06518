"""Mixed precision as Lightning plugins: unscale → clip → step, with nothing skipped in silence.

Lightning's own plugin refuses a fused optimizer together with clipping, advances the schedule on
skipped steps, and takes the settings of the loss scaler from code only. These override its step and
its clipping, nothing else. Found overflow, loss scale and growth tracker stay on the device, and so
does a ring of what the last steps were like; whoever wants to know reads it now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from lightning.pytorch.plugins.precision import FSDPPrecision, MixedPrecision, Precision
from torch import Tensor
from typing_extensions import override

from bert_lightning.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule

RING_STEPS = 256
_SCALER_KEYS = ("AmpPrecision", "FSDPAmpPrecision", "MixedPrecision", "FSDPPrecision")


@dataclass
class AmpSettings:
    """Loss scaling under 16-mixed.

    Args:
        init_scale: Loss scale of the first step.
        growth_factor: What the scale is multiplied by after ``growth_interval`` steps in a row
            without overflow.
        growth_interval: Steps without overflow before the scale grows.
        backoff_factor: What the scale is multiplied by after an overflow; the step is skipped.
        min_scale: Floor of the scale; a run that reaches it is stopped.
        max_consecutive_skips: Most skipped steps in a row before a run is stopped.
    """

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    growth_interval: int = 2000
    backoff_factor: float = 0.5
    min_scale: float = 1.0
    max_consecutive_skips: int = 15

    def check(self) -> None:
        """Refuse values that no loss scaler can work with.

        Raises:
            ConfigError: All faults found.
        """
        limits = torch.finfo(torch.float32)  # of the scale; the growth tracker is an int32
        most_steps = torch.iinfo(torch.int32).max
        rules = {
            "init_scale": (
                self.min_scale < self.init_scale <= limits.max,
                f"more than amp.min_scale, up to {limits.max:.2g}",
            ),
            "growth_factor": (1 < self.growth_factor <= limits.max, "a finite number above 1"),
            "growth_interval": (1 <= self.growth_interval <= most_steps, f"1 to {most_steps}"),
            "backoff_factor": (0 < self.backoff_factor < 1, "a number between 0 and 1"),
            "min_scale": (self.min_scale >= limits.tiny, f"{limits.tiny:.2g} or more"),
            "max_consecutive_skips": (
                1 <= self.max_consecutive_skips < RING_STEPS,
                f"1 to {RING_STEPS - 1}",
            ),
        }
        problems = [
            f"amp.{name}: expected {expected} – found {getattr(self, name)}"
            for name, (is_right, expected) in rules.items()
            if not is_right
        ]
        if problems:
            raise ConfigError("\n".join(problems))

    @property
    def scaler_arguments(self) -> dict[str, Any]:
        """What torch's scalers take."""
        names = ("init_scale", "growth_factor", "growth_interval", "backoff_factor")
        return {name: getattr(self, name) for name in names}


class Step(NamedTuple):
    """What an attempted optimizer step was like."""

    loss_scale: float
    gradient_norm: float
    is_skipped: bool
    next_scale: float


class StepRing:
    """The last attempted steps, on the device.

    Writing is device work alone and takes place in tensors that stay where they are, so it can be
    captured; a replayed write has to be added to ``written`` by who replays it.

    Args:
        capacity: Steps that are kept.
    """

    def __init__(self, capacity: int = RING_STEPS) -> None:
        self.capacity = capacity
        self.written = 0
        self._values = torch.empty(0)
        self._index = torch.empty(0)

    def write(self, *, loss_scale: Tensor, norm: Tensor, found_inf: Tensor, scale: Tensor) -> None:
        """Add a step; each value has one element, on the same device.

        Args:
            loss_scale: The scale that the step was computed with.
            norm: Length of the unscaled gradient, before clipping.
            found_inf: Above 0 if the step was skipped.
            scale: The scale of the next step.
        """
        if not len(self._values):
            device = scale.device
            self._values = torch.zeros(self.capacity, 4, dtype=torch.float32, device=device)
            self._index = torch.zeros(1, dtype=torch.int64, device=device)
        row = torch.stack([value.reshape(()) for value in (loss_scale, norm, found_inf, scale)])
        self._values.index_copy_(0, self._index, row.unsqueeze(0))
        self._index.add_(1).remainder_(self.capacity)
        self.written += 1

    def read(self, count: int) -> list[Step]:
        """Return the newest steps, oldest first; reads the device once.

        Args:
            count: How many of them; what has been overwritten is missing.
        """
        count = min(count, self.capacity, self.written)
        if not count:
            return []
        rows = self._values.tolist()
        newest = [rows[i % self.capacity] for i in range(self.written - count, self.written)]
        return [Step(scale, norm, skip > 0, after) for scale, norm, skip, after in newest]


class _ScaledStep(Precision):
    """The step of both plugins; comes before Lightning's own class among their bases."""

    settings: AmpSettings
    scaler: Any
    ring: StepRing
    gradient_norm: Tensor | None = None

    @override
    def optimizer_step(  # type: ignore[override]
        self,
        optimizer: Any,
        model: LightningModule,
        closure: Callable[[], Any],
        **kwargs: Any,
    ) -> Any:
        self.gradient_norm = None
        if self.scaler is None:
            return super().optimizer_step(optimizer, model=model, closure=closure, **kwargs)
        result = closure()
        if result is None and model.automatic_optimization:  # no loss, so nothing to step with
            return None
        self.scaler.unscale_(optimizer)
        self._after_closure(model, optimizer)  # clips, in the module's hook
        norm = self._norm(optimizer) if self.gradient_norm is None else self.gradient_norm
        scale = self.scaler._get_scale_async()
        used = scale.clone()
        found = self.scaler._found_inf_per_device(optimizer)
        ((device, found_inf),) = found.items()
        found[device] = found_inf.reshape(())  # FSDP's has one dimension, a fused step takes none
        self.scaler.step(optimizer, **kwargs)
        self.scaler.update()
        scale.clamp_(min=self.settings.min_scale)
        self.ring.write(loss_scale=used, norm=norm, found_inf=found_inf, scale=scale)
        return result

    def _norm(self, optimizer: Any) -> Tensor:
        """Return the length of the gradient where nothing was clipped by it."""
        return torch.nn.utils.get_total_norm(
            [p.grad for p in self.main_params(optimizer) if p.grad is not None]
        )

    @override
    def clip_gradients(self, *args: Any, **kwargs: Any) -> None:
        # not Lightning's, which refuses fused optimizers: ours are unscaled before
        Precision.clip_gradients(self, *args, **kwargs)

    @override
    def clip_grad_by_norm(self, optimizer: Any, clip_val: int | float) -> None:
        self.gradient_norm = torch.nn.utils.clip_grad_norm_(self.main_params(optimizer), clip_val)

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.scaler is not None:
            own = self.settings.scaler_arguments
            del own["init_scale"]
            self.scaler.load_state_dict({**state_dict, **own})  # configured factors count

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = scaler_state(checkpoint)
        if state and type(self).__qualname__ not in checkpoint:  # written under another strategy
            self.load_state_dict(state)


class AmpPrecision(_ScaledStep, MixedPrecision):
    """Mixed precision on one device and under DDP.

    Args:
        precision: ``16-mixed``, or ``bf16-mixed``, which has no loss scale.
        device: Type of the device.
        settings: Loss scaling; None takes the defaults.
    """

    def __init__(
        self,
        precision: Literal["16-mixed", "bf16-mixed"] = "16-mixed",
        device: str = "cuda",
        settings: AmpSettings | None = None,
    ) -> None:
        self.settings = settings or AmpSettings()
        self.settings.check()
        scaler = None
        if precision == "16-mixed":
            scaler = torch.amp.GradScaler(device, **self.settings.scaler_arguments)
        super().__init__(precision, device, scaler)
        self.ring = StepRing()


class FSDPAmpPrecision(_ScaledStep, FSDPPrecision):
    """Precision under FSDP: clips by the norm over all shards, with any precision.

    Args:
        precision: Any that Lightning's plugin takes.
        settings: Loss scaling under ``16-mixed``; None takes the defaults.
    """

    def __init__(self, precision: Any, settings: AmpSettings | None = None) -> None:
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        self.settings = settings or AmpSettings()
        self.settings.check()
        super().__init__(precision)
        if precision == "16-mixed":  # Lightning 2.6.6 fails where a scaler is passed
            self.scaler = ShardedGradScaler(**self.settings.scaler_arguments)
        self.ring = StepRing()
        self._root: Any = None

    @override
    def optimizer_step(  # type: ignore[override]
        self, optimizer: Any, model: LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        self._root = model.trainer.strategy.model
        return super().optimizer_step(optimizer, model, closure, **kwargs)

    @override
    def clip_grad_by_norm(self, optimizer: Any, clip_val: int | float) -> None:
        self.gradient_norm = self._root.clip_grad_norm_(clip_val)

    @override
    def _norm(self, optimizer: Any) -> Tensor:
        norm: Tensor = self._root.clip_grad_norm_(float("inf"))
        return norm


def scaler_state(checkpoint: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a checkpoint holds of a loss scaler, whatever plugin wrote it, or None.

    Raises:
        CheckpointError: It has another form.
    """
    state = next((checkpoint[key] for key in _SCALER_KEYS if checkpoint.get(key)), None)
    kinds = {"scale": float, "_growth_tracker": int}
    entries = state if isinstance(state, dict) else {}
    if state and not all(isinstance(entries.get(key), kind) for key, kind in kinds.items()):
        raise CheckpointError(
            "ckpt_path: expected the state of a loss scale, with"
            f" {' and '.join(kinds)} – found {str(state)[:80]}\n"
            "take a checkpoint that this program wrote"
        )
    return state
