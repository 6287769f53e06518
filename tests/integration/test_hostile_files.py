"""Checkpoints, model folders, caches and class names made to run code or to leave the run."""

import json
import pickle
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
