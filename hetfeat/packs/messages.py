"""Messages to the child that runs programs of packs; `measure.messages` says how they travel."""

from typing import Literal

from hetfeat.measure.messages import Argument, Message, Seconds
from hetfeat.parsing import Schema


class DeviceFacts(Schema):
    """What a device says of itself.

    Attributes:
        arch: Architecture of the first NVIDIA GPU, such as `sm_90`; None for a CPU, or none.
        name: Name of the device.
        tvm: Version of TVM there.
        missing: Why TVM's part for CUDA does not load, such as for want of a driver; None if it
            does, or none is asked for.
    """

    arch: str | None
    name: str
    tvm: str
    missing: str | None


class DescribeDevice(Message[DeviceFacts]):
    """Asks what the device is."""

    do: Literal["describe"] = "describe"


class RunPacked(Message[Seconds]):
    """Has a program of a pack loaded and timed.

    Attributes:
        library: Path of the program's library.
        kernels: Path of its kernels, None for a CPU.
        arguments: Shape and type of each argument.
        incumbent_s: Best latency of its task so far in seconds, None for none.
        cold: Whether the weights leave the caches before each run.
    """

    do: Literal["run_packed"] = "run_packed"
    library: str
    kernels: str | None
    arguments: list[Argument]
    incumbent_s: float | None
    cold: bool
