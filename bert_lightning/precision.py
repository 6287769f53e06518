"""The precision that YAML asks for → the precision that this machine can run.

YAML keeps the plain value. On a GPU it is taken as it is. A CPU runs mixed precision in bf16 where
it computes bf16 natively, and in float32 elsewhere, since emulated bf16 is about 12 times slower.
"""

from __future__ import annotations

import platform

import torch

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
