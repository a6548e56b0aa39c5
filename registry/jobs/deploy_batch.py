"""Several deployments in one go, as a file asks for them: a failure of one stops no other."""

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hetfeat.deploy.precision import slug_in
from hetfeat.devices.probe import find_profile
from hetfeat.errors import DataError, HetfeatError, RequestError
from hetfeat.parsing import read_yaml
from hetfeat.workloads.networks import network_slug
from registry.jobs.deploy import DeployJob, deploy_and_register

log = logging.getLogger(__name__)

SHOWN = (
    *("latency_ms", "untuned_ms", "peers_ms", "trials", "tuning_s"),
    *("max_abs_error", "model_version", "bundle_version", "reused", "stopped"),
)
"""Figures of each deployment's own report that the summary has."""

Settings = dict[str, Any]


def read_jobs(path: Path, parse: Callable[[str, str], Any], defaults: Settings) -> list[Settings]:
    """The deployments of a file: a mapping of options, or a list of such mappings.

    `device` and `network` may be lists: every network then goes to every device.

    Args:
        path: Path of a YAML file.
        parse: Callable that reads an option's value from its name and text, as the command line
            does.
        defaults: Values of the options that a mapping does not name.

    Raises:
        DataError: The file is not such a file.
        RequestError: A value is not one of its option.
    """
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise _unreadable(path, str(error)) from error
    groups = content if isinstance(content, list) else [content]
    if not groups or not all(isinstance(group, dict) and group for group in groups):
        raise _unreadable(path, "neither a mapping of options nor a list of such mappings")
    return [job for group in groups for job in _expanded(path, group, parse, defaults)]


def deploy_all(jobs: list[Settings]) -> list[dict[str, Any]]:
    """Deploys each into a folder of its own, `OUT/NETWORK.DEVICE`; none after the user stops one.

    Returns:
        A row for each: what it is, the figures of `SHOWN`, and `error` where it failed.
    """
    rows = []
    for at, job in enumerate(jobs, 1):
        log.info("deployment %d of %d: %s on %s", at, len(jobs), job["network"], job["device"])
        row = {"network": job["network"], "device": job["device"], "bundle": None, "error": None}
        deployment = None
        try:
            slug = slug_in(network_slug(job["network"]), job["precision"])
            row["bundle"] = job["out"] / f"{slug}.{find_profile(job['device']).name}"
            deployment = deploy_and_register(DeployJob(**job | {"out": row["bundle"]}))
        except HetfeatError as error:
            row["error"] = str(error)
            log.warning("%s", error)
        except Exception as error:  # a defect: shown whole, and the others go on
            row["error"] = f"{type(error).__name__}: {error}"
            log.exception("deployment %d of %d", at, len(jobs))
        printed = deployment.as_json() if deployment else {}
        rows.append({**row, **{key: printed.get(key) for key in SHOWN}})
        if deployment and deployment.report.stopped:
            break
    return rows


def _expanded(
    path: Path, group: Mapping[str, Any], parse: Callable[[str, str], Any], defaults: Settings
) -> Iterator[Settings]:
    if unknown := sorted(set(map(str, group)) - set(defaults)):
        raise _unreadable(path, f"no option is called {', '.join(unknown)}")
    lists = {key: _listed(group.get(key, defaults[key])) for key in ("network", "device")}
    for network, device in itertools.product(lists["network"], lists["device"]):
        given = {**group, "network": network, "device": device}
        job = defaults | {key: parse(key, _text(value)) for key, value in given.items()}
        if job["network"] is None:
            raise _unreadable(path, "a deployment without a network")
        yield job


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    """A value of YAML as it would stand on the command line."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list():
            return ",".join(map(_text, value))
    return str(value)


def _unreadable(path: Path, why: str) -> HetfeatError:
    wanted = "YAML with options of `hetfeat deploy`, such as network, device and out"
    kind = RequestError if not path.is_file() else DataError
    return kind(f"--config '{path}' ({why})", wanted, "correct it (docs/deploy.md)")
