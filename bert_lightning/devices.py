"""Accelerator, devices and strategy, checked against this machine before a run."""

from __future__ import annotations

import difflib
import importlib.util
import os
import socket
from typing import Any

import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.accelerators import AcceleratorRegistry
from lightning.pytorch.strategies import FSDPStrategy, StrategyRegistry

from bert_lightning.errors import ConfigError

ACCELERATORS = ("auto", "cpu", "gpu", *AcceleratorRegistry.available_accelerators())


def runs_on_cpu(accelerator: Any) -> bool:
    """Tell whether the trainer will compute on the CPU."""
    return accelerator == "cpu" or (
        accelerator in ("auto", None) and not torch.accelerator.is_available()
    )


def process_count(accelerator: Any, devices: Any, nodes: int) -> int:
    """Return how many processes a run asks for, whether this machine has the devices or not.

    Args:
        accelerator: Value of ``trainer.accelerator``.
        devices: Value of ``trainer.devices``.
        nodes: Number of machines.
    """
    parts = [part for part in str(devices).strip("[] ").split(",") if part.strip()]
    if str(devices) in ("auto", "-1"):
        own = 1 if runs_on_cpu(accelerator) else torch.accelerator.device_count()
    elif str(devices).isdigit():
        own = int(devices)
    else:
        own = len(parts)
    return max(1, own) * nodes


def is_one_of_many() -> bool:
    """Tell whether torchrun or srun started this process beside others."""
    if TorchElasticEnvironment.detect():
        return int(os.environ.get("WORLD_SIZE", "1")) > 1
    return SLURMEnvironment.detect() and int(os.environ["SLURM_NTASKS"]) > 1


def check_devices(accelerator: Any, devices: Any, strategy: Any) -> None:
    """Refuse what this machine cannot run.

    Args:
        accelerator: Value of ``trainer.accelerator``.
        devices: Value of ``trainer.devices``.
        strategy: Value of ``trainer.strategy``, a name or an object.

    Raises:
        ConfigError: All faults found.
    """
    if isinstance(accelerator, str) and accelerator not in ACCELERATORS:
        raise ConfigError(
            f"trainer.accelerator: expected {', '.join(ACCELERATORS)} – found {accelerator!r}"
        )
    on_cpu = runs_on_cpu(accelerator)
    gpus = torch.cuda.device_count()
    problems = []
    if accelerator in ("gpu", "cuda") and not gpus and not torch.accelerator.is_available():
        problems.append(
            f"trainer.accelerator: expected a GPU for {accelerator!r}, trainer.devices {devices}"
            " – found 0 GPUs on this machine\ntake --trainer.accelerator cpu --trainer.devices 1"
        )
    elif on_cpu:
        problems += _cpu_problems(devices)
    else:
        problems += _gpu_problems(devices, gpus)
    if str(devices) not in ("1", "auto"):
        problems += _port_problems()
    if isinstance(strategy, str):
        problems += _strategy_problems(strategy)
    sharded = isinstance(strategy, FSDPStrategy) or "fsdp" in str(strategy).lower()
    by_deepspeed = "deepspeed" in str(strategy).lower()
    if by_deepspeed and not on_cpu and not importlib.util.find_spec("deepspeed"):
        problems.append(
            f"trainer.strategy: expected the package deepspeed for {strategy} – found none: python"
            ' -m pip install "bert-lightning[deepspeed]", or take --config fsdp.yaml'
        )
    if on_cpu and (sharded or by_deepspeed):
        name = "fsdp" if sharded else "deepspeed"
        problems.append(
            f"trainer.strategy: expected a strategy that runs on a CPU – found {name}, which needs"
            " GPUs\ntake --config ddp.yaml"
        )
    if problems:
        raise ConfigError("\n".join(problems))


def _cpu_problems(devices: Any) -> list[str]:
    most = max(2, os.cpu_count() or 1)
    if devices == "auto" or (str(devices).isdigit() and 1 <= int(devices) <= most):
        return []
    where = "this CPU" if torch.accelerator.is_available() else "this machine, which has no GPU"
    return [
        f"trainer.devices: expected a number of processes from 1 to {most} on {where} – found"
        f" {devices}\ntake --trainer.devices {most} or fewer"
    ]


def _gpu_problems(devices: Any, gpus: int) -> list[str]:
    present = f"{gpus} GPU{'' if gpus == 1 else 's'} on this machine"
    if devices == "auto" or str(devices) == "-1" or not gpus:
        return []
    if isinstance(devices, int) or str(devices).isdigit():
        if 1 <= int(devices) <= gpus:
            return []
        return [f"trainer.devices: expected 1 to {gpus} – found {devices}, with {present}"]
    parts = [part.strip() for part in str(devices).strip("[] ").split(",") if part.strip()]
    if parts and all(part.isdecimal() and int(part) < gpus for part in parts):
        return []
    return [
        f"trainer.devices: expected GPU numbers from 0 to {gpus - 1} – found {devices!r}, with"
        f" {present}"
    ]


def _port_problems() -> list[str]:
    """Try the port that the processes are to meet on, before any of them waits for it."""
    port, host = os.environ.get("MASTER_PORT"), os.environ.get("MASTER_ADDR", "127.0.0.1")
    started_by_launcher = (
        "LOCAL_RANK" in os.environ
        or "SLURM_PROCID" in os.environ
        or os.environ.get("NODE_RANK", "0") != "0"
    )
    if port is None or started_by_launcher:
        return []
    try:
        socket.create_server((host, int(port))).close()
    except (OSError, ValueError, OverflowError) as error:
        return [
            f"MASTER_PORT: expected a free port of {host} – found {port!r}: {error}\n"
            "another run may hold it: unset MASTER_PORT, and a free one is taken"
        ]
    return []


def _strategy_problems(strategy: str) -> list[str]:
    if strategy.endswith(("_spawn", "_fork", "_notebook")):
        return [
            "trainer.strategy: expected a strategy whose processes are started as commands, or the"
            f" results stay in them – found {strategy!r}\ntake ddp"
        ]
    known = ["auto", *StrategyRegistry.available_strategies()]
    if strategy in known or "." in strategy:  # a class is checked by the parser
        return []
    short = strategy.lower().removesuffix("strategy")  # the bare name of a class
    close = difflib.get_close_matches(short, known, n=1, cutoff=0.0)
    return [
        "trainer.strategy: expected auto, ddp, fsdp or another of Lightning's names, or a mapping"
        f" with class_path and init_args – found {strategy!r}\ndid you mean {close[0]}?"
    ]


def strategy_name(strategy: Any) -> str:
    """Return the name or class name of a strategy, from a config or an object."""
    if isinstance(strategy, str):
        return strategy
    class_path = strategy.get("class_path") if hasattr(strategy, "get") else None
    return str(class_path or type(strategy).__name__)
