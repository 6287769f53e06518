import os
import pickle
import random
import shutil
import zipfile

import pytest
import torch

from bert_lightning.checkpoint import FORMAT_VERSION, find_checkpoint, read_checkpoint
from bert_lightning.errors import CheckpointError


def _content(**changes):
    return {
        "state_dict": {"network.weight": torch.arange(6.0).reshape(2, 3)},
        "epoch": 1,
        "bert_lightning": {
            "format_version": FORMAT_VERSION,
            "class_names": ["体育", "娱乐"],
            "settings": {"seed_everything": 42, "trainer": {}, "data": {"path": "news"}},
            "data": {"fingerprint": "0", "holdout_ratio": 0.1, "seed": 42},
            "tokenizer_files": {},
            "model_config": {},
            "backbone": "a BERT",
            "learning_rate": 2e-5,
            **changes,
        },
    }


def _saved(path, content=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(_content() if content is None else content, path)
    return path


def _touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


# --- find -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_short_name_is_the_file_of_the_newest_run(tmp_path, name):
    _touch(tmp_path, *(f"runs/{n}/checkpoints/{name}.ckpt" for n in (2, 9, 10)))
    expected = tmp_path / "runs" / "10" / "checkpoints" / f"{name}.ckpt"
    assert find_checkpoint(name, tmp_path) == expected


def test_runs_without_checkpoints_are_passed_over(tmp_path):
    _touch(tmp_path, "runs/3/checkpoints/best.ckpt", "runs/4/metrics.csv")
    expected = tmp_path / "runs" / "3" / "checkpoints" / "best.ckpt"
    assert find_checkpoint("best", tmp_path) == expected


@pytest.mark.parametrize("name", ["best", "last"])
@pytest.mark.parametrize("runs", [[], ["runs/1/metrics.csv"]], ids=["no runs", "no checkpoint"])
def test_a_short_name_without_such_a_file_is_refused(tmp_path, name, runs):
    _touch(tmp_path, *runs)
    with pytest.raises(CheckpointError, match=f"a run with a {name} checkpoint") as caught:
        find_checkpoint(name, tmp_path)
    assert str(tmp_path / "runs") in str(caught.value)
    assert "train first (fit)" in str(caught.value)


@pytest.mark.parametrize("default", ["best.ckpt", "last.ckpt"])
def test_a_run_folder_stands_for_its_best_or_last(tmp_path, default):
    run = tmp_path / "runs" / "7"
    _touch(run, "checkpoints/best.ckpt", "checkpoints/last.ckpt")
    for name in (run, run / "checkpoints"):
        assert find_checkpoint(str(name), tmp_path / "x", default) == run / "checkpoints" / default


def test_a_folder_without_the_file_is_refused_with_what_it_holds(tmp_path):
    _touch(tmp_path, "checkpoints/last.ckpt", "old/a.ckpt")
    with pytest.raises(CheckpointError, match=r"expected checkpoints/best\.ckpt") as caught:
        find_checkpoint(str(tmp_path), tmp_path)
    assert "found checkpoints/last.ckpt, old/a.ckpt" in str(caught.value)


def test_a_folder_without_any_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="found no checkpoint"):
        find_checkpoint(str(tmp_path), tmp_path)


def test_a_file_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _touch(tmp_path, "any.ckpt")
    assert find_checkpoint("any.ckpt", tmp_path / "x").samefile(tmp_path / "any.ckpt")


def test_a_missing_file_is_refused_with_its_full_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="found nothing at") as caught:
        find_checkpoint("bset", tmp_path)
    assert str(tmp_path / "bset") in str(caught.value)
    assert "best or last" in str(caught.value)


# --- read -------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path):
    content = read_checkpoint(_saved(tmp_path / "a.ckpt"))
    assert content["bert_lightning"] == _content()["bert_lightning"]
    assert torch.equal(content["state_dict"]["network.weight"], torch.arange(6.0).reshape(2, 3))


def test_a_checkpoint_that_was_read_can_be_replaced_by_a_new_one(tmp_path):
    path = _saved(tmp_path / "a.ckpt")
    weight = read_checkpoint(path)["state_dict"]["network.weight"]
    _saved(tmp_path / "b.ckpt", _content(class_names=["家居", "科技"])).replace(path)
    assert weight.sum() == 15
    assert read_checkpoint(path)["bert_lightning"]["class_names"] == ["家居", "科技"]


def test_a_missing_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="found nothing at"):
        read_checkpoint(tmp_path / "a.ckpt")


def _random_bytes(path):
    path.write_bytes(random.Random(0).randbytes(5_000))


def _zip_of_text(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("word/document.xml", "<xml/>")


def _truncated(path):
    whole = _saved(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def _old_form(path):
    torch.save(_content(), path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(_random_bytes, id="random bytes"),
        pytest.param(_truncated, id="truncated"),
        pytest.param(_zip_of_text, id="another zip"),
        pytest.param(_old_form, id="torch's form of before 1.6"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_text("体育\n" * 99), id="text"),
        pytest.param(lambda path: path.write_bytes(pickle.dumps({"a": 1})), id="pickle"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "a.ckpt"
    damage(path)
    with pytest.raises(CheckpointError, match="expected a checkpoint of bert_lightning") as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert str(path) in message
    assert "damaged or not a checkpoint" in message
    assert len(message) < 400 + len(str(path))


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.99])
def test_a_file_cut_off_anywhere_is_refused(tmp_path, part):
    content = _content()
    content["state_dict"] = {f"network.{n}": torch.rand(50, 50) for n in range(20)}
    path = _saved(tmp_path / "a.ckpt", content)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(CheckpointError, match="damaged or not a checkpoint"):
        read_checkpoint(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_wrong_bytes_inside_never_end_in_another_error(tmp_path):
    path = _saved(tmp_path / "a.ckpt")
    whole = path.read_bytes()
    start = whole.index(b"ccollections") if b"ccollections" in whole else 64
    source = random.Random(1)
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[source.randrange(start, start + 600)] = source.randrange(256)
        path.write_bytes(damaged)
        try:
            read_checkpoint(path)
        except CheckpointError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"network.weight": torch.ones(2)}, id="weights"),
        pytest.param({"state_dict": {}, "epoch": 1}, id="plain Lightning"),
        pytest.param([1, 2], id="list"),
        pytest.param(torch.ones(3), id="tensor"),
        pytest.param({"bert_lightning": "yes"}, id="entry of another kind"),
    ],
)
def test_a_torch_file_of_others_is_refused(tmp_path, content):
    path = _saved(tmp_path / "a.ckpt", content)
    with pytest.raises(CheckpointError, match="was not written by it") as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "--model.pretrained" in str(caught.value)


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, "1", None])
def test_an_unknown_format_version_is_refused_in_words(tmp_path, version):
    path = _saved(tmp_path / "a.ckpt", _content(format_version=version))
    with pytest.raises(CheckpointError, match="expected checkpoint format") as caught:
        read_checkpoint(path)
    assert f"has format {version!r}" in str(caught.value)
    assert "the release that wrote it" in str(caught.value)


class _Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("form", ["zip", "old form", "pickle"])
def test_code_inside_a_checkpoint_does_not_run(tmp_path, form):
    target, path = tmp_path / "executed", tmp_path / "a.ckpt"
    content = {**_content(), "callbacks": _Payload(target)}
    if form == "pickle":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(CheckpointError, match="expected a checkpoint of bert_lightning"):
        read_checkpoint(path)
    assert not target.exists()
    with path.open("rb") as file:  # the payload is live: a careless reader runs it
        if form == "zip":
            torch.load(file, weights_only=False)
        else:
            pickle.load(file) if form == "pickle" else torch.load(file, weights_only=False)
    assert target.exists()


def test_a_damaged_checkpoint_names_the_intact_ones_beside_it(tmp_path):
    best, last = _saved(tmp_path / "best.ckpt"), _saved(tmp_path / "last.ckpt")
    last.write_bytes(last.read_bytes()[:300])
    with pytest.raises(CheckpointError, match="damaged") as caught:
        read_checkpoint(last)
    assert f"intact beside it: {best}" in str(caught.value)
    best.write_bytes(b"")
    with pytest.raises(CheckpointError, match="none beside it is intact"):
        read_checkpoint(last)


# --- runs of several seeds ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_short_name_never_passes_over_a_newer_run_of_seeds(tmp_path, name):
    _touch(tmp_path, f"runs/6/checkpoints/{name}.ckpt")
    _touch(tmp_path, *(f"runs/7/seed_{seed}/checkpoints/{name}.ckpt" for seed in (10, 2)))
    _touch(tmp_path, "runs/7/seed_3/metrics.csv")
    with pytest.raises(CheckpointError, match="expected one run") as caught:
        find_checkpoint(name, tmp_path)
    run = tmp_path / "runs" / "7"
    assert f"{run}, a run of several seeds, 2 with a {name} checkpoint\n" in str(caught.value)
    assert f"give one of {run / 'seed_2'}, {run / 'seed_10'}" in str(caught.value)


def test_a_seed_that_has_not_begun_is_said_to_be_trained(tmp_path):
    _touch(tmp_path, "runs/7/seed_2/checkpoints/last.ckpt")
    later = tmp_path / "runs" / "7" / "seed_3"
    with pytest.raises(CheckpointError, match="a seed that has begun – found") as caught:
        find_checkpoint(str(later), tmp_path)
    assert "runs/7 seed_2 have\ntrain it with fit --seeds [3]" in str(caught.value)


def test_the_folder_of_a_run_of_seeds_is_refused_with_its_seeds(tmp_path):
    _touch(tmp_path, "runs/7/seed_2/checkpoints/best.ckpt")
    with pytest.raises(CheckpointError, match=r"give .*seed_2"):
        find_checkpoint(str(tmp_path / "runs" / "7"), tmp_path)


def test_the_folder_of_a_seed_stands_for_its_best(tmp_path):
    _touch(tmp_path, "runs/7/seed_2/checkpoints/best.ckpt")
    run = tmp_path / "runs" / "7" / "seed_2"
    assert find_checkpoint(str(run), tmp_path) == run / "checkpoints" / "best.ckpt"


def _first_state(content):
    return next(iter(content["optimizer_states"][0]["state"].values()))


FORGERIES = {
    "no weights": lambda content: content.pop("state_dict"),
    "weights alone": lambda content: content.pop("optimizer_states"),
    "no step": lambda content: content.pop("global_step"),
    "loops of another kind": lambda content: content.update(loops=7),
    "callbacks of another kind": lambda content: content.update(callbacks=[]),
    "groups of another kind": lambda c: c["optimizer_states"][0].update(param_groups=[7]),
    "no states": lambda content: content["optimizer_states"][0].pop("state"),
    "a shorter sum": lambda content: _first_state(content).update(exp_avg=torch.zeros(3)),
    "no sum": lambda content: _first_state(content).pop("exp_avg_sq"),
}


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_state_of_another_form_is_refused_before_a_step(
    trained_folder, tmp_path, run_cli, forge, command
):
    root = shutil.copytree(trained_folder, tmp_path / "trained")
    forged = root / "runs/1/checkpoints/last.ckpt"
    content = torch.load(forged, weights_only=True)
    forge(content)
    _saved(forged, content)
    words = ("--ckpt_path", "runs/1/checkpoints/last.ckpt", "--trainer.max_epochs", "2")
    status, _, err = run_cli(command, *words, cwd=root)
    assert status == 1
    assert err.startswith("error: ckpt_path: expected ")
    assert "take a checkpoint that this program wrote" in err or "take one that" in err
