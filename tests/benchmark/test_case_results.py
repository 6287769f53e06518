import csv
import io

import pytest

from bert_lightning.benchmark.case_results import FILE, Results, as_csv, completed
from bert_lightning.benchmark.cases import Case
from bert_lightning.errors import ConfigError

EXTENT = {"steps": 200}
CASE = Case("fp32", batch=32)


def test_an_epoch_energy_and_the_share_of_the_peak_follow_from_the_rate():
    result = completed(
        {
            "samples_per_second": 500.0,
            "train_rows": 10_000,
            "joules_per_sample": 0.36,
            "tflops_peak": 4.0,
            "positions_per_second": 20_000,
            "flops_per_position": 1e8,
            "batch_size": 25,
            "allocated_gib": 3.0,
            "weights_gib": 0.5,
            "optimizer_gib": 1.5,
        }
    )
    assert result["epoch_seconds"] == 20.0
    assert result["epoch_wh"] == 1.0
    assert result["peak_share"] == 0.5
    assert result["positions_a_step"] == 1000
    assert result["activations_gib"] == 1.0


def _write(results):
    (results.folder / FILE).write_text(results.as_json([]), encoding="utf-8")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"results": []}', '{"circumstances": {}, "results": [1]}']
)
def test_a_file_of_something_else_is_refused(text, tmp_path):
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="output: expected results of `benchmark`"):
        Results(tmp_path, {})


@pytest.mark.parametrize(
    ("measured", "known"),
    [
        ({"samples_per_second": 1.0}, True),
        ({"reason": "out of memory"}, True),
        ({"reason": "interrupted"}, False),
    ],
)
def test_what_was_measured_or_has_no_room_is_found_again(measured, known, tmp_path):
    results = Results(tmp_path, {"device": "a"})
    results.add(CASE, EXTENT, measured)
    _write(results)
    again = Results(tmp_path, {"device": "a"})
    assert again.is_known(CASE, EXTENT) is known
    assert not again.is_known(CASE, {"steps": 300})
    assert not again.is_known(Case("tf32", batch=32), EXTENT)


def test_results_of_another_machine_are_refused(tmp_path):
    _write(Results(tmp_path, {"device": "a"}))
    with pytest.raises(ConfigError, match="found device 'a' instead of 'b'"):
        Results(tmp_path, {"device": "b"})


def test_the_table_of_values_has_a_line_for_each_case():
    text = as_csv([{"key": "a, b", "repeats": [1]}, {"key": "c", "reason": "out of memory"}])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows == [{"key": "a, b", "reason": ""}, {"key": "c", "reason": "out of memory"}]
