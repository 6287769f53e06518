import socket

import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy

from bert_lightning.devices import check_devices, process_count, runs_on_cpu
from bert_lightning.errors import ConfigError

DDP_CLASS = "lightning.pytorch.strategies.DDPStrategy"
FSDP_CLASS = "lightning.pytorch.strategies.FSDPStrategy"


@pytest.fixture
def machine(monkeypatch):
    """Pretend a number of GPUs and of CPU cores."""

    def pretend(gpus, cores=2):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: gpus > 0)
        monkeypatch.setattr("os.cpu_count", lambda: cores)

    return pretend


def _refusal(*args):
    with pytest.raises(ConfigError, match=r"trainer\.") as caught:
        check_devices(*args)
    message = str(caught.value)
    assert len(message.splitlines()) <= 4  # two a fault
    assert len(message) < 300
    return message


@pytest.mark.parametrize(
    ("accelerator", "gpus", "answer"),
    [
        ("cpu", 0, True),
        ("cpu", 2, True),
        ("auto", 0, True),
        ("auto", 2, False),
        (None, 0, True),
        ("gpu", 2, False),
        ("cuda", 2, False),
    ],
)
def test_the_cpu_is_taken_where_it_is_named_or_nothing_else_is_there(
    machine, accelerator, gpus, answer
):
    machine(gpus)
    assert runs_on_cpu(accelerator) is answer


# --- CPU --------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", ["auto", 1, 2, "1", "2", 4])
def test_a_cpu_takes_a_number_of_processes(machine, devices):
    machine(0, cores=4)
    check_devices("auto", devices, "auto")


def test_two_processes_are_fine_on_one_core(machine):
    machine(0, cores=1)
    check_devices("cpu", 2, "ddp")


@pytest.mark.parametrize(
    "devices", [0, "0", "0,", [0], "[0]", [0, 1], "0,1", -1, "-1", 9, "9", "x"], ids=repr
)
@pytest.mark.parametrize("accelerator", ["cpu", "auto"])
def test_other_forms_give_one_short_message_on_a_cpu(machine, accelerator, devices):
    machine(0, cores=4)
    message = _refusal(accelerator, devices, "auto")
    assert message.startswith("trainer.devices: expected a number of processes from 1 to 4")
    assert message.endswith(f"found {devices}\ntake --trainer.devices 4 or fewer")
    assert "has no GPU" in message


def test_a_gpu_that_is_there_is_not_denied_where_the_cpu_was_chosen(machine):
    machine(2, cores=4)
    assert "no GPU" not in _refusal("cpu", 9, "auto")


@pytest.mark.parametrize("accelerator", ["gpu", "cuda"])
@pytest.mark.parametrize("devices", [1, 2, "auto", [0]])
def test_a_gpu_that_is_not_there_is_refused_with_both_counts(machine, accelerator, devices):
    machine(0)
    message = _refusal(accelerator, devices, "auto")
    assert "trainer.accelerator" in message
    assert f"trainer.devices {devices}" in message
    assert "0 GPUs" in message
    assert message.endswith("\ntake --trainer.accelerator cpu --trainer.devices 1")


@pytest.mark.parametrize("accelerator", ["gpuu", "CPU0", ""])
def test_an_unknown_accelerator_is_refused(machine, accelerator):
    machine(0)
    assert "trainer.accelerator" in _refusal(accelerator, 1, "auto")


# --- GPU --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "devices", ["auto", 1, 2, "1", "2", -1, "-1", [0], [1], "0,", "0,1", [0, 1]], ids=repr
)
def test_a_gpu_machine_takes_numbers_and_lists(machine, devices):
    machine(2)
    for accelerator in ("auto", "gpu", "cuda"):
        check_devices(accelerator, devices, "auto")


@pytest.mark.parametrize("devices", [3, "3", 0, "0"])
def test_more_gpus_than_present_are_refused_with_both_counts(machine, devices):
    machine(2)
    message = _refusal("auto", devices, "auto")
    assert f"found {devices}" in message
    assert "2 GPUs on this machine" in message


def test_one_gpu_is_not_called_gpus(machine):
    machine(1)
    assert "1 GPU on this machine" in _refusal("gpu", 2, "auto")


@pytest.mark.parametrize("devices", [[2], "2,", "0,2", [0, 5], [], "", "x", "0,x", [-1], "1.5"])
def test_lists_of_gpus_that_are_not_there_are_refused(machine, devices):
    machine(2)
    message = _refusal("gpu", devices, "auto")
    assert "trainer.devices: expected GPU numbers from 0 to 1" in message
    assert repr(devices) in message


def test_a_gpu_machine_can_be_told_to_use_its_cpu(machine):
    machine(2, cores=4)
    check_devices("cpu", 4, "ddp")
    assert "processes from 1 to 4" in _refusal("cpu", "0,", "ddp")


# --- strategies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy",
    [
        "auto",
        "ddp",
        "ddp_find_unused_parameters_true",
        pytest.param(DDP_CLASS, id="class path"),
        pytest.param(DDPStrategy(), id="object"),
    ],
)
def test_ddp_runs_everywhere_in_every_form(machine, strategy):
    for gpus in (0, 2):
        machine(gpus)
        check_devices("auto", 2, strategy)


@pytest.mark.parametrize(
    "strategy",
    [
        "fsdp",
        pytest.param(FSDP_CLASS, id="class path"),
        pytest.param(FSDPStrategy(), id="object"),
    ],
)
def test_fsdp_is_refused_on_a_cpu_in_every_form(machine, strategy):
    machine(0)
    message = _refusal("auto", 2, strategy)
    assert "trainer.strategy" in message
    assert "fsdp" in message
    assert "--config ddp.yaml" in message
    machine(2)
    check_devices("auto", 2, strategy)


@pytest.mark.parametrize(
    "strategy", ["deepspeed", "deepspeed_stage_2", "lightning.pytorch.strategies.DeepSpeedStrategy"]
)
def test_deepspeed_is_refused_where_its_package_is_missing(machine, monkeypatch, strategy):
    machine(0)
    assert "found deepspeed, which needs GPUs" in _refusal("auto", 2, strategy)
    machine(2)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = _refusal("auto", 2, strategy)
    assert len(message.splitlines()) == 1
    assert f"expected the package deepspeed for {strategy} – found none" in message
    assert 'pip install "bert-lightning[deepspeed]"' in message
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    check_devices("auto", 2, strategy)


@pytest.mark.parametrize(("strategy", "near"), [("dpp", "ddp"), ("fdsp", "fsdp"), ("atuo", "auto")])
def test_an_unknown_strategy_suggests_the_nearest(machine, strategy, near):
    machine(0)
    message = _refusal("cpu", 1, strategy)
    assert f"found {strategy!r}" in message
    assert f"did you mean {near}?" in message


def test_all_faults_are_told_at_once(machine):
    machine(0)
    message = _refusal("cpu", "0,", "fsdp")
    assert "trainer.devices" in message
    assert "trainer.strategy" in message


def test_a_port_that_is_taken_is_refused_before_processes_start(monkeypatch, machine):
    machine(gpus=0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))
        with pytest.raises(ConfigError, match=f"MASTER_PORT: expected a free port.*'{port}'"):
            check_devices("cpu", 2, "ddp")
        check_devices("cpu", 1, "auto")
        monkeypatch.setenv("LOCAL_RANK", "1")  # the first process listens by now
        check_devices("cpu", 2, "ddp")
        monkeypatch.delenv("LOCAL_RANK")
        monkeypatch.setenv("SLURM_PROCID", "1")
        check_devices("cpu", 2, "ddp")
    monkeypatch.delenv("SLURM_PROCID")
    check_devices("cpu", 2, "ddp")


@pytest.mark.parametrize("name", ["DDPStrategy", "DDP"])
def test_the_bare_name_of_a_class_leads_to_its_short_name(machine, name):
    machine(gpus=0)
    message = _refusal("cpu", 1, name)
    assert "a mapping with class_path and init_args" in message
    assert "did you mean ddp?" in message


@pytest.mark.parametrize(
    ("accelerator", "devices", "nodes", "gpus", "count"),
    [
        ("auto", "auto", 1, 0, 1),
        ("cpu", 2, 1, 0, 2),
        ("auto", "auto", 1, 4, 4),
        ("gpu", -1, 2, 4, 8),
        ("gpu", "2", 1, 0, 2),
        ("gpu", [0, 3], 1, 4, 2),
        ("gpu", "0,1,3", 1, 0, 3),
        ("gpu", "auto", 1, 0, 1),
    ],
)
def test_processes_are_counted_whether_the_devices_are_there_or_not(
    machine, monkeypatch, accelerator, devices, nodes, gpus, count
):
    machine(gpus)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: gpus)
    assert process_count(accelerator, devices, nodes) == count
