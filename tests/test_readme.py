import io
import itertools
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from bert_lightning.backbone import PRETRAINED_LEARNING_RATE
from bert_lightning.demo.mini_bert import MINI_LEARNING_RATE

REPO = Path(__file__).parent.parent
READMES = ("README.md", "README.zh-CN.md")
FIRST_LINE = "python -m pip install -e . && python main.py fit --config amp.yaml"
TEST_LINE = 'python -m pip install -e ".[dev]" && python -m pytest -n 2 --dist loadfile'
TITLE = "新款手机续航提升一倍"
GROUPS = ("data", "demo", "inspection", "callbacks", "commands", "benchmark")


def _text(name):
    return (REPO / name).read_text(encoding="utf-8")


def _blocks(text):
    return re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _commands(text):
    """Return the arguments of every ``python main.py …`` in a code block, in order."""
    lines = [line for block in _blocks(text) for line in block.splitlines()]
    return [
        found[1].strip() for line in lines if (found := re.search(r"python main\.py (.*)", line))
    ]


COMMANDS = _commands(_text("README.md"))
EVALUATIONS = [
    line for line in COMMANDS if line.startswith(("validate", "test", "fit --ckpt_path"))
]
INSPECTIONS = [line for line in COMMANDS if line.startswith("inspect")]
BENCHMARKS = [line for line in COMMANDS if line.startswith("benchmark")]
PLANS = [line for line in COMMANDS if line.startswith("plan")]
PREDICTIONS = [line for line in COMMANDS if line.startswith("predict")]


@pytest.fixture(scope="module")
def seven_runs(trained_folder, tmp_path_factory):
    """A folder whose newest run is runs/7, as the README's examples have it."""
    folder = tmp_path_factory.mktemp("readme")
    for number in ("1", "7"):
        shutil.copytree(trained_folder / "runs" / "1", folder / "runs" / number)
    return folder


@pytest.mark.parametrize("readme", READMES)
@pytest.mark.parametrize("line", [FIRST_LINE, TEST_LINE])
def test_the_two_command_lines_stand_in_a_block_of_their_own(readme, line):
    assert f"{line}\n" in _blocks(_text(readme))


def test_the_checks_run_the_test_line_as_the_readme_has_it():
    assert TEST_LINE in [line.strip() for line in _text(".ci/run").splitlines()]


def test_both_languages_show_the_same_commands():
    assert _commands(_text("README.zh-CN.md")) == COMMANDS
    assert len(COMMANDS) > 10


def test_both_languages_show_the_same_names_in_code():
    english, chinese = (set(re.findall(r"`([!-~]+)`", _text(name))) for name in READMES)
    assert english == chinese


def test_both_languages_have_the_same_sections_and_table_rows():
    def shape(text):
        return [line[:2] for line in text.splitlines() if line.startswith(("#", "|", "```"))]

    english, chinese = (shape(_text(name)) for name in READMES)
    assert english == chinese


@pytest.mark.parametrize(
    "command", [line for line in COMMANDS if line not in (*INSPECTIONS, *BENCHMARKS)]
)
def test_every_command_of_the_readme_parses(command, seven_runs, run_cli):
    args = shlex.split(command)
    if "--print_config" not in args:
        args.append("--print_config")
    status, out, err = run_cli(*args, cwd=seven_runs)
    assert status == 0, err
    assert "seed_everything: 42" in out


@pytest.mark.parametrize("command", EVALUATIONS)
def test_the_commands_that_take_a_checkpoint_run(
    command, seven_runs, news_folder, run_cli, tmp_path
):
    shutil.copytree(seven_runs / "runs", tmp_path / "runs")
    args = [str(news_folder) if word == "FOLDER" else word for word in shlex.split(command)]
    status, out, err = run_cli(*args)
    assert status == 0, err
    assert "from runs/7/checkpoints/" in out
    assert re.search(r"(val|test)/accuracy \d\.\d{4}", out)


@pytest.mark.parametrize("command", INSPECTIONS)
def test_the_commands_that_inspect_run(command, news_folder, run_cli, tmp_path):
    args = [str(news_folder) if word == "FOLDER" else word for word in shlex.split(command)]
    status, _, err = run_cli(*args)
    assert status == 0, err
    page = tmp_path / (args[args.index("--output") + 1] if "--output" in args else "inspection")
    assert (page / "inspection.html").is_file()


@pytest.mark.parametrize("command", BENCHMARKS)
def test_the_commands_that_benchmark_parse(command, run_cli):
    args = shlex.split(command)
    status, out, err = run_cli(*args, "--print_config")
    assert status == 0, err
    settings = yaml.safe_load(out)
    assert settings["cases"]["equal_batch"]
    typed = dict(itertools.pairwise(args))
    for key in ("memory_gib", "accuracy_seeds", "output"):
        if f"--{key}" in args:
            assert settings[key] == yaml.safe_load(typed[f"--{key}"])


@pytest.mark.parametrize("command", PLANS)
def test_the_commands_that_plan_run(command, run_cli, tmp_path):
    status, out, err = run_cli(*shlex.split(command))
    assert status == 0, err
    assert out.splitlines()[-1] == "fit       would run; nothing was trained"
    assert {file.name for file in tmp_path.iterdir()} <= {"plan.json"}


@pytest.mark.parametrize("command", PREDICTIONS)
def test_the_commands_that_predict_run(command, seven_runs, run_cli, tmp_path, monkeypatch):
    shutil.copytree(seven_runs / "runs", tmp_path / "runs")
    (tmp_path / "news.txt").write_text(f"{TITLE}\n", encoding="utf-8")
    (tmp_path / "news.csv").write_text(f"title\n{TITLE}\n", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{TITLE}\n".encode())))
    status, out, err = run_cli(*shlex.split(command))
    assert status == 0, err
    output = re.search(r"--output (\S+)", command)
    assert TITLE in ((tmp_path / output[1]).read_text("utf-8-sig") if output else out)
    assert {run.name for run in (tmp_path / "runs").iterdir()} == {"1", "7"}


@pytest.mark.parametrize("readme", READMES)
def test_every_config_is_explained_and_every_yaml_named_exists(readme):
    named = set(re.findall(r"\b(\w+\.yaml)\b", _text(readme)))
    run_files = {"config.yaml", "config_resumed_1.yaml"}
    assert named - run_files == {file.name for file in (REPO / "configs").glob("*.yaml")}


@pytest.mark.parametrize("readme", READMES)
def test_the_automatic_learning_rates_are_those_of_the_code(readme):
    row = re.search(r"^\| `model\.learning_rate` \|.*", _text(readme), re.MULTILINE)[0]
    rates = [float(number) for number in re.findall(r"\de-\d", row)]
    assert rates == [PRETRAINED_LEARNING_RATE, MINI_LEARNING_RATE]


@pytest.mark.parametrize("document", [*READMES, "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_lead_somewhere(document):
    targets = re.findall(r"\]\(([^)#]+)", _text(document))
    assert [t for t in targets if "://" not in t and not (REPO / t).is_file()] == []


@pytest.mark.parametrize("readme", READMES)
def test_the_tree_shows_every_module(readme):
    tree = next(block for block in _blocks(_text(readme)) if "bert_lightning/\n" in block)
    shown = set(re.findall(r"^  (\w+)\.py ", tree, re.MULTILINE))
    for group in GROUPS:
        names = re.search(rf"^  {group}/ .*\n((?: {{24}}.*\n)+)", tree, re.MULTILINE)[1]
        shown |= {f"{group}/{name}" for name in re.findall(r"\w+", names)}
    package = REPO / "bert_lightning"
    modules = {file.relative_to(package).with_suffix("") for file in package.rglob("*.py")}
    assert shown == {module.as_posix() for module in modules if not module.name.startswith("__")}
