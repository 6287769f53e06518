"""The first lines of a command say what was taken."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bert_lightning import banner
from bert_lightning.backbone import resolve_backbone


@pytest.fixture
def model():
    """What the lines of a model are read from: the built-in one."""
    return SimpleNamespace(
        backbone=resolve_backbone("builtin"), backbone_note=None, network=torch.nn.Linear(2, 2)
    )


def test_new_weights_of_the_built_in_model_are_called_random(model):
    assert banner.model_lines(model, None) == {
        "model": "built-in mini BERT (random weights), 0.0 M weights"
    }


@pytest.mark.parametrize(
    ("stored", "said"),
    [({"precision": "16-mixed"}, ", trained in 16-mixed"), ({}, ""), ({"precision": 7}, "")],
)
def test_weights_of_a_checkpoint_are_not_random_and_say_their_precision(
    model, monkeypatch, stored, said
):
    monkeypatch.setattr(banner, "read_checkpoint", lambda _: {"bert_lightning": stored})
    assert banner.model_lines(model, Path("a.ckpt")) == {
        "model": "built-in mini BERT, 0.0 M weights",
        "weights": f"from a.ckpt{said}",
    }
