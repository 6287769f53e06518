import pytest
from jsonargparse import Namespace
from lightning.pytorch.plugins.precision import DoublePrecision, MixedPrecision

from bert_lightning.amp import AmpPrecision, AmpSettings, FSDPAmpPrecision
from bert_lightning.errors import CheckpointError, ConfigError
from bert_lightning.plugins import (
    check_plugin_device,
    fill_plugins,
    named_precision,
    precision_entries,
    settle_plugins,
    trainer_settings_to_resume,
)

IO = "lightning.pytorch.plugins.io.AsyncCheckpointIO"


def entry(kind, **arguments):
    made = Namespace(class_path=f"{kind.__module__}.{kind.__qualname__}")
    if arguments:  # as jsonargparse does
        made.init_args = Namespace(arguments)
    return made


def settings(*plugins, precision=None):
    return Namespace(
        trainer=Namespace(precision=precision, plugins=list(plugins)),
        amp=Namespace(vars(AmpSettings())),
    )


def own(**values):
    return Namespace(vars(AmpSettings(**values)))


class Mine(AmpPrecision):
    """A user's own."""


def test_only_precisions_are_told_from_other_plugins():
    half = entry(DoublePrecision)
    foreign = {"class_path": "no.such.Thing", "init_args": {}}
    assert precision_entries([{"class_path": IO}, half, foreign]) == [half]
    assert precision_entries(half) == [half]
    assert precision_entries(None) == []


@pytest.mark.parametrize("kind", [AmpPrecision, FSDPAmpPrecision, Mine])
def test_settings_of_a_plugin_become_the_amp_keys_and_come_back(kind):
    config = settings(entry(kind, precision="16-mixed", settings=own(init_scale=8.0)))
    settle_plugins(config, {})
    (plugin,) = config.trainer.plugins
    assert (config.amp.init_scale, plugin.init_args.settings) == (8.0, None)
    fill_plugins(config)
    assert plugin.init_args.settings.init_scale == 8.0
    assert plugin.class_path.endswith(kind.__name__)


def test_lightnings_plugin_becomes_the_projects_with_the_amp_keys():
    config = settings(entry(MixedPrecision, precision="16-mixed", device="cpu", scaler=None))
    config.amp.init_scale = 4.0
    settle_plugins(config, {"amp.init_scale": 4.0})
    fill_plugins(config)
    (plugin,) = config.trainer.plugins
    assert plugin.class_path == "bert_lightning.amp.AmpPrecision"
    assert plugin.init_args.as_dict() == {
        "precision": "16-mixed",
        "device": "cpu",
        "settings": vars(AmpSettings(init_scale=4.0)),
    }


def test_plugins_of_another_kind_stay_as_they_are():
    config = settings(entry(DoublePrecision), {"class_path": IO, "init_args": {}})
    before = config.clone()
    settle_plugins(config, {"amp.init_scale": 4.0})
    fill_plugins(config)
    assert config == before


def test_a_precision_of_the_checkpoint_gives_way_to_a_typed_plugin():
    config = settings(entry(DoublePrecision), precision="16-mixed")
    settle_plugins(config, {"trainer.precision": None})
    assert config.trainer.precision is None


# --- what is refused --------------------------------------------------------------------------


def test_all_contradictions_are_told_at_once():
    scaler = Namespace(class_path="torch.amp.GradScaler")
    config = settings(
        entry(MixedPrecision, precision="16-mixed", device="cpu", scaler=scaler),
        entry(AmpPrecision, precision="16-mixed", device="cpu", settings=own()),
        precision=32,
    )
    typed = {"trainer.precision": 32, "amp": {}, "amp.init_scale": 1.0, "amp.min_scale": 0.5}
    with pytest.raises(ConfigError) as error:
        settle_plugins(config, typed)
    assert str(error.value).splitlines()[::2] == [
        "trainer.precision: expected either this key or a precision plugin in trainer.plugins"
        " – found 32 and MixedPrecision and AmpPrecision",
        "trainer.plugins: expected one precision plugin – found MixedPrecision and AmpPrecision",
        "set amp.init_scale, amp.growth_factor, amp.growth_interval and amp.backoff_factor instead",
        "leave one of them out; both say the same",
    ]
    assert "trainer.plugins: expected MixedPrecision without scaler" in str(error.value)
    assert "amp.init_scale, amp.min_scale: expected in one place – found" in str(error.value)


def test_plugins_that_would_drop_the_precision_of_the_run_are_refused():
    stored = [{"class_path": "bert_lightning.amp.AmpPrecision"}]
    config = settings({"class_path": IO, "init_args": {}})
    with pytest.raises(ConfigError, match="expected AmpPrecision of the run among them"):
        settle_plugins(config, {"trainer.plugins": IO}, stored)
    settle_plugins(config, {"trainer.plugins": IO, "trainer.precision": "32"}, stored)


@pytest.mark.parametrize("kind", [MixedPrecision, AmpPrecision, Mine])
def test_mixed_precision_for_another_device_is_refused(kind):
    for device, on_cpu in (("cpu", True), ("cuda", False)):
        plugin = entry(kind, precision="bf16-mixed", device=device)
        check_plugin_device(plugin, on_cpu)
        with pytest.raises(
            ConfigError, match=f"{kind.__name__} for the .* – found device {device}"
        ):
            check_plugin_device(plugin, not on_cpu)
    check_plugin_device(entry(FSDPAmpPrecision, precision="32-true"), False)


# --- a run that goes on -----------------------------------------------------------------------


def test_a_typed_precision_takes_the_place_of_the_stored_plugin():
    stored = {"max_epochs": 3, "plugins": [{"class_path": "bert_lightning.amp.AmpPrecision"}]}
    assert trainer_settings_to_resume(stored, {}) == stored
    assert trainer_settings_to_resume(stored, {"trainer.precision": "null"}) == stored
    assert trainer_settings_to_resume(stored, {"trainer.precision": 32}) == {"max_epochs": 3}


@pytest.mark.parametrize("name", ["no.such.Thing", "bert_lightning.amp.NoSuchThing"])
def test_a_stored_class_that_is_not_there_is_refused_unless_another_is_typed(name):
    stored = {"plugins": [{"class_path": name}]}
    with pytest.raises(CheckpointError, match=f"{name} – found no such class"):
        trainer_settings_to_resume(stored, {})
    assert trainer_settings_to_resume(stored, {"trainer.precision": 32}) == {}
    assert trainer_settings_to_resume(stored, {"trainer.plugins": IO}) == {}


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        (entry(AmpPrecision, precision="bf16-mixed"), ("bf16-mixed", "AmpPrecision", True)),
        (entry(Mine, precision="16-mixed"), ("16-mixed", "Mine", True)),
        (entry(DoublePrecision), ("64-true", "DoublePrecision", False)),
        (None, None),
    ],
)
def test_the_precision_that_a_plugin_computes_in(plugin, expected):
    assert named_precision(plugin) == expected
