import json
import shutil
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import huggingface_hub.errors
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from bert_lightning import backbone as backbone_module
from bert_lightning import hub as hub_module
from bert_lightning.backbone import (
    PRETRAINED_LEARNING_RATE,
    build_network,
    resolve_backbone,
    tokenizer_files,
)
from bert_lightning.checkpoint import FORMAT_VERSION
from bert_lightning.demo.mini_bert import MINI_LEARNING_RATE, mini_tokenizer, mini_vocabulary
from bert_lightning.errors import BackboneError, CheckpointError

NAMES = ["体育", "娱乐", "家居", "科技"]
WAY_OUT = "give a folder with config.json, vocab.txt and model.safetensors"
TITLE = "雪豹队加时逆转"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A model folder of one layer of 32, as `save_pretrained` writes it. Read only."""
    from transformers import BertConfig, BertForSequenceClassification

    folder = tmp_path_factory.mktemp("source") / "bert"
    config = BertConfig(
        vocab_size=len(mini_vocabulary()),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=len(NAMES),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = BertForSequenceClassification(config)
        for parameter in network.parameters():  # LayerNorm starts at 1 and 0: nothing to tell apart
            parameter.data += 0.1 * torch.rand_like(parameter)
    network.save_pretrained(folder)
    mini_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(source, tmp_path):
    """A copy of the model folder, to be changed."""
    return Path(shutil.copytree(source, tmp_path / "bert"))


@pytest.fixture
def weights(source):
    """The weights in the folder, by name."""
    return load_file(source / "model.safetensors")


@pytest.fixture
def online(monkeypatch, tmp_path):
    """Let the hub be asked, at the address that is set on the result; the cache is empty."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    def at(address):
        monkeypatch.setattr(constants, "ENDPOINT", address)

    return at


@pytest.fixture
def no_network(monkeypatch):
    """Fail at any attempt to reach another machine."""

    def refuse(*args, **kwargs):
        raise AssertionError(f"network: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def _edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}), encoding="utf-8")


def _as_bin(folder, state):
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")


def _network(name, dropout=None, names=NAMES):
    return build_network(resolve_backbone(str(name)), names, dropout)


def _same_weights(network, weights):
    state = network.state_dict()
    return state.keys() == weights.keys() and all(
        torch.equal(state[key], value) for key, value in weights.items()
    )


# --- built in ---------------------------------------------------------------------------------


def test_the_built_in_model_needs_nothing(no_network):
    backbone = resolve_backbone("builtin")
    network, note = build_network(backbone, NAMES, None)
    assert note is None
    assert backbone.reason is None
    assert backbone.weights is None
    assert "random weights" in backbone.name
    assert backbone.learning_rate == MINI_LEARNING_RATE
    assert network.config.vocab_size == len(backbone.tokenizer)


def test_the_random_weights_follow_the_seed():
    networks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        networks.append(_network("builtin")[0].state_dict())
    assert _same(networks[0], networks[1])
    assert not _same(networks[0], networks[2])


def _same(first, second):
    return all(torch.equal(value, second[key]) for key, value in first.items())


# --- local folder -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["safetensors", "bin", "old bin"])
def test_a_folder_gives_its_weights(folder, weights, no_network, form):
    if form != "safetensors":
        (folder / "model.safetensors").unlink()
        torch.save(
            weights,
            folder / "pytorch_model.bin",
            _use_new_zipfile_serialization=form == "bin",
        )
    backbone = resolve_backbone(str(folder))
    network, note = build_network(backbone, NAMES, None)
    assert _same_weights(network, weights)
    assert note is None
    assert backbone.name == str(folder)
    assert backbone.reason is None
    assert backbone.learning_rate == PRETRAINED_LEARNING_RATE == 2e-5


def test_a_folder_can_be_named_from_the_working_folder(folder, monkeypatch, no_network):
    monkeypatch.chdir(folder.parent)
    for name in ("bert", "./bert", "bert/"):
        assert resolve_backbone(name).weights.samefile(folder)


@pytest.mark.parametrize("form", ["safetensors", "bin"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_in_the_file_gives_float32_weights(folder, weights, dtype, form):
    half = {key: value.to(dtype) for key, value in weights.items()}
    if form == "safetensors":
        save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        _as_bin(folder, half)
    _edit_config(folder, dtype=str(dtype).removeprefix("torch."))
    network, _ = _network(folder)
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    assert _same_weights(network, {key: value.float() for key, value in half.items()})


@pytest.mark.parametrize("name", ["builtin", "folder", "checkpoint"])
def test_every_part_of_the_network_is_in_train_mode(folder, checkpoint, name):
    path = {"builtin": "builtin", "folder": folder, "checkpoint": checkpoint}[name]
    network, _ = _network(path)
    assert all(module.training for module in network.modules())


def test_class_names_go_into_the_configuration(folder):
    network, _ = _network(folder)
    assert network.config.id2label == dict(enumerate(NAMES))
    assert network.config.label2id == {name: index for index, name in enumerate(NAMES)}
    assert network.num_labels == network.config.num_labels == len(NAMES)


def test_a_folder_of_vocabulary_weights_and_shape_alone_is_enough(folder, weights, no_network):
    (folder / "vocab.txt").write_text("\n".join(mini_vocabulary()) + "\n", encoding="utf-8")
    for file in folder.iterdir():
        if file.name not in ("vocab.txt", "config.json", "model.safetensors"):
            file.unlink()
    backbone = resolve_backbone(str(folder))
    assert backbone.tokenizer(TITLE).input_ids == mini_tokenizer()(TITLE).input_ids
    assert _same_weights(build_network(backbone, NAMES, None)[0], weights)


def test_a_vocabulary_with_windows_line_ends_is_the_same(folder):
    for file in folder.glob("*token*"):
        file.unlink()
    (folder / "vocab.txt").write_bytes("\r\n".join([*mini_vocabulary(), ""]).encode())
    tokenizer = resolve_backbone(str(folder)).tokenizer
    assert tokenizer(TITLE).input_ids == mini_tokenizer()(TITLE).input_ids


def test_tokenizer_json_alone_is_enough(folder):
    for file in folder.iterdir():
        if file.name not in ("tokenizer.json", "config.json", "model.safetensors"):
            file.unlink()
    tokenizer = resolve_backbone(str(folder)).tokenizer
    assert tokenizer(TITLE).input_ids == mini_tokenizer()(TITLE).input_ids


@pytest.mark.parametrize(
    ("patterns", "missing"),
    [
        pytest.param(["config.json"], "config.json", id="shape"),
        pytest.param(["vocab.txt", "tokenizer.json"], "vocab.txt", id="vocabulary"),
        pytest.param(["model*"], "model.safetensors or pytorch_model.bin", id="weights"),
        pytest.param(
            ["*"], "config.json, vocab.txt, model.safetensors or pytorch_model.bin", id="all"
        ),
    ],
)
def test_missing_files_are_named(folder, no_network, patterns, missing):
    for pattern in patterns:
        for file in folder.glob(pattern):
            file.unlink()
    with pytest.raises(BackboneError, match=r"model\.pretrained: expected a complete") as caught:
        resolve_backbone(str(folder))
    message = str(caught.value)
    assert f"{folder} lacks {missing} (it holds" in message
    assert WAY_OUT in message


@pytest.mark.parametrize("kind", ["roberta", "albert", "gpt2"])
def test_another_kind_of_model_is_refused_by_name(folder, kind):
    _edit_config(folder, model_type=kind)
    with pytest.raises(BackboneError, match=f"of type bert – found '{kind}'") as caught:
        resolve_backbone(str(folder))
    assert str(folder / "config.json") in str(caught.value)


def test_a_configuration_without_kind_is_taken_for_bert(folder, weights):
    settings = json.loads((folder / "config.json").read_text())
    del settings["model_type"]
    (folder / "config.json").write_text(json.dumps(settings))
    assert _same_weights(_network(folder)[0], weights)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"{", id="broken"),
        pytest.param(b"[]", id="list"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_configuration_that_is_no_json_is_refused_by_name(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(BackboneError, match=r"config\.json: expected") as caught:
        resolve_backbone(str(folder))
    assert str(folder / "config.json") in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"hidden_size": 33}, id="size and heads"),
        pytest.param({"hidden_size": "wide"}, id="word for number"),
        pytest.param({"hidden_act": "sigmoidal"}, id="unknown function"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(folder, changes):
    _edit_config(folder, **changes)
    with pytest.raises(BackboneError, match=r"model\.pretrained|config\.json") as caught:
        _network(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("change", [-1, 3], ids=["fewer", "more"])
def test_a_vocabulary_of_another_size_is_refused_with_both_sizes(folder, change):
    vocabulary = [*mini_vocabulary(), "甲甲", "乙乙", "丙丙"][: len(mini_vocabulary()) + change]
    for file in folder.glob("*token*"):
        file.unlink()
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    with pytest.raises(BackboneError, match="expected a vocabulary of") as caught:
        resolve_backbone(str(folder))
    message = str(caught.value)
    assert f"{len(mini_vocabulary()):,} entries" in message
    assert f"found {len(vocabulary):,}" in message
    assert "take vocab.txt and weights from one place" in message


# --- weights ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 10])
def test_a_head_of_another_size_is_new_and_noted(folder, weights, count):
    names = [f"类{number}" for number in range(count)]
    network, note = _network(folder, names=names)
    assert note == "classifier head is new: the stored one is of other classes"
    state = network.state_dict()
    assert state["classifier.weight"].shape == (count, 32)
    assert all(torch.equal(state[k], weights[k]) for k in weights if not k.startswith("classifier"))
    assert torch.isfinite(state["classifier.weight"]).all()


def test_weights_without_a_head_give_a_new_one_without_a_word(folder, weights):
    bare = {k: v.clone() for k, v in weights.items() if not k.startswith("classifier.")}
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    network, note = _network(folder)
    assert note is None
    state = network.state_dict()
    assert all(torch.equal(state[key], value) for key, value in bare.items())


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_old_names_of_layer_norm_arrive(folder, weights, form):
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value.clone()
        for key, value in weights.items()
    }
    assert old.keys() != weights.keys()
    if form == "safetensors":
        save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        _as_bin(folder, old)
    network, note = _network(folder)
    assert note is None
    assert _same_weights(network, weights)


def test_weights_of_the_encoder_alone_are_enough(folder, weights):
    bare = {k.removeprefix("bert."): v.clone() for k, v in weights.items() if "bert." in k}
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    state = _network(folder)[0].state_dict()
    assert all(torch.equal(state[f"bert.{key}"], value) for key, value in bare.items())


def test_missing_weights_of_the_encoder_are_named(folder, weights):
    gone = "bert.encoder.layer.0.output.dense.weight"
    rest = {key: value.clone() for key, value in weights.items() if key != gone}
    save_file(rest, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BackboneError, match="expected all weights of a BERT encoder") as caught:
        _network(folder)
    assert gone in str(caught.value)
    assert str(folder) in str(caught.value)


def test_weights_of_another_shape_are_named(folder, weights):
    _edit_config(folder, intermediate_size=48)
    with pytest.raises(BackboneError, match="of another size") as caught:
        _network(folder)
    assert "intermediate.dense.weight" in str(caught.value)


def test_foreign_weights_are_refused(folder):
    save_file({"conv.weight": torch.ones(3)}, folder / "model.safetensors")
    with pytest.raises(BackboneError, match=r"model\.pretrained: expected"):
        _network(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "random", "git-lfs pointer"])
def test_weights_that_cannot_be_read_are_refused_by_folder(folder, weights, name, damage):
    if name != "model.safetensors":
        _as_bin(folder, weights)
    whole = (folder / name).read_bytes()
    content = {
        "empty": b"",
        "truncated": whole[: len(whole) // 2],
        "random": bytes(range(256)) * 40,
        "git-lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    }[damage]
    (folder / name).write_bytes(content)
    with pytest.raises(BackboneError, match="expected readable weights") as caught:
        _network(folder)
    assert str(folder) in str(caught.value)
    assert "fetch the weight file again" in str(caught.value)


def test_code_inside_a_weight_file_does_not_run(folder, tmp_path):
    target = tmp_path / "executed"
    _as_bin(folder, {"bert.x": _Payload(target)})
    with pytest.raises(BackboneError, match="expected readable weights"):
        _network(folder)
    assert not target.exists()


class _Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return Path.mkdir, (Path(self.target),)


# --- dropout ----------------------------------------------------------------------------------


def _rates(network):
    return {module.p for module in network.modules() if isinstance(module, torch.nn.Dropout)}


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("name", ["builtin", "folder"])
def test_a_given_dropout_is_that_of_every_layer(folder, name, rate):
    network, _ = _network(folder if name == "folder" else name, dropout=rate)
    assert _rates(network) == {rate}
    config = network.config
    assert config.attention_probs_dropout_prob == config.hidden_dropout_prob == rate


def test_without_dropout_the_model_keeps_its_own(folder):
    _edit_config(folder, hidden_dropout_prob=0.25, classifier_dropout=0.5)
    assert _rates(_network(folder)[0]) == {0.1, 0.25, 0.5}


def test_dropout_zero_gives_the_same_logits_twice_in_train_mode(folder):
    network, _ = _network(folder, dropout=0.0)
    ids = torch.tensor([mini_tokenizer()(TITLE).input_ids])
    assert torch.equal(network(ids).logits, network(ids).logits)


# --- checkpoint as a start --------------------------------------------------------------------


@pytest.fixture
def checkpoint(folder, weights, tmp_path):
    """A checkpoint with what the project itself needs of it."""
    path = tmp_path / "best.ckpt"
    _save_checkpoint(path, folder, weights)
    return path


def _save_checkpoint(path, folder, weights, **changes):
    backbone = resolve_backbone(str(folder))
    stored = {
        "format_version": FORMAT_VERSION,
        "backbone": "tiny",
        "class_names": NAMES,
        "learning_rate": 3e-4,
        "model_config": build_network(backbone, NAMES, None)[0].config.to_dict(),
        "tokenizer_files": tokenizer_files(backbone.tokenizer),
        **changes,
    }
    stored["model_config"].pop("dtype", None)
    state = {f"network.{key}": value for key, value in weights.items()}
    torch.save({"state_dict": state, "bert_lightning": stored}, path)


def test_a_checkpoint_needs_no_model_folder(checkpoint, folder, weights, no_network):
    shutil.rmtree(folder)
    backbone = resolve_backbone(str(checkpoint))
    network, note = build_network(backbone, NAMES, None)
    assert note is None
    assert (backbone.name, backbone.learning_rate) == ("tiny", 3e-4)
    assert _same_weights(network, weights)
    assert backbone.tokenizer(TITLE).input_ids == mini_tokenizer()(TITLE).input_ids


def test_a_checkpoint_of_other_classes_gives_a_new_head_and_a_note(checkpoint, weights):
    network, note = _network(checkpoint, names=["甲", "乙"])
    assert note == "classifier head is new: the stored one is of other classes"
    state = network.state_dict()
    assert all(torch.equal(state[k], weights[k]) for k in weights if not k.startswith("classifier"))


def test_a_checkpoint_that_lacks_weights_is_refused(folder, weights, tmp_path):
    path = tmp_path / "best.ckpt"
    rest = {key: value for key, value in weights.items() if "encoder" not in key}
    _save_checkpoint(path, folder, rest)
    with pytest.raises((BackboneError, CheckpointError), match="weights"):
        _network(path)


def test_names_in_a_checkpoint_cannot_write_outside_a_folder(folder, weights, tmp_path):
    path = tmp_path / "best.ckpt"
    files = tokenizer_files(resolve_backbone(str(folder)).tokenizer)
    _save_checkpoint(path, folder, weights, tokenizer_files={**files, "../../escaped.txt": "x"})
    resolve_backbone(str(path))
    assert not list(tmp_path.rglob("escaped.txt"))


def test_a_missing_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="found nothing at"):
        resolve_backbone(str(tmp_path / "best.ckpt"))


# --- names that are not there -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["/no/such/folder", "./bert-base", "../bert", "~/bert", "."])
def test_a_path_that_is_no_model_folder_costs_no_network(tmp_path, monkeypatch, no_network, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BackboneError, match=r"model\.pretrained: expected") as caught:
        resolve_backbone(name)
    assert WAY_OUT in str(caught.value)


def test_a_file_is_no_model_folder(folder, no_network):
    with pytest.raises(BackboneError, match="expected a model folder") as caught:
        resolve_backbone(str(folder / "model.safetensors"))
    assert str(folder / "model.safetensors") in str(caught.value)


MISTYPED = ["bert-base-chines", "models/bert-base-chines"]
NO_HUB_ID = [
    "models/zh/bert-base",
    "my model",
    "模型/bert",
    "-bert",
    "bert..base",
    pytest.param("a" * 120, id="long"),
]


@pytest.mark.parametrize("name", [*MISTYPED, *NO_HUB_ID])
def test_a_mistyped_folder_is_refused_at_once_on_an_offline_machine(
    monkeypatch, tmp_path, no_network, name
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BackboneError, match=r"model\.pretrained: ") as caught:
        resolve_backbone(name)
    assert name in str(caught.value)
    assert WAY_OUT in str(caught.value)


@pytest.mark.parametrize("name", [*MISTYPED, *NO_HUB_ID])
def test_a_mistyped_folder_is_refused_soon_without_a_hub(monkeypatch, tmp_path, online, name):
    monkeypatch.chdir(tmp_path)
    online("http://127.0.0.1:9")
    started = time.monotonic()
    with pytest.raises(BackboneError, match=r"model\.pretrained: ") as caught:
        resolve_backbone(name)
    assert time.monotonic() - started < 6
    assert name in str(caught.value)
    assert WAY_OUT in str(caught.value)
    if name in MISTYPED:
        assert "http://127.0.0.1:9 cannot be reached" in str(caught.value)


@pytest.fixture
def silent_hub():
    """The address of a machine that takes a connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_hub_is_waited_for_five_seconds():
    assert hub_module.HUB_SECONDS == 5


def test_a_hub_that_never_answers_is_given_up(online, silent_hub):
    online(silent_hub)
    started = time.monotonic()
    with pytest.raises(BackboneError, match=f"the hub {silent_hub} ") as caught:
        resolve_backbone("bert-base-chines")
    assert 4 < time.monotonic() - started < 6
    assert "did not answer within 5 s" in str(caught.value) or "timed out" in str(caught.value)
    assert "HF_ENDPOINT" in str(caught.value)


def test_a_name_look_up_that_never_ends_is_given_up(online, monkeypatch):
    monkeypatch.setattr(hub_module, "HUB_SECONDS", 1.0)
    released = threading.Event()

    def hang(*args, **kwargs):
        released.wait(10)
        raise OSError("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    online("http://hub.invalid")
    started = time.monotonic()
    try:
        with pytest.raises(BackboneError, match="did not answer within 1 s"):
            resolve_backbone("bert-base-chines")
        assert time.monotonic() - started < 3
    finally:
        released.set()


class _Hub(BaseHTTPRequestHandler):
    def do_HEAD(self):
        if self.server.garbage:
            self.wfile.write(b"SSH-2.0-server\r\n")
        else:
            self.send_error(self.server.status)

    def log_message(self, *args):
        pass


@pytest.fixture
def hub():
    """A hub on this machine that answers with a status, or with something that is no HTTP."""
    server = HTTPServer(("127.0.0.1", 0), _Hub)
    server.status, server.garbage = 404, False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def _address(server):
    return f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found"), (401, "401 Unauthorized")])
def test_a_name_that_the_hub_does_not_know_is_refused(online, hub, status, words):
    hub.status = status
    online(_address(hub))
    with pytest.raises(BackboneError, match=f"answered {words}") as caught:
        resolve_backbone("bert-base-chines")
    assert "'bert-base-chines'" in str(caught.value)


def test_a_hub_that_speaks_no_http_is_not_called_silent(online, hub):
    hub.garbage = True
    online(_address(hub))
    with pytest.raises(BackboneError, match="the hub") as caught:
        resolve_backbone("bert-base-chines")
    assert "did not answer within" not in str(caught.value)


@pytest.fixture
def answering_hub(online, hub, monkeypatch):
    """A hub that knows every name; what it hands over is the result's `download`."""

    class Downloads:
        asked = ()

        def __call__(self, model_id, allow_patterns=None, **options):
            self.asked = (*self.asked, (model_id, tuple(allow_patterns)))
            return self.download(allow_patterns)

    downloads = Downloads()
    monkeypatch.setattr(hub_module, "_hub_failure", lambda url: None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", downloads)
    online(_address(hub))
    return downloads


def test_a_hub_model_is_downloaded_once(answering_hub, folder):
    answering_hub.download = lambda patterns: str(folder)
    backbone = resolve_backbone("some/bert")
    assert backbone.name == "some/bert"
    assert backbone.weights.samefile(folder)
    assert [name for name, _ in answering_hub.asked] == ["some/bert"]


def test_a_hub_model_without_safetensors_is_downloaded_as_bin(answering_hub, folder, weights):
    (folder / "model.safetensors").unlink()

    def download(patterns):
        if any("pytorch_model" in pattern for pattern in patterns):
            torch.save(weights, folder / "pytorch_model.bin")
        return str(folder)

    answering_hub.download = download
    assert _same_weights(_network("some/bert")[0], weights)
    assert len(answering_hub.asked) == 2


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConnectionResetError("connection reset"), id="connection"),
        pytest.param(OSError(28, "No space left on device"), id="disk"),
        pytest.param(huggingface_hub.errors.LocalEntryNotFoundError("gone"), id="hub library"),
    ],
)
def test_a_download_that_breaks_off_is_an_error_with_the_way_out(answering_hub, error):
    def download(patterns):
        raise error

    answering_hub.download = download
    with pytest.raises(BackboneError, match=r"model\.pretrained.*some/bert") as caught:
        resolve_backbone("some/bert")
    assert WAY_OUT in str(caught.value)


def test_a_model_in_the_cache_is_taken_without_the_network(folder, tmp_path, monkeypatch, online):
    online("http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    place = tmp_path / "hub" / "models--some--bert"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, place / "snapshots" / ("0" * 40))
    assert resolve_backbone("some/bert").weights.is_relative_to(place)


# --- auto -------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Pretend a GPU or none; no model lies about."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BERT_BASE_CHINESE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(backbone_module, "cached_folder", lambda model_id: None)
    return lambda answer: monkeypatch.setattr(torch.accelerator, "is_available", lambda: answer)


def test_auto_is_the_mini_model_without_a_gpu(gpu, no_network):
    gpu(False)
    backbone = resolve_backbone("auto")
    assert backbone.weights is None
    assert backbone.reason == "no GPU on this machine"


def test_auto_says_where_the_real_model_is_without_a_gpu(gpu, folder, monkeypatch, no_network):
    gpu(False)
    monkeypatch.setenv("BERT_BASE_CHINESE", str(folder))
    backbone = resolve_backbone("auto")
    assert backbone.weights is None
    assert f"--model.pretrained {folder}" in backbone.reason


def test_auto_is_the_local_model_with_a_gpu(gpu, folder, monkeypatch, no_network):
    gpu(True)
    monkeypatch.setenv("BERT_BASE_CHINESE", str(folder))
    backbone = resolve_backbone("auto")
    assert backbone.weights == folder
    assert backbone.name == "bert-base-chinese"
    assert str(folder) in backbone.reason


def test_auto_is_the_model_in_the_working_folder_first(gpu, folder, tmp_path, monkeypatch):
    gpu(True)
    monkeypatch.setenv("BERT_BASE_CHINESE", str(folder))
    shutil.copytree(folder, tmp_path / "bert-base-chinese")
    assert resolve_backbone("auto").weights.samefile(tmp_path / "bert-base-chinese")


def test_auto_is_the_mini_model_with_a_gpu_but_no_hub(gpu, no_network):
    gpu(True)
    backbone = resolve_backbone("auto")
    assert backbone.weights is None
    assert "bert-base-chinese" in backbone.reason
    assert "HF_HUB_OFFLINE" in backbone.reason
    assert "\n" not in backbone.reason
