import math

import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    precision_recall_fscore_support,
)
from torch.nn.functional import cross_entropy

from bert_lightning.metrics import LOGGED_NAMES, EvaluationMetrics

CLASSES = 6


def _logits(predictions, seed=0):
    """Logits whose largest entry is the prediction."""
    logits = torch.rand(len(predictions), CLASSES, generator=torch.Generator().manual_seed(seed))
    logits[torch.arange(len(predictions)), predictions] += 2
    return logits


def _random(true_classes, predicted_classes, rows=500, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(true_classes)[
        torch.randint(len(true_classes), (rows,), generator=generator)
    ]
    predictions = torch.tensor(predicted_classes)[
        torch.randint(len(predicted_classes), (rows,), generator=generator)
    ]
    hit = torch.rand(rows, generator=generator) < 0.6
    allowed = torch.isin(labels, torch.tensor(predicted_classes))
    return labels, torch.where(hit & allowed, labels, predictions)


def _summary(labels, predictions, sizes):
    metrics = EvaluationMetrics(CLASSES)
    logits = _logits(predictions)
    losses = cross_entropy(logits, labels, reduction="none")
    for parts in zip(*(values.split(sizes) for values in (logits, labels, losses)), strict=True):
        metrics.update(*parts)
    return metrics.summary(), losses


CASES = {
    "all classes": (range(6), range(6)),
    "absent from both": ([0, 1, 3, 5], [0, 1, 3, 5]),
    "never predicted": (range(6), [0, 1, 2]),
    "predicted but absent": ([0, 1, 2], range(6)),
    "one class": ([2], [2]),
    "nothing right": ([0, 1], [2, 3]),
}


@pytest.mark.parametrize("sizes", [[500], [200, 200, 100], [1, 499]], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_scores_equal_those_of_scikit_learn(case, sizes):
    labels, predictions = _random(*map(list, CASES[case]))
    summary, _ = _summary(labels, predictions, sizes)
    each = precision_recall_fscore_support(
        labels, predictions, labels=range(CLASSES), zero_division=0
    )
    macro_f1 = f1_score(labels, predictions, average="macro", zero_division=0)
    assert summary["accuracy"] == pytest.approx(accuracy_score(labels, predictions), abs=1e-6)
    assert summary["macro_f1"] == pytest.approx(macro_f1, abs=1e-6)
    assert summary["precision"] == pytest.approx(each[0].tolist(), abs=1e-6)
    assert summary["recall"] == pytest.approx(each[1].tolist(), abs=1e-6)
    assert summary["f1"] == pytest.approx(each[2].tolist(), abs=1e-6)
    assert summary["support"] == each[3].tolist()
    expected = confusion_matrix(labels, predictions, labels=range(CLASSES))
    assert summary["confusion"] == expected.tolist()
    assert summary["rows"] == 500


def test_a_class_predicted_but_never_true_counts_as_zero_in_macro_f1():
    labels = torch.tensor([0, 0, 1, 1])
    summary, _ = _summary(labels, torch.tensor([0, 0, 1, 2]), [4])
    assert summary["macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_a_class_that_nobody_mentions_does_not_count_in_macro_f1():
    labels = torch.tensor([0, 0, 1, 1])
    summary, _ = _summary(labels, labels, [4])
    assert summary["macro_f1"] == 1.0


def test_a_row_of_the_confusion_matrix_is_a_true_class():
    summary, _ = _summary(torch.tensor([1, 1]), torch.tensor([4, 4]), [2])
    assert summary["confusion"][1][4] == 2
    assert sum(map(sum, summary["confusion"])) == 2


@pytest.mark.parametrize("sizes", [[500], [499, 1], [3, 297, 200]], ids=str)
def test_each_row_weighs_the_same_in_the_loss_whatever_its_batch(sizes):
    labels, predictions = _random(range(6), range(6))
    summary, losses = _summary(labels, predictions, sizes)
    assert summary["loss"] == pytest.approx(losses.double().mean().item(), abs=1e-6)


def test_losses_in_bf16_are_added_up_in_float32():
    metrics = EvaluationMetrics(CLASSES)
    losses = torch.full((1_000,), 1.0 + 1 / 128, dtype=torch.bfloat16)
    logits = torch.zeros(1_000, CLASSES, dtype=torch.bfloat16)
    metrics.update(logits, torch.zeros(1_000, dtype=torch.long), losses)
    assert metrics.summary()["loss"] == pytest.approx(1.0 + 1 / 128, abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_shows_in_the_mean(bad):
    metrics = EvaluationMetrics(CLASSES)
    for losses in (torch.tensor([1.0, bad]), torch.tensor([1.0, 1.0])):
        metrics.update(torch.zeros(2, CLASSES), torch.tensor([0, 1]), losses)
    assert not math.isfinite(metrics.summary()["loss"])


def test_a_reset_forgets_all_rows():
    metrics = EvaluationMetrics(CLASSES)
    metrics.update(_logits(torch.tensor([0, 1])), torch.tensor([1, 0]), torch.tensor([9.0, 9.0]))
    metrics.reset()
    metrics.update(_logits(torch.tensor([2])), torch.tensor([2]), torch.tensor([0.5]))
    summary = metrics.summary()
    assert (summary["loss"], summary["accuracy"], summary["rows"]) == (0.5, 1.0, 1)


def test_a_summary_holds_plain_values():
    labels, predictions = _random(range(6), range(6), rows=10)
    summary, _ = _summary(labels, predictions, [10])

    def kinds(value):
        return set().union(*map(kinds, value)) if isinstance(value, list) else {type(value)}

    assert kinds(list(summary.values())) == {int, float}
    assert [len(summary[name]) for name in ("precision", "recall", "f1", "support")] == [6] * 4


def test_a_summary_can_be_asked_for_twice():
    labels, predictions = _random(range(6), range(6), rows=10)
    metrics = EvaluationMetrics(CLASSES)
    metrics.update(_logits(predictions), labels, torch.ones(10))
    assert metrics.summary() == metrics.summary()


def test_no_weight_of_the_metrics_goes_into_a_checkpoint():
    assert EvaluationMetrics(CLASSES).state_dict() == {}


def test_logged_names_are_stage_and_score():
    assert "val/macro_f1" in LOGGED_NAMES
    assert all(name.count("/") == 1 for name in LOGGED_NAMES)
