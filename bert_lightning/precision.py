"""The precision that YAML asks for → the precision that this machine can run.

YAML keeps the plain value. On a GPU it is taken as it is. A CPU runs mixed precision in bf16 where
it computes bf16 natively, and in float32 elsewhere, since emulated bf16 is about 12 times slower.
The value then becomes the project's own plugin where Lightning's cannot do what is asked.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy

from bert_lightning.amp import AmpPrecision, AmpSettings, FSDPAmpPrecision
from bert_lightning.errors import ConfigError

MIXED = {"16-mixed": "16-mixed", "16": "16-mixed", "bf16-mixed": "bf16-mixed", "bf16": "bf16-mixed"}


def effective_precision(
    precision: str | int | None, on_cpu: bool
) -> tuple[str | int | None, str | None]:
    """Return the precision to train in, and a line that says so if it is not the one asked for.

    Args:
        precision: Value of ``trainer.precision``.
        on_cpu: Whether the trainer runs on the CPU.
    """
    asked = MIXED.get(str(precision))
    if asked is None or not on_cpu:
        return precision, None
    if not cpu_computes_bf16():
        return "32-true", f"{asked} runs as 32 here: this CPU has no native bf16"
    if asked == "16-mixed":
        return "bf16-mixed", "16-mixed runs as bf16-mixed here: a CPU computes bf16, not fp16"
    return asked, None


def cpu_computes_bf16() -> bool:
    """Tell whether bf16 products are hardware instructions of this CPU."""
    if platform.machine() in ("arm64", "aarch64"):
        return bool(getattr(torch.backends.cpu, "get_cpu_capability", str)() == "SVE256")
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


@dataclass
class MatmulSettings:
    """How a GPU multiplies float32 matrices.

    Args:
        tf32: True rounds their factors to TF32, which is faster and less exact; false is strict
            float32, so that a comparison with it is honest.
    """

    tf32: bool = False

    def apply(self) -> None:
        """Set it, through the one interface that torch's older and newer readers both follow."""
        torch.set_float32_matmul_precision("high" if self.tf32 else "highest")


def computed_precision(precision: str | int, on_cpu: bool) -> str:
    """Return the precision that a trainer computes in, with what `MatmulSettings` make of it.

    Args:
        precision: ``precision`` of the trainer.
        on_cpu: Whether the trainer runs on the CPU.
    """
    is_tf32 = not on_cpu and torch.get_float32_matmul_precision() == "high"
    return f"{precision} with TF32" if is_tf32 and precision == "32-true" else str(precision)


def check_precision(precision: str | int | None, on_cpu: bool, strategy: str) -> None:
    """Refuse a precision that this GPU only emulates, or whose keys a strategy does not take.

    Args:
        precision: Value of ``trainer.precision``.
        on_cpu: Whether the trainer runs on the CPU.
        strategy: Name or class path of the strategy.

    Raises:
        ConfigError: Not to be run here, with what to take instead.
    """
    if MIXED.get(str(precision)) == "16-mixed" and "deepspeed" in strategy.lower():
        raise ConfigError(
            "trainer.strategy: expected one whose loss scale the amp keys set, under"
            f" trainer.precision {precision} – found {strategy}, which scales by its own"
            " configuration\ntake --trainer.strategy fsdp, or --trainer.precision bf16-mixed"
        )
    wants_bf16 = str(precision).startswith("bf16")
    if not wants_bf16 or on_cpu or not torch.cuda.is_available():
        return
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        major, minor = torch.cuda.get_device_capability()
        raise ConfigError(
            f"trainer.precision: expected a precision that this GPU computes – found {precision},"
            f" which {torch.cuda.get_device_name()} (compute capability {major}.{minor}) only"
            " emulates\ntake --trainer.precision 16-mixed (--config amp.yaml)"
        )


def precision_plugin(
    precision: str | int | None, on_cpu: bool, strategy: Any, settings: AmpSettings
) -> Precision | None:
    """Return the plugin that takes the place of a plain value, or None if the value stays.

    Args:
        precision: The precision to train in, as `effective_precision` gives it.
        on_cpu: Whether the trainer runs on the CPU.
        strategy: Name of the strategy, or the strategy.
        settings: Loss scaling.
    """
    name = MIXED.get(str(precision), str(precision))
    if isinstance(strategy, FSDPStrategy) or str(strategy).startswith("fsdp"):
        name = {"32": "32-true", "None": "32-true"}.get(name, name)
        return FSDPAmpPrecision(name, settings)
    if isinstance(strategy, DeepSpeedStrategy) or str(strategy).startswith("deepspeed"):
        return None  # only Lightning's own steps through DeepSpeed's engine
    if name not in ("16-mixed", "bf16-mixed"):
        return None
    if not on_cpu and not torch.cuda.is_available():
        return None  # an accelerator that Lightning knows better
    return AmpPrecision(name, "cpu" if on_cpu else "cuda", settings)  # type: ignore[arg-type]
