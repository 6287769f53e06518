import os
import signal

import pytest

from bert_lightning.interrupts import end_at_once, raise_again

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers():
    """Begin with Python's own handlers, and put back what was there."""
    former = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGUSR1)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING[1:])
def test_a_signal_raises_its_status_in_words_once_a_command_is_loaded(number, capfd):
    end_at_once()
    raise_again()
    with pytest.raises(SystemExit) as ended:
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number
    assert capfd.readouterr().err == f"stopped by {number.name}\n"


def test_a_worker_ends_without_a_word(capfd):
    end_at_once()
    raise_again()
    worker = os.fork()
    if not worker:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 128 + signal.SIGTERM
    assert capfd.readouterr().err == ""


def test_ctrl_c_raises_as_ever_once_a_command_is_loaded():
    end_at_once()
    raise_again()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_a_terminal_sends_to_all_is_left_to_the_first_process(number, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    end_at_once()
    raise_again()
    os.kill(os.getpid(), number)


def test_a_job_in_the_background_which_ctrl_c_does_not_reach_hears_the_others():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_at_once()
    raise_again()
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("number", ENDING)
def test_what_is_ignored_stays_so(number):
    signal.signal(number, signal.SIG_IGN)
    end_at_once()
    raise_again()
    os.kill(os.getpid(), number)


def test_a_save_that_is_asked_for_before_there_is_anything_to_save_is_passed_over():
    end_at_once()
    raise_again()
    os.kill(os.getpid(), signal.SIGUSR1)


def test_who_calls_the_command_line_as_a_function_keeps_its_handlers():
    raise_again()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
