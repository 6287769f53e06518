import json

import pytest
import yaml

from bert_lightning.arguments import (
    configs_folder,
    explain,
    nearest_key,
    order_arguments,
    typed_values,
)
from bert_lightning.cli import main
from bert_lightning.commands.run import NewsCLI
from bert_lightning.errors import ConfigError

AMP = str(configs_folder() / "amp.yaml")
DDP = str(configs_folder() / "ddp.yaml")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refused(capsys, monkeypatch):
    """Return what a command line that is to be refused writes on standard error."""

    def accepted(self, command):
        pytest.fail(f"{command} was started")

    monkeypatch.setattr(NewsCLI, "_run_subcommand", accepted)

    def run(*args):
        assert main(args) == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert len(error.splitlines()) < 20  # one screen
        return error

    return run


def _yaml(tmp_path, content, name="own.yaml"):
    (tmp_path / name).write_text(content, encoding="utf-8")
    return name


# --- order and files --------------------------------------------------------------------------


def test_files_come_first_in_their_order_so_that_flags_win():
    files = ["--config", "amp.yaml", "-c", "ddp.yaml"]
    args = ["--data.path", "news", "fit", *files[:2], "--model.dropout=0", *files[2:]]
    assert order_arguments(args, "fit") == [
        *("fit", "--config", AMP, "--config", DDP),
        *("--data.path", "news", "--model.dropout=0"),
    ]


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["fit", "--config", "amp.yaml"], id="two words"),
        pytest.param(["fit", "--config=amp.yaml"], id="one word"),
        pytest.param(["fit", "-c", "amp.yaml"], id="short flag"),
        pytest.param(["--config", "amp.yaml", "fit"], id="before the command"),
    ],
)
def test_a_bare_name_is_a_shipped_file(args):
    assert order_arguments(args, "fit") == ["fit", "--config", AMP]


def test_a_file_in_the_working_folder_wins_over_a_shipped_one(tmp_path):
    _yaml(tmp_path, "trainer:\n  precision: 32\n", "amp.yaml")
    assert order_arguments(["fit", "--config", "amp.yaml"], "fit") == [
        *("fit", "--config", "amp.yaml")
    ]


def test_a_full_path_is_taken_as_it_is(tmp_path):
    file = tmp_path / "sub folder" / "own.yaml"
    file.parent.mkdir()
    file.write_text("data:\n  batch_size: 8\n")
    assert order_arguments(["fit", "--config", str(file)], "fit")[2] == str(file)


def test_a_mapping_on_the_line_is_taken_as_it_is():
    text = '{"data": {"batch_size": 8}}'
    assert order_arguments(["fit", "--config", text], "fit") == ["fit", "--config", text]


def test_other_arguments_keep_their_order():
    args = ["predict", "--ckpt_path", "best", "--output=a.csv", "--data.predict_path", "-"]
    assert order_arguments(args, "predict") == args


def test_a_value_that_is_called_like_the_command_stays():
    args = ["fit", "--data.path", "fit"]
    assert order_arguments(args, "fit") == args


@pytest.mark.parametrize(
    ("name", "near"),
    [("apm.yaml", "amp.yaml"), ("amp.yml", "amp.yaml"), ("dpp_static.yaml", "ddp_static.yaml")],
)
def test_an_unknown_file_suggests_the_nearest_shipped_one(tmp_path, name, near):
    with pytest.raises(ConfigError, match=f"did you mean {near}") as caught:
        order_arguments(["fit", "--config", name], "fit")
    message = str(caught.value)
    assert str(tmp_path / name) in message
    assert str(configs_folder()) in message
    assert all(file.name in message for file in configs_folder().glob("*.yaml"))


def test_a_missing_path_is_not_looked_up_among_the_shipped_files(tmp_path):
    with pytest.raises(ConfigError, match="expected a YAML file") as caught:
        order_arguments(["fit", "--config", "sub/amp.yaml"], "fit")
    assert str(tmp_path / "sub" / "amp.yaml") in str(caught.value)


@pytest.mark.parametrize("args", [["fit", "--config"], ["fit", "--config="]])
def test_a_config_flag_without_a_file_is_refused(args):
    with pytest.raises(ConfigError, match="config: expected a YAML file"):
        order_arguments(args, "fit")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("trainer: [1\n", r"own\.yaml: expected YAML – found a fault", id="broken"),
        pytest.param("just words\n", r"own\.yaml: expected `key: value` lines", id="words"),
        pytest.param("- a\n- b\n", r"own\.yaml: expected `key: value` lines", id="list"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_by_name(tmp_path, content, message):
    name = _yaml(tmp_path, content)
    with pytest.raises(ConfigError, match=message):
        order_arguments(["fit", "--config", name], "fit")


def test_a_file_that_is_not_utf8_is_refused_by_name(tmp_path):
    (tmp_path / "own.yaml").write_bytes("data:\n  path: 新闻\n".encode("gbk"))
    with pytest.raises(ConfigError, match=r"own\.yaml: expected YAML"):
        order_arguments(["fit", "--config", "own.yaml"], "fit")


def test_a_broken_mapping_on_the_line_is_refused(refused):
    assert "config: expected" in refused("fit", "--config", "{data: [1}")


@pytest.mark.parametrize("content", ["", "# only a comment\n"], ids=["empty", "comment"])
def test_a_file_without_keys_changes_nothing(tmp_path, content):
    args = order_arguments(["fit", "--config", _yaml(tmp_path, content)], "fit")
    assert yaml.safe_load(args[2]) == {}


def test_keys_of_other_commands_are_left_out_of_a_file(tmp_path):
    name = _yaml(tmp_path, "test_after_fit: false\ndata:\n  path: 新闻\n")
    assert order_arguments(["fit", "--config", name], "fit")[2] == name
    for command in ("validate", "test", "predict"):
        content = json.loads(order_arguments([command, "--config", name], command)[2])
        assert content == {"data": {"path": "新闻"}}


def test_a_file_of_predict_keeps_its_output_for_predict_alone(tmp_path):
    name = _yaml(tmp_path, "output: a.csv\nmodel:\n  dropout: 0.5\n")
    assert order_arguments(["predict", "--config", name], "predict")[2] == name
    content = json.loads(order_arguments(["fit", "--config", name], "fit")[2])
    assert content == {"model": {"dropout": 0.5}}


def test_a_file_with_a_foreign_key_is_parsed_as_it_would_be_without(tmp_path, capsys):
    name = _yaml(tmp_path, "output: a.csv\nmodel:\n  learning_rate: 2e-5\n")
    with pytest.raises(SystemExit):
        main(["fit", "--config", name, "--print_config"])
    assert yaml.safe_load(capsys.readouterr().out)["model"]["learning_rate"] == 2e-5


# --- what was typed ---------------------------------------------------------------------------


def test_keys_of_files_and_of_the_line_are_known_and_the_line_wins(tmp_path):
    first = _yaml(tmp_path, "data:\n  path: a\n  batch_size: 8\n", "one.yaml")
    second = _yaml(tmp_path, "data:\n  path: b\nseed_everything: 1\n", "two.yaml")
    args = ["fit", "--config", first, "--config", second, "--data.path", "c", "--model.dropout=0.2"]
    typed = typed_values(args)
    assert typed["data.path"] == "c"
    assert typed["data.batch_size"] == 8
    assert typed["seed_everything"] == 1
    assert typed["model.dropout"] == "0.2"


def test_the_later_file_wins(tmp_path):
    first = _yaml(tmp_path, "data:\n  path: a\n", "one.yaml")
    second = _yaml(tmp_path, "data:\n  path: b\n", "two.yaml")
    assert typed_values(["fit", "--config", first, "--config", second])["data.path"] == "b"
    assert typed_values(["fit", "--config", second, "--config", first])["data.path"] == "a"


def test_a_mapping_on_the_line_counts_as_a_file():
    typed = typed_values(["fit", "--config", '{"trainer": {"strategy": {"class_path": "X"}}}'])
    assert typed["trainer.strategy"] == {"class_path": "X"}
    assert typed["trainer.strategy.class_path"] == "X"


def test_a_value_with_an_equals_sign_stays_whole():
    assert typed_values(["fit", "--data.path=a=b"])["data.path"] == "a=b"


def test_nothing_typed_is_nothing_known():
    assert typed_values(["fit"]) == {}


def test_a_group_given_as_a_mapping_counts_as_its_keys():
    assert typed_values(["test", "--data", '{"path": "news"}'])["data.path"] == "news"


DERIVED = [
    ("model.class_names", "[甲, 乙]", "use data.class_names"),
    ("data.seed", "3", "it follows seed_everything"),
    ("data.trained", "{class_names: [甲]}", "it comes from the checkpoint"),
]


@pytest.mark.parametrize(("key", "value", "hint"), DERIVED, ids=[key for key, *_ in DERIVED])
@pytest.mark.parametrize("way", ["line", "line with =", "YAML"])
def test_a_derived_key_is_refused_with_the_key_to_use(tmp_path, refused, key, value, hint, way):
    group, name = key.split(".")
    args = {
        "line": [f"--{key}", value],
        "line with =": [f"--{key}={value}"],
        "YAML": ["--config", _yaml(tmp_path, f"{group}:\n  {name}: {value}\n")],
    }[way]
    error = refused("fit", *args)
    assert f"{key}: expected not to be set" in error
    assert hint in error


def test_a_derived_key_that_is_null_in_a_file_is_fine(tmp_path):
    name = _yaml(tmp_path, "model:\n  class_names: null\ndata:\n  seed: null\n  trained: null\n")
    typed = typed_values(["fit", "--config", name])
    assert typed["data.seed"] is typed["data.trained"] is None


# --- messages ---------------------------------------------------------------------------------

MISTYPED = [
    ("model.lr", "model.learning_rate"),
    ("model.learning_rat", "model.learning_rate"),
    ("trainer.precison", "trainer.precision"),
    ("trainer.max_epoch", "trainer.max_epochs"),
    ("modle.dropout", "model.dropout"),
    ("data.bacth_size", "data.batch_size"),
    ("train.devices", "trainer.devices"),
]
BARE = [
    ("max_epochs", "trainer.max_epochs"),
    ("batch_size", "data.batch_size"),
    ("learning_rate", "model.learning_rate"),
    ("precision", "trainer.precision"),
    ("lr", "model.learning_rate"),
]


@pytest.mark.parametrize(("key", "near"), [*MISTYPED, *BARE])
def test_an_unknown_key_in_a_file_is_named_with_the_nearest_valid_one(tmp_path, refused, key, near):
    content = 3
    for part in reversed(key.split(".")):
        content = {part: content}
    error = refused("fit", "--config", _yaml(tmp_path, yaml.safe_dump(content)))
    assert f"error: {key}: expected a known key" in error
    assert f"did you mean {near}?" in error


BEGINNINGS = ("model.learning_rat", "trainer.max_epoch", "seed")


@pytest.mark.parametrize("form", ["--{} 3", "--{}=3"])
@pytest.mark.parametrize(
    ("key", "near"), [pair for pair in [*MISTYPED, *BARE] if pair[0] not in BEGINNINGS]
)
def test_an_unknown_key_on_the_line_is_named_with_the_nearest_valid_one(refused, key, near, form):
    error = refused("fit", *form.format(key).split())
    assert f"error: {key}: expected a known key" in error
    assert f"did you mean {near}?" in error


@pytest.mark.parametrize("key", BEGINNINGS)
def test_the_beginning_of_a_key_does_not_stand_for_the_key(refused, key):
    # what was typed decides over settings in a checkpoint, so a key must be known by its name
    assert f"error: {key}: expected a known key" in refused("fit", f"--{key}", "3")


def test_dashes_in_a_key_are_shown(refused):
    error = refused("fit", "--data.batch-size", "3")
    assert "data.batch-size: expected a known key" in error
    assert "did you mean data.batch_size?" in error


def test_a_stray_word_is_not_called_a_key(refused):
    error = refused("fit", "extra")
    assert "extra" in error
    assert "known key" not in error


WRONG = [
    ("data.batch_size", "many", "int"),
    ("data.batch_size", "1.5", "int"),
    ("data.holdout_ratio", "some", "float"),
    ("model.learning_rate", "fast", "auto, float"),
    ("model.dropout", "much", "float, null"),
    ("trainer.max_epochs", "three", "int, null"),
    ("save_every_seconds", "often", "float"),
]


@pytest.mark.parametrize(("key", "value", "kinds"), WRONG)
@pytest.mark.parametrize("way", ["line", "YAML"])
def test_a_value_of_another_type_is_named_with_its_key_and_type(
    tmp_path, refused, key, value, kinds, way
):
    group, _, name = key.rpartition(".")
    content = f"{group}:\n  {name}: {value}\n" if group else f"{name}: {value}\n"
    args = [f"--{key}", value] if way == "line" else ["--config", _yaml(tmp_path, content)]
    assert f"error: {key}: expected {kinds} – found {value}\n" in refused("fit", *args)


@pytest.mark.parametrize("value", ["fp16", "16-mixd", "half"])
def test_an_unknown_precision_lists_the_valid_ones(tmp_path, refused, value):
    for args in (
        ["--trainer.precision", value],
        ["--config", _yaml(tmp_path, f"trainer:\n  precision: {value}\n")],
    ):
        error = refused("fit", *args)
        assert "error: trainer.precision: expected " in error
        assert "16-mixed" in error
        assert "bf16-mixed" in error
        assert f"found {value}\n" in error


def test_a_list_of_strategies_is_refused_in_words(tmp_path, refused):
    name = _yaml(tmp_path, "trainer:\n  strategy: [ddp]\n")
    error = refused("fit", "--config", name)
    assert "error: trainer.strategy: expected auto, ddp, fsdp, a mapping" in error
    assert "found ['ddp']" in error


def test_a_mistyped_argument_of_a_strategy_is_named(tmp_path, refused):
    strategy = "{class_path: lightning.pytorch.strategies.DDPStrategy, init_args: {static_grap: 1}}"
    error = refused("fit", "--config", _yaml(tmp_path, f"trainer:\n  strategy: {strategy}\n"))
    assert "trainer.strategy" in error
    assert "static_grap" in error


CALLBACKS = "lightning.pytorch.callbacks"
OBJECTS = [
    ("{class_path: EarlyStopping, init_args: {monitor: a, patienc: 2}}", "patience?"),
    ("{class_path: EarlyStopping}", "init_args.monitor: expected a value, which EarlyStopping"),
    (
        "{class_path: EarlyStopping, init_args: {monitor: a, patience: some}}",
        "init_args.patience: expected int – found some",
    ),
    (f"{{class_path: {CALLBACKS}.Nothing}}", "found Nothing: module"),
    ("{class_path: Nothing}", "expected null, a list of mappings, a mapping with class_path"),
]


@pytest.mark.parametrize(("content", "expected"), OBJECTS)
def test_what_is_wrong_inside_a_callback_is_named(tmp_path, refused, content, expected):
    error = refused("fit", "--config", _yaml(tmp_path, f"trainer:\n  callbacks: [{content}]\n"))
    assert error.startswith("error: trainer.callbacks")
    assert expected in error


@pytest.mark.parametrize(
    "content", ["trainer: 3", "trainer:", "data: news", "model: [1]", "amp: 5", "amp:", "matmul:"]
)
def test_a_group_without_keys_is_refused(tmp_path, refused, content):
    error = refused("fit", "--config", _yaml(tmp_path, content + "\n"))
    assert f"error: {content.split(':')[0]}: expected keys below it" in error


@pytest.mark.parametrize(
    "words",
    [
        ["--trainer.accelerator", "tpu"],
        ["--trainer.num_nodes", "0"],
        ["--trainer.precision", "transformer-engine"],
        ["--trainer.strategy", "{class_path: DeepSpeedStrategy}"],
        ["--trainer.callbacks+={class_path: ModelCheckpoint, init_args: {save_top_k: 2}}"],
        ["--seed_everything", "-4"],
        ["--trainer.accumulate_grad_batches", "0"],
        ["--trainer.log_every_n_steps", "0"],
    ],
    ids=lambda words: words[0],
)
def test_what_lightning_itself_refuses_is_shown_without_a_traceback(refused, words):
    error = refused("fit", "--data.path", "builtin", "--model.pretrained", "builtin", *words)
    assert "Traceback" not in error


def test_a_fault_of_our_own_keeps_its_traceback(monkeypatch):
    def fault(self, args):
        raise ValueError("a fault")

    monkeypatch.setattr(NewsCLI, "__init__", fault)
    with pytest.raises(ValueError, match="a fault"):
        main(["fit"])


def test_a_mistyped_command_lists_the_valid_ones(refused):
    error = refused("fti")
    assert "'fti'" in error
    assert all(command in error for command in ("fit", "validate", "test", "predict"))


def test_no_command_lists_the_valid_ones(refused):
    assert all(command in refused() for command in ("fit", "validate", "test", "predict"))


def test_an_option_without_value_is_named(refused):
    assert "data.path" in refused("fit", "--data.path")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.batch_size", "0"),
        ("data.max_length", "2"),
        ("data.holdout_ratio", "0.5"),
        ("data.num_workers", "-1"),
        ("model.learning_rate", "0"),
        ("model.learning_rate", "nan"),
        ("model.dropout", "1"),
        ("model.warmup_ratio", "1.1"),
        ("model.weight_decay", "-0.1"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_key(refused, key, value):
    args = ["--data.path", "builtin", "--model.pretrained", "builtin"]
    assert f"error: {key}: expected " in refused("fit", *args, f"--{key}={value}")


def test_a_message_of_another_kind_is_passed_on():
    assert explain("something new went wrong", ["model.dropout"]) == "something new went wrong"


# --- nearest key ------------------------------------------------------------------------------

KEYS = [
    "config",
    "__default_config__",
    "seed_everything",
    "save_every_seconds",
    "ckpt_path",
    "test_after_fit",
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.min_epochs",
    "trainer.devices",
    "trainer.precision",
    "model.pretrained",
    "model.learning_rate",
    "model.dropout",
    "data.batch_size",
    "data.path",
    "data.predict_path",
]


@pytest.mark.parametrize(("key", "near"), [*MISTYPED, *BARE, ("batch_siz", "data.batch_size")])
def test_the_nearest_key_is_the_one_meant(key, near):
    assert nearest_key(key, KEYS) == near


@pytest.mark.parametrize("key", ["quux", "data.zzz"])
def test_a_key_that_is_like_none_is_not_taken_for_one(refused, key):
    error = refused("fit", f"--{key}", "1")
    assert f"{key}: expected a known key – there is no such key\n--help lists them" in error


def test_a_mistyped_value_is_named_with_the_nearest_choice(refused):
    assert refused("fit", "--trainer.precision", "16-mixd").endswith("did you mean 16-mixed?\n")


@pytest.mark.parametrize("key", ["", "_", "a.b.c.d", "体育", "__default"])
def test_any_key_has_a_nearest_one(key):
    assert nearest_key(key, KEYS) in KEYS


@pytest.mark.parametrize("content", ["trainer: [1]", "model: 5", "data:"])
def test_a_group_that_is_no_mapping_is_refused_by_name(tmp_path, content):
    file = tmp_path / "own.yaml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="expected keys below it"):
        order_arguments(["fit", "--config", str(file)], "fit")
