"""What Lightning says and raises → what a user should see of it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from typing import Any


def quieten() -> None:
    """Silence what Lightning repeats at every start; the banner says what matters of it."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # or it warns in every forked worker
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # selective checkpointing under torch.compile: no in-place operations, which BERT has none of
    logging.getLogger("torch._higher_order_ops.wrap").setLevel(logging.ERROR)
    for message in (
        ".*does not have many workers.*",  # rows are tokenised already: 0 workers are fastest
        ".*smaller than the logging interval.*",  # the module shortens the interval then
        ".*sync_dist=True.*",  # scores are reduced as counts
        ".*AccumulateGrad node's stream.*",  # DDP's own, harmless without graph capture
        ".*FSDP is switching to use `NO_SHARD`.*",  # as it should on one GPU
        ".*custom batch sampler `BucketBatchSampler` for prediction.*",  # it returns every row
        ".*treespec, LeafSpec.*",  # Lightning's own use of torch
        ".*callbacks used to create the checkpoint.*",  # test needs none of fit's
        ".*To copy construct from a tensor.*",  # LearningRateMonitor's copy of a rate on the device
        ".*your dataloader is not resumable.*",  # ExactResume sees to it
        ".*Checkpoint directory .* exists and is not empty.*",
    ):
        warnings.filterwarnings("ignore", message)
    if threading.excepthook.__module__ != __name__:
        threading.excepthook = _in_words(threading.excepthook)


def _in_words(hook: Any) -> Any:
    """Return a hook that says in a line what TensorBoard's thread could not write."""

    def say(failed: Any) -> None:
        if type(failed.thread).__name__ == "_AsyncWriterThread":
            sys.stderr.write(
                f"trainer.logger: expected to write TensorBoard's events – found"
                f" {failed.exc_value}\n"
            )
        else:
            hook(failed)

    return say


def is_about_settings(error: Exception) -> bool:
    """Tell whether Lightning or the parser raised it in words of its own: it refuses a setting."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace else ""
    return str(module).startswith(("lightning.", "jsonargparse."))
