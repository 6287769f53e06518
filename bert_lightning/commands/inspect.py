"""``inspect``: what is in a data set, and what is wrong with it, before a GPU hour is spent."""

from __future__ import annotations

import json
from argparse import ArgumentError
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from bert_lightning.arguments import (
    INSPECT,
    INSPECT_TASK,
    configs_folder,
    explain,
    order_arguments,
    read_config,
)
from bert_lightning.backbone import resolve_backbone
from bert_lightning.console import Console
from bert_lightning.datamodule import THUCNewsDataModule
from bert_lightning.errors import ConfigError
from bert_lightning.inspection.document import as_json
from bert_lightning.inspection.page import as_page
from bert_lightning.inspection.screen import as_text
from bert_lightning.notices import quieten
from bert_lightning.plain_yaml import read_yaml

_FOREIGN_DATA_KEYS = ("trained", "predict_path")


def inspect_data(args: Sequence[str]) -> int:
    """Write the report of a data set and show it.

    Args:
        args: Command line without the program's and the command's name.

    Returns:
        0 if the report was written; with ``--strict`` 1 if the data has a fault.

    Raises:
        DataError: The data cannot be read at all.
    """
    quieten()
    options = _parsed(list(_own_settings(order_arguments([INSPECT, *args], INSPECT))))
    data = THUCNewsDataModule(**options.data)
    inspection = data.inspection(resolve_backbone(options.model.pretrained).tokenizer)
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "inspection.json").write_text(as_json(inspection), encoding="utf-8")
    (folder / "inspection.html").write_text(as_page(inspection), encoding="utf-8")
    console = Console()
    console.say(as_text(inspection))
    console.say(f"out   {folder / 'inspection.html'}, {folder / 'inspection.json'}")
    return 1 if options.strict and inspection.faults else 0


def _parsed(args: list[str]) -> Namespace:
    parser = _parser()
    try:
        return parser.parse_args(args)
    except ArgumentError as error:
        raise ConfigError(explain(str(error), parser.get_defaults().keys())) from error


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=f"bert-lightning {INSPECT}",
        description=INSPECT_TASK,
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action="config", help="YAML file; its data group is used.")
    parser.add_argument(
        "--output", default="inspection", help="Folder of inspection.html and inspection.json."
    )
    parser.add_argument(
        "--strict", action="store_true", help="Exit with status 1 if the data has a fault."
    )
    parser.add_argument(
        "--model.pretrained", default="auto", help="Model whose tokenizer counts the pieces."
    )
    parser.add_class_arguments(THUCNewsDataModule, "data", skip=set(_FOREIGN_DATA_KEYS))
    return parser


def _own_settings(ordered: Sequence[str]) -> Iterator[str]:
    """Leave of YAML files what concerns data and tokenizer, so that a config of fit serves too."""
    yield from ("--config", _own_part(read_yaml(configs_folder() / "base.yaml")))
    words = iter(ordered[1:])
    for word in words:
        yield word
        if word == "--config":
            yield _own_part(read_config(next(words)))


def _own_part(read: Any) -> str:
    content: dict[str, Any] = read or {}
    data = {k: v for k, v in content.get("data", {}).items() if k not in _FOREIGN_DATA_KEYS}
    own: dict[str, Any] = {"data": data} if data else {}
    if "pretrained" in content.get("model", {}):
        own["model"] = {"pretrained": content["model"]["pretrained"]}
    return json.dumps(own, ensure_ascii=False)
