"""A model folder of bert-base-chinese's shape with random weights.

Speed and memory depend on the shape, not on the weights, so they can be measured where the real
weights are not at hand. Vocabulary: that of the mini BERT, filled up to 21,128 entries.

    python -m bert_lightning.benchmark.base_shape FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from bert_lightning.demo.mini_bert import mini_vocabulary

VOCABULARY_SIZE = 21_128


def make_base_folder(folder: Path, seed: int = 0) -> None:
    """Write config.json, tokenizer files and model.safetensors.

    Args:
        folder: Where to; made if it is missing.
        seed: Seed of the weights.
    """
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    known = mini_vocabulary()
    filler = [f"[unused{number}]" for number in range(VOCABULARY_SIZE - len(known))]
    (folder / "vocab.txt").write_text("\n".join([*known, *filler]) + "\n", encoding="utf-8")
    BertTokenizer.from_pretrained(folder, local_files_only=True).save_pretrained(folder)
    torch.manual_seed(seed)
    model = BertForSequenceClassification(BertConfig(vocab_size=VOCABULARY_SIZE))
    model.save_pretrained(folder)


if __name__ == "__main__":
    make_base_folder(Path(sys.argv[1]))
