"""Command line → exit status: runs the command that is named, shows errors on one screen.

``main`` is callable with an argument list.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch.distributed as dist
from lightning.fabric.utilities.exceptions import MisconfigurationException

from bert_lightning.arguments import INSPECT, first_reason
from bert_lightning.commands.inspect import inspect_data
from bert_lightning.commands.run import NewsCLI
from bert_lightning.decisions import decided, forget_decisions
from bert_lightning.errors import BertLightningError
from bert_lightning.notices import is_about_settings, quieten
from bert_lightning.runs import discard_if_empty


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        args: Arguments without the program name; None takes those of the process.

    Returns:
        Exit status: 0 done, 1 an error that the user can act on, shown on one screen, or a seed
        that failed; 128 + a signal that ended the seeds.
    """
    quieten()
    given = sys.argv[1:] if args is None else list(args)
    try:
        if given[:1] == [INSPECT]:
            return inspect_data(given[1:])
        return NewsCLI(given).status
    except (BertLightningError, MisconfigurationException) as error:
        return _refuse(str(error))
    except OSError as error:
        if error.filename is None:
            raise
        return _refuse(f"{error.filename}: expected to read or write here – found {error.strerror}")
    except (ValueError, TypeError, RuntimeError, ImportError) as error:
        if not is_about_settings(error):
            raise
        return _refuse(first_reason(str(error)))
    finally:
        discard_if_empty(decided("RUN"))
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()  # gloo threads alive at exit can abort the interpreter
        forget_decisions()


def _refuse(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 1
