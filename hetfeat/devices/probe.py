"""Probing this machine: its target, its parameters and its measured figures."""

import json
import logging
import os
import platform
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from hetfeat.devices import host
from hetfeat.devices.presets import preset, preset_names
from hetfeat.devices.profile import (
    PROFILE_VERSION,
    DeviceProfile,
    Target,
    check_name,
    load_profile,
    save_profile,
)
from hetfeat.devices.without_torch import words_to_run
from hetfeat.errors import DataError, RequestError, WorkFailed, did_you_mean
from hetfeat.parsing import PositiveFloat, decode

log = logging.getLogger(__name__)

FAMILY_OF_MACHINE = {"x86_64": "cpu-x86", "aarch64": "cpu-arm"}


@dataclass(frozen=True)
class ProbeOptions:
    """Settings of a probe.

    Attributes:
        timeout_s: Longest time in seconds that the micro-benchmarks may take, default 300.
        busy_percent: Part of all processors in use, in percent, above which figures would be too
            low and a warning says so; default 20.
        look_s: Seconds over which the use of processors is looked at, default 0.5.
    """

    timeout_s: float = 300.0
    busy_percent: float = 20.0
    look_s: float = 0.5


DEFAULTS = ProbeOptions()


def probe(
    name: str | None = None,
    threads: int | None = None,
    isa: str | None = None,
    options: ProbeOptions = DEFAULTS,
) -> DeviceProfile:
    """This machine's profile, measured now (about ten seconds).

    Args:
        name: Name of the profile; default None for a slug of CPU, micro-architecture, ISA and
            threads.
        threads: Number of threads to measure with; default None for all cores this process may use.
        isa: Vector instructions to restrict programs to; default None for the widest there are.
        options: Settings of the probe, default `DEFAULTS`.

    Raises:
        RequestError: Not a machine the probe knows, not a name, or more threads or wider vectors
            than this machine has.
        WorkFailed: The micro-benchmarks failed.
    """
    if name is not None:
        check_name(name)  # before measuring
    family = FAMILY_OF_MACHINE.get(platform.machine())
    if family is None:
        raise RequestError(
            f"a machine of type {platform.machine()}",
            " or ".join(FAMILY_OF_MACHINE),
            "write a profile by hand and pass its file as --device",
        )
    from hetfeat.devices import target as device_target

    cores = host.usable_cores()
    threads = threads or cores
    if threads > cores:
        raise RequestError(
            f"{threads} threads", f"at most {cores}, the cores this process may use", "ask for less"
        )
    own = device_target.host_target(threads)
    target = device_target.restricted(own, isa) if isa else own
    isa, vector_bytes = device_target.vector_isa(target)
    figures: dict[str, Any] = {
        name: float(f"{value:.4g}") for name, value in _measure(target, threads, options).items()
    }
    return DeviceProfile(
        # The processor's own micro-architecture, whatever the target is restricted to.
        name=name or slug(host.cpu_model(), str(own["mcpu"]), isa, f"{threads}t"),
        family=family,
        target=Target(target),
        threads=threads,
        num_cores=threads,
        vector_unit_bytes=vector_bytes,
        cache_line_bytes=host.cache_line_bytes(),
        source=f"probed on {host.cpu_model()}, tvm {version('apache-tvm')}",
        **figures,
    )


def local_profile() -> DeviceProfile:
    """This machine's profile: probed once, then read from the cache."""
    if (known := load_remembered()) is not None:
        return known
    log.info("probing this machine, about ten seconds")
    started_s = time.monotonic()
    profile = probe()
    log.debug("probing: %.1f s", time.monotonic() - started_s)
    remember(profile)
    return profile


def load_remembered() -> DeviceProfile | None:
    """This machine's profile if it has been probed."""
    path = _cache_path()
    return load_profile(path) if path.is_file() else None


def remember(profile: DeviceProfile) -> None:
    """Makes `profile` what `local` means on this machine."""
    save_profile(profile, _cache_path())


def find_profile(device: str) -> DeviceProfile:
    """The profile of `local`, of this machine's own name, of a preset, or of a profile file.

    Raises:
        RequestError: No such device.
    """
    if device.endswith((".yaml", ".yml")):
        return load_profile(Path(device))
    if found := preset(device):
        return found
    profile = local_profile()
    if device not in ("local", profile.name):
        raise RequestError(
            f"device '{device}'",
            f"'local', '{profile.name}', a preset or the path of a profile file (.yaml)",
            did_you_mean(device, [profile.name, *preset_names()])
            or "see `hetfeat devices list`, or make one with `hetfeat devices probe --out FILE`",
        )
    return profile


def home() -> Path:
    """Folder of the toolkit's caches: `HETFEAT_HOME`, or the user's cache folder."""
    given = os.environ.get("HETFEAT_HOME")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given).expanduser() if given else Path(base).expanduser() / "hetfeat"


def _cache_path() -> Path:
    """Keyed on what would change the profile: a container with other cores probes anew."""
    parts = (platform.machine(), host.cpu_model(), f"{host.usable_cores()}t", f"v{PROFILE_VERSION}")
    key = slug(*parts)
    return home() / "devices" / f"{key}.yaml"


def _measure(target: dict[str, Any], threads: int, options: ProbeOptions) -> dict[str, float]:
    if (busy := psutil.cpu_percent(options.look_s)) > options.busy_percent:
        log.warning(
            "this machine is %.0f %% busy with other work, and its figures will be too low: "
            "probe it again while nothing else runs",
            busy,
        )
    words = words_to_run("hetfeat.devices.target")
    command = [*words, json.dumps(target), str(os.getpid())]
    environment = os.environ | {"TVM_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=options.timeout_s, check=True
        )
        figures: dict[str, float] = decode(
            done.stdout, dict[str, PositiveFloat], what="figures", action="probe again"
        )
    except (subprocess.SubprocessError, DataError) as error:
        detail = getattr(error, "stderr", b"") or b""
        lines = detail.decode(errors="replace").strip().splitlines()
        raise WorkFailed(
            f"the micro-benchmarks of this machine ({lines[-1] if lines else error})",
            "GFLOP/s and GB/s",
            f"run `{shlex.join(command)}` to see the whole error",
        ) from error
    return figures


def slug(*parts: str) -> str:
    """Parts as a device's name."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")
