import pytest

from bert_lightning.benchmark.claims import read_claims


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"epoch time": "-40%"}, "epoch time -40%: 16-mixed bucketed against fp32, equal batch"),
        ({"max batch": "+100%"}, "max batch +100%: 16-mixed bucketed against fp32, equal memory"),
        ({"accuracy": "±0.3"}, "accuracy ±0.3: 16-mixed against fp32"),
        (
            {"padding": "-80%", "of": "fp32", "against_lengths": "random"},
            "padding -80%: fp32 bucketed against random, equal batch",
        ),
        (
            {"epoch time": "-5%", "lengths": "padded", "of": "bf16-mixed"},
            "epoch time -5%: bf16-mixed padded against fp32, equal batch",
        ),
    ],
)
def test_what_a_claim_leaves_out_is_filled_in(entry, text):
    problems = []
    assert [claim.text for claim in read_claims([entry], problems)] == [text]
    assert problems == []


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"speed": "-40%"}, "expected one measure of"),
        ({"epoch time": "40%"}, "with its sign – found '40%'"),
        ({"accuracy": "±0.3%"}, "a number such as ±0.3"),
        ({"epoch time": "-4%", "of": "fp64"}, "expected a variant – found 'fp64'"),
        ({"epoch time": "-4%", "at": "home"}, "at: expected one of equal_batch"),
        ({"epoch time": "-4%", "length": "padded"}, "found 'length'"),
    ],
)
def test_a_claim_that_says_nothing_is_refused(entry, text):
    problems = []
    assert read_claims([{"padding": "-1%"}, entry], problems)[0].measure == "padding"
    assert text in "\n".join(problems)
    assert all(problem.startswith("claims, number 2: ") for problem in problems)
