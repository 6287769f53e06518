"""The inspect command: what it writes, shows and returns."""

import json

import pytest


@pytest.fixture
def leaky_folder(news_folder):
    """A data folder with two titles of test in train."""
    lines = (news_folder / "test.txt").read_text(encoding="utf-8").splitlines()
    with (news_folder / "train.txt").open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines[:2])
    return news_folder


def test_the_report_is_text_json_and_a_page(leaky_folder, run_cli, tmp_path):
    status, out, err = run_cli("inspect", "--data.path", leaky_folder)
    assert status == 0, err
    assert "train.txt" in out
    assert "data.drop_leaked: true" in out
    report = json.loads((tmp_path / "inspection/inspection.json").read_text(encoding="utf-8"))
    assert report["splits"]["train"]["rows"] == 66
    page = (tmp_path / "inspection/inspection.html").read_text(encoding="utf-8")
    assert page.startswith("<!")
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize(("folder", "status"), [("news_folder", 0), ("leaky_folder", 1)])
def test_strict_makes_faults_a_status(folder, status, request, run_cli):
    data = request.getfixturevalue(folder)
    assert run_cli("inspect", "--data.path", data, "--strict").status == status


def test_data_that_cannot_be_read_is_status_1_and_no_report(tmp_path, run_cli):
    status, _, err = run_cli("inspect", "--data.path", tmp_path / "nothing")
    assert status == 1
    assert "data.path: expected a folder or a file" in err
    assert not (tmp_path / "inspection").exists()


def test_bad_rows_are_listed_instead_of_raised(news_folder, run_cli):
    with (news_folder / "train.txt").open("a", encoding="utf-8") as file:
        file.write("孤零零\n")
    status, out, err = run_cli("inspect", "--data.path", news_folder)
    assert status == 0, err
    assert "train.txt:65: expected a title, a blank and a label" in out


def test_a_config_of_fit_serves_inspect_too(news_folder, run_cli, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text(
        f"trainer:\n  precision: 16-mixed\nmodel:\n  pretrained: builtin\n  dropout: 0.1\n"
        f"data:\n  path: {news_folder}\n  max_length: 16\n",
        encoding="utf-8",
    )
    status, out, err = run_cli("inspect", "--config", config, "--output", "there")
    assert status == 0, err
    assert "max_length 16" in out
    assert (tmp_path / "there" / "inspection.json").is_file()
    assert "max_length 64" in run_cli("inspect", "--config", config, "--data.max_length", "64").out


def test_a_mistyped_key_is_one_screen_and_no_traceback(news_folder, run_cli):
    status, _, err = run_cli("inspect", "--data.path", news_folder, "--data.max_lenght", "64")
    assert status == 1
    assert err.startswith("error: ")
    assert "max_lenght" in err
    assert "Traceback" not in err


def test_help_of_the_program_names_it(run_cli):
    assert "inspect" in run_cli("--help").out


def test_a_model_folder_counts_with_its_own_vocabulary(news_folder, tiny_bert_folder, run_cli):
    status, out, err = run_cli(
        "inspect", "--data.path", news_folder, "--model.pretrained", tiny_bert_folder
    )
    assert status == 0, err
    assert "pieces" in out
