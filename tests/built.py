"""Bundles for tests: a network compiled with TVM's default schedules, no registry, no tuning.

python built.py OUT NETWORK BATCH,BATCH
"""

import sys
from pathlib import Path

from hetfeat.deploy import bundle
from hetfeat.deploy.tvm import compile_network
from hetfeat.deploy.verify import sample_of
from hetfeat.devices.profile import DeviceProfile
from hetfeat.devices.tvm import host_target
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.tvm import as_target, extract_tasks, import_network, lower


def build(out: Path, name: str, batches: tuple[int, ...] = (1,)) -> Path:
    profile = DeviceProfile("here", "cpu-x86", host_target(2), threads=2)
    target = as_target(profile.target)
    networks = [load_network(name, batch) for batch in batches]
    variants = []
    for batch, network in zip(batches, networks, strict=True):
        lowered = lower(import_network(network), target)
        made = compile_network(lowered, profile, extract_tasks(lowered, target), {})
        variants.append(bundle.Variant(batch, made.executable, made.parameters))
    facts = {"network": networks[0].name, "any_rows": True, "request": {"network": name}}
    bundle.write_bundle(out, variants, profile, sample_of(networks[0]), facts)
    return out


if __name__ == "__main__":
    build(Path(sys.argv[1]), sys.argv[2], tuple(map(int, sys.argv[3].split(","))))
