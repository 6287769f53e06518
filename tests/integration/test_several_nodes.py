"""Two "nodes" on one machine over loopback, started as torchrun, SLURM and a user start them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
REPO = Path(__file__).parent.parent.parent
SECONDS = 240
TRAINING = ("--config", "fp32.yaml", "--trainer.accelerator", "cpu")


def torchrun(rank):
    return {
        "RANK": rank,
        "GROUP_RANK": rank,
        "ROLE_RANK": rank,
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "TORCHELASTIC_RUN_ID": "none",
    }


def slurm(rank):
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "news",
        "SLURM_NODELIST": "127.0.0.1",
        "SLURM_NNODES": "2",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_PROCID": rank,
        "SLURM_NODEID": rank,
        "SLURM_LOCALID": "0",
    }


def by_hand(rank):
    return {"NODE_RANK": rank}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.fixture
def run_nodes(tmp_path):
    """Run a command line on two nodes of one process each: status, output and errors of both."""

    def run(variables, *args):
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        nodes = [
            subprocess.Popen(
                [sys.executable, str(REPO / "main.py"), *map(str, args)],
                cwd=tmp_path,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **meeting, **variables(str(rank))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
            for rank in (1, 0)  # the second is there first, and must not take the number of the run
        ]
        try:
            texts = [node.communicate(timeout=SECONDS) for node in nodes]
        finally:
            for node in nodes:
                node.kill()
        second, first = [(node.returncode, *text) for node, text in zip(nodes, texts, strict=True)]
        return first, second

    return run


def report(folder, number):
    file = folder / "runs" / number / "report" / "report.json"
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("variables", [torchrun, slurm, by_hand])
def test_two_nodes_end_as_two_processes_of_one(variables, run_nodes, run_process, quick, tmp_path):
    words = ["fit", *TRAINING, *quick]
    nodes = ("--trainer.num_nodes", "2", "--trainer.devices", "1")
    first, second = run_nodes(variables, *words, *nodes)
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert [run.name for run in (tmp_path / "runs").iterdir()] == ["1"]
    assert first[1].count("test/accuracy") == 1
    assert "8 rows × 2 devices × 1 accumulated = 16 rows a step, DDPStrategy" in first[1]
    assert second[1] == ""
    config = (tmp_path / "runs" / "1" / "config.yaml").read_text(encoding="utf-8")
    assert "num_nodes: 2" in config

    status, _, err = run_process(*words, "--config", "ddp.yaml", "--trainer.devices", "2")
    assert status == 0, err
    apart, together = report(tmp_path, "1"), report(tmp_path, "2")
    assert apart["devices"] == together["devices"] == 2
    for split in ("val", "test"):
        assert apart["results"][split]["confusion"] == together["results"][split]["confusion"]
        loss = together["results"][split]["loss"]
        assert apart["results"][split]["loss"] == pytest.approx(loss, rel=1e-6)
    assert apart["history"] == [
        {name: pytest.approx(value, rel=1e-6) for name, value in row.items()}
        for row in together["history"]
    ]
