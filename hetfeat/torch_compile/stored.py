"""Compiled graphs on the disk, found again by later processes."""

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from hetfeat.api.bundles import Bundle
from hetfeat.api.deploying import deploy_network, versions
from hetfeat.api.devices import as_profile
from hetfeat.deploy.request import journal_path
from hetfeat.deploy.runtime import MANIFEST
from hetfeat.devices.probe import home
from hetfeat.errors import DataError
from hetfeat.torch_compile.graph import as_network, digest_of_graph, digest_of_weights
from hetfeat.torch_compile.settings import Settings

log = logging.getLogger(__name__)

KEY_DIGITS = 16
"""Digits of a digest in the name of a folder of the cache."""


def bundle_of(
    graph: torch.fx.GraphModule,
    arguments: Sequence[torch.Tensor],
    is_folded: Sequence[bool],
    settings: Settings,
) -> Bundle:
    """A compiled graph: the one that lies in the cache, or a new one, which then lies there.

    A folder of the cache is of the graph, its shapes, the device, the options and the versions; in
    it each bundle is of some weights. What was measured for one is used for all.

    Raises:
        HetfeatError: The graph, the device or an option is not right, or it does not compile.
    """
    profile = as_profile(settings.device)
    facts = [digest_of_graph(graph, arguments), profile.to_dict(), settings.facts(), versions()]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:KEY_DIGITS]
    pairs = zip(arguments, is_folded, strict=True)
    weights = [value for value, folded in pairs if folded]
    own = digest_of_weights([*weights, *graph.parameters(), *graph.buffers()])[:KEY_DIGITS]
    of_graph = Path(settings.cache or home() / "torch") / key
    out = of_graph / own
    if (found := _found(out)) is not None:
        return found
    network = as_network(graph, arguments, is_folded, f"graph_{own[:8]}")
    log.info("compiling a graph of torch.compile into '%s'", out)
    return deploy_network(
        network,
        profile,
        model=settings.model,
        effort=settings.effort,
        trials=settings.trials,
        out=out,
        refresh=out.exists() and not _is_whole(out),
        journal=_finished_journal(of_graph, out),
    ).load()


def _found(out: Path) -> Bundle | None:
    if not (out / MANIFEST).is_file():
        return None
    try:
        bundle = Bundle(out)
        return None if bundle.report.stopped else bundle.load()
    except DataError as error:
        log.warning("a compiled graph is made anew: %s", error)
        return None


def _is_whole(out: Path) -> bool:
    try:
        Bundle(out).load()
    except DataError:
        return False
    return True


def _finished_journal(of_graph: Path, out: Path) -> Path | None:
    """What was measured for the same graph with other weights, if that tuning came to its end."""
    for manifest in sorted(of_graph.glob(f"*/{MANIFEST}")):
        journal = journal_path(manifest.parent)
        if manifest.parent != out and journal.is_dir() and _found(manifest.parent):
            return journal
    return None
