"""Forks that serve requests."""

import os
import signal
import time

import pytest

from hetfeat.measure.fork import Fork


class Arithmetic:
    def add(self, a, b):
        return a + b

    def fail(self):
        raise ValueError("no such thing")

    def hang(self):
        time.sleep(60)

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def process(self):
        return os.getpid()


@pytest.fixture
def fork():
    made = Fork(Arithmetic(), lambda request, error: "run")
    yield made
    made.end()


def test_a_fork_answers_from_another_process(fork):
    assert fork.ask(10, "add", a=2, b=3) == 5
    assert fork.ask(None, "process") != os.getpid()


def test_a_failed_request_costs_nothing_else(fork):
    with pytest.raises(RuntimeError, match="no such thing"):
        fork.ask(10, "fail")
    assert fork.ask(10, "add", a=2, b=3) == 5


def test_one_that_takes_too_long_or_dies_is_told_apart(fork):
    with pytest.raises(TimeoutError, match=r"hang takes over 0\.05 s"):
        fork.ask(0.05, "hang")
    other = Fork(Arithmetic(), lambda request, error: "run")
    with pytest.raises(EOFError):
        other.ask(10, "die")
    with pytest.raises(ConnectionError):
        other.ask(10, "add", a=2, b=3)
    other.end()


def test_an_ended_fork_is_gone():
    made = Fork(Arithmetic(), lambda request, error: "run")
    process = made.ask(10, "process")
    made.end()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
