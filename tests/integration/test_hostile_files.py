"""Checkpoints, model folders, caches and class names made to run code or to leave the run."""

import json
import math
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch

from bert_lightning.checkpoint import seal
from bert_lightning.data import storage

SCREEN_LINES = 30
REPO = Path(__file__).parents[2]


class Payload:
    """What writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def ran(tmp_path):
    """The file that a payload makes, after a look that it would make it."""
    path = tmp_path / "ran"
    pickle.loads(pickle.dumps(Payload(path)))
    assert path.exists()
    path.unlink()
    return path


@pytest.fixture
def forge(trained_folder, tmp_path):
    """Write a copy of a good checkpoint after a change of its content, with a good checksum."""

    def forge(change):
        best = trained_folder / "runs" / "1" / "checkpoints" / "best.ckpt"
        content = torch.load(best, weights_only=True)
        content = change(content) or content
        path = tmp_path / "forged.ckpt"
        torch.save(content, path)
        seal(path)
        return path

    return forge


def _expect_words(result):
    assert result.status == 1
    assert "Traceback" not in result.err
    assert result.err.splitlines()[-1]
    assert len(result.err.splitlines()) <= SCREEN_LINES


def _commands(path, folder):
    (folder / "texts.txt").write_text("甲\n", encoding="utf-8")
    texts = ["--data.predict_path", folder / "texts.txt", "--output", folder / "out.jsonl"]
    yield ["predict", "--ckpt_path", path, *texts]
    yield from ([command, "--ckpt_path", path] for command in ("test", "validate", "fit", "plan"))
    yield ["fit", "--model.pretrained", path]


PLACES = {
    "beside the weights": lambda content, payload: content.update(extra=payload),
    "among the weights": lambda content, payload: content["state_dict"].update(x=payload),
    "in the settings": lambda content, payload: content["bert_lightning"]["settings"].update(
        x=payload
    ),
    "in the loops": lambda content, payload: content["loops"].update(x=payload),
    "in its place": lambda content, payload: payload,
}


@pytest.mark.parametrize("place", PLACES)
def test_code_in_a_checkpoint_does_not_run(run_cli, forge, ran, tmp_path, place):
    path = forge(lambda content: PLACES[place](content, Payload(ran)))
    for words in _commands(path, tmp_path):
        result = run_cli(*words)
        _expect_words(result)
        assert "expected a checkpoint of bert_lightning" in result.err, words
        assert not ran.exists(), words
    assert not (tmp_path / "out.jsonl").exists()


def test_a_pickle_in_place_of_a_checkpoint_does_not_run(run_cli, ran, tmp_path):
    path = tmp_path / "forged.ckpt"
    path.write_bytes(pickle.dumps(Payload(ran)))
    for words in _commands(path, tmp_path):
        _expect_words(run_cli(*words))
        assert not ran.exists(), words


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_code_in_a_weight_file_does_not_run(run_cli, tiny_bert_folder, ran, tmp_path, form):
    folder = tmp_path / "model"
    shutil.copytree(tiny_bert_folder, folder)
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    if form == "torch":
        torch.save({"bert.pooler.dense.bias": Payload(ran)}, path)
    else:
        path.write_bytes(pickle.dumps(Payload(ran)))
    result = run_cli("fit", "--data.path", "builtin", "--model.pretrained", folder)
    _expect_words(result)
    assert "expected readable weights in" in result.err
    assert not ran.exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("suffix", [".arrow", ".json"])
@pytest.mark.parametrize("is_listed", [False, True], ids=["alone", "with its checksum"])
def test_code_in_the_cache_does_not_run(
    run_cli, quick, ran, tmp_path, monkeypatch, is_listed, suffix
):
    cache = tmp_path / "cache"
    words = ["plan", *quick, "--data.cache_dir", cache]
    assert run_cli(*words).status == 0
    files = [path for path in cache.rglob(f"*{suffix}") if path.name != storage.CONTENT]
    assert files
    for path in files:
        path.write_bytes(pickle.dumps(Payload(ran)))
    if is_listed:
        monkeypatch.setattr(storage, "_is_whole", lambda place: place.is_dir())
    result = run_cli(*words)
    assert not ran.exists()
    if is_listed:
        _expect_words(result)
        assert str(cache) in result.err
    else:
        assert result.status == 0, "what is damaged is made anew"


@pytest.mark.parametrize("name", ["train.txt", "train.jsonl", "train.parquet", "class.txt"])
def test_code_in_a_data_file_does_not_run(run_cli, quick, news_folder, ran, name):
    if name.startswith("train"):
        (news_folder / "train.txt").unlink()
    (news_folder / name).write_bytes(pickle.dumps(Payload(ran)))
    _expect_words(run_cli("fit", *quick))
    assert not ran.exists()


FORGED = {
    "no settings": lambda stored: stored.pop("settings"),
    "settings of a word": lambda stored: stored.update(settings="x"),
    "no settings of the trainer": lambda stored: stored["settings"].pop("trainer"),
    "data of a word": lambda stored: stored["settings"].update(data="x"),
    "no class names": lambda stored: stored.pop("class_names"),
    "class names of a word": lambda stored: stored.update(class_names="x"),
    "no tokenizer": lambda stored: stored.pop("tokenizer_files"),
    "a tokenizer of numbers": lambda stored: stored.update(tokenizer_files={"vocab.txt": 1}),
    "an empty tokenizer": lambda stored: stored.update(tokenizer_files={}),
    "no configuration": lambda stored: stored.pop("model_config"),
    "a configuration of words": lambda stored: stored.update(model_config={"hidden_size": "x"}),
    "another shape": lambda stored: stored["model_config"].update(intermediate_size=7),
    "no fingerprint": lambda stored: stored.update(data={}),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_checkpoint_that_lacks_what_it_must_have_is_refused(run_cli, forge, tmp_path, name):
    path = forge(lambda content: (FORGED[name](content["bert_lightning"]), None)[1])
    words = next(iter(_commands(path, tmp_path)))
    _expect_words(run_cli(*words))
    assert not (tmp_path / "out.jsonl").exists()


def _loops(content):
    return content["loops"]["fit_loop"]


def _random(content):
    return content["random_states"][0]


def _first_weight(content):
    return next(iter(content["state_dict"]))


WEIGHTS = {  # whatever the command
    "one more weight": lambda c: c["state_dict"].update({"network.more": torch.zeros(1)}),
    "a weight of no network": lambda c: c["state_dict"].update(more=torch.zeros(1)),
    "a weight too few": lambda c: c["state_dict"].pop(_first_weight(c)),
    "a weight that is a word": lambda c: c["state_dict"].update({_first_weight(c): "x"}),
    "a weight of another shape": lambda c: c["state_dict"].update(
        {_first_weight(c): torch.zeros(1)}
    ),
    "a weight that is no number": lambda c: c["state_dict"][_first_weight(c)].fill_(math.nan),
    "weights by number": lambda c: c.update(state_dict=dict(enumerate(c["state_dict"].values()))),
    "weights of a word": lambda c: c.update(state_dict="x"),
    "no version": lambda c: c.pop("pytorch-lightning_version"),
    "a version of words": lambda c: c.update({"pytorch-lightning_version": "x y"}),
    "an old version without the rest": lambda c: (
        c.update({"pytorch-lightning_version": "1.0.0"}),
        c.pop("epoch"),
    ),
}
STATES = {
    "no epoch": lambda c: c.pop("epoch"),
    "an epoch of words": lambda c: c.update(epoch="x"),
    "steps of words": lambda c: c.update(global_step="4"),
    "steps below zero": lambda c: c.update(global_step=-1),
    "loops of a word": lambda c: c.update(loops="x"),
    "no loop of a fit": lambda c: c["loops"].pop("fit_loop"),
    "no epochs counted": lambda c: _loops(c).pop("epoch_progress"),
    "epochs of words": lambda c: _loops(c)["epoch_progress"]["current"].update(processed="x"),
    "batches of a list": lambda c: _loops(c).update({"epoch_loop.batch_progress": []}),
    "batches below zero": lambda c: _loops(c)["epoch_loop.batch_progress"]["current"].update(
        ready=-3
    ),
    "no steps of the optimizer": lambda c: _loops(c).pop(
        "epoch_loop.automatic_optimization.optim_progress"
    ),
    "a count of words of the loop": lambda c: _loops(c)["epoch_loop.state_dict"].update(
        _batches_that_stepped="x"
    ),
    "a report of a word": lambda c: c["callbacks"].update(RunReport="x"),
    "a history of numbers": lambda c: c["callbacks"]["RunReport"].update(history=[1, 2]),
    "a best score of words": lambda c: c["callbacks"]["BestAndLast"].update(best_score="x"),
    "random states of a word": lambda c: c.update(random_states="x"),
    "random states of numbers": lambda c: c.update(random_states=[1]),
    "no random state of Python": lambda c: _random(c).pop("python"),
    "a random state of words": lambda c: _random(c).update(python="x"),
    "a random state of NumPy too far": lambda c: _random(c)["numpy"].__setitem__(1, 5000),
    "a random state of NumPy too short": lambda c: _random(c).update(numpy=[torch.zeros(2)]),
    "a random state of torch too short": lambda c: _random(c).update(torch=torch.zeros(2)),
    "batches an epoch of words": lambda c: c.update(batches_an_epoch="x"),
    "no best score": lambda c: c["callbacks"]["BestAndLast"].pop("best_score"),
    "no callbacks": lambda c: c.update(callbacks={}),
    "a schedule that is empty": lambda c: c.update(lr_schedulers=[{}]),
    "an optimizer without sums": lambda c: c["optimizer_states"][0].update(state={}),
    "a sum of the optimizer that is no number": lambda c: c["optimizer_states"][0]["state"][0][
        "exp_avg_sq"
    ].fill_(math.inf),
    "no schedule": lambda c: c.update(lr_schedulers=[]),
    "a schedule of words": lambda c: c["lr_schedulers"][0].update(optimizer_steps="x"),
    "a schedule of a word": lambda c: c.update(lr_schedulers=["x"]),
    "no optimizer": lambda c: c.update(optimizer_states=[]),
    "an optimizer of a word": lambda c: c.update(optimizer_states=["x"]),
    "a count of words in the optimizer": lambda c: c["optimizer_states"][0]["state"][0].update(
        step="x"
    ),
    "a loss scale of a word": lambda c: c.update(AmpPrecision="x"),
    "a loss scale of words": lambda c: c.update(AmpPrecision={"scale": "x"}),
}


def _expect_refusal(result, folder):
    _expect_words(result)
    assert re.search("^error: (ckpt_path|model.pretrained): expected", result.err, re.MULTILINE)
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("name", [*WEIGHTS, *STATES])
def test_a_state_of_another_form_is_not_trained_on(run_cli, forge, trained_folder, tmp_path, name):
    path = forge(lambda content: ({**WEIGHTS, **STATES}[name](content), None)[1])
    words = ["--data.path", trained_folder / "news", "--trainer.max_epochs", 2]
    _expect_refusal(run_cli("fit", "--ckpt_path", path, *words), tmp_path)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_another_form_are_not_scored(run_cli, forge, trained_folder, tmp_path, name):
    path = forge(lambda content: (WEIGHTS[name](content), None)[1])
    predict, test, *_ = _commands(path, tmp_path)
    _expect_refusal(run_cli(*test, "--data.path", trained_folder / "news"), tmp_path)
    _expect_refusal(run_cli(*predict), tmp_path)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_checkpoint_names_no_classes_and_no_folders_of_the_trainer(
    run_cli, forge, trained_folder, tmp_path, monkeypatch
):
    (tmp_path / "named_by_checkpoint.py").write_text("open('ran', 'w')\nclass C: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    named = {"class_path": "named_by_checkpoint.C"}

    def change(content):
        settings = content["bert_lightning"]["settings"]
        settings["trainer"] |= {"callbacks": [named], "logger": named, "strategy": named}
        settings["trainer"] |= {"profiler": named, "default_root_dir": str(tmp_path / "elsewhere")}
        settings["ckpt_path"] = settings["output"] = "elsewhere"

    words = ["--data.path", trained_folder / "news", "--trainer.max_epochs", "2"]
    result = run_cli("fit", "--ckpt_path", forge(change), *words)
    assert result.status == 0, result.err
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation", "auto_map"])
def test_a_model_folder_names_no_code(run_cli, tiny_bert_folder, quick, tmp_path, key):
    folder = tmp_path / "model"
    shutil.copytree(tiny_bert_folder, folder)
    settings = json.loads((folder / "config.json").read_text())
    settings[key] = {"AutoConfig": "code.Evil"} if key == "auto_map" else "someone/kernels"
    (folder / "config.json").write_text(json.dumps(settings))
    result = run_cli("plan", *quick[:2], "--model.pretrained", folder)
    assert result.status == 0, result.err


def test_no_module_asks_for_remote_code_or_whole_pickles():
    for path in [*(REPO / "bert_lightning").rglob("*.py"), REPO / "main.py"]:
        source = path.read_text(encoding="utf-8")
        for word in ("trust_remote_code", "weights_only=False", "import pickle", "unsafe_load"):
            assert word not in source, f"{path}: {word}"


NAMES = ["../../up", "a/b", "/tmp/absolute", "..", "con", "甲\u202e乙", "=1+1", "<b>", "a\\b", "~"]


def test_class_names_that_look_like_paths_write_nothing_outside_of_the_run(
    run_cli, tiny_bert_folder, tmp_path
):
    folder, news = tmp_path / "place" / "of" / "work", tmp_path / "news"
    folder.mkdir(parents=True)
    news.mkdir()
    for split in ("train", "val", "test"):
        lines = [f"标题{split}{row}\t{NAMES[row % len(NAMES)]}\n" for row in range(4 * len(NAMES))]
        (news / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    before = {path for path in tmp_path.rglob("*") if folder not in path.parents}
    words = ["--data.path", news, "--model.pretrained", tiny_bert_folder, "--trainer.max_epochs", 1]
    result = run_cli("fit", *words, cwd=folder)
    assert result.status == 0, result.err
    (folder / "texts.txt").write_text("甲\n", encoding="utf-8")
    words = ["--ckpt_path", "best", "--data.predict_path", "texts.txt", "--output", "out.csv"]
    assert run_cli("predict", *words, cwd=folder).status == 0
    assert {path for path in tmp_path.rglob("*") if folder not in path.parents} == before
    assert {path.name for path in folder.iterdir()} == {"runs", "texts.txt", "out.csv"}
    known = {"1", "config.yaml", "metrics.csv", "tensorboard", "checkpoints", "report"}
    names = {part for path in folder.rglob("runs/1/*") for part in path.relative_to(folder).parts}
    assert names >= known
    assert not any(name in path.name for path in folder.rglob("*") for name in ("up", "absolute"))
