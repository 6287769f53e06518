"""A precision plugin in ``trainer.plugins``: how it goes with the keys for precision and scale.

Loss scaling has one home, the amp keys. Settings that a plugin was given move there before the
configuration is written, and from there into the plugin before it is made.
"""

from __future__ import annotations

import pydoc
from collections.abc import Mapping, Sequence
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch.plugins.precision import MixedPrecision, Precision

from bert_lightning.amp import AmpPrecision, FSDPAmpPrecision
from bert_lightning.errors import CheckpointError, ConfigError

# what belongs to the machine and not to the experiment
MACHINE_KEYS = (
    "accelerator",
    "strategy",
    "devices",
    "num_nodes",
    "logger",
    "callbacks",
    "plugins",  # but for the precision
    "profiler",
    "default_root_dir",
    "fast_dev_run",
    "enable_progress_bar",
    "enable_checkpointing",
)
_SCALED = (AmpPrecision, FSDPAmpPrecision)


def precision_entries(plugins: Any) -> list[Any]:
    """Return the entries of ``trainer.plugins`` that name a precision plugin.

    Args:
        plugins: A mapping with ``class_path`` and ``init_args``, a list of them, or None.
    """
    entries = plugins if isinstance(plugins, list) else [plugins]
    return [
        entry
        for entry in entries
        if isinstance(entry, Mapping | Namespace) and issubclass(plugin_class(entry), Precision)
    ]


def plugin_class(entry: Any) -> type:
    """Return the class that an entry names; object if it names none."""
    try:
        found = pydoc.locate(entry["class_path"])
    except pydoc.ErrorDuringImport:
        return object
    return found if isinstance(found, type) else object


def named_precision(plugins: Any) -> tuple[str, str, bool] | None:
    """Return precision, class name and whether it is the project's, of a precision plugin.

    Args:
        plugins: Value of ``trainer.plugins``; None is returned where it names no precision.
    """
    for entry in precision_entries(plugins):
        kind = plugin_class(entry)
        name = _arguments(entry).get("precision") or getattr(kind, "precision", "32-true")
        return str(name), kind.__name__, _is_scaled(entry)
    return None


def trainer_settings_to_resume(stored: dict[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trainer settings of a checkpoint that a fit goes on with.

    Args:
        stored: Those in the checkpoint.
        typed: What the user gave, by dotted key; a precision takes the place of a plugin.

    Raises:
        CheckpointError: The class of its precision plugin is not there.
    """
    # what a run never stores, a checkpoint that was made up does not bring in, nor its classes
    without = {key: value for key, value in stored.items() if key not in MACHINE_KEYS}
    if _is_given(typed, "trainer.precision"):
        return without
    entries = stored.get("plugins", [])
    missing = [entry["class_path"] for entry in entries if plugin_class(entry) is object]
    if not missing:
        plugins = precision_entries(entries)
        return {**without, "plugins": plugins} if plugins else without
    if "trainer.plugins" in typed:
        return without
    raise CheckpointError(
        f"trainer.plugins: expected the precision plugin of the run, {missing[0]} – found no such"
        " class\nstart where it can be imported, or give another precision, such as"
        " --trainer.precision 32"
    )


def settle_plugins(config: Any, typed: Mapping[str, Any], stored: Sequence[Any] = ()) -> None:
    """Refuse what a precision plugin contradicts, and move its settings to the amp keys.

    Args:
        config: All settings; changed.
        typed: What the user gave, by dotted key.
        stored: Precision plugins of the run that goes on.

    Raises:
        ConfigError: All faults found.
    """
    entries = precision_entries(config.trainer.plugins)
    names = " and ".join(plugin_class(entry).__name__ for entry in entries)
    has_precision = _is_given(typed, "trainer.precision")
    problems = []
    if stored and not entries and not has_precision:
        name = stored[0]["class_path"].rpartition(".")[2]
        problems.append(
            f"trainer.plugins: expected {name} of the run among them – found no precision plugin\n"
            "name it, too, or give the precision to go on in, such as --trainer.precision 32"
        )
    if entries and has_precision:
        problems.append(
            "trainer.precision: expected either this key or a precision plugin in trainer.plugins"
            f" – found {config.trainer.precision} and {names}\nleave one of them out"
        )
    if len(entries) > 1:
        problems.append(f"trainer.plugins: expected one precision plugin – found {names}")
    problems += [line for entry in entries for line in _scale_problems(entry, typed)]
    if problems:
        raise ConfigError("\n".join(problems))
    for entry in entries:
        config.trainer.precision = None  # that of a checkpoint, if any
        arguments = _arguments(entry)
        if _is_scaled(entry) and arguments.get("settings") is not None:
            config.amp, arguments.settings = arguments.settings, None


def _scale_problems(entry: Any, typed: Mapping[str, Any]) -> list[str]:
    """Find what a plugin says of the loss scale that the amp keys say, too."""
    arguments, name = _arguments(entry), plugin_class(entry).__name__
    if plugin_class(entry) is MixedPrecision and arguments.get("scaler") is not None:
        return [
            f"trainer.plugins: expected {name} without scaler, as the amp keys set the loss scale –"
            " found one\nset amp.init_scale, amp.growth_factor, amp.growth_interval and"
            " amp.backoff_factor instead"
        ]
    keys = [key for key in typed if key.startswith("amp.")]
    if keys and _is_scaled(entry) and arguments.get("settings") is not None:
        return [
            f"{', '.join(keys)}: expected in one place – found beside init_args.settings of {name}"
            " in trainer.plugins\nleave one of them out; both say the same"
        ]
    return []


def check_plugin_device(plugins: Any, on_cpu: bool) -> None:
    """Refuse mixed precision for another device than the run's, where it fails or does nothing.

    Args:
        plugins: Value of ``trainer.plugins``.
        on_cpu: Whether the trainer runs on the CPU.

    Raises:
        ConfigError: Its device is not that of the run.
    """
    for entry in precision_entries(plugins):
        kind, device = plugin_class(entry), _arguments(entry).get("device")
        if issubclass(kind, MixedPrecision) and device and device.startswith("cpu") is not on_cpu:
            raise ConfigError(
                f"trainer.plugins: expected {kind.__name__} for the device of the run,"
                f" {'the CPU' if on_cpu else 'a GPU'} – found device {device}\n"
                "set its init_args.device, or trainer.precision in place of the plugin"
            )


def fill_plugins(config: Any) -> None:
    """Give the amp keys to the plugins that scale the loss.

    Lightning's own plugin for mixed precision becomes the project's, as it cannot clip before our
    optimizers.

    Args:
        config: All settings; changed.
    """
    for entry in precision_entries(config.trainer.plugins):
        if plugin_class(entry) is MixedPrecision:
            entry.class_path = f"{AmpPrecision.__module__}.{AmpPrecision.__qualname__}"
            del entry.init_args["scaler"]
            entry.init_args.settings = None
        arguments = _arguments(entry)
        if _is_scaled(entry) and "settings" in arguments:
            arguments.settings = config.amp


def _arguments(entry: Any) -> Any:
    return entry.get("init_args") or {}  # a class without arguments has no such entry


def _is_scaled(entry: Any) -> bool:
    return issubclass(plugin_class(entry), _SCALED)


def _is_given(typed: Mapping[str, Any], key: str) -> bool:
    return typed.get(key) not in (None, "null")
