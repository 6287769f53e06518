"""How the work gets to the device: launched by PyTorch, compiled, or captured in CUDA graphs.

``auto`` takes the fastest that is right for the device, the strategy and the callbacks of the run,
and says which and why.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import BaseFinetuning, GradientAccumulationScheduler
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._triton import has_triton

from bert_lightning.amp import AmpPrecision
from bert_lightning.errors import ConfigError
from bert_lightning.flat_adamw import ALIGNMENT
from bert_lightning.functional_bert import is_checkpointed

Asked = Literal["auto", "eager", "compiled", "captured"]
DTYPES = {"32-true": torch.float32, "16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}
_GRADIENT_HOOKS = (
    "on_before_backward",
    "on_after_backward",
    "on_before_zero_grad",
    "on_before_optimizer_step",
)
_CHANGING: dict[type[Callback], str] = {
    BaseFinetuning: "adds weights to the optimizer",
    GradientAccumulationScheduler: "changes the batches of a step",
}
_MODULE_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)


class Execution(NamedTuple):
    """What was chosen.

    Args:
        name: ``eager``, ``compiled`` or ``captured``.
        compiles: Whether kernels are generated; a captured step can do without.
        dtype: Type of the products.
        reason: Why not a faster one, or empty.
    """

    name: Literal["eager", "compiled", "captured"]
    compiles: bool = False
    dtype: torch.dtype = torch.float32
    reason: str = ""

    @property
    def line(self) -> str:
        """Say what was chosen, and why not a faster one."""
        return f"{self.name} – {self.reason}" if self.reason else self.name


def choose_execution(asked: Asked, trainer: Any, model: Any) -> Execution:
    """Return how a run is executed.

    Args:
        asked: ``model.execution``.
        trainer: With its strategy, precision plugin and callbacks.
        model: The classifier.

    Raises:
        ConfigError: What was asked for cannot be done here; with all reasons.
    """
    if asked == "eager":
        return Execution("eager")
    plugin = trainer.precision_plugin
    dtype = DTYPES.get(getattr(plugin, "precision", ""), torch.float32)
    not_compiled = _obstacles_to_compiling(trainer, model)
    on_cuda = trainer.strategy.root_device.type == "cuda"
    if on_cuda and not has_triton():
        not_compiled.append("no Triton to compile with")
    not_captured = [
        *[reason for reason in not_compiled if "Triton" not in reason],
        *_obstacles_to_capture(trainer, model),
    ]
    if asked == "compiled" and not_compiled:
        raise _refusal(asked, not_compiled)
    if asked == "captured" and not_captured:
        raise _refusal(asked, not_captured)
    if asked != "compiled" and not not_captured:
        return Execution(
            "captured",
            not not_compiled,
            dtype,
            "not compiled: " + not_compiled[0] if not_compiled else "",
        )
    if not not_compiled and (on_cuda or asked == "compiled"):
        return Execution("compiled", True, dtype, "; ".join(not_captured))
    return Execution("eager", reason="; ".join(not_captured if on_cuda else not_captured[:1]))


def _refusal(asked: str, obstacles: list[str]) -> ConfigError:
    return ConfigError(
        f"model.execution: expected one that can be done here – found {asked}, with"
        f" {'; '.join(obstacles)}\ntake --model.execution auto"
    )


def _obstacles_to_compiling(trainer: Any, model: Any) -> list[str]:
    plugin, strategy = trainer.precision_plugin, trainer.strategy
    found = []
    if type(strategy) not in (SingleDeviceStrategy, DDPStrategy):
        found.append(f"strategy {type(strategy).__name__}")
    if type(plugin) not in (Precision, MixedPrecision, AmpPrecision) or (
        plugin.precision not in DTYPES
    ):
        found.append(f"precision {plugin.precision} of {type(plugin).__name__}")
    if trainer._detect_anomaly:
        found.append("trainer.detect_anomaly true")
    if type(model.network).__name__ != "BertForSequenceClassification":
        found.append(f"a network of type {type(model.network).__name__}")
    draws = getattr(model.network.config, "attention_probs_dropout_prob", 0)
    if strategy.root_device.type == "cpu" and draws and is_checkpointed(model.network):
        # there attention is made of plain operations, see functional_bert
        found.append("model.gradient_checkpointing with dropout of attention on a CPU")
    if getattr(model.network.config, "is_decoder", False):
        found.append("a decoder, whose pieces see only those before them")
    found += [
        f"a hook of {name or 'the network'}, which would not be called"
        for name, module in model.network.named_modules()
        if any(getattr(module, hooks) for hooks in _MODULE_HOOKS)
    ][:1]
    found += [
        f"{name} of type {type(module).__name__}, which would not be called"
        for name, module in model.network.named_modules()
        if name and not _is_plain(module)
    ][:1]
    return found


def _is_plain(module: nn.Module) -> bool:
    """Tell whether a part of a network is of the libraries' own types, and so are its weights."""
    library = type(module).__module__.partition(".")[0]
    return library in ("torch", "transformers") and not is_parametrized(module)


def _obstacles_to_capture(trainer: Any, model: Any) -> list[str]:
    plugin, strategy = trainer.precision_plugin, trainer.strategy
    if strategy.root_device.type != "cuda":
        return ["no CUDA device"]
    found = []
    if isinstance(strategy, DDPStrategy):
        found.append("gradients that are summed over processes")
    if getattr(plugin, "scaler", None) is not None and not isinstance(plugin, AmpPrecision):
        found.append(f"the loss scale of {type(plugin).__name__}")
    if model.fused_optimizer is False:
        found.append("model.fused_optimizer false")
    if model.network.config.hidden_size % ALIGNMENT:
        found.append(f"a hidden size that {ALIGNMENT} does not divide")
    found += [
        f"{type(callback).__name__}.{hook}, which would find no gradients"
        for callback in trainer.callbacks
        for hook in _GRADIENT_HOOKS
        if getattr(type(callback), hook, None) not in (None, getattr(Callback, hook))
    ]
    found += [
        f"{type(callback).__name__}, which {what}"
        for callback in trainer.callbacks
        for kind, what in _CHANGING.items()
        if isinstance(callback, kind)
    ]
    found += [
        f"{name} of {type(model).__name__}, which would not be called"
        for name in model.replaced_methods
    ]
    overridden = type(model).configure_gradient_clipping
    if overridden is not LightningModule.configure_gradient_clipping:
        found.append("a module that clips by itself")
    return found
