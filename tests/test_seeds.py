import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from bert_lightning.console import Console
from bert_lightning.errors import ConfigError
from bert_lightning.seeds import check_seeds, run_seeds, summary

REPO = Path(__file__).parent.parent
CHILD_SECONDS = 120  # until a process has begun to train


def trainer(**changes):
    return SimpleNamespace(**{"fast_dev_run": False, "num_nodes": 1, **changes})


def write_report(folder, macro_f1, test):
    rows = [
        {"epoch": number, "step": number, "loss": 1.0, "accuracy": value, "macro_f1": value}
        for number, value in enumerate(macro_f1, 1)
    ]
    results = {"test": {"loss": 0.5, "accuracy": test, "macro_f1": test}} if test else {}
    (folder / "report").mkdir(parents=True)
    (folder / "report" / "report.json").write_text(
        json.dumps({"history": rows, "results": results}), encoding="utf-8"
    )


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1], [2**32]], ids=str)
def test_seeds_that_are_no_set_of_seeds_are_refused(seeds):
    with pytest.raises(ConfigError, match="seeds: expected different whole numbers") as caught:
        check_seeds(seeds, trainer())
    assert f"found {seeds}" in str(caught.value)


def test_runs_that_write_nothing_are_refused():
    with pytest.raises(ConfigError, match=r"found trainer\.fast_dev_run"):
        check_seeds([1], trainer(fast_dev_run=True))


@pytest.mark.parametrize(
    ("variables", "nodes"),
    [
        ({}, 2),
        (
            {
                **dict.fromkeys(("RANK", "GROUP_RANK", "LOCAL_RANK"), "0"),
                **{"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"},
            },
            1,
        ),
        ({"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "job"}, 1),
    ],
    ids=["num_nodes", "torchrun", "slurm"],
)
def test_one_of_several_commands_is_refused(monkeypatch, variables, nodes):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="seeds: expected one command that starts its own"):
        check_seeds([1, 2], trainer(num_nodes=nodes))


def test_a_job_of_one_task_is_fine(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_JOB_NAME", "job")
    check_seeds([0, 2**32 - 1], trainer())


@pytest.mark.parametrize("is_in_yaml", [True, False], ids=["yaml", "line"])
def test_seeds_and_a_checkpoint_are_refused_together(run_cli, tmp_path, is_in_yaml):
    (tmp_path / "own.yaml").write_text("seeds: [1, 2]\n", encoding="utf-8")
    words = ("--config", "own.yaml") if is_in_yaml else ("--seeds", "[1,2]")
    result = run_cli("fit", *words, "--ckpt_path", "runs/7")
    assert result.status == 1
    assert result.err.startswith("error: seeds: expected runs that start afresh – found ckpt_path")
    assert "runs/NUMBER/seed_NUMBER" in result.err


def test_only_fit_knows_seeds_on_the_line_and_others_pass_them_over_in_yaml(run_cli, tmp_path):
    assert "seeds: expected" in run_cli("test", "--seeds", "[1]", "--ckpt_path", "best").err
    (tmp_path / "own.yaml").write_text("seeds: [1, 2]\n", encoding="utf-8")
    assert "no such key" not in run_cli("test", "--config", "own.yaml").err


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("value", ["1,2", "3,x", "7"])
def test_seeds_without_brackets_are_told_how_to_write_them(run_cli, command, value):
    result = run_cli(command, "--seeds", value)
    assert result.status == 1
    assert result.err == (
        f"error: seeds: expected null, whole numbers in brackets, such as [1,2,3] – found {value}\n"
    )


def test_a_plan_takes_the_seeds_of_fit_and_refuses_what_fit_does(run_cli, quick, tmp_path):
    status, out, err = run_cli("plan", *quick, "--seeds", "[1,2]")
    assert status == 0, err
    assert "seeds     2 runs like this one, one after the other: 1, 2" in out
    words = ("--seeds", "[1,1]", "--trainer.accelerator", "gpu")
    status, _, err = run_cli("plan", *quick, *words)
    assert status == 1
    assert "seeds: expected different whole numbers" in err
    assert "trainer.accelerator: expected a GPU" in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("value", ["x", "[a]", "1.5"])
def test_other_values_are_refused_with_the_key(run_cli, tmp_path, value):
    result = run_cli("fit", "--seeds", value)
    assert result.status == 1
    assert result.err.startswith("error: seeds: expected")
    assert len(result.err.splitlines()) <= 3
    assert not (tmp_path / "runs").exists()


# --- sums ---------------------------------------------------------------------------------------


def test_mean_and_spread_are_those_of_a_sample(tmp_path):
    values = {1: 0.5, 2: 0.75, 5: 0.625}
    for seed, value in values.items():
        write_report(tmp_path / f"seed_{seed}", [0.25, value, 0.25], value / 2)
    content = summary(tmp_path, [1, 2, 5, 6], [1, 2, 5], {6: 1})
    found = content["summary"]["val/macro_f1"]
    assert found["mean"] == pytest.approx(statistics.fmean(values.values()))
    assert found["std"] == pytest.approx(statistics.stdev(values.values()))
    assert (found["min"], found["max"], found["seeds"]) == (0.5, 0.75, 3)
    assert content["summary"]["test/accuracy"]["max"] == 0.375
    assert content["failed"] == {"6": 1}
    assert content["scores"]["2"]["val/accuracy"] == 0.75


def test_one_seed_has_no_spread_and_no_test_no_test_scores(tmp_path):
    write_report(tmp_path / "seed_3", [0.5], None)
    content = summary(tmp_path, [3], [3], {})
    assert content["summary"]["val/macro_f1"]["std"] is None
    assert not any(name.startswith("test/") for name in content["summary"])


def test_a_score_that_is_no_number_is_left_out_of_the_mean(tmp_path):
    write_report(tmp_path / "seed_1", [0.5], float("nan"))
    write_report(tmp_path / "seed_2", [float("nan"), 0.25], 0.5)
    content = summary(tmp_path, [1, 2], [1, 2], {})
    assert content["summary"]["test/accuracy"]["seeds"] == 1
    assert content["scores"]["1"]["test/accuracy"] is None
    assert content["summary"]["val/accuracy"]["mean"] == 0.375
    json.dumps(content, allow_nan=False)


# --- a signal ---------------------------------------------------------------------------------


def test_a_seed_that_a_signal_ends_is_said_and_written(tmp_path, monkeypatch, capsys):
    def run(self, args, folder):
        seed = int(args[-1])
        write_report(folder, [0.5], 0.5)
        self.stopped_by = signal.SIGTERM if seed == 2 else 0
        return 0  # as Lightning may, also after a SIGTERM

    monkeypatch.setattr("bert_lightning.seeds._SeedProcess.run", run)
    (tmp_path / "seed_2" / "checkpoints").mkdir(parents=True)
    (tmp_path / "seed_2" / "checkpoints" / "last.ckpt").touch()
    assert run_seeds(["fit"], [1, 2, 3], tmp_path, Console()) == 128 + signal.SIGTERM
    out = capsys.readouterr().out
    assert "seed      2 stopped by SIGTERM\n" in out
    assert "seed      3" not in out
    assert f"seed      2 goes on with fit --ckpt_path {tmp_path / 'seed_2'}\n" in out
    assert "seeds     not begun: [3]; the same command with --seeds [3] trains them\n" in out
    content = json.loads((tmp_path / "seeds.json").read_text("utf-8"))
    assert (content["finished"], content["failed"]) == ([1], {"2": 143})


def test_a_seed_is_told_to_save_and_all_go_on(tmp_path, monkeypatch):
    sent = []

    def run(self, args, folder):
        os.kill(os.getpid(), signal.SIGUSR1)
        write_report(folder, [0.5], 0.5)
        return 0

    monkeypatch.setattr("bert_lightning.seeds._SeedProcess.run", run)
    monkeypatch.setattr("bert_lightning.seeds._SeedProcess._send", lambda _, n: sent.append(n))
    assert run_seeds(["fit"], [1, 2], tmp_path, Console()) == 0
    assert sent == [signal.SIGUSR1] * 2


def test_a_seed_that_the_system_ended_is_said_to_be(tmp_path, monkeypatch, capsys):
    def run(self, args, folder):
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "checkpoints" / "last.ckpt").touch()
        return 128 + signal.SIGKILL

    monkeypatch.setattr("bert_lightning.seeds._SeedProcess.run", run)
    assert run_seeds(["fit"], [1], tmp_path, Console()) == 1
    out = capsys.readouterr().out
    assert "seed      1 was ended by SIGKILL, as the system does where memory runs out\n" in out
    assert f"seed      1 goes on with fit --ckpt_path {tmp_path / 'seed_1'}\n" in out


# --- processes ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_seed_is_a_run_of_its_own_and_all_are_summed_up(
    run_process, run_cli, quick, tmp_path, monkeypatch
):
    (tmp_path / "own.yaml").write_text("seeds: [7, 3]\nseed_everything: 5\n", encoding="utf-8")
    stale = {"BERT_LIGHTNING_DECIDED_RUN": str(tmp_path / "elsewhere")}
    status, out, err = run_process("fit", "--config", "own.yaml", *quick, env=stale)
    assert status == 0, err
    run = tmp_path / "runs" / "1"
    assert {file.name for file in run.iterdir()} == {".lock", "seed_3", "seed_7", "seeds.json"}
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["1"]
    assert not (tmp_path / "elsewhere").exists()
    reports = {}
    for seed in (3, 7):
        folder = run / f"seed_{seed}"
        settings = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))
        assert settings["seed_everything"] == seed
        assert settings["seeds"] is None
        for name in ("metrics.csv", "checkpoints/best.ckpt", "checkpoints/last.ckpt"):
            assert (folder / name).is_file()
        reports[seed] = json.loads((folder / "report" / "report.json").read_text("utf-8"))
    content = json.loads((run / "seeds.json").read_text("utf-8"))
    losses = [reports[seed]["results"]["test"]["loss"] for seed in (7, 3)]
    assert losses[0] != losses[1]
    assert content["seeds"] == content["finished"] == [7, 3]
    assert content["summary"]["test/loss"]["mean"] == pytest.approx(statistics.fmean(losses))
    assert content["summary"]["test/loss"]["std"] == pytest.approx(statistics.stdev(losses))
    assert out.index("seed      7 (1 of 2)") < out.index("seed      3 (2 of 2)")
    assert f"test/loss      {statistics.fmean(losses):.4f} ± " in out
    assert out.rstrip().endswith("runs/1/seeds.json")

    # a seed's run is a run like any other
    status, out, err = run_cli("test", "--ckpt_path", "runs/1/seed_3")
    assert status == 0, err
    again = json.loads((tmp_path / "runs" / "2" / "report" / "report.json").read_text("utf-8"))
    assert again["results"]["test"]["loss"] == pytest.approx(reports[3]["results"]["test"]["loss"])
    (tmp_path / "p.txt").write_text("球队赢了\n", encoding="utf-8")
    words = ("--ckpt_path", "runs/1/seed_7", "--data.predict_path", "p.txt")
    assert json.loads(run_cli("predict", *words).out)["label"]
    status, out, err = run_cli("fit", "--ckpt_path", "runs/1/seed_7", "--trainer.max_epochs", "2")
    assert status == 0, err
    assert not (tmp_path / "runs" / "3").exists()
    assert (run / "seed_7" / "config_resumed_1.yaml").is_file()


FAILS = """
import os
import lightning.pytorch as L
class Fails(L.Callback):
    def on_train_start(self, trainer, pl_module):
        if os.environ["PL_GLOBAL_SEED"] == "2":
            raise RuntimeError("no luck with this seed")
class Waits(L.Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        import pathlib, time
        pathlib.Path(f"pid_{os.environ.get('LOCAL_RANK', '0')}").write_text(str(os.getpid()))
        time.sleep(0.2)
"""


def own_callback(folder, name):
    (folder / "own_callbacks.py").write_text(FAILS, encoding="utf-8")
    file = folder / "own.yaml"
    file.write_text(f"trainer:\n  callbacks: [class_path: own_callbacks.{name}]\n", "utf-8")
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return ["--config", file], {"PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.slow
def test_a_seed_that_fails_is_told_and_the_finished_ones_stay(run_process, quick, tmp_path):
    words, env = own_callback(tmp_path, "Fails")
    status, out, err = run_process("fit", "--seeds", "[1,2,3]", *quick, *words, env=env)
    assert status == 1
    assert "no luck with this seed" in err
    assert "seed      2 failed with status 1" in out
    assert "seeds     2 of 3 finished" in out
    run = tmp_path / "runs" / "1"
    content = json.loads((run / "seeds.json").read_text("utf-8"))
    assert (content["finished"], content["failed"]) == ([1, 3], {"2": 1})
    assert content["summary"]["test/loss"]["seeds"] == 2
    for seed in (1, 3):
        assert (run / f"seed_{seed}" / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.slow
def test_settings_that_are_refused_are_refused_once_and_leave_nothing(run_process, tmp_path):
    status, out, err = run_process("fit", "--seeds", "[1,2]", "--data.path", "nowhere")
    assert status == 1
    assert err.count("data.path: expected a folder or a file") == 1
    assert "the others are not started" in out
    assert not (tmp_path / "runs").exists()


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@contextlib.contextmanager
def seed_of_two_processes(quick, tmp_path):
    """Start a command of two seeds; give it and the two processes of the first one, which train."""
    words, env = own_callback(tmp_path, "Waits")
    words += [
        *("--trainer.max_epochs", "500", "--seeds", "[1,2]"),
        *("--config", "ddp.yaml", "--trainer.devices", "2"),
    ]
    command = [sys.executable, REPO / "main.py", "fit", *map(str, [*quick, *words])]
    environment = {**os.environ, **env, "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        files = [tmp_path / f"pid_{rank}" for rank in (0, 1)]
        end = time.monotonic() + CHILD_SECONDS
        while not all(file.is_file() and file.read_text() for file in files):
            assert time.monotonic() < end
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        yield process, [int(file.read_text()) for file in files]
    finally:
        for _ in range(2):  # the second signal ends the group of the seed at once
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                time.sleep(1)
        process.kill()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_the_processes_of_the_seed_too(quick, tmp_path, number):
    with seed_of_two_processes(quick, tmp_path) as (process, pids):
        process.send_signal(number)
        out, _ = process.communicate(timeout=CHILD_SECONDS)
    assert process.returncode == 128 + number
    assert f"seed      1 stopped by {number.name}\n" in out.decode()
    assert "0 of 2 finished" in out.decode()
    assert "seed      2" not in out.decode()
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_seed_saves_and_ends_when_its_command_is_killed(quick, tmp_path):
    with seed_of_two_processes(quick, tmp_path) as (process, pids):
        process.kill()
        end = time.monotonic() + CHILD_SECONDS
        while any(is_alive(pid) for pid in pids):
            assert time.monotonic() < end
            time.sleep(0.1)
    assert (tmp_path / "runs" / "1" / "seed_1" / "checkpoints" / "last.ckpt").is_file()
    assert not (tmp_path / "runs" / "1" / "seed_2").exists()


@pytest.mark.slow
def test_seeds_run_on_two_processes_each(run_process, quick, tmp_path):
    words = ("--config", "ddp.yaml", "--trainer.devices", "2", "--seeds", "[1,2]")
    status, out, err = run_process("fit", *quick, *words)
    assert status == 0, err
    run = tmp_path / "runs" / "1"
    assert {file.name for file in run.iterdir()} == {".lock", "seed_1", "seed_2", "seeds.json"}
    for seed in (1, 2):
        report = json.loads((run / f"seed_{seed}" / "report" / "report.json").read_text("utf-8"))
        assert report["devices"] == 2
    assert out.count("× 2 devices") == 2
    assert json.loads((run / "seeds.json").read_text("utf-8"))["finished"] == [1, 2]
