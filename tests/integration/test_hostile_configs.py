"""What a YAML file may hold: a config is taken, or refused in a screen of words."""

import json
import random
import re

import pytest

SCREEN_LINES, SCREEN_CHARACTERS = 30, 15_000
SYSTEM = "{class_path: os.system, init_args: {command: touch ran}}"
PROCESS = "{class_path: subprocess.Popen, init_args: {args: [touch, ran]}}"
PAYLOAD = "import pathlib; pathlib.Path('ran').touch()"


def _bomb(first, link):
    """Return anchors that stand for 9 ** 12 values."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} {link(f'*a{n - 1}')}" for n in range(1, 13)]
    return "\n".join(lines) + "\ndata: *a12\n"


REFUSED = {
    "a list for a file": "- a\n- b\n",
    "a word for a file": "fit\n",
    "a number for a file": "7\n",
    "a list bomb": _bomb("[x]", lambda name: f"[{', '.join([name] * 9)}]"),
    "a mapping bomb": _bomb(
        "{x: y}", lambda name: "{" + ", ".join(f"k{n}: {name}" for n in range(9)) + "}"
    ),
    "a merge bomb": "data: &a {x: 1}\nb: &b {<<: [*a, *a], y: *a}\nc: {<<: [*b, *b], z: *b}\n",
    "a list that holds itself": "trainer: &a\n  callbacks: [*a]\n",
    "a mapping that holds itself": "data: &a\n  path: *a\n",
    "an unknown anchor": "data: *nothing\n",
    "!!python/object": f"data: !!python/object/apply:builtins.exec [{PAYLOAD!r}]\n",
    "!!python/object/new": "data:\n  path: !!python/object/new:os.system ['touch ran']\n",
    "!!python/name": "data:\n  path: !!python/name:os.system\n",
    "!!python/module": "data:\n  path: !!python/module:antigravity\n",
    "!!python/tuple": "data:\n  path: !!python/tuple [a, b]\n",
    "an unknown tag": "data:\n  path: !include /etc/passwd\n",
    "an environment tag": "data:\n  path: !ENV ${HOME}\n",
    "an interpolation in a number": "data:\n  batch_size: ${oc.env:HOME}\n",
    "two documents": "data:\n  batch_size: 4\n---\ndata:\n  batch_size: 8\n",
    "a key twice": "data:\n  batch_size: 4\n  batch_size: 8\n",
    "a group twice": "data:\n  batch_size: 4\ndata:\n  max_length: 32\n",
    "a tab before a key": "data:\n\tbatch_size: 4\n",
    "an open bracket": "data: [1, 2\n",
    "an open quote": "data: 'a\n",
    "a colon too many": "data: batch_size: 4\n",
    "uneven": "data:\n  batch_size: 4\n max_length: 5\n",
    "deep brackets": "data: " + "[" * 20_000 + "]" * 20_000 + "\n",
    "deep braces": "data: " + "{a: " * 5_000 + "1" + "}" * 5_000 + "\n",
    "deep lines": "\n".join(f"{' ' * n}a:" for n in range(2_000)) + "\n",
    "a deep value": "data:\n  path: " + "[" * 400 + "]" * 400 + "\n",
    "a key of a list": "data:\n  ? [a, b]\n  : 1\n",
    "a key of a mapping": "data:\n  ? {a: b}\n  : 1\n",
    "a number as a key": "data:\n  1: 2\n",
    "a number as a group": "1:\n  a: 2\n",
    "null as a key": "data:\n  null: 2\n",
    "true as a group": "yes: no\n",
    "an empty key": "data:\n  '': 2\n",
    "a key of dots": "...: 1\na.b.c: 2\n",
    "an unknown group": "dta:\n  batch_size: 4\n",
    "an unknown key": "data:\n  bath_size: 4\n",
    "a Chinese group": "数据:\n  批大小: 4\n",
    "a Chinese key": "data:\n  批大小: 4\n",
    "a full-width colon": "data：\n  batch_size：4\n",
    "a key with a line end": 'data:\n  "a\\nb": 4\n',
    "a key with NUL": 'data:\n  "a\\0b": 4\n',
    "a key with an escape sequence": 'data:\n  "\\e[31mred": 4\n',
    "a key of 100,000 letters": f"data:\n  {'k' * 100_000}: 4\n",
    "a value of 1 MB": f"data:\n  batch_size: {'k' * 1_000_000}\n",
    "a number of 5,000 digits": f"data:\n  batch_size: {'9' * 5_000}\n",
    "2,000 unknown keys": "data:\n" + "".join(f"  k{n}: 1\n" for n in range(2_000)),
    "a dunder key": "data:\n  __class__: int\n  __init__: {}\n",
    "an option as a key": "--config: other.yaml\n",
    "config in config": "config: other.yaml\n",
    "a group that is a list": "data: [1, 2]\n",
    "a group that is null": "data:\n",
    "a group that is a number": "trainer: 5\n",
    "a class path for a group": f"model: {SYSTEM}\n",
    "batch_size of a word": "data:\n  batch_size: many\n",
    "batch_size of a list": "data:\n  batch_size: [4]\n",
    "batch_size of a mapping": "data:\n  batch_size: {a: 1}\n",
    "batch_size empty": "data:\n  batch_size: ''\n",
    "batch_size true": "data:\n  batch_size: true\n",
    "batch_size 0": "data:\n  batch_size: 0\n",
    "batch_size negative": "data:\n  batch_size: -4\n",
    "batch_size 1.5": "data:\n  batch_size: 1.5\n",
    "batch_size NaN": "data:\n  batch_size: .nan\n",
    "batch_size infinite": "data:\n  batch_size: .inf\n",
    "a date for a number": "data:\n  batch_size: 2026-01-01\n",
    "bytes for a number": "data:\n  batch_size: !!binary aGVsbG8=\n",
    "a set for a number": "data:\n  batch_size: !!set {a, b}\n",
    "bytes for a path": "data:\n  path: !!binary aGVsbG8=\n",
    "max_length 1": "data:\n  max_length: 1\n",
    "max_length beyond the model": "data:\n  max_length: 1000000000\n",
    "holdout NaN": "data:\n  holdout_ratio: .nan\n",
    "holdout infinite": "data:\n  holdout_ratio: .inf\n",
    "rate NaN": "model:\n  learning_rate: .nan\n",
    "rate infinite": "model:\n  learning_rate: .inf\n",
    "rate negative": "model:\n  learning_rate: -1\n",
    "rate of a word": "model:\n  learning_rate: fast\n",
    "decay NaN": "model:\n  weight_decay: .nan\n",
    "warmup of 7": "model:\n  warmup_ratio: 7\n",
    "warmup NaN": "model:\n  warmup_ratio: .nan\n",
    "epochs of a word": "trainer:\n  max_epochs: many\n",
    "epochs infinite": "trainer:\n  max_epochs: .inf\n",
    "clip NaN": "trainer:\n  gradient_clip_val: .nan\n",
    "clip negative": "trainer:\n  gradient_clip_val: -1\n",
    "devices negative": "trainer:\n  devices: -7\n",
    "devices of a word": "trainer:\n  devices: all of them\n",
    "devices NaN": "trainer:\n  devices: .nan\n",
    "precision unknown": "trainer:\n  precision: 17-mixed\n",
    "precision NaN": "trainer:\n  precision: .nan\n",
    "strategy unknown": "trainer:\n  strategy: dpp\n",
    "strategy of a module": "trainer:\n  strategy: os\n",
    "accumulation of nothing": "trainer:\n  accumulate_grad_batches: 0\n",
    "limit of NaN": "trainer:\n  limit_train_batches: .nan\n",
    "limit negative": "trainer:\n  limit_train_batches: -1\n",
    "log every 0": "trainer:\n  log_every_n_steps: -1\n",
    "seed of a word": "seed_everything: tomorrow\n",
    "seed huge": "seed_everything: 99999999999999999999999999\n",
    "seed negative": "seed_everything: -5\n",
    "save NaN": "save_every_seconds: .nan\n",
    "scale NaN": "amp:\n  init_scale: .nan\n",
    "scale 0": "amp:\n  init_scale: 0\n",
    "class names of numbers": "data:\n  class_names: {a: 1}\n",
    "one class twice": "data:\n  class_names: [a, a]\n",
    "an encoding that is none": "data:\n  encoding: ../../x\n",
    "an encoding of bytes": "data:\n  encoding: base64\n",
    "a layout that is none": "data:\n  layout: xml\n",
    "a data path with NUL": 'data:\n  path: "a\\0b"\n',
    "a data path of 5,000 letters": f"data:\n  path: {'a' * 5_000}\n",
    "a data path to a device": "data:\n  path: /dev/null\n",
    "a data path of a surrogate": 'data:\n  path: "\\ud800"\n',
    "a model path with NUL": 'model:\n  pretrained: "a\\0b"\n',
    "a model path of 5,000 letters": f"model:\n  pretrained: {'a' * 5_000}\n",
    "a model path that climbs": "model:\n  pretrained: ../../../../etc\n",
    "a model from an address": "model:\n  pretrained: http://127.0.0.1:9/x\n",
    "a function as a callback": f"trainer:\n  callbacks: [{SYSTEM}]\n",
    "a process as a callback": f"trainer:\n  callbacks: [{PROCESS}]\n",
    "a process as a logger": f"trainer:\n  logger: [{PROCESS}]\n",
    "a process as a plugin": f"trainer:\n  plugins: [{PROCESS}]\n",
    "a process as a strategy": f"trainer:\n  strategy: {PROCESS}\n",
    "a process as a profiler": f"trainer:\n  profiler: {PROCESS}\n",
    "a path object as a callback": "trainer:\n  callbacks: [{class_path: pathlib.Path}]\n",
    "a callback of no module": "trainer:\n  callbacks: [{class_path: nowhere.Nothing}]\n",
    "a callback that is a number": "trainer:\n  callbacks: [7]\n",
    "a class path of dots": "trainer:\n  callbacks: [{class_path: ..}]\n",
    "a class path of a file": "trainer:\n  callbacks: [{class_path: /tmp/x.py}]\n",
    "a class path with a call": "trainer:\n  callbacks: [{class_path: os.getcwd()}]\n",
}
TAKEN = {
    "an empty file": "",
    "a comment alone": "# nothing\n",
    "a mark of a document": "---\n",
    "an anchor": "data:\n  batch_size: &size 4\ntrainer:\n  log_every_n_steps: *size\n",
    "CRLF": "data:\r\n  batch_size: 4\r\n",
    "a byte order mark": "\ufeffdata:\n  batch_size: 4\n",
    "JSON": '{"data": {"batch_size": 4}}\n',
    "Chinese class names": "data:\n  class_names: [体育, 娱乐, 家居, 科技]\n",
}
BYTES = {
    "a binary file": bytes(range(256)),
    "NULs": bytes(64),
    "noise": random.Random(3).randbytes(5_000),
    "UTF-16": "data:\n  batch_size: 4\n".encode("utf-16"),
    "GB18030": "data:\n  class_names: [体育, 娱乐]\n".encode("gb18030"),
    "a pickle": b"\x80\x04cposix\nsystem\n(X\x09\x00\x00\x00touch rantR.",
    "a zip": b"PK\x03\x04" + bytes(80),
    "control characters": b"data:\n  path: a\x07b\x1b[2J\n",
    "a huge file": b"# " + b"x" * (20 << 20) + b"\n",
}


@pytest.fixture
def plan(run_cli, tmp_path, news_folder, tiny_bert_folder):
    """Plan with a config after one of tiny data and a tiny model: the status, and what was said."""
    sound = {"data": {"path": str(news_folder)}, "model": {"pretrained": str(tiny_bert_folder)}}

    def plan(content):
        (tmp_path / "hostile.yaml").write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
        result = run_cli("plan", "--config", json.dumps(sound), "--config", "hostile.yaml")
        _expect_screen(result)
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"hostile.yaml", "news"}, "nothing was run, nothing is written"
        return result

    return plan


def _expect_screen(result):
    assert result.status in (0, 1, 2)
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) <= SCREEN_LINES
    assert len(result.err) <= SCREEN_CHARACTERS
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", result.err)


@pytest.mark.parametrize("name", REFUSED)
def test_a_config_that_makes_no_sense_is_refused_in_words(plan, name):
    result = plan(REFUSED[name])
    assert result.status in (1, 2)
    assert result.err.startswith("error: ")


@pytest.mark.parametrize("name", TAKEN)
def test_an_odd_config_that_makes_sense_is_taken(plan, name):
    assert plan(TAKEN[name]).status == 0


@pytest.mark.parametrize("name", BYTES)
def test_a_config_that_is_no_yaml_is_refused_in_words(plan, name):
    assert plan(BYTES[name]).status == 1


@pytest.mark.parametrize("value", ["missing.yaml", "news", "/dev/null", "", "a\0b", "a" * 5_000])
def test_a_config_that_is_no_file_is_refused_in_words(run_cli, news_folder, value):
    result = run_cli("plan", "--config", value)
    _expect_screen(result)
    assert result.status == 1


SEEDS = 30
SOUND = """\
seed_everything: 42
trainer:
  max_epochs: 3
  precision: 32
  callbacks:
    - class_path: EarlyStopping
      init_args: {monitor: val/loss, patience: 2}
model:
  learning_rate: 2e-5
data:
  batch_size: 32
  class_names: null
"""
WORDS = ["null", "~", "-1", ".nan", "[", "]", "{", "}", "&a", "*a", "!!str", ": ", "- ", "\t", "#"]
WORDS += ['"', "'", "|", ">", "%", "@", "`", "\n", "\n  ", "体育", "\u202e", "9" * 400, "<<: "]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_config_changed_at_random_is_taken_or_refused_in_words(plan, seed):
    draw, text = random.Random(seed), SOUND
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(text))
        text = text[:start] + draw.choice(WORDS) + text[start + draw.randrange(12) :]
    plan(text)
