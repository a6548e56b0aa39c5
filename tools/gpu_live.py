"""Deploys a network on this machine's NVIDIA GPU, without a registry; says what took how long.

    python tools/gpu_live.py NETWORK OUT [--minutes 2] [--precision float16] [--records FILE]
        [--peers torch,torch_compile,torch_max_autotune]

Needs `hetfeat` and torch alone. FILE has records of a pack, which tuning goes on from.
"""

import argparse
import dataclasses
import json
import logging
import sys
from pathlib import Path

from hetfeat.api.models import packaged_source
from hetfeat.deploy.bench import GPU_PEERS
from hetfeat.deploy.check_on_device import CheckOptions
from hetfeat.deploy.pipeline import deploy
from hetfeat.deploy.precision import FLOAT32, PRECISIONS, slug_in
from hetfeat.deploy.request import DeployRequest, Imported, journal_path
from hetfeat.devices.cuda import gpu_profile
from hetfeat.packs.bring_back import import_pack_records
from hetfeat.workloads.networks import load_network, network_slug, split_batch


def main(words: list[str]) -> None:
    """Brings records in, tunes, compiles, verifies, and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--name", help="name of the device; that of its driver by default")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=GPU_PEERS)
    given = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    profile = gpu_profile(given.name)
    if given.records:
        counts, _ = import_pack_records(given.records, journal_path(given.out), profile.name)
        logging.info("records: %s", counts)
    model, source = packaged_source(profile.family)
    name, batch = split_batch(given.network)
    request = DeployRequest(
        network=given.network,
        slug=slug_in(network_slug(name), given.precision),
        batches=(batch,),
        device=profile.name,
        model=model,
        effort="standard",
        trials=None,
        seed=0,
        minutes=given.minutes,
        precision=given.precision,
    )
    network = Imported.of(batch, load_network(name, batch))
    options = CheckOptions(peers=given.peers)
    report = deploy(request, [network], profile, source, given.out, options)
    print(json.dumps({"profile": profile.to_dict(), **dataclasses.asdict(report)}, default=str))


if __name__ == "__main__":
    main(sys.argv[1:])
