"""The product trains as a plain hand-written loop over the same rows does."""

import csv
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from bert_lightning.cli import main
from bert_lightning.data.batching import BucketBatchSampler
from bert_lightning.data.encoding import encode
from bert_lightning.data.loading import load_news
from bert_lightning.data.storage import Storage, default_cache_folder
from bert_lightning.demo.mini_bert import mini_config, mini_tokenizer
from bert_lightning.demo.news import made_up_news

STEPS, RATE, BATCH = 200, 2e-5, 16


def save_model(folder, hidden_size, layers):
    config = mini_config(4).to_dict() | {
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden_size // 32,
        "intermediate_size": 4 * hidden_size,
    }
    torch.manual_seed(1)
    BertForSequenceClassification(BertConfig(**config)).save_pretrained(folder)
    mini_tokenizer().save_pretrained(folder)


def save_news(folder):
    folder.mkdir()
    for split in ("train", "val"):
        rows = made_up_news(split)[: BATCH * STEPS if split == "train" else 64]
        lines = [f"{record.text} {record.label}\n" for record in rows]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")


def product_losses(model, data, runs, precision):
    status = main(
        [
            "fit",
            f"--model.pretrained={model}",
            f"--data.path={data}",
            f"--trainer.default_root_dir={runs}",
            f"--trainer.precision={precision}",
            f"--model.learning_rate={RATE}",
            "--model.dropout=0",
            f"--data.batch_size={BATCH}",
            "--trainer.max_epochs=1",
            "--trainer.log_every_n_steps=1",
            "--trainer.num_sanity_val_steps=0",
            "--test_after_fit=false",
        ]
    )
    assert status == 0
    with Path(runs, "runs", "1", "metrics.csv").open() as file:
        losses = [row["train/loss"] for row in csv.DictReader(file)]
    return torch.tensor([float(loss) for loss in losses if loss])


def reference_losses(model, data, device, dtype=None):
    """A loop as people write it: Hugging Face model, AdamW with no-decay names, warm-up,

    and autocast with a GradScaler where a dtype is given.
    """
    network = BertForSequenceClassification.from_pretrained(
        model, num_labels=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    network.classifier.load_state_dict(
        BertForSequenceClassification.from_pretrained(model).classifier.state_dict()
    )
    network.to(device).train()
    plain = ("bias", "LayerNorm.weight")
    named = list(network.named_parameters())
    groups = [
        {"params": [p for n, p in named if not n.endswith(plain)], "weight_decay": 0.01},
        {"params": [p for n, p in named if n.endswith(plain)], "weight_decay": 0.0},
    ]
    # the same kernel, or twelve random layers amplify how it rounds
    optimizer = torch.optim.AdamW(groups, lr=RATE, fused=device == "cuda")
    rates = reference_rates(device)
    news = load_news(str(data), Storage(default_cache_folder()))
    train = news.records["train"]
    rows = encode(
        [record.text for record in train],
        [news.labels.index(record.label) for record in train],
        mini_tokenizer(),
        128,
    )
    losses = []
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    batches = BucketBatchSampler(rows.lengths, BATCH, shuffle=True, seed=42)
    for indices, rate in zip(batches, rates, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = {
            name: value.to(device)
            for name, value in rows.__getitems__(indices).items()
            if isinstance(value, torch.Tensor)
        }
        with torch.autocast(device, dtype=dtype or torch.float32, enabled=dtype is not None):
            logits = network(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        loss = torch.nn.functional.cross_entropy(logits.logits.float(), batch["labels"])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        # in the optimizer's order, or the sum under the norm is rounded in another way
        torch.nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses)


def reference_rates(device):
    """Return the rate of each step, a rise over a tenth and a fall to 0, in the product's type."""
    dtype = torch.float32 if device == "cuda" else torch.float64
    warmup = STEPS // 10
    factors = [min((step + 1) / warmup, (STEPS - step) / (STEPS - warmup)) for step in range(STEPS)]
    return (torch.tensor(RATE, dtype=dtype) * torch.tensor(factors, dtype=dtype)).tolist()


def check_against_reference(tmp_path, precision, dtype, tolerance, device="cpu", shape=(64, 2)):
    save_model(tmp_path / "model", *shape)
    save_news(tmp_path / "news")
    ours = product_losses(tmp_path / "model", tmp_path / "news", tmp_path, precision)
    theirs = reference_losses(tmp_path / "model", tmp_path / "news", device, dtype)
    assert len(ours) == len(theirs) == STEPS
    difference = ((ours - theirs).abs() / theirs).max().item()
    print(f"{precision} {dtype} {shape}: losses differ by at most {difference:.2e}, relatively")
    assert difference < tolerance


def test_losses_equal_those_of_a_hand_written_loop_in_float32(tmp_path):
    check_against_reference(tmp_path, "32", None, tolerance=1e-6)


def test_losses_stay_close_to_float32_under_mixed_precision(tmp_path):
    check_against_reference(tmp_path, "16-mixed", None, tolerance=1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(64, 2), (768, 12)], ids=["small", "base"])
@pytest.mark.parametrize(
    ("precision", "dtype", "tolerance"),
    [
        ("32", None, 1e-6),
        ("16-mixed", torch.float16, 1e-2),
        ("bf16-mixed", torch.bfloat16, 1e-2),
    ],
)
def test_losses_equal_those_of_a_hand_written_loop_on_the_gpu(
    tmp_path, precision, dtype, tolerance, shape
):
    check_against_reference(tmp_path, precision, dtype, tolerance, "cuda", shape)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_a_small_model_stays_close_to_float32_on_the_gpu(tmp_path, precision):
    check_against_reference(tmp_path, precision, None, 1e-2, "cuda")
