"""Stands for `leash` and what it runs: measures nothing, and takes as long as it is told to.

The folder of $FAKE_FIT gets a line a case in `cases`; a case that holds the words in `hang` writes
the id of its process to `pid` and does not end.
"""

import json
import os
import sys
import time
from pathlib import Path

from bert_lightning.benchmark.leash import given_words

PLACE = Path(os.environ["FAKE_FIT"])
TRAIN_ROWS = 2000


def _value(name):
    return sys.argv[len(sys.argv) - sys.argv[::-1].index(name)]


def _plan():
    content = {"lines": {"model": f"{PLACE}/model", "data": "made up"}}
    Path(_value("--output")).write_text(json.dumps(content), encoding="utf-8")


def _fit():
    is_timed = "--trainer.callbacks" in sys.argv
    precision = _value("--trainer.precision")
    name = f"{precision} {'timed' if is_timed else _value('--seed_everything')}"
    with (PLACE / "cases").open("a", encoding="utf-8") as stream:
        stream.write(f"{name}\n")
    if name in (PLACE / "hang").read_text(encoding="utf-8").split("\n"):
        (PLACE / "pid").write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(300)
    report = Path(_value("--trainer.default_root_dir"), "runs", "1", "report", "report.json")
    report.parent.mkdir(parents=True)
    history = [{"accuracy": 0.9, "macro_f1": 0.9}, {"accuracy": 0.8, "macro_f1": 0.8}]
    content = {"execution": {"chosen": "eager – on a CPU"}, "amp": None, "history": history}
    report.write_text(json.dumps({**content, "epoch_seconds": 1.0}), encoding="utf-8")
    if is_timed:
        timer = json.loads(_value("--trainer.callbacks"))[0]["init_args"]
        rate = 200.0 if "bf16" in precision else 100.0
        measured = {
            **{"samples_per_second": rate, "pieces_per_second": 10 * rate, "repeats": [rate] * 3},
            **{"positions_per_second": 20 * rate, "padding": 0.5, "allocated_gib": None},
            **{"reserved_gib": None, "batch_size": 32, "train_rows": TRAIN_ROWS},
            **{"tflops_peak": 1.0, "flops_per_position": 1e6},
            **{"weights_gib": 0.1, "optimizer_gib": 0.3},
        }
        Path(timer["output"]).write_text(json.dumps(measured), encoding="utf-8")


if __name__ == "__main__":
    sys.argv[1:] = given_words()
    {"plan": _plan, "fit": _fit}[sys.argv[1]]()
