import csv
from pathlib import Path

import pytest
from lightning.pytorch.loggers import CSVLogger

from bert_lightning.errors import ConfigError
from bert_lightning.loggers import MetricsCSV, refuse_overwriting


def _rows(folder):
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_is_on_disk_as_soon_as_it_is_logged(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"train/loss": 0.5, "epoch": 0}, step=10)
    assert _rows(tmp_path) == [{"epoch": "0", "step": "10", "train/loss": "0.5"}]


def test_epoch_and_step_are_the_first_columns(tmp_path):
    MetricsCSV(tmp_path).log_metrics({"train/loss": 0.5, "epoch": 0}, step=10)
    assert (tmp_path / "metrics.csv").read_text("utf-8").splitlines()[0] == "epoch,step,train/loss"


def test_a_value_not_logged_in_a_step_is_an_empty_cell(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"train/loss": 0.5, "epoch": 0}, step=10)
    logger.log_metrics({"epoch": 0}, step=20)
    assert _rows(tmp_path)[1] == {"epoch": "0", "step": "20", "train/loss": ""}


def test_new_columns_are_added_on_the_right_and_old_rows_stay(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"train/loss": 0.5, "epoch": 0}, step=10)
    logger.log_metrics({"val/loss": 0.4, "val/accuracy": 0.9, "epoch": 0}, step=20)
    logger.log_metrics({"train/loss": 0.3, "epoch": 1}, step=30)
    rows = _rows(tmp_path)
    assert list(rows[0]) == ["epoch", "step", "train/loss", "val/loss", "val/accuracy"]
    assert [row["train/loss"] for row in rows] == ["0.5", "", "0.3"]
    assert [row["val/accuracy"] for row in rows] == ["", "0.9", ""]


def test_a_resumed_run_goes_on_in_the_same_file(tmp_path):
    MetricsCSV(tmp_path).log_metrics({"train/loss": 0.5, "epoch": 0}, step=10)
    MetricsCSV(tmp_path).log_metrics({"train/loss": 0.4, "epoch": 0}, step=20)
    rows = _rows(tmp_path)
    assert [row["step"] for row in rows] == ["10", "20"]
    assert (tmp_path / "metrics.csv").read_text("utf-8").count("epoch") == 1


def test_a_resumed_run_keeps_the_columns_it_does_not_log_itself(tmp_path):
    MetricsCSV(tmp_path).log_metrics({"val/loss": 0.5, "train/loss": 0.7}, step=10)
    MetricsCSV(tmp_path).log_metrics({"train/loss": 0.4, "test/loss": 0.2}, step=20)
    assert _rows(tmp_path) == [
        {"epoch": "", "step": "10", "val/loss": "0.5", "train/loss": "0.7", "test/loss": ""},
        {"epoch": "", "step": "20", "val/loss": "", "train/loss": "0.4", "test/loss": "0.2"},
    ]


def test_making_a_logger_does_not_touch_the_file(tmp_path):
    MetricsCSV(tmp_path).log_metrics({"train/loss": 0.5}, step=10)
    before = (tmp_path / "metrics.csv").read_bytes()
    logger = MetricsCSV(tmp_path)
    logger.log_hyperparams({"a": 1})
    logger.save()
    logger.finalize("success")
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_values_with_commas_and_chinese_names_come_back(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"test/f1/体育, 娱乐": 0.5}, step=1)
    MetricsCSV(tmp_path).log_metrics({"test/f1/体育, 娱乐": 0.6, "x": 1}, step=2)
    assert [row["test/f1/体育, 娱乐"] for row in _rows(tmp_path)] == ["0.5", "0.6"]


def test_numbers_keep_all_their_digits(tmp_path):
    MetricsCSV(tmp_path).log_metrics({"a": 0.1 + 0.2, "b": 1e-12, "c": float("nan")}, step=1)
    (row,) = _rows(tmp_path)
    assert float(row["a"]) == 0.1 + 0.2
    assert float(row["b"]) == 1e-12
    assert row["c"] == "nan"


def test_no_file_is_left_beside_it(tmp_path):
    logger = MetricsCSV(tmp_path)
    for number in range(3):
        logger.log_metrics({f"value{number}": 1.0}, step=number)
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.csv"]


def test_callbacks_put_their_files_into_the_folder_of_the_run(tmp_path):
    logger = MetricsCSV(tmp_path / "runs" / "7")
    run = tmp_path / "runs" / "7"
    assert Path(logger.save_dir, logger.name, logger.version, "checkpoints") == run / "checkpoints"


def test_a_csv_logger_that_would_delete_an_earlier_file_is_refused(tmp_path):
    refuse_overwriting([CSVLogger(tmp_path, version=0), MetricsCSV(tmp_path)])
    (tmp_path / "lightning_logs" / "version_0").mkdir(parents=True)
    (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").write_text("step\n1\n")
    refuse_overwriting([CSVLogger(tmp_path), MetricsCSV(tmp_path)])  # takes version_1
    with pytest.raises(ConfigError, match="expected a folder without"):
        refuse_overwriting([CSVLogger(tmp_path, version=0)])
