"""Messages between a parent and its children: JSON on the wire, a type on either side.

A child is told at its start what it is for (`Start`), and then answers one `Message` after the
other with `Done` or `Failed`. Both are of one installation: the format may change with it.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar, Union

from pydantic import ConfigDict, Field

from hetfeat.measure.timing_options import RankingOptions, TimingOptions
from hetfeat.parsing import PositiveInt, Schema, decode
from hetfeat.records import ErrorKind

MAX_MESSAGE_BYTES = 1 << 28
_ACTION = "run it again"

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Proposal = tuple[str, str]
"""Trace of a program, and its per-store features in base64."""
Argument = tuple[tuple[int, ...], str]
"""Shape and type of an argument of a program."""
Seconds = list[float | None]
"""Seconds of runs as they were taken, None for what is no finite number; `latencies_of` checks."""


class Start(Schema):
    """What a measuring child is told at its start, the last word of its command line.

    Attributes:
        target: TVM's target of the device.
        cache_line_bytes: Length of a cache line of the device in bytes.
        memory_limit_bytes: Most bytes of address space that the child may take.
        full_rate: Whether the device multiplies a vector in the time of a number; False by default.
        timing: Options of timing programs, default those of `TimingOptions`.
        ranking: Options that say when a GEMM state's first run tells enough, default those of
            `RankingOptions`.
    """

    target: dict[str, Any]
    cache_line_bytes: PositiveInt
    memory_limit_bytes: PositiveInt
    full_rate: bool = False
    timing: TimingOptions = TimingOptions()
    ranking: RankingOptions = RankingOptions()


class Message(Schema, Generic[R_co]):
    """A request of a parent; `R_co` is the type of the value that answers it.

    Attributes:
        do: Tag by which a child tells requests apart.
    """

    do: str


Handlers = Mapping[type[Message[Any]], Callable[[Any], object]]
"""What a child does for each message that it takes."""


class Done(Schema, Generic[R]):
    """The reply to a request that was done.

    Attributes:
        value: What it came to.
    """

    model_config = ConfigDict(extra="forbid")

    value: R


class Failed(Schema):
    """The reply to a request that failed; the child goes on.

    Attributes:
        error: Kind of the failure.
        message: Words of the failure.
    """

    model_config = ConfigDict(extra="forbid")

    error: ErrorKind
    message: str


class RequestFailed(RuntimeError):
    """A child's report of a failed request.

    Attributes:
        kind: Kind of the failure.
    """

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.kind = failed.error


def any_of(kinds: Iterable[type[Message[Any]]]) -> Any:
    """The type of messages of several kinds, told apart by `do`, for `decode_message`."""
    return Annotated[Union[tuple(kinds)], Field(discriminator="do")]  # noqa: UP007


def decode_message(data: bytes, kinds: Any) -> Message[Any]:
    """The message that a child got.

    Raises:
        DataError: It is none of the kinds.
    """
    message: Message[Any] = decode(
        data, kinds, what="a request", action=_ACTION, max_bytes=MAX_MESSAGE_BYTES
    )
    return message


def decode_reply(data: bytes, request: Message[R]) -> R:
    """The value of a reply to a request.

    Raises:
        RequestFailed: The reply tells of a failure.
        DataError: It is no reply to this request.
    """
    kind = _reply_type(type(request))
    reply = decode(data, kind, what="a child's reply", action=_ACTION, max_bytes=MAX_MESSAGE_BYTES)
    if isinstance(reply, Failed):
        raise RequestFailed(reply)
    value: R = reply.value
    return value


@functools.cache
def _reply_type(kind: type[Message[Any]]) -> Any:
    (value,) = (
        argument
        for base in kind.__mro__
        if issubclass(base, Message)
        for argument in base.__pydantic_generic_metadata__["args"]
    )
    return Done[value] | Failed  # type: ignore[valid-type]


class Hello(Message[None]):
    """Asks for a sign that the child is there."""

    do: Literal["hello"] = "hello"


class AddTask(Message[None]):
    """Makes a task known by its module, as `save_workload` writes it."""

    do: Literal["task"] = "task"
    task: str
    module: str


class SamplePrograms(Message[list[Proposal]]):
    """Asks for random programs."""

    do: Literal["sample"] = "sample"
    task: str
    count: int
    seed: int


class VaryPrograms(Message[list[Proposal]]):
    """Asks for programs near the traces `parents`."""

    do: Literal["vary"] = "vary"
    task: str
    parents: list[str]
    count: int
    seed: int


class ApplyTraces(Message[list[Proposal]]):
    """Asks for the programs of traces without post-processing, less what does not apply."""

    do: Literal["apply"] = "apply"
    task: str
    traces: list[str]


class ExtractFeatures(Message[list[str | None]]):
    """Asks for per-store features of programs in base64, None for one that does not replay."""

    do: Literal["features"] = "features"
    task: str
    traces: list[str]


class BuildProgram(Message[None]):
    """Has a program compiled in memory and kept for `RunProgram`."""

    do: Literal["build"] = "build"
    task: str
    program: str
    trace: str


class RunProgram(Message[Seconds]):
    """Has a built program timed.

    Attributes:
        program: Key of the program.
        incumbent_s: Best latency of its task so far in seconds, None for none.
        cold: Whether the weights leave the caches before each run, default False.
        threads: Number of threads of the run, default None for all that the child has.
        keep: Whether the program stays built, default False.
    """

    do: Literal["run"] = "run"
    program: str
    incumbent_s: float | None
    cold: bool = False
    threads: int | None = None
    keep: bool = False


class BuildFile(Message[list[Argument]]):
    """Has a program compiled into the library `path`; the answer is its arguments."""

    do: Literal["build_file"] = "build_file"
    task: str
    program: str
    trace: str
    path: str


class LoadProgram(Message[None]):
    """Has a library that was built elsewhere kept for `RunProgram`, as `BuildProgram` would.

    Attributes:
        program: Key of the program.
        path: Path of its library.
        kernels: Path of its kernels, None for a CPU.
        arguments: Shape and type of each argument.
    """

    do: Literal["load"] = "load"
    program: str
    path: str
    kernels: str | None = None
    arguments: list[Argument]


class Connect(Message[dict[str, Any]]):
    """Waits for a free server; the answer is what it says of itself, and how fast it is.

    Attributes:
        host: Host of the tracker.
        port: Port of the tracker.
        key: Key of the device at the tracker.
        session_s: Seconds that the session may last before the server ends it.
        enough: Speed in GFLOP/s that is fast enough.
    """

    do: Literal["connect"] = "connect"
    host: str
    port: int
    key: str
    session_s: float
    enough: float


class RunFile(Message[Seconds | None]):
    """Has a library timed by the server; the answer is None if the session broke.

    Attributes:
        program: Key of the program.
        path: Path of its library, here.
        arguments: Arguments of the program.
        incumbent_s: Best latency of its task so far in seconds, None for none.
        cold: Whether the weights leave the caches before each run.
    """

    do: Literal["run_file"] = "run_file"
    program: str
    path: str
    arguments: list[Argument]
    incumbent_s: float | None
    cold: bool


class ProbeSpeed(Message[float | None]):
    """Asks how fast the server is now, in GFLOP/s; the answer is None if the session broke."""

    do: Literal["gflops"] = "gflops"
    enough: float


class CloseSession(Message[None]):
    """Ends the session with the server."""

    do: Literal["close"] = "close"


class WarmFork(Message[None]):
    """Has a fork start its threads and get pages of its own."""

    do: Literal["warm"] = "warm"


class RunOnce(Message[float]):
    """Has a fork run a program once; the answer is the seconds."""

    do: Literal["once"] = "once"
    program: str


class RunMore(Message[Seconds]):
    """Has a fork time a program after its first run.

    Attributes:
        program: Key of the program.
        first_s: Seconds of its first run.
        best_s: Best latency so far in seconds, None for none.
    """

    do: Literal["more"] = "more"
    program: str
    first_s: float
    best_s: float | None
