"""A name → configuration, tokenizer and weights of a BERT.

A name is ``auto``, ``builtin`` (the mini BERT), a folder in transformers' form, a hub id, or a
checkpoint of this project. Explicit names are strict. Local folders never cause a network call; a
hub that does not answer within five seconds is given up.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bert_lightning.checkpoint import expect_numbers, read_checkpoint
from bert_lightning.demo.mini_bert import MINI_LEARNING_RATE, mini_config, mini_tokenizer
from bert_lightning.errors import BackboneError, CheckpointError
from bert_lightning.hub import (
    VOCABULARY_FILES,
    WAY_OUT,
    WEIGHT_FILES,
    cached_folder,
    first_line,
    hub_folder,
)

if TYPE_CHECKING:
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerBase

BUILTIN = "builtin"
ARTICLE_MODEL = "bert-base-chinese"
RANDOM = " (random weights)"  # at the end of a name
PRETRAINED_LEARNING_RATE = 2e-5
_NEW_HEAD = "classifier head is new: the stored one is of other classes"


@dataclass(frozen=True)
class Backbone:
    """A BERT that is known to be complete, before its weights are loaded.

    Args:
        name: What it is called on screen and in reports.
        reason: Why it was taken, or None for an explicit name.
        config: Its shape.
        tokenizer: Its tokenizer, checked against the shape.
        weights: Folder or checkpoint with the weights, None for random weights.
        learning_rate: What ``learning_rate: auto`` means for it.
    """

    name: str
    reason: str | None
    config: BertConfig
    tokenizer: PreTrainedTokenizerBase
    weights: Path | None
    learning_rate: float


def resolve_backbone(pretrained: str) -> Backbone:
    """Find what a name stands for and check that it is complete.

    Raises:
        BackboneError: Nothing there, files missing, not a BERT, or sizes that do not fit.
    """
    if pretrained == "auto":
        return _automatic_backbone()
    if pretrained == BUILTIN:
        return _mini_backbone(None)
    path = Path(pretrained)
    if path.suffix == ".ckpt":
        return _checkpoint_backbone(path)
    if path.is_dir():
        return _folder_backbone(path, pretrained, None)
    if path.exists() or path.is_absolute() or pretrained.startswith((".", "~")):
        raise BackboneError(
            f"model.pretrained: expected a model folder – found none at {path.absolute()}\n"
            f"{WAY_OUT}"
        )
    return _folder_backbone(hub_folder(pretrained), pretrained, None)


def _automatic_backbone() -> Backbone:
    local = _local_article_model()
    if not torch.accelerator.is_available():
        found = (
            f"; {ARTICLE_MODEL} is at {local}: --model.pretrained {local} takes it" if local else ""
        )
        return _mini_backbone(f"no GPU on this machine{found}")
    if local:
        return _folder_backbone(local, ARTICLE_MODEL, f"found at {local}")
    try:
        folder = hub_folder(ARTICLE_MODEL)
    except BackboneError as error:
        return _mini_backbone(f"{ARTICLE_MODEL} is not on this machine ({first_line(error)})")
    return _folder_backbone(folder, ARTICLE_MODEL, "from the hub")


def _local_article_model() -> Path | None:
    """Return the first place that holds bert-base-chinese, without any network call."""
    places = [f"./{ARTICLE_MODEL}", os.environ.get("BERT_BASE_CHINESE"), f"/root/{ARTICLE_MODEL}"]
    for place in places:
        if place and (Path(place) / "config.json").is_file():
            return Path(place)
    return cached_folder(ARTICLE_MODEL)


def _mini_backbone(reason: str | None) -> Backbone:
    return Backbone(
        name=f"built-in mini BERT{RANDOM}",
        reason=reason,
        config=mini_config(),
        tokenizer=mini_tokenizer(),
        weights=None,
        learning_rate=MINI_LEARNING_RATE,
    )


def _folder_backbone(folder: Path, name: str, reason: str | None) -> Backbone:
    from transformers import BertConfig, BertTokenizer

    present = sorted(file.name for file in folder.iterdir())
    missing = [] if "config.json" in present else ["config.json"]
    missing += [] if set(VOCABULARY_FILES) & set(present) else ["vocab.txt"]
    missing += (
        [] if set(WEIGHT_FILES) & set(present) else ["model.safetensors or pytorch_model.bin"]
    )
    if missing:
        raise BackboneError(
            f"model.pretrained: expected a complete model folder – {folder.absolute()} lacks"
            f" {', '.join(missing)} (it holds {', '.join(present) or 'nothing'})\n{WAY_OUT}"
        )
    settings = _read_json(folder / "config.json")
    if settings.get("model_type", "bert") != "bert":
        raise BackboneError(
            f"model.pretrained: expected a model of type bert – found {settings['model_type']!r} in"
            f" {folder / 'config.json'}\ntake a BERT such as bert-base-chinese, wwm, MacBERT or RBT"
        )
    try:
        config = BertConfig.from_pretrained(folder, local_files_only=True)
        tokenizer = BertTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # each library checks the files in its own way
        raise BackboneError(
            f"model.pretrained: expected config.json and a vocabulary of a BERT in"
            f" {folder.absolute()} – found {' '.join(str(error).split())[:200]}"
        ) from error
    _forget_kernels(config)
    _check_sizes(config, tokenizer, str(folder))
    return Backbone(name, reason, config, tokenizer, folder, PRETRAINED_LEARNING_RATE)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BackboneError(f"{path}: expected JSON – found {error}") from error
    if not isinstance(content, dict):
        raise BackboneError(f"{path}: expected a JSON object – found {type(content).__name__}")
    return content


def _checkpoint_backbone(path: Path) -> Backbone:
    from transformers import BertConfig, BertTokenizer

    stored = read_checkpoint(path)["bert_lightning"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in stored["tokenizer_files"].items():
                (Path(folder) / Path(name).name).write_text(text, encoding="utf-8")
            tokenizer = BertTokenizer.from_pretrained(folder, local_files_only=True)
        config = BertConfig.from_dict(stored["model_config"])
    except Exception as error:  # as in a folder
        raise CheckpointError(
            f"ckpt_path: expected configuration and tokenizer of a BERT in {path} – found"
            f" {' '.join(str(error).split())[:200]}"
        ) from error
    _forget_kernels(config)
    _check_sizes(config, tokenizer, str(path))
    return Backbone(
        name=stored["backbone"],
        reason=None,
        config=config,
        tokenizer=tokenizer,
        weights=path,
        learning_rate=stored["learning_rate"],
    )


def _forget_kernels(config: BertConfig) -> None:
    """Take transformers' own attention, not a repository of the hub whose code it would run."""
    config._attn_implementation = None


def _check_sizes(config: BertConfig, tokenizer: PreTrainedTokenizerBase, where: str) -> None:
    """Refuse a vocabulary of one model with the weights of another, the commonest silent loss."""
    if len(tokenizer) != config.vocab_size:
        raise BackboneError(
            f"model.pretrained: expected a vocabulary of {config.vocab_size:,} entries, as many as"
            f" the embedding table has – found {len(tokenizer):,} in {where}\n"
            "the vocabulary of another model gives wrong input without any other sign: take"
            " vocab.txt and weights from one place"
        )


def build_network(
    backbone: Backbone, class_names: Sequence[str], dropout: float | None
) -> tuple[BertForSequenceClassification, str | None]:
    """Make the classifier, in train mode and with float32 weights whatever the file holds.

    Args:
        backbone: What `resolve_backbone` found.
        class_names: One a class, in order; they go into the configuration.
        dropout: Dropout of hidden states, attention and classifier, or None for the model's own.

    Returns:
        The network, and a note if the stored classifier head did not fit and is new.

    Raises:
        BackboneError: Weights that cannot be read or hold no BERT encoder.
    """
    from transformers import BertForSequenceClassification

    config = backbone.config
    config.id2label = dict(enumerate(class_names))
    config.label2id = {name: index for index, name in enumerate(class_names)}
    if dropout is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        config.classifier_dropout = dropout
    note = None
    if backbone.weights is None:
        network = BertForSequenceClassification(config)
    elif backbone.weights.suffix == ".ckpt":
        network, note = _load_checkpoint(backbone.weights, config)
    else:
        network, note = _load_folder(backbone.weights, config)
    # from_pretrained hands over eval mode, and Lightning trains in whatever mode it finds
    torch.nn.Module.float(network).train()
    return network, note


def _load_checkpoint(
    path: Path, config: BertConfig
) -> tuple[BertForSequenceClassification, str | None]:
    from transformers import BertForSequenceClassification

    network = BertForSequenceClassification(config)
    content = read_checkpoint(path)
    state = content["state_dict"]
    expect_numbers(path, {"state_dict": state})
    own = {key[8:]: value for key, value in state.items() if key.startswith("network.")}
    fits = content["bert_lightning"]["class_names"] == list((config.id2label or {}).values())
    if not fits:
        own = {key: value for key, value in own.items() if not key.startswith("classifier.")}
    missing = set(network.state_dict()) - set(own) - {"classifier.weight", "classifier.bias"}
    if missing:
        raise CheckpointError(
            f"model.pretrained: expected all weights of a BERT in {path} – missing:"
            f" {', '.join(sorted(missing)[:5])} ({len(missing)} in all)"
        )
    try:
        network.load_state_dict(own, strict=fits)
    except RuntimeError as error:
        raise CheckpointError(
            f"ckpt_path: expected weights of the shape in its configuration in {path} – found"
            f" {' '.join(str(error).split())[:200]}"
        ) from error
    return network, None if fits else _NEW_HEAD


def _load_folder(
    folder: Path, config: BertConfig
) -> tuple[BertForSequenceClassification, str | None]:
    from transformers import BertForSequenceClassification
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging  # untyped
    verbosity = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # the report of new and unused weights is summed up in our note
    try:
        loaded: Any = BertForSequenceClassification.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # safetensors, pickle and zip each raise their own kinds
        raise BackboneError(
            f"model.pretrained: expected readable weights in {folder.absolute()} – found"
            f" {first_line(error)}\nfetch the weight file again (is it whole?)"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    network, report = loaded
    lacking = report["missing_keys"]
    new = [key for key in lacking if not key.startswith(("classifier.", "bert.pooler."))]
    changed = [key for key, *_ in report["mismatched_keys"]]
    odd = [*new, *(key for key in changed if not key.startswith("classifier."))]
    if odd:
        raise BackboneError(
            f"model.pretrained: expected all weights of a BERT encoder in {folder.absolute()} –"
            f" missing or of another size: {', '.join(odd[:5])} ({len(odd)} in all)\n{WAY_OUT}"
        )
    notes = [_NEW_HEAD] if changed else []
    notes += ["pooler is new: the file holds none"] if "bert.pooler.dense.weight" in lacking else []
    return network, "; ".join(notes) or None


def tokenizer_files(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Return the files of a saved tokenizer as text, by name."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return {
            file.name: file.read_text(encoding="utf-8") for file in sorted(Path(folder).iterdir())
        }
