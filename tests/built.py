"""Bundles for tests: a network compiled with a random schedule of each task, not tuned.

python built.py OUT NETWORK BATCH,BATCH
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hetfeat.deploy import bundle, runtime
from hetfeat.deploy.compile import compile_network
from hetfeat.deploy.verify import sample_of
from hetfeat.devices.profile import DeviceProfile
from hetfeat.devices.target import host_target
from hetfeat.records import Program
from hetfeat.schedules.design_space import TaskSpace
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import NetworkTask, as_target, extract_tasks, import_network, lower

SEED = 7
"""Of the schedules."""


def build(out: Path, name: str, batches: tuple[int, ...] = (1,)) -> Path:
    profile = DeviceProfile("here", "cpu-x86", host_target(2), threads=2)
    target = as_target(profile.target)
    networks = [load_network(name, batch) for batch in batches]
    variants, programs = [], {}
    for batch, network in zip(batches, networks, strict=True):
        lowered = lower(import_network(network), target)
        tasks = extract_tasks(lowered, target)
        programs |= drawn(tasks, profile)
        made = compile_network(lowered, profile, tasks, programs)
        variants.append(bundle.Variant(batch, made.executable, made.parameters))
    facts = {"network": networks[0].name, "any_rows": True, "request": {"network": name}}
    facts["tasks"] = [{"task": task, "trace": p.trace} for task, p in programs.items()]
    bundle.write_bundle(out, variants, profile, sample_of(networks[0]), facts)
    return out


def drawn(tasks: Sequence[NetworkTask], profile: DeviceProfile) -> dict[str, Program]:
    """A random program of each task, by its hash."""
    found = {}
    for task in tasks:
        space = TaskSpace(task.module, as_target(profile.target), profile.cache_line_bytes)
        ((trace, _),) = space.sample(1, SEED)
        found[task.task.hash] = Program(task.task, trace)
    return found


def rewrite(bundle: Path, **facts) -> None:
    """Changes the manifest, and the digests in it to fit the files."""
    path = bundle / runtime.MANIFEST
    manifest = json.loads(path.read_text()) | facts
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((bundle / name).read_bytes()).hexdigest()
    path.write_text(json.dumps(manifest))


def run_py(bundle: Path, *arguments: str, python: str | Path = sys.executable):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(python), str(bundle / "run.py"), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=bundle.parent,
    )


if __name__ == "__main__":
    build(Path(sys.argv[1]), sys.argv[2], tuple(map(int, sys.argv[3].split(","))))
