import pytest

from bert_lightning.benchmark.claims import read_claims
from bert_lightning.benchmark.verdicts import judge

WEIGHTS = {"weights_gib": 0.6, "optimizer_gib": 1.2, "execution": "captured"}


def case(variant, lengths="bucketed", batch="batch 32", **measured):
    key = f"{variant}, {lengths}, {batch}"
    return {key: {"key": key, "variant": variant, "repeats": [], **WEIGHTS, **measured}}


def verdict(entry, results, **more):
    problems = []
    claims = read_claims([entry], problems)
    assert problems == []
    (judgement,) = judge(claims, results, 32, **more)
    return judgement


def speeds(own, other=100.0, **more):
    return {
        **case("16-mixed", epoch_seconds=own, tflops_peak=790, positions_a_step=700, **more),
        **case("fp32", epoch_seconds=other),
    }


@pytest.mark.parametrize(
    ("own", "expected"), [(57.0, "holds"), (59.0, "open"), (61.0, "open"), (63.0, "fails")]
)
def test_a_time_needs_a_distance_from_the_limit(own, expected):
    found = verdict({"epoch time": "-40%"}, speeds(own, peak_share=0.3))
    assert found.verdict == expected
    assert bool(found.reason) == (expected != "holds")


@pytest.mark.parametrize(
    ("said", "windows", "expected"),
    [
        ("±5%", [100.0, 100.0, 100.0], "holds"),
        ("±1%", [100.0, 100.0, 100.0], "open"),
        ("±5%", [90.0, 100.0, 110.0], "open"),
        ("-5%", [100.0, 100.0, 100.0], "fails"),
    ],
)
def test_equal_times_are_called_equal_where_they_were_measured_well(said, windows, expected):
    results = speeds(100.0, repeats=windows, peak_share=0.3)
    assert verdict({"epoch time": said}, results).verdict == expected


def test_a_machine_that_was_slower_for_one_case_leaves_its_time_open():
    results = {
        **case("fp32", epoch_seconds=10.0, tflops_peak=0.18),
        **case("fp32", "padded", epoch_seconds=800.0, tflops_peak=0.02, padding=0.8),
    }
    found = verdict({"epoch time": "-50%", "of": "fp32", "against_lengths": "padded"}, results)
    assert found.verdict == "open"
    assert "fp32, padded, batch 32: the machine reached 0.02 TFLOP/s, in another" in found.reason
    results["fp32, padded, batch 32"]["tflops_peak"] = 0.15
    found = verdict({"epoch time": "-50%", "of": "fp32", "against_lengths": "padded"}, results)
    assert found.verdict == "holds"


def test_a_peak_of_memory_is_met_at_its_limit():
    results = {**case("16-mixed", allocated_gib=11.0), **case("fp32", allocated_gib=20.0)}
    assert verdict({"peak memory": "-45%"}, results).verdict == "holds"


def test_noise_is_that_of_students_distribution():
    found = verdict({"epoch time": "-40%"}, speeds(50.0, repeats=[98.0, 100.0, 102.0]))
    # 4.30 standard errors of 2 / sqrt(3) %, and 2 % of each process
    assert "(±2.9%)" in found.measured


def test_a_limit_nearer_than_the_noise_is_open():
    found = verdict({"epoch time": "-40%"}, speeds(61.0, repeats=[90.0, 100.0, 110.0]))
    assert found.verdict == "open"
    assert "more steps" in found.reason


@pytest.mark.parametrize(
    ("execution", "share", "reason"),
    [
        ("eager – asked for", 0.02, "launch-bound"),
        ("captured", 0.1, "its products are small (700 positions a step)"),
        ("captured", 0.6, "the card is busy"),
    ],
)
def test_a_speed_that_fails_has_its_reason(execution, share, reason):
    results = speeds(95.0, execution=execution, peak_share=share)
    found = verdict({"epoch time": "-40%"}, results)
    assert found.verdict == "fails"
    assert reason in found.reason
    assert "790 TFLOP/s" in found.reason


@pytest.mark.parametrize(("peak", "reason"), [(2.75, "they dominate"), (14.0, "stay in float32")])
def test_memory_that_fails_says_whether_weights_dominate(peak, reason):
    results = {**case("16-mixed", allocated_gib=peak), **case("fp32", allocated_gib=peak + 0.2)}
    found = verdict({"peak memory": "-45%"}, results)
    assert found.verdict == "fails"
    assert reason in found.reason


@pytest.mark.parametrize(("own", "expected"), [(240, "holds"), (200, "open"), (176, "fails")])
def test_the_largest_batch_is_compared_at_equal_memory(own, expected):
    batches = {
        **case("16-mixed", batch="largest batch", batch_size=own, allocated_gib=20.0),
        **case("fp32", batch="largest batch", batch_size=100, allocated_gib=20.0),
    }
    assert verdict({"max batch": "+100%"}, batches).verdict == expected


def test_the_articles_pairing_is_16_rows_against_32():
    results = {
        **case("16-mixed", epoch_seconds=50.0),
        **case("fp32", batch="batch 16", epoch_seconds=100.0),
    }
    assert verdict({"epoch time": "-40%", "at": "article"}, results).measured.startswith(
        "100 → 50, -50% "
    )


def test_lengths_of_one_variant_can_be_compared():
    results = {**case("fp32", padding=0.01), **case("fp32", "random", padding=0.2)}
    entry = {"padding": "-80%", "of": "fp32", "against_lengths": "random"}
    assert verdict(entry, results).verdict == "holds"
    assert verdict({**entry, "padding": "-99%"}, results).verdict == "fails"


def accuracies(own, other):
    return {
        f"{variant}, bucketed, batch 32, seed {seed}": {"variant": variant, "accuracy": score}
        for variant, scores in (("16-mixed", own), ("fp32", other))
        for seed, score in enumerate(scores)
    }


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([0.9501, 0.9500, 0.9502], "holds"),
        ([0.9401, 0.9400, 0.9402], "fails"),
        ([0.94, 0.95, 0.96], "open"),
    ],
)
def test_accuracy_is_judged_in_points_against_the_spread_of_the_seeds(own, expected):
    found = verdict({"accuracy": "±0.3"}, accuracies(own, [0.9501, 0.9500, 0.9499]))
    assert found.verdict == expected


def test_one_seed_does_not_make_things_equal():
    found = verdict({"accuracy": "±0.3"}, accuracies([0.95], [0.95, 0.95]))
    assert found.verdict == "open"
    assert "2 and 1 seeds" in found.measured


def test_what_was_not_measured_is_not_judged():
    failed = {**case("16-mixed", reason="out of memory"), **case("fp32", epoch_seconds=1.0)}
    found = verdict({"epoch time": "-40%"}, failed)
    assert (found.verdict, found.reason) == (
        "not judged",
        "16-mixed, bucketed, batch 32: out of memory",
    )
    found = verdict({"peak memory": "-45%"}, {}, absent=lambda case: case.variant.upper())
    assert found.reason.endswith("fp32, bucketed, batch 32: FP32")
    assert "accuracy_seeds" in verdict({"accuracy": "±0.3"}, {}).reason
