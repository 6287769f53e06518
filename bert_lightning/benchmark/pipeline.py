"""What the input pipeline costs: rows a second, padding, tokenising, and at full size memory too.

    python -m bert_lightning.benchmark.pipeline [--data PATH] [--output DIR] [--full]

Prints Markdown and writes it with the numbers (JSON) to the output folder. Without data of one's
own it measures the built-in corpus. --full makes up one file's worth of THUCNews, 740,000 texts of
500 characters, and needs 2 GB of disk and about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from bert_lightning.data.batching import BucketBatchSampler, padding_waste
from bert_lightning.data.encoding import (
    EncodedRows,
    encode,
    encoding_key,
    open_encoded,
    store_encoded,
)
from bert_lightning.data.keys import key_of, normalised
from bert_lightning.data.loading import load_news
from bert_lightning.data.record_table import open_records, write_records
from bert_lightning.data.records import Record
from bert_lightning.data.storage import Storage
from bert_lightning.demo.mini_bert import ideographs, mini_tokenizer

MAX_LENGTH = 128
REPEATS = 3
FETCHED_ROWS = 200_000
TOKENISED_ROWS = 100_000
LOOP_ROWS = 10_000
FULL_ROWS = 740_000
FULL_CHARACTERS = 500
FULL_CLASSES = 14
COMMON = 3_755  # level 1 of GB 2312
KEY_SAMPLE = 20_000
RECORDS_FILE = "records.arrow"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m bert_lightning.benchmark.pipeline")
    parser.add_argument("--data", default="builtin", help="as --data.path of main.py")
    parser.add_argument("--output", type=Path, default=Path("runs", "benchmark"))
    parser.add_argument("--full", action="store_true", help="740,000 texts of 500 characters, too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as cache:
        news = load_news(options.data, Storage(Path(cache)))
        texts = list(news.records["train"].strings("text"))
    result: dict[str, Any] = {
        "environment": environment(),
        "data": {
            "name": Path(options.data).name,
            "texts": len(texts),
            "mean_characters": round(statistics.fmean(map(len, texts)), 1),
            "max_length": MAX_LENGTH,
        },
        "fetched_rows_per_second": fetching(texts),
        "padding_waste": padding(texts),
        "tokenising": tokenising(texts),
    }
    if options.full:
        result["full"] = full_size(FULL_ROWS)
    text = as_markdown(result)
    options.output.mkdir(parents=True, exist_ok=True)
    content = json.dumps(result, ensure_ascii=False, indent=1) + "\n"
    (options.output / "pipeline.json").write_text(content, encoding="utf-8")
    (options.output / "pipeline.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def environment() -> dict[str, Any]:
    """Return what the numbers depend on beside the code."""
    import datasets
    import pyarrow
    import tokenizers
    import torch
    import transformers

    packages = (np, torch, tokenizers, transformers, datasets, pyarrow)
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{package.__name__: package.__version__ for package in packages},
    }


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def fetching(texts: list[str]) -> dict[str, dict[str, int]]:
    """Measure stored rows → padded batches in training order, in one process.

    Returns:
        Rows a second by batch size: through sampler and rows, and through a DataLoader as well.
    """
    with tempfile.TemporaryDirectory() as folder:
        store_encoded(Path(folder), texts, mini_tokenizer(), MAX_LENGTH, "head", None)
        rows = open_encoded(Path(folder), 0, MAX_LENGTH)
        rows = rows.select(np.arange(len(rows)), np.arange(len(rows)) % FULL_CLASSES)
        return {str(size): _fetching_rates(rows, size) for size in (32, 256)}


def _fetching_rates(rows: EncodedRows, batch_size: int) -> dict[str, int]:
    sampler = BucketBatchSampler(rows.lengths, batch_size, shuffle=True)
    loader = DataLoader(rows, batch_sampler=sampler, collate_fn=_as_it_is)
    epochs = -(-FETCHED_ROWS // len(rows))

    def all_epochs(batches: Callable[[], Iterator[Any]]) -> Callable[[], None]:
        def run() -> None:
            for epoch in range(epochs):
                sampler.set_epoch(epoch)
                for _ in batches():
                    pass

        return run

    ways = {
        "sampler_and_rows": lambda: map(rows.__getitems__, sampler),
        "with_data_loader": lambda: iter(loader),
    }
    return {
        name: round(epochs * len(rows) / _median_seconds(all_epochs(way)))
        for name, way in ways.items()
    }


def _as_it_is(batch: Any) -> Any:
    return batch


def _median_seconds(run: Callable[[], None]) -> float:
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def padding(texts: list[str]) -> dict[str, dict[str, float]]:
    """Return the share of padding at batch 32 by order of the rows and multiple of the width."""
    lengths = encode(texts, None, mini_tokenizer(), MAX_LENGTH).lengths
    at_random = np.random.default_rng(0).permutation(len(lengths))
    orders: dict[str, list[list[int]]] = {
        "random": [at_random[start : start + 32].tolist() for start in range(0, len(lengths), 32)],
        "pools": list(BucketBatchSampler(lengths, 32, shuffle=True)),
        "sorted": list(BucketBatchSampler(lengths, 32, shuffle=False)),
    }
    return {
        name: {
            str(multiple): round(padding_waste(lengths, batches, multiple), 4)
            for multiple in (1, 2, 4, 8)
        }
        for name, batches in orders.items()
    }


def tokenising(texts: list[str]) -> dict[str, int]:
    """Measure texts → stored rows against a plain loop, in texts a second.

    Returns:
        By way: the loop, and `store_encoded` by number of worker processes, whose start counts.
    """
    tokenizer = mini_tokenizer()
    some = list(itertools.islice(itertools.cycle(texts), LOOP_ROWS))
    many = list(itertools.islice(itertools.cycle(texts), TOKENISED_ROWS))

    def loop() -> None:
        for text in some:
            tokenizer(text, truncation=True, max_length=MAX_LENGTH)

    def stored_per_second(num_proc: int | None) -> int:
        def store() -> None:
            with tempfile.TemporaryDirectory() as folder:
                store_encoded(Path(folder), many, tokenizer, MAX_LENGTH, "head", num_proc)

        return round(len(many) / _median_seconds(store))

    return {
        "loop": round(len(some) / _median_seconds(loop)),
        "num_proc null": stored_per_second(None),
        "num_proc 1": stored_per_second(1),
        "num_proc 2": stored_per_second(2),
    }


def full_size(texts: int) -> dict[str, Any]:
    """Measure preparing many long texts, and opening them again, each in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = _in_fresh_process(_prepare, Path(folder), texts)
        opened = _in_fresh_process(_open, Path(folder), texts)
        files = sorted(Path(folder).rglob("*.arrow"))
        sizes = {file.name: round(file.stat().st_size / 2**20) for file in files}
    return {
        "texts": texts,
        "characters": FULL_CHARACTERS,
        "classes": FULL_CLASSES,
        "prepare": prepared,
        "open": opened,
        "disk_mib": sizes,
    }


def _in_fresh_process(
    work: Callable[[Path, int], dict[str, float]], folder: Path, texts: int
) -> dict[str, float]:
    started = time.perf_counter()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        measured = executor.submit(work, folder, texts).result()
    seconds = time.perf_counter() - started  # imports included
    return {name: round(value, 2) for name, value in {**measured, "process_s": seconds}.items()}


def made_up_records(texts: int) -> Iterator[Record]:
    """Yield records of random common characters, the same each time, one in memory."""
    characters = np.array([ord(sign) for sign in ideographs()[:COMMON]], dtype="<u4")
    generator = np.random.default_rng(0)
    for line in range(1, texts + 1):
        text = generator.choice(characters, FULL_CHARACTERS).tobytes().decode("utf-32-le")
        yield Record(text, f"class {line % FULL_CLASSES}", "full.txt", line)


def _records_entry(folder: Path, texts: int) -> Path:
    def build(place: Path) -> None:
        write_records(place / RECORDS_FILE, made_up_records(texts))

    return Storage(folder).entry("records", {"texts": texts}, build)


def _rows_entry(folder: Path, texts: Iterator[str]) -> Path:
    tokenizer = mini_tokenizer()

    def build(place: Path) -> None:
        store_encoded(place, texts, tokenizer, MAX_LENGTH, "head", None)

    return Storage(folder).entry("rows", encoding_key(tokenizer, MAX_LENGTH, "head"), build)


def _prepare(folder: Path, texts: int) -> dict[str, float]:
    times = [time.perf_counter()]
    records = _records_entry(folder, texts) / RECORDS_FILE
    times.append(time.perf_counter())
    peak_of_records = _peak_mib()
    _rows_entry(folder, open_records(records).strings("text"))
    times.append(time.perf_counter())
    writing, tokenising = np.diff(times).tolist()
    sample = list(made_up_records(min(texts, KEY_SAMPLE)))
    started = time.perf_counter()
    for record in sample:
        key_of(record.text), key_of(normalised(record.text))
    keys = (time.perf_counter() - started) / len(sample) * texts
    started = time.perf_counter()
    for _ in made_up_records(len(sample)):
        pass
    making_up = (time.perf_counter() - started) / len(sample) * texts
    return {
        "write_records_s": writing,
        "of_it_keys_s": keys,
        "of_it_making_up_texts_s": making_up,
        "encode_and_store_s": tokenising,
        "peak_mib_after_records": peak_of_records,
        "peak_mib": _peak_mib(),
    }


def _open(folder: Path, texts: int) -> dict[str, float]:
    started = time.perf_counter()
    records = open_records(_records_entry(folder, texts) / RECORDS_FILE)
    rows = open_encoded(_rows_entry(folder, iter(())), 0, MAX_LENGTH)
    opened = time.perf_counter()
    rows = rows.select(np.arange(len(records)), records.numbers("line") % FULL_CLASSES)
    sampler = BucketBatchSampler(rows.lengths, 32, shuffle=True)
    next(iter(DataLoader(rows, batch_sampler=sampler, collate_fn=_as_it_is)))
    return {
        "open_s": opened - started,
        "first_batch_s": time.perf_counter() - opened,
        "peak_mib": _peak_mib(),
    }


def _peak_mib() -> float:
    """Return the most resident memory of this process so far.

    Linux counts a parent's peak in ru_maxrss of the processes that it starts; VmHWM begins anew.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def as_markdown(result: dict[str, Any]) -> str:
    """Return tables of the numbers."""
    data, machine = result["data"], result["environment"]
    lines = [
        "# Input pipeline",
        "",
        f"{data['texts']:,} texts of `{data['name']}`, {data['mean_characters']} characters on"
        f" average, at most {data['max_length']} pieces. " + _listed(machine),
        "",
        *_table("rows/s, stored rows → padded batches of", result["fetched_rows_per_second"]),
        *_table("padding at batch 32, width a multiple of", result["padding_waste"]),
        *_table("texts/s, tokenised and stored", {"": result["tokenising"]}),
    ]
    if "full" in result:
        full = result["full"]
        lines += [f"{full['texts']:,} texts of {full['characters']} characters:", ""]
        for part in ("prepare", "open", "disk_mib"):
            lines += [f"- {part}: {_listed(full[part])}"]
    return "\n".join(lines) + "\n"


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _table(title: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    columns = list(next(iter(rows.values())))
    cells = [[title, *columns], ["---"] * (1 + len(columns))]
    cells += [[name, *(_cell(row[column]) for column in columns)] for name, row in rows.items()]
    return [*(f"| {' | '.join(row)} |" for row in cells), ""]


def _cell(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.1%}"


if __name__ == "__main__":
    main()
