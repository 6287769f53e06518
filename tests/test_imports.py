"""Imports go one way: a module may import only what stands before its line in `ORDER`."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent
PACKAGE = "bert_lightning"
ORDER = (
    "errors replacing interrupts limits",
    "data.records",
    "data.keys",
    "data.storage",
    "data.record_table",
    "data.files",
    "data.columns",
    "data.layouts",
    "data.classes",
    "data.tables data.json_rows data.columnar data.trees",
    "data.readers",
    "data.texts data.sources",
    "data.reading",
    "data.checks",
    "data.labels data.holdout",
    "demo.news",
    "demo.mini_bert",
    "data.loading",
    "data.encoding",
    "data.batching",
    "data.token_store",
    "inspection.results inspection.lexicon",
    "inspection.columns inspection.subject",
    "inspection.repeats inspection.naming",
    "inspection.statistics",
    "inspection.tokens",
    "inspection.findings",
    "inspection.examination inspection.short_form inspection.tables inspection.document "
    "inspection.plots",
    "inspection.screen",
    "inspection.page",
    "runs plain_yaml spreadsheets",
    "checkpoint",
    "checkpoint_io hub",
    "backbone",
    "datamodule",
    "metrics",
    "hyperparameters",
    "optim",
    "functional_bert",
    "flat_adamw",
    "graphs",
    "amp",
    "nonfinite failures",
    "execution",
    "captured",
    "precision plugins devices compatibility decisions console arguments loggers banner notices "
    "memory",
    "conflicts seeds find_batch",
    "planning",
    "module",
    "callbacks.run_folder callbacks.throughput callbacks.progress callbacks.prediction_writer "
    "callbacks.data_summary callbacks.amp_recorder callbacks.resume callbacks.stop_signals "
    "callbacks.finite_loss",
    "callbacks.checkpoints callbacks.run_report",
    "restoring",
    "trainer assembly",
    "benchmark.base_shape benchmark.pipeline benchmark.places benchmark.stopwatch",
    "benchmark.precisions benchmark.peer_cells benchmark.peer_data benchmark.case_timer",
    "benchmark.peer_loops benchmark.peer_tables benchmark.cases",
    "benchmark.peers benchmark.claims benchmark.case_results benchmark.case_marks "
    "benchmark.scaling_tables",
    "benchmark.case_runs benchmark.case_picture benchmark.verdicts benchmark.scaling_checks",
    "benchmark.case_tables benchmark.scaling",
    "benchmark.case_plots benchmark.case_screen",
    "benchmark.case_page",
    "commands.inspect commands.benchmark commands.run",
    "cli",
    "__main__ benchmark.leash",
)
NUMBERS = {module: number for number, line in enumerate(ORDER, 1) for module in line.split()}
NUMBERS[""] = 0  # the package itself: its version
FILES = {
    ".".join(file.relative_to(REPO / PACKAGE).with_suffix("").parts): file
    for file in sorted((REPO / PACKAGE).rglob("*.py"))
}
MODULES = {module: file for module, file in FILES.items() if not module.endswith("__init__")}


def imported_names(source):
    """Return all that a module imports, at its top and inside functions, as dotted names."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the full name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return sorted(names)


def own_modules(source):
    """Return the modules of the package that a source text imports."""
    found = set()
    for name in imported_names(source):
        if name.split(".")[0] != PACKAGE:
            continue
        parts = name.split(".")[1:]
        while parts and ".".join(parts) not in MODULES:
            parts = parts[:-1]  # a class or function
        found.add(".".join(parts))
    return found


def third_party(source):
    return {name.split(".")[0] for name in imported_names(source)}


def read(module):
    return MODULES[module].read_text(encoding="utf-8")


def test_imports_inside_functions_are_found():
    source = "import os.path\ndef f():\n    from bert_lightning.data import records\n"
    assert imported_names(source) == ["bert_lightning.data.records", "os.path"]
    assert own_modules(source) == {"data.records"}


def test_every_module_has_its_place_in_the_order():
    assert set(MODULES) - set(NUMBERS) == set(), "give new modules a line in ORDER"
    assert set(NUMBERS) - set(MODULES) == {""}, "take modules that are gone out of ORDER"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_comes_before_it(module):
    number = NUMBERS.get(module)
    if number is None:
        pytest.fail(f"{module} has no line in ORDER: give it one")
    late = {other for other in own_modules(read(module)) if NUMBERS.get(other, 99) >= number}
    assert late == set(), f"{module} ({number}) imports what stands at or after its own line"


@pytest.mark.parametrize("module", [name for name in FILES if name.endswith("__init__")])
def test_a_package_file_imports_none_of_the_modules(module):
    assert own_modules(FILES[module].read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("callbacks.")])
def test_callbacks_import_neither_model_nor_data_module(module):
    assert own_modules(read(module)).isdisjoint({"module", "datamodule"})


def test_model_and_data_module_do_not_know_each_other():
    assert "datamodule" not in own_modules(read("module"))
    assert "module" not in own_modules(read("datamodule"))


@pytest.mark.parametrize(
    "module", [name for name in MODULES if name.startswith(("data.", "demo.")) or name == "errors"]
)
def test_data_code_never_sees_lightning(module):
    assert third_party(read(module)).isdisjoint({"lightning", "pytorch_lightning"})


def test_every_module_imports_on_its_own():
    # The package is forgotten before each import; what it builds on is loaded once, which is slow.
    code = f"""
import importlib, sys, traceback
import lightning.pytorch.cli, torchmetrics.classification, transformers
failed = []
for module in {list(MODULES)!r}:
    for name in [name for name in sys.modules if name.split(".")[0] == {PACKAGE!r}]:
        del sys.modules[name]
    try:
        importlib.import_module("{PACKAGE}." + module)
    except Exception:
        traceback.print_exc()
        failed.append(module)
sys.exit(failed or None)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_contributing_shows_the_same_order():
    text = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+?) \|", text, re.MULTILINE)
    shown = {
        module: int(number) for number, cell in rows for module in re.findall(r"`(.+?)`", cell)
    }
    expected = {name.replace(".", "/"): number for name, number in NUMBERS.items() if name}
    assert shown == expected
