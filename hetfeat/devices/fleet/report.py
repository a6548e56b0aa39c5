"""What a measuring server says of itself, checked where it comes in."""

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from hetfeat.parsing import Count, PositiveFloat, PositiveInt, Schema, parse

MOST_FEATURES = 2000
"""Most features of a processor in a server's answer; LLVM knows some hundreds."""
START_IT_ANEW = "start it with this version of hetfeat"


def _only_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a text that cannot be printed")
    return text


Text = Annotated[
    str, StringConstraints(min_length=1, max_length=200), AfterValidator(_only_printable)
]
Texts = Annotated[list[Text], Field(max_length=MOST_FEATURES)]


class Description(Schema):
    """What `devices.fleet.server` answers with; see there."""

    machine: Text
    cpu: Text
    features: Texts
    cores: PositiveInt
    threads: PositiveInt
    tvm: Text
    instance: Text
    crashes: Count


class ServerReport(Schema):
    """A description with what was found out about the server here.

    Attributes:
        machine: Name of the architecture, as `platform.machine` has it.
        cpu: Name of the processor.
        cores: Number of cores that the server may use.
        threads: Number of threads that its programs run with.
        tvm: Version of TVM there.
        instance: Name of this start of the server.
        crashes: Number of sessions that have ended badly since then.
        missing: CPU features that the device's programs need and the server lacks.
        gflops: Speed in GFLOP/s; None, the default, where features are missing.
    """

    machine: Text
    cpu: Text
    cores: PositiveInt
    threads: PositiveInt
    tvm: Text
    instance: Text
    crashes: Count
    missing: Texts
    gflops: PositiveFloat | None = None


def report_of(value: object) -> ServerReport:
    """A server's report from a reply.

    Raises:
        DataError: It is something else.
    """
    return parse(value, ServerReport, what="what a server says of itself", action=START_IT_ANEW)
