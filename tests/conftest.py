"""Fixtures of all tests: isolation, tiny data, a tiny BERT, and two ways to run a command line."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from bert_lightning import cli
from bert_lightning.demo.mini_bert import mini_config, mini_tokenizer
from bert_lightning.demo.news import CORPUS_CLASSES, made_up_news

REPO = Path(__file__).parent.parent
REAL_DATA = Path(os.environ.get("BERT_LIGHTNING_REAL_DATA") or REPO.parent / "shared" / "data")
NEWS_ROWS = {"train": 64, "val": 17, "test": 33}
PROCESS_SECONDS = 240
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
TWO_STEPS = (
    *("--trainer.max_epochs", "1"),
    *("--trainer.limit_train_batches", "2"),
    *("--data.batch_size", "8"),
)


class Result(NamedTuple):
    """What a command left: exit status, standard output, standard error."""

    status: int
    out: str
    err: str


def pytest_configure(config):
    """Compute on the CPU alone unless tests marked gpu are asked for, in one thread."""
    for number in _SIGNALS:
        if signal.getsignal(number) == signal.SIG_IGN:  # as nohup has it, for all that tests start
            signal.signal(number, signal.SIG_DFL)
    torch.set_num_threads(1)  # models are tiny, and threads of two processes hinder one another
    if "not gpu" in config.getoption("markexpr"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests that take `real_data`, and skip all so marked where there is none."""
    for item in items:
        if "real_data" in getattr(item, "fixturenames", ()):
            item.add_marker("real_data")
        if item.get_closest_marker("real_data") and not REAL_DATA.is_dir():
            item.add_marker(pytest.mark.skip(reason=f"no headlines at {REAL_DATA}"))


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Keep what is read and tokenised once out of the user's cache."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path_factory):
    """Hide the hub and this machine's models; put back all state of the process after the test."""
    cache = tmp_path_factory.getbasetemp() / "empty_hub_cache"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.delenv("BERT_BASE_CHINESE", raising=False)
    if constants := sys.modules.get("huggingface_hub.constants"):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    with _state_restored():
        yield


@contextlib.contextmanager
def _state_restored():
    folder, environment = Path.cwd(), dict(os.environ)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, matmul = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    anomaly = torch.is_anomaly_enabled()
    try:
        yield
    finally:
        os.chdir(folder)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.backends.cudnn.benchmark = benchmark
        torch.set_float32_matmul_precision(matmul)
        torch.autograd.set_detect_anomaly(anomaly)


@pytest.fixture
def news_folder(tmp_path):
    """A folder of train (64), val (17) and test (33) rows, `title class`, four classes."""
    return write_news(tmp_path / "news")


def write_news(folder):
    """Write made-up headlines, the classes in turn."""
    folder.mkdir()
    for split, rows in NEWS_ROWS.items():
        titles = {name: [] for name in CORPUS_CLASSES}
        for record in made_up_news(split):
            titles[record.label].append(record.text)
        lines = [
            f"{titles[name][row // len(CORPUS_CLASSES)]} {name}\n"
            for row in range(rows)
            for name in [CORPUS_CLASSES[row % len(CORPUS_CLASSES)]]
        ]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8", newline="\n")
    return folder


@pytest.fixture(scope="session")
def tiny_bert_folder(tmp_path_factory):
    """A model folder in transformers' form: 1 layer of 32, the mini's vocabulary. Read only."""
    from transformers import BertForSequenceClassification

    folder = tmp_path_factory.mktemp("models") / "tiny_bert"
    config = mini_config(num_labels=len(CORPUS_CLASSES))
    config.hidden_size = 32
    config.num_hidden_layers = 1
    config.num_attention_heads = 2
    config.intermediate_size = 64
    config.max_position_embeddings = 128
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        model = BertForSequenceClassification(config)
    model.save_pretrained(folder)
    mini_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def quick(news_folder, tiny_bert_folder):
    """Arguments that make a fit take two steps: tiny data, tiny model, small batches."""
    return ["--data.path", news_folder, "--model.pretrained", tiny_bert_folder, *TWO_STEPS]


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory, tiny_bert_folder):
    """A folder with news/ and runs/1, the outcome of a short fit. Read only: copy it to go on."""
    folder = tmp_path_factory.mktemp("trained")
    write_news(folder / "news")
    words = ["fit", "--data.path", "news", "--model.pretrained", str(tiny_bert_folder), *TWO_STEPS]
    with _state_restored():
        os.chdir(folder)
        assert cli.main(words) == 0
    return folder


@pytest.fixture
def holder():
    """Return what starts a process that trains, as far as others can see, in a run's folder."""
    words = "import sys, time, pathlib; from bert_lightning.runs import hold_run;"
    words += "hold_run(pathlib.Path(sys.argv[1])); print('held', flush=True); time.sleep(300)"
    started = []

    def hold(folder):
        command = [sys.executable, "-c", words, str(folder)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "held\n"
        return started[-1]

    yield hold
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def saved_states(monkeypatch, tmp_path):
    """Keep a copy of each state that a run saves: a list of its step and its file."""
    from bert_lightning.callbacks.checkpoints import BestAndLast

    saved = []
    save = BestAndLast.save

    def save_and_copy(self, trainer):
        save(self, trainer)
        path = tmp_path / f"state_{len(saved)}.ckpt"
        shutil.copy(self.run.checkpoints / "last.ckpt", path)
        saved.append((trainer.global_step, path))

    monkeypatch.setattr(BestAndLast, "save", save_and_copy)
    return saved


@pytest.fixture
def run_cli(tmp_path, capsys):
    """Run a command line in this process, in tmp_path unless told: `run_cli(*args) -> Result`."""

    def run(*args, cwd=tmp_path):
        capsys.readouterr()
        before = Path.cwd()
        os.chdir(cwd)
        # a run listens to signals, and Lightning ignores Ctrl-C after the first one: left so, the
        # processes that later tests start would ignore it too
        handlers = {name: signal.getsignal(name) for name in _SIGNALS}
        try:
            status = cli.main([str(arg) for arg in args])
        except SystemExit as stop:  # --help and --print_config
            status = int(stop.code or 0)
        finally:
            os.chdir(before)
            for name, handler in handlers.items():
                signal.signal(name, handler)
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def run_process(tmp_path):
    """Run `main.py` in a process of its own: `run_process(*args) -> Result`; DDP needs this."""

    def run(*args, cwd=tmp_path, stdin="", env=None):
        process = subprocess.Popen(
            [sys.executable, str(REPO / "main.py"), *map(str, args)],
            cwd=cwd,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        try:
            out, err = process.communicate(stdin, timeout=PROCESS_SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the processes that it started, too
            process.communicate()
            raise
        return Result(process.returncode, out, err)

    return run


@pytest.fixture
def real_data():
    """The folder of real headlines; the test is skipped where there is none."""
    return REAL_DATA
