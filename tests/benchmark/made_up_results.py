"""Results as the command has them, for the tests of their forms."""

from bert_lightning.benchmark.case_results import completed
from bert_lightning.benchmark.verdicts import Judgement

SUBJECT = {"device": "Card <1>", "data": "/新闻 & more"}
JUDGEMENTS = [
    Judgement("epoch time -40%: 16-mixed", "20 → 10, -50%", "holds"),
    Judgement("peak memory -45%: 16-mixed", "3 → 2, -33%", "fails", "weights | dominate"),
]


def timed(variant, lengths="bucketed", batch=32, rate=100.0, gib=3.0, **more):
    """Return a case that was timed."""
    measured = {
        "samples_per_second": rate,
        "pieces_per_second": rate * 20,
        "positions_per_second": rate * 25,
        "padding": 0.2,
        "train_rows": 2000,
        "batch_size": batch or 96,
        "tflops_peak": 10.0,
        "flops_per_position": 1e9,
        "allocated_gib": gib,
        "reserved_gib": gib,
        "weights_gib": 0.5,
        "optimizer_gib": 1.0,
        "skipped_steps": 2,
        "execution": "captured – auto: one CUDA device",
    }
    return {**_case(variant, lengths, batch, None), **completed(measured), **more}


def failed(variant, reason, seed=None, batch=32):
    """Return a case that gave no number."""
    return {**_case(variant, "padded", batch, seed), "reason": reason}


def trained(variant, seed, accuracy):
    """Return a case that was trained to the end."""
    return {**_case(variant, "bucketed", 32, seed), "accuracy": accuracy, "skipped_steps": 1}


def _case(variant, lengths, batch, seed):
    key = f"{variant} {lengths} {batch} {seed}"
    return {"key": key, "variant": variant, "lengths": lengths, "batch": batch, "seed": seed}


RESULTS = [
    timed("fp32"),
    timed("16-mixed", rate=200.0, gib=2.0),
    timed("16-mixed", "padded", 0, 150.0),
    failed("fp32", "out of memory", batch=0),
    trained("fp32", 1, 0.90),
    trained("fp32", 2, 0.92),
    failed("fp32", "interrupted", seed=3),
]
