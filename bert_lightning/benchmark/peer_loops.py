"""The peers, one a process: Trainer and pipeline of transformers, stock Lightning, a plain loop.

Each gets the same rows, tokenised before and in memory, in random order, padded to the longest of a
batch, and trains with AdamW and gradients clipped to 1.0. Without a GPU all compute in float32.

    python -m bert_lightning.benchmark.peer_loops trainer --half --model FOLDER --rows FILE ...
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding
from typing_extensions import override

from bert_lightning.benchmark.peer_data import peer_rows
from bert_lightning.benchmark.stopwatch import Extent, Stopwatch, wait_for_device, write_measured

LEARNING_RATE = 2e-5
CLIP = 1.0
ENDLESS = 10**6  # steps or epochs: the stopwatch ends the training


class CountingCollator:
    """Pads rows, and keeps how many rows and pieces each batch holds until its step is done.

    Loaders fetch ahead, so the oldest count belongs to the step that ends. The third is that of
    positions, pieces and padding.

    Args:
        tokenizer: Pads.
        multiple: A batch is as wide as its longest row, rounded up to a multiple of this.
    """

    def __init__(self, tokenizer: Any, multiple: int | None) -> None:
        self._pad = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple)
        self._counts: deque[tuple[int, int, int]] = deque()

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        """Return the padded batch."""
        lengths = [len(row["input_ids"]) for row in rows]
        batch = self._pad(rows)
        self._counts.append((len(rows), sum(lengths), batch["input_ids"].numel()))
        return batch

    def next_count(self) -> tuple[int, int, int]:
        """Return rows, pieces and positions of the oldest batch that was not asked for."""
        return self._counts.popleft()


class Peer:
    """What the training loops share.

    Args:
        options: Command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.half = options.half and torch.cuda.is_available()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(0)
        self.rows, classes = peer_rows(options.rows)
        self.model = AutoModelForSequenceClassification.from_pretrained(
            options.model,
            num_labels=classes,
            ignore_mismatched_sizes=True,  # the stored head may be of other classes
            dtype=torch.float32,
            local_files_only=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
        self.collator = CountingCollator(tokenizer, options.multiple)
        extent = Extent(**json.loads(options.extent))
        if not options.compile:  # nothing is made for a shape
            extent = replace(extent, settling=None)
        self._watch = Stopwatch(extent, options.started, options.output)

    def loader(self) -> Any:
        """Return the rows in batches of random order."""
        return DataLoader(
            self.rows,  # type: ignore[arg-type]
            batch_size=self.options.batch_size,
            shuffle=True,
            collate_fn=self.collator,
        )

    def count_step(self) -> bool:
        """Count a step that was launched; tell whether all is measured."""
        return self._watch.count(*self.collator.next_count())


def train_by_trainer(options: argparse.Namespace) -> None:
    """Train with transformers' Trainer: fused AdamW, its own defaults else, nothing logged."""
    peer = Peer(options)

    class Timer(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = control.should_training_stop or peer.count_step()

    arguments = transformers.TrainingArguments(
        output_dir=str(options.output.parent / "trainer"),
        per_device_train_batch_size=options.batch_size,
        learning_rate=LEARNING_RATE,
        max_grad_norm=CLIP,
        max_steps=ENDLESS,
        optim="adamw_torch_fused",
        fp16=peer.half,
        torch_compile=options.compile,
        use_cpu=peer.device.type == "cpu",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    transformers.Trainer(
        peer.model,
        arguments,
        data_collator=peer.collator,
        train_dataset=peer.rows,
        callbacks=[Timer()],
    ).train()


class PlainModule(LightningModule):
    """What a Lightning user writes first: the model's own loss, and AdamW.

    Args:
        model: Of transformers.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss of a batch."""
        return self.model(**batch).loss

    def configure_optimizers(self) -> Any:
        """Return AdamW; the fused one is refused together with clipping."""
        return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE)


def train_by_lightning(options: argparse.Namespace) -> None:
    """Train with Lightning as it comes: its precision, its clipping; no logger, no bar."""
    peer = Peer(options)

    class Timer(Callback):
        @override
        def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
            trainer.should_stop = trainer.should_stop or peer.count_step()

    peer.model.train()
    Trainer(
        accelerator=peer.device.type,
        devices=1,
        precision="16-mixed" if peer.half else "32-true",
        gradient_clip_val=CLIP,
        max_epochs=ENDLESS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Timer()],
    ).fit(PlainModule(peer.model), peer.loader())


def train_by_hand(options: argparse.Namespace) -> None:
    """Train with the loop of most tutorials on mixed precision: autocast, GradScaler, clipping."""
    peer = Peer(options)
    model, device = peer.model.to(peer.device).train(), peer.device
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    scaler = torch.amp.GradScaler(device.type, enabled=peer.half)
    loader = peer.loader()
    while True:
        for batch in loader:
            inputs = {name: values.to(device) for name, values in batch.items()}
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.float16, enabled=peer.half):
                loss = model(**inputs).loss
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            scaler.step(optimizer)
            scaler.update()
            if peer.count_step():
                return


def predict_by_pipeline(options: argparse.Namespace) -> None:
    """Predict a file of texts with transformers' pipeline, into a file of JSON lines."""
    is_gpu = torch.cuda.is_available()
    classify = transformers.pipeline(
        "text-classification",
        model=str(options.model),
        dtype=torch.float16 if options.half and is_gpu else torch.float32,
        device=0 if is_gpu else -1,
        batch_size=options.batch_size,
    )
    wait_for_device()
    begun = time.perf_counter()
    texts = options.texts.read_text(encoding="utf-8").splitlines()
    found = classify(texts)
    with options.output.with_suffix(".jsonl").open("w", encoding="utf-8") as stream:
        for text, row in zip(texts, found, strict=True):
            stream.write(json.dumps({"text": text, **row}, ensure_ascii=False) + "\n")
    write_measured(options.output, {"seconds": time.perf_counter() - begun})


PEERS: dict[str, Callable[[argparse.Namespace], None]] = {
    "trainer": train_by_trainer,
    "lightning": train_by_lightning,
    "loop": train_by_hand,
    "pipeline": predict_by_pipeline,
}


def main(arguments: list[str] | None = None) -> None:
    """Run one peer; `peers` writes its command line."""
    parser = argparse.ArgumentParser(prog="python -m bert_lightning.benchmark.peer_loops")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--rows", type=Path, help="tokenised rows to train on")
    parser.add_argument("--texts", type=Path, help="texts to predict")
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--extent", default="{}", help="how much is measured, JSON")
    parser.add_argument("--started", type=float, default=time.time())
    parser.add_argument("--output", type=Path, required=True, help="JSON file for the result")
    parser.add_argument("--half", action="store_true", help="fp16, on a GPU")
    parser.add_argument("--compile", action="store_true", help="torch_compile of the Trainer")
    parser.add_argument("--multiple", type=int, help="of it the width of a batch is")
    options = parser.parse_args(arguments)
    PEERS[options.peer](options)


if __name__ == "__main__":
    main()
