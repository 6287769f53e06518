"""Short runs under a loss scaler, for the tests of mixed precision on a CPU and on a GPU."""

import math

import lightning.pytorch as L
import pytest
import torch

from bert_lightning.amp import AmpPrecision, AmpSettings
from bert_lightning.demo.news import CORPUS_CLASSES
from bert_lightning.functional_bert import FunctionalBert, shape_of, weights_of
from bert_lightning.module import BertClassifier


def tiny_classifier(folder, **settings):
    """Return a new model, the same each time; launched as it is, unless asked for otherwise."""
    torch.manual_seed(0)
    defaults = {
        "dropout": 0.0,
        "learning_rate": 1e-3,
        "schedule": "constant",
        "execution": "eager",
    }
    return BertClassifier(str(folder), list(CORPUS_CLASSES), **{**defaults, **settings})


class Overflow(L.Callback):
    """Puts inf into a gradient at chosen attempts, the first of which is 1."""

    def __init__(self, *attempts):
        self.attempts = attempts

    def on_after_backward(self, trainer, pl_module):
        if trainer.global_step + 1 in self.attempts:
            pl_module.network.classifier.weight.grad.view(-1)[:1].fill_(math.inf)  # no wait


class Poison(L.Callback):
    """Makes the loss of chosen attempts, the first of which is 1, overflow float16."""

    def __init__(self, *attempts):
        self.attempts = attempts

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        weight = pl_module.network.classifier.bias
        self.kept = weight.detach().clone()
        if batch_idx + 1 in self.attempts:
            with torch.no_grad():
                weight.fill_(torch.nan)
            self._refresh(trainer)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx + 1 in self.attempts:
            with torch.no_grad():
                pl_module.network.classifier.bias.copy_(self.kept)
            self._refresh(trainer)

    @staticmethod
    def _refresh(trainer):
        refresh = getattr(trainer.optimizers[0], "refresh", None)
        if refresh:
            refresh()


class Scales(L.Callback):
    """Sets the loss scale of each step: another one rounds fp16 gradients in another way."""

    def __init__(self, scales):
        self.scales = scales

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        scaler = trainer.precision_plugin.scaler
        scaler._init_scale = self.scales[batch_idx]
        if scaler._get_scale_async() is not None:
            scaler._get_scale_async().fill_(self.scales[batch_idx])


class Rates(L.Callback):
    """Keeps learning rate and real updates after each attempt."""

    def __init__(self):
        self.rates, self.updates, self.weights = [], [], []

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.rates.append(float(trainer.optimizers[0].param_groups[0]["lr"]))
        self.updates.append(int(pl_module.update_schedule.optimizer_steps))
        self.weights.append(pl_module.network.classifier.weight.detach().clone())


def batches(count, rows=4, last=None):
    generator = torch.Generator().manual_seed(3)
    made = []
    for number in range(count):
        size = last if last and number == count - 1 else rows
        made.append(
            {
                "input_ids": torch.randint(5, 500, (size, 12), generator=generator),
                "attention_mask": torch.ones(size, 12, dtype=torch.int64),
                "labels": torch.randint(0, 4, (size,), generator=generator),
                "rows": (torch.arange(size) + 100 * number).numpy(),
            }
        )
    return made


class Gradients(L.Callback):
    """Keeps what the optimizer gets."""

    def __init__(self):
        self.seen = []

    def on_before_zero_grad(self, trainer, pl_module, optimizer):
        self._keep(pl_module)

    def on_train_end(self, trainer, pl_module):
        self._keep(pl_module)

    def _keep(self, pl_module):
        grads = [p.grad.flatten() for p in pl_module.parameters() if p.grad is not None]
        if grads:
            self.seen.append(torch.cat(grads).clone())


def train(
    model, data, *callbacks, settings=None, plugin=None, device="cpu", ckpt_path=None, **options
):
    plugin = plugin or AmpPrecision("16-mixed", device, settings or AmpSettings(init_scale=1024.0))
    trainer = L.Trainer(
        accelerator={"cpu": "cpu", "cuda": "gpu"}[device],
        devices=1,
        plugins=[plugin],
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **{"max_epochs": 1, "gradient_clip_val": 1.0, "log_every_n_steps": 2, **options},
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=None), ckpt_path=ckpt_path)
    return trainer


def assert_gradients_fit_the_loss(network, ids, mask, compiled, is_full):
    """Along its gradient a loss grows by the gradient's square, if both draw the same dropout."""
    shape = shape_of(network, torch.float32)._replace(checkpointed=True)
    if compiled and ids.device.type == "cpu":  # where execution.py does not compile this
        shape = shape._replace(attention_dropout=0.0)
    bert = FunctionalBert(shape, compiled)
    parameters = list(network.parameters())

    def loss():
        torch.manual_seed(3)
        return bert(ids, None if is_full else mask, weights_of(network)).square().sum()

    gradients = torch.autograd.grad(loss(), parameters)
    square = sum(gradient.square().sum() for gradient in gradients).item()
    step = 1e-3 / math.sqrt(square)
    ends = []
    with torch.no_grad():
        for factor in (step, -2 * step):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter += factor * gradient
            ends.append(loss().item())
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(square, rel=0.02)
