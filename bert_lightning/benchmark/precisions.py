"""Does mixed precision keep the accuracy? fit in each precision from several seeds, side by side.

Each run is a `fit` of its own in a fresh process, from the same weights, over the same data. The
precisions are compared by the mean over the seeds, against the spread of one precision.

    python -m bert_lightning.benchmark.precisions --data.path FOLDER --model.pretrained FOLDER
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_lightning.benchmark.places import without_places

PRECISIONS = {
    "32": ["--trainer.precision", "32"],
    "32 + TF32": ["--trainer.precision", "32", "--matmul.tf32", "true"],
    "16-mixed": ["--trainer.precision", "16-mixed"],
    "bf16-mixed": ["--trainer.precision", "bf16-mixed"],
}


def main(arguments: list[str] | None = None) -> None:
    """Run, compare, print and write; what is not known here goes to ``fit``."""
    parser = argparse.ArgumentParser(
        prog="python -m bert_lightning.benchmark.precisions", allow_abbrev=False
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--processes", type=int, default=1, help="runs at a time, on one device")
    parser.add_argument("--output", type=Path, default=Path("runs", "benchmark"))
    options, fit_options = parser.parse_known_args(arguments)
    cases = [(name, seed) for seed in options.seeds for name in PRECISIONS]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.processes) as pool:
        reports = list(
            pool.map(
                lambda case: fit(case[0], case[1], fit_options, Path(folder, f"{case}")), cases
            )
        )
    result = {
        "command": ["fit", *map(without_places, fit_options)],
        "seeds": options.seeds,
        "device": reports[0]["device"],
        "versions": reports[0]["versions"],
        "precisions": [
            summary(name, [r for r, case in zip(reports, cases, strict=True) if case[0] == name])
            for name in PRECISIONS
        ],
    }
    options.output.mkdir(parents=True, exist_ok=True)
    content = json.dumps(result, ensure_ascii=False, indent=1) + "\n"
    (options.output / "precisions.json").write_text(content, encoding="utf-8")
    text = as_markdown(result)
    (options.output / "precisions.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def fit(precision: str, seed: int, options: list[str], root: Path) -> dict[str, Any]:
    """Run one fit in a process of its own and return its report.

    Raises:
        RuntimeError: It failed; its own words are the message.
    """
    words = ["fit", *PRECISIONS[precision], "--seed_everything", str(seed), *options]
    done = subprocess.run(
        [sys.executable, "-m", "bert_lightning", *words, "--trainer.default_root_dir", str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{precision}, seed {seed}: {done.stderr[-2000:]}")
    content: dict[str, Any] = json.loads(
        (root / "runs" / "1" / "report" / "report.json").read_text(encoding="utf-8")
    )
    return content


def summary(name: str, reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the test scores of one precision over its seeds: each, mean and spread (n − 1)."""
    accuracies = [report["results"]["test"]["accuracy"] for report in reports]
    return {
        "precision": name,
        "accuracy": [round(accuracy, 4) for accuracy in accuracies],
        "mean": round(statistics.fmean(accuracies), 4),
        "spread": round(statistics.stdev(accuracies), 4) if len(accuracies) > 1 else None,
        "macro_f1": round(statistics.fmean(r["results"]["test"]["macro_f1"] for r in reports), 4),
        "skipped_steps": [(report.get("amp") or {}).get("skipped", 0) for report in reports],
        "peak_memory_gib": max((r["peak_memory_gib"] or 0 for r in reports), default=0),
    }


def as_markdown(result: dict[str, Any]) -> str:
    """Return the table."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [
        "# Accuracy in each precision",
        "",
        f"Test accuracy over seeds {', '.join(map(str, result['seeds']))} on {result['device']};"
        f" {versions}. `{' '.join(result['command'])}`",
        "",
        "| precision | each seed | mean | spread | macro-F1 | skipped steps | peak GiB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in result["precisions"]:
        lines.append(
            f"| {row['precision']} | {', '.join(f'{a:.4f}' for a in row['accuracy'])}"
            f" | {row['mean']:.4f} | {row['spread']} | {row['macro_f1']:.4f}"
            f" | {', '.join(map(str, row['skipped_steps']))} | {row['peak_memory_gib']:.2f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
