"""A hub id → a folder on this machine: from the cache, or else downloaded.

Nothing is asked of the network where the cache has the model or HF_HUB_OFFLINE is set; a hub that
does not answer within five seconds is given up.
"""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from pathlib import Path

from bert_lightning.errors import BackboneError

HUB_SECONDS = 5.0
WEIGHT_FILES = (
    "model.safetensors",
    "pytorch_model.bin",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
)
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json")
WAY_OUT = (
    "give a folder with config.json, vocab.txt and model.safetensors (or pytorch_model.bin) as"
    " --model.pretrained, set HF_ENDPOINT to a mirror that answers, or take"
    " --model.pretrained builtin"
)


def cached_folder(model_id: str) -> Path | None:
    """Return the folder of a complete model in the cache, without any network call.

    Raises:
        BackboneError: The name has not even the form of a hub id.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(model_id, "config.json")
    except HFValidationError as error:  # a folder was meant
        raise BackboneError(
            f"model.pretrained: expected a model folder or a hub id – found none at"
            f" {Path(model_id).absolute()}\n{WAY_OUT}"
        ) from error
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    present = {file.name for file in folder.iterdir()}
    return folder if present & set(WEIGHT_FILES) and present & set(VOCABULARY_FILES) else None


def hub_folder(model_id: str) -> Path:
    """Return the local snapshot of a hub model, from the cache or else downloaded.

    Raises:
        BackboneError: Offline, unknown id, or no answer within ``HUB_SECONDS``.
    """
    cached = cached_folder(model_id)
    if cached:
        return cached
    from huggingface_hub import constants, snapshot_download

    if constants.HF_HUB_OFFLINE:
        raise BackboneError(
            f"model.pretrained: {model_id!r} is neither a folder nor in the cache, and"
            f" HF_HUB_OFFLINE is set\n{WAY_OUT}"
        )
    failure = _hub_failure(f"{constants.ENDPOINT}/{model_id}/resolve/main/config.json")
    if failure:
        raise BackboneError(
            f"model.pretrained: {model_id!r} is neither a folder nor in the cache, and the hub"
            f" {constants.ENDPOINT} {failure}\n{WAY_OUT}"
        )
    patterns = ["config.json", "vocab.txt", "tokenizer*.json", "special_tokens_map.json"]
    weights = ["model.safetensors*", "model-*.safetensors"]
    try:
        folder = Path(snapshot_download(model_id, allow_patterns=[*patterns, *weights]))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(model_id, allow_patterns=[*patterns, "pytorch_model*"]))
    except Exception as error:  # the hub's library, its HTTP client and the disk have their own
        raise BackboneError(
            f"model.pretrained: expected {model_id!r} from {constants.ENDPOINT} – the download"
            f" broke off: {first_line(error)}\n{WAY_OUT}"
        ) from error
    return folder


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its kind where it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def _hub_failure(url: str) -> str | None:
    """Ask the hub for a file's head; return what went wrong, or None if it answered.

    Runs in a thread of its own, since looking up a host name knows no time-out.
    """
    outcome: list[str | None] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(url, method="HEAD")
            with urllib.request.urlopen(request, timeout=HUB_SECONDS):
                outcome.append(None)
        except urllib.error.HTTPError as error:
            outcome.append(f"answered {error.code} {error.reason}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            outcome.append(f"cannot be reached ({getattr(error, 'reason', error)})")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_SECONDS)
    return outcome[0] if outcome else f"did not answer within {HUB_SECONDS:.0f} s"
