"""Command line and YAML files: short config names, keys that were typed, readable errors."""

from __future__ import annotations

import difflib
import json
import pydoc
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from jsonargparse import ArgumentParser

from bert_lightning.errors import ConfigError
from bert_lightning.plain_yaml import parse_yaml, read_yaml

_PACKAGE = Path(__file__).parent
COMMANDS = {  # of Lightning, and what they do: the first lines of NewsTrainer's methods
    "fit": "Train and validate, keep the best and the last checkpoint, test the best at the end.",
    "validate": "Score a checkpoint on the validation split.",
    "test": "Score a checkpoint on the test split.",
    "predict": "Write label and probabilities of each text, in input order.",
    "plan": "Show what fit would run, with the same settings; train nothing.",
}
FIT_KEYS = ("test_after_fit", "save_every_seconds", "save_every_steps")  # a checkpoint keeps them
TRAINING = ("fit", "plan")  # plan takes whatever fit takes
INSPECT = "inspect"  # the commands beside Lightning's
INSPECT_TASK = "Show what is in a data set and what is wrong with it."
BENCHMARK = "benchmark"
BENCHMARK_TASK = "Measure precisions side by side on this machine and check claims."
CONFIG_FLAGS = ("--config", "-c")
COMMAND_KEYS = {  # in files
    "test_after_fit": ("fit", "plan"),
    "seeds": ("fit", "plan"),
    "output": ("predict", BENCHMARK),
}
OBJECT_KEYS = {
    "trainer.strategy": ("auto", "ddp", "fsdp"),
    "trainer.callbacks": ("null", "a list of mappings"),
    "trainer.logger": ("true", "false", "a list of mappings"),
    "trainer.plugins": ("null", "a list of mappings"),
}
GROUPS = ("trainer", "model", "data", "amp", "matmul")
DERIVED_KEYS = {
    "model.class_names": "the names come from the data; to set them use data.class_names",
    "model.class_weights": "the model takes them from data.class_weights",
    "data.seed": "it follows seed_everything",
    "data.trained": "it comes from the checkpoint",
}


def configs_folder() -> Path:
    """Return the folder of the shipped configs: beside main.py, or inside the installed package."""
    beside = _PACKAGE.parent / "configs"
    return beside if (beside / "base.yaml").is_file() else _PACKAGE / "configs"


def order_arguments(args: Sequence[str], command: str) -> list[str]:
    """Put the ``--config`` options first, so that flags win wherever they stand, with full paths.

    A bare name is looked up in ``configs/`` when no such file is in the working folder. Keys that
    belong to another command are left out of a file, so that the config.yaml of a fit serves test
    too.

    Args:
        args: What was typed, the command included.
        command: The command.

    Raises:
        ConfigError: A file that is not there or is not YAML.
    """
    configs: list[str] = []
    others: list[str] = []
    rest = iter(args)
    for arg in rest:
        flag, equals, value = arg.partition("=")
        if flag not in CONFIG_FLAGS:
            others.append(arg)
            continue
        value = value if equals else next(rest, "")
        configs += ["--config", _without_foreign_keys(_find_config(value), command)]
    if command in others:
        others.remove(command)
    return [command, *configs, *others]


def read_config(value: str) -> Any:
    """Return what the value of a ``--config`` holds: a file, or YAML in braces.

    Args:
        value: As `order_arguments` returns it.
    """
    if value.lstrip().startswith("{"):
        return parse_yaml(value, "config")
    return read_yaml(Path(value))


def _without_foreign_keys(config: str, command: str) -> str:
    if config.lstrip().startswith("{"):
        _expect_groups(parse_yaml(config, "config"), "config")
        return config
    content = read_yaml(Path(config))
    if not isinstance(content, dict):
        if content is None:
            return "{}"
        raise ConfigError(f"{config}: expected `key: value` lines – found {str(content)[:60]!r}")
    _expect_groups(content, config)
    foreign = [
        key for key, owners in COMMAND_KEYS.items() if command not in owners and key in content
    ]
    if not foreign:
        return config
    return json.dumps({key: value for key, value in content.items() if key not in foreign})


def _expect_groups(content: Any, source: str) -> None:
    for group in GROUPS if isinstance(content, dict) else ():
        if not isinstance(content.get(group, {}), dict):
            raise ConfigError(
                f"{group}: expected keys below it, such as `{group}:` and an indented line – found"
                f" {content[group]!r} in {source}"
            )


def _find_config(value: str) -> str:
    if value.lstrip().startswith("{") or Path(value).is_file():
        return value
    shipped = configs_folder() / value
    if Path(value).name == value and shipped.is_file():
        return str(shipped)
    names = sorted(file.name for file in configs_folder().glob("*.yaml"))
    close = difflib.get_close_matches(Path(value).name, names, n=1, cutoff=0.4)
    raise ConfigError(
        f"config: expected a YAML file – found none at {Path(value).absolute()}"
        + (f", nor {value} in {configs_folder()}" if Path(value).name == value else "")
        + f"\n{f'did you mean {close[0]}? ' if close else ''}shipped: {', '.join(names)}"
    )


def typed_values(args: Sequence[str]) -> dict[str, Any]:
    """Return what a user gave by dotted key, in YAML files or on the line; the line counts last.

    Args:
        args: As `order_arguments` returns them.

    Raises:
        ConfigError: A key that is derived and cannot be set.
    """
    typed: dict[str, Any] = {}
    for flag, value in zip(args, [*args[1:], ""], strict=True):
        if flag == "--config":
            typed.update(_flat(read_config(value)))
        elif flag.startswith("--"):
            name, equals, own = flag[2:].partition("=")
            given = own if equals else value
            typed[name.rstrip("+")] = given
            if given.lstrip().startswith("{"):  # a group or an object as a mapping
                typed.update(_flat(parse_yaml(given, name), f"{name.rstrip('+')}."))
    derived = [
        f"{key}: expected not to be set – found {typed[key]!r}\n{hint}"
        for key, hint in DERIVED_KEYS.items()
        if typed.get(key) is not None
    ]
    if derived:
        raise ConfigError("\n".join(derived))
    return typed


def _flat(content: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items() if isinstance(content, dict) else ():
        name = f"{prefix}{str(key).rstrip('+')}"
        flat[name] = value
        flat.update(_flat(value, f"{name}."))
    return flat


def explain(message: str, valid_keys: Iterable[str]) -> str:
    """Turn a message of jsonargparse into ours: key – expected – found – what to do.

    Args:
        message: What jsonargparse raised.
        valid_keys: All dotted keys of the command.
    """
    unknown = re.search(
        r"(?:does not accept option|unrecognized (?:arguments|option):?|Key) '?(-*)([\w.-]+)",
        message,
    )
    value = re.search(r'Parser key "([^"]+)":\s*(.*)', message, re.DOTALL)
    linked = re.search(r'-->\s*([\w.]+): invalid|Linked "([\w.]+)" must be given', message)
    if linked:
        key = linked.group(1) or linked.group(2)
        return f"{key}: expected not to be set – {DERIVED_KEYS.get(key, 'it is derived')}"
    if value:
        return _explain_value(value.group(1), value.group(2))
    if unknown:
        dashes, key = unknown.groups()
        if message.startswith("unrecognized") and not dashes:
            return f"arguments: expected options such as --data.path – found the word {key!r}"
        return f"{key}: expected a known key – there is no such key\n{_meant(key, valid_keys)}"
    return message


def first_reason(message: str) -> str:
    r"""Return the line that says what is wrong, of a message that lists why each type failed.

    >>> first_reason("Errors:\n  - Expected a <class 'str'>\n  - no such port\nGiven value: 3")
    'no such port'
    """
    reasons: list[str] = re.findall(r"^\s*- (.*)", message, re.MULTILINE)
    types = ("Expected a <", "Not a valid subclass", "Problem with given class_path")
    return next((line for line in reasons if not line.startswith(types)), message)


def _explain_object(key: str, reason: str) -> str | None:
    """Explain what is wrong inside a mapping with class_path and init_args, if that is it."""
    problem = re.search(r"Problem with given class_path '([\w.]+)':\s*(.*)", reason, re.DOTALL)
    if not problem:
        return None
    class_path, detail = problem.groups()
    name = class_path.rpartition(".")[2]
    unknown = re.match(r"Option '([\w.]+)' is not accepted", detail)
    inner = re.match(r'Parser key "([^"]+)":\s*(.*)', detail, re.DOTALL)
    lacking = re.match(r"the following arguments are required: (\w+)", detail)
    if inner:
        return _explain_value(f"{key}.init_args.{inner.group(1)}", inner.group(2))
    if unknown:
        arguments = _arguments_of(class_path)
        if not arguments:
            return (
                f"{key}: expected the name of a class before {unknown.group(1)} – found"
                f" {name}, which takes no argument\nname it first: --{key}+=CLASS"
            )
        return (
            f"{key}.init_args.{unknown.group(1)}: expected an argument of {name} – there is no"
            f" such argument\n{_meant(unknown.group(1), arguments)}"
        )
    if lacking:
        return (
            f"{key}.init_args.{lacking.group(1)}: expected a value, which {name} needs – found none"
        )
    return f"{key}: expected a class and its arguments – found {name}: {detail.splitlines()[0]}"


def _arguments_of(class_path: str) -> list[str]:
    parser = ArgumentParser()
    parser.add_class_arguments(cast(type, pydoc.locate(class_path)))
    return list(parser.get_defaults(skip_validation=True).as_dict())


def _explain_value(key: str, reason: str) -> str:
    inside = _explain_object(key, reason)
    if inside:
        return inside
    found = re.search(r"(?:Given value|Got value):\s*(.*)", reason)
    if found:
        reason = reason[: found.end()]  # what follows is about the object around it
    choices = [
        word
        for literal in re.findall(r"Literal\[(.*?)\]", reason)
        for word in re.findall(r"[\w.+-]+", literal)
    ]
    kinds = re.findall(r"(?<!Given value type: )<class '(?:[\w.]+\.)?(\w+)'>", reason)
    if key in OBJECT_KEYS:
        choices, kinds = [*OBJECT_KEYS[key], "a mapping with class_path and init_args"], []
    if key == "seeds":
        choices, kinds = ["null", "whole numbers in brackets, such as [1,2,3]"], []
    expected = ", ".join(dict.fromkeys([*choices, *kinds]))
    if not found or not expected:
        return f"{key}: {reason.strip()}"
    close = difflib.get_close_matches(found.group(1), choices, n=1)
    meant = f"\ndid you mean {close[0]}?" if close else ""
    return f"{key}: expected {expected.replace('NoneType', 'null')} – found {found.group(1)}{meant}"


def _meant(key: str, valid_keys: Iterable[str]) -> str:
    near = nearest_key(key, valid_keys)
    leaf, near_leaf = key.rpartition(".")[2], near.rpartition(".")[2]
    is_near = _likeness(leaf, near_leaf) >= 0.5 or (leaf and near_leaf.startswith(leaf))
    return f"did you mean {near}?" if is_near else "--help lists them"


def nearest_key(key: str, valid_keys: Iterable[str]) -> str:
    """Return the valid key that a mistyped one most likely means.

    >>> nearest_key("modle.lr", ["trainer.lr", "model.learning_rate", "model.pretrained"])
    'model.learning_rate'
    """
    keys = sorted(valid for valid in valid_keys if not valid.startswith("__"))
    return max(keys, key=lambda valid: _likeness(key, valid))


def _likeness(key: str, valid: str) -> float:
    *groups, leaf = key.split(".")
    *valid_groups, valid_leaf = valid.split(".")
    initials = "".join(word[:1] for word in valid_leaf.split("_"))
    same_leaf = 1.0 if leaf == initials else _ratio(leaf, valid_leaf)
    # a bare name says nothing of its group
    return same_leaf + (0.8 * _ratio(".".join(groups), ".".join(valid_groups)) if groups else 0.0)


def _ratio(left: str, right: str) -> float:
    return difflib.SequenceMatcher(None, left, right).ratio()
