"""Forks that serve requests."""

import os
import signal
import time
from typing import Literal

import pytest

from hetfeat.measure.fork import Fork
from hetfeat.measure.messages import Message


class Add(Message[int]):
    do: Literal["add"] = "add"
    a: int
    b: int


class Fail(Message[None]):
    do: Literal["fail"] = "fail"


class Hang(Message[None]):
    do: Literal["hang"] = "hang"


class Die(Message[None]):
    do: Literal["die"] = "die"


class Process(Message[int]):
    do: Literal["process"] = "process"


def fail(request: Fail) -> None:
    raise ValueError("no such thing")


HANDLERS = {
    Add: lambda request: request.a + request.b,
    Fail: fail,
    Hang: lambda request: time.sleep(60),
    Die: lambda request: os.kill(os.getpid(), signal.SIGKILL),
    Process: lambda request: os.getpid(),
}


def forked() -> Fork:
    return Fork(HANDLERS, lambda request, error: "run")


@pytest.fixture
def fork():
    made = forked()
    yield made
    made.end()


def test_a_fork_answers_from_another_process(fork):
    assert fork.ask(10, Add(a=2, b=3)) == 5
    assert fork.ask(None, Process()) != os.getpid()


def test_a_failed_request_costs_nothing_else(fork):
    with pytest.raises(RuntimeError, match="no such thing"):
        fork.ask(10, Fail())
    assert fork.ask(10, Add(a=2, b=3)) == 5


def test_one_that_takes_too_long_or_dies_is_told_apart(fork):
    with pytest.raises(TimeoutError, match=r"hang takes over 0\.05 s"):
        fork.ask(0.05, Hang())
    other = forked()
    with pytest.raises(EOFError):
        other.ask(10, Die())
    with pytest.raises(ConnectionError):
        other.ask(10, Add(a=2, b=3))
    other.end()


def test_an_ended_fork_is_gone():
    made = forked()
    process = made.ask(10, Process())
    made.end()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
