"""A bundle on its device, as verification and timing want it."""

import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field

from hetfeat.deploy.bench import Latency
from hetfeat.deploy.bundle import Array, read_manifest, sample_inputs
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, WorkFailed
from hetfeat.measure.remote.session import Quarantine, connect, last_probe, lost
from hetfeat.measure.worker import Lost, Worker
from hetfeat.parsing import PositiveFloat, parse

log = logging.getLogger(__name__)

CHILD = "hetfeat.deploy.remote.child"

T = TypeVar("T")
_Seconds = Annotated[list[PositiveFloat], Field(min_length=1)]


@dataclass(frozen=True)
class BundleSessionOptions:
    """Settings of the session in which a bundle is checked on a server.

    Attributes:
        session_s: Age in seconds at which the server ends it; 1,800 by default.
        load_timeout_s: Longest that loading the bundle may take, in seconds, 300 by default: all
            parameters cross the link.
        run_timeout_s: Longest that a run or its timing may take, in seconds, 300 by default: under
            emulation a run may take a minute, and its timing four.
        attempts: Servers that are tried before the check fails; 4 by default.
        rest_s: Pause in seconds before another attempt; 5 by default.
    """

    session_s: float = 1800.0
    load_timeout_s: float = 300.0
    run_timeout_s: float = 300.0
    attempts: int = 4
    rest_s: float = 5.0


class _Broken(Exception):
    """The session broke, or the server failed."""


class _Discredited(Exception):
    """The server turned out not to be the device."""


class DeviceBundle:
    """A bundle that a server of its device has loaded."""

    def __init__(
        self, worker: Worker, folder: Path, work: Path, options: BundleSessionOptions
    ) -> None:
        self._worker, self._folder, self._work = worker, folder, work
        self._run_timeout_s = options.run_timeout_s
        self._ask({"do": "load", "folder": str(folder)}, options.load_timeout_s)

    def run(self, inputs: Sequence[Array]) -> Array | tuple[Array, ...]:
        """The output for inputs, or all of several, computed on the device."""
        output = self._work / "output.npz"
        request = {"do": "run", "inputs": self._written(inputs), "output": str(output)}
        self._ask(request, self._run_timeout_s)
        with np.load(output, allow_pickle=False) as stored:
            outputs = tuple(stored.values())
        return outputs if len(outputs) > 1 else outputs[0]

    def latency(self, rounds: int, batch: int | None = None) -> Latency:
        """Latency on the device, on the sample, its rows repeated to fill another batch size."""
        inputs = sample_inputs(self._folder)
        if batch not in (None, read_manifest(self._folder)["variants"][0]["batch"]):
            inputs = [np.resize(value, (batch, *value.shape[1:])) for value in inputs]
        request = {"do": "time", "inputs": self._written(inputs), "rounds": rounds}
        seconds = parse(
            self._ask(request, self._run_timeout_s),
            _Seconds,
            what="the times of a bundle",
            action="update and restart the server, and set its clock right",
        )
        times_ms = [1e3 * s for s in seconds]
        return Latency(statistics.median(times_ms), min(times_ms), max(times_ms))

    def _written(self, inputs: Sequence[Array]) -> list[str]:
        paths = [str(self._work / f"input_{number}.npy") for number in range(len(inputs))]
        for path, value in zip(paths, inputs, strict=True):
            np.save(path, value, allow_pickle=False)
        return paths

    def _ask(self, request: dict[str, Any], timeout_s: float) -> Any:
        try:
            reply = self._worker.ask(request, timeout_s)
        except Lost as gone:
            raise _Broken(
                f"the session ended while asked to {request['do']}: {gone.kind}"
            ) from gone
        if "error" in reply:
            raise _Broken(str(reply["message"]))
        return reply.get("value")


def on_device(
    profile: DeviceProfile,
    folder: Path,
    do: Callable[[DeviceBundle], T],
    put_aside: Quarantine,
    options: BundleSessionOptions = BundleSessionOptions(),
) -> T:
    """What `do` returns for a bundle on a server of the device; from the start if one is lost.

    Nothing counts that came of a server whose speed, probed once more after it, is not the
    device's.

    Args:
        profile: Profile of the device.
        folder: Folder of the bundle.
        do: Callable that takes the bundle on a server, perhaps several times.
        put_aside: Callable that is told why a server was turned away.
        options: Settings of the session; those of `BundleSessionOptions` by default.

    Raises:
        DeviceLost: No server held out, in so many attempts.
        WorkFailed: Raised by `do`, or a bundle that fails on every server.
    """
    worker = Worker(CHILD, [json.dumps(dict(profile.target))], profile.threads)
    trouble, failed = "", False
    with tempfile.TemporaryDirectory(prefix="hetfeat-bundle-") as work:
        try:
            for attempt in range(options.attempts):
                time.sleep(options.rest_s if attempt else 0.0)
                met = connect(worker, profile, options.session_s)
                trouble = met.trouble or ""
                if met.report is not None:
                    try:
                        bundle = DeviceBundle(worker, folder, Path(work), options)
                        return _believed(worker, profile, bundle, do)
                    except _Broken as broken:
                        trouble, failed = str(broken), True
                    except (_Discredited, DataError) as mismatch:
                        trouble = str(mismatch)
                        put_aside((), trouble)
                elif met.turned_away is not None:
                    put_aside((), trouble)
                log.warning("device '%s': %s", profile.name, trouble)
        finally:
            worker.stop()
    if failed:
        raise WorkFailed(
            f"the bundle on device '{profile.name}' ({trouble})",
            "a bundle that runs there",
            "deploy again: what was measured is kept in the journal",
        )
    raise lost(profile, trouble)


def _believed(
    worker: Worker, profile: DeviceProfile, bundle: DeviceBundle, do: Callable[[DeviceBundle], T]
) -> T:
    """What `do` returns, or the failure that it tells of.

    Raises:
        _Discredited: The server was not the device after it: neither counts.
        _Broken: As `DeviceBundle`.
    """
    try:
        done = do(bundle)
    except WorkFailed:
        _probe_again(worker, profile)
        raise
    _probe_again(worker, profile)
    return done


def _probe_again(worker: Worker, profile: DeviceProfile) -> None:
    if (mismatch := last_probe(worker, profile)) is not None:
        raise _Discredited(mismatch)
