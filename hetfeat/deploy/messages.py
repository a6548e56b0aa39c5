"""Messages to the children that run engines and bundles, see `hetfeat.measure.messages`."""

from typing import Literal

from hetfeat.measure.messages import Message, Seconds


class WarmEngine(Message[None]):
    """Has an engine that `Hello` loaded run twice, once if it is slow."""

    do: Literal["warm"] = "warm"


class TimeEngine(Message[list[float]]):
    """Asks for latencies in seconds of runs in a row, for about `seconds`, at least one."""

    do: Literal["time"] = "time"
    seconds: float


class CompareEngine(Message[float]):
    """Asks how far, at most, an engine's outputs are from those in the `.npy` files `expected`."""

    do: Literal["compare"] = "compare"
    expected: list[str]


class LoadBundle(Message[None]):
    """Has a bundle checked, and its libraries and parameters sent to the server."""

    do: Literal["load"] = "load"
    folder: str


class RunBundle(Message[None]):
    """Has the bundle run on the `.npy` files `inputs`, and all outputs written to `output`."""

    do: Literal["run"] = "run"
    inputs: list[str]
    output: str


class TimeBundle(Message[Seconds]):
    """Asks for the seconds of each run on the `.npy` files `inputs`."""

    do: Literal["time"] = "time"
    inputs: list[str]
    rounds: int
