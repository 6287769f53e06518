"""YAML text → plain values, or a refusal that says what is wrong with it.

Only what `yaml.safe_load` builds comes out: mappings, lists, words, numbers, dates. A key that
stands twice is refused, as YAML would take the last one in silence; so is what a small file can
blow up to.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from bert_lightning.errors import ConfigError

_MOST_BYTES = 1 << 20
_MOST_VALUES = 100_000  # with each anchor counted wherever it is used
_MOST_LEVELS = 50


class _Loader(yaml.SafeLoader):
    @override
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        marks = [(key.value, key.start_mark) for key, _ in node.value if _is_word(key)]
        counts = Counter(name for name, _ in marks)
        for name, mark in reversed(marks):
            if counts[name] > 1:
                raise yaml.MarkedYAMLError(problem=f"{name!r} stands twice", problem_mark=mark)
        return node


def _is_word(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode)


def parse_yaml(text: str, source: str) -> Any:
    """Return what a text of YAML holds.

    Args:
        text: The text.
        source: What it is called in errors.

    Raises:
        ConfigError: No YAML, a key that stands twice, or more than a config can need.
    """
    try:
        content = yaml.load(text, _Loader)
        _weigh(content, {}, 0)
    except RecursionError as error:
        raise _refusal(source, f"more than {_MOST_LEVELS} levels") from error
    except Exception as error:  # !!int of no number, a 13th month: each in its own way
        raise _refusal(source, " ".join(str(error).split()) or type(error).__name__) from error
    return content


def read_yaml(file: Path) -> Any:
    """Return what a YAML file holds; as `parse_yaml`."""
    if file.stat().st_size > _MOST_BYTES:
        raise _refusal(str(file), f"more than {_MOST_BYTES >> 20} MiB, which no config needs")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal(str(file), str(error)) from error
    return parse_yaml(text, str(file))


def _weigh(value: Any, known: dict[int, int], level: int) -> int:
    """Count values, anchors wherever they are used, without walking through one again.

    Raises:
        ValueError: There are too many.
        RecursionError: Too deep; an anchor may hold itself.
    """
    if not isinstance(value, dict | list):
        return 1
    if level > _MOST_LEVELS:
        raise RecursionError
    if id(value) not in known:
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_weigh(part, known, level + 1) for part in inner)
    if known[id(value)] > _MOST_VALUES:
        raise ValueError(f"anchors that stand for more than {_MOST_VALUES:,} values")
    return known[id(value)]


def _refusal(source: str, reason: str) -> ConfigError:
    return ConfigError(f"{source}: expected YAML – found a fault: {reason[:200]}")
