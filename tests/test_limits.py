import errno
import os
import resource

import pytest

from bert_lightning import cli, limits
from bert_lightning.limits import reached

MANY, LARGE = (errno.EMFILE, os.strerror(errno.EMFILE)), (errno.EFBIG, os.strerror(errno.EFBIG))


@pytest.fixture
def limited(monkeypatch):
    """Make the system say that 32 files may be open, and that one may have 20 KiB."""
    soft = {resource.RLIMIT_NOFILE: 32, resource.RLIMIT_FSIZE: 20 << 10}
    monkeypatch.setattr(limits.resource, "getrlimit", lambda kind: (soft[kind], -1))


@pytest.mark.parametrize(
    "error",
    [
        OSError(*MANY),
        OSError(*MANY, "/dev/shm/torch_1"),
        RuntimeError("Too many open files. Communication with the workers is no longer possible."),
    ],
)
def test_a_limit_of_open_files_is_told(limited, error):
    assert reached(error) == (
        "open files: expected to open one more – found the limit of 32 (ulimit -n)\n"
        "raise it (ulimit -n 4096), or take fewer processes (--data.num_workers)"
    )


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (OSError(*LARGE), "output"),
        (OSError(*LARGE, "out.csv"), "out.csv"),
        (Exception("File too large (os error 27)"), "output"),  # as tokenizers has it
    ],
)
def test_a_limit_of_the_size_of_a_file_is_told(limited, error, place):
    assert reached(error) == (
        f"{place}: expected to write a whole file – found the limit of 20 KiB a file (ulimit -f)\n"
        "raise it (ulimit -f unlimited)"
    )


@pytest.mark.parametrize("error", [ValueError("shapes differ"), OSError(errno.ENOENT, "no")])
def test_other_errors_have_reached_none(limited, error):
    assert reached(error) == ""


def test_a_size_that_no_limit_explains_is_left_to_others(monkeypatch):
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, -1))
    assert reached(OSError(*LARGE, "out.csv")) == ""


def test_a_limit_ends_a_command_in_words(monkeypatch, limited, capsys):
    def run(_):
        raise Exception("File too large (os error 27)")

    monkeypatch.setattr(cli, "_run", run)
    assert cli.main(["fit"]) == 1
    assert capsys.readouterr().err.startswith("error: output: expected to write a whole file")
