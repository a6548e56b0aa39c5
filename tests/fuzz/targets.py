"""The parsers of others' bytes: what each is given, and what it may raise."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetfeat.errors import HetfeatError
from tests.fuzz import more

Target = Callable[[bytes, Path], object]


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _tags(data: bytes) -> dict[str, str]:
    """Tags as a server gives them: text each."""
    found = _json(data)
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}


def _importer(name: str, file: str = "log") -> Target:
    def target(data: bytes, folder: Path) -> None:
        from hetfeat.dataset.importers.formats import importer
        from hetfeat.dataset.importers.sniff import sniff

        (folder / file).write_bytes(data)
        sniff(folder / file)
        for batch in importer(name)([folder / file], "a"):
            batch.records.validate(full=True)

    return target


def _metaschedule(data: bytes, folder: Path) -> None:
    """A part each of records, workloads and networks, one a line beginning with `#`."""
    from hetfeat.dataset.importers.formats import importer

    names = ("database_tuning_record.json", "database_workload.json", "networks.json")
    parts = data.split(b"\n#\n")
    for name, part in zip(names, [*parts, b"", b"{}"], strict=False):
        (folder / name).write_bytes(part)
    for batch in importer("metaschedule")([folder / names[0]], "a"):
        batch.records.validate(full=True)


def _search_space(data: bytes, folder: Path) -> None:
    from hetfeat.dataset.importers.kernel_tuner import read_recording
    from hetfeat.search.recorded import RecordedSpace

    (folder / "space.json").write_bytes(data)
    space = RecordedSpace(read_recording(folder / "space.json"))
    space.vectors(space.states)


def _store(file: str) -> Target:
    def target(data: bytes, folder: Path) -> None:
        from hetfeat.dataset.schema import from_table
        from hetfeat.dataset.store import RecordStore

        store = RecordStore.create(folder / "store")
        (folder / "store" / file).write_bytes(data)
        found = RecordStore.open(store.path)
        for _ in from_table(found.read()):
            pass
        found.damaged_shards()
        found.networks()
        found.devices()

    return target


def _bundle(data: bytes, folder: Path) -> None:
    from hetfeat.deploy import runtime

    (folder / runtime.MANIFEST).write_bytes(data)
    try:
        manifest = runtime.read_manifest(folder)
        runtime.check_files(folder, manifest)
        runtime.check_cpu(folder, manifest)
    except runtime.BundleError:
        pass


def _manifest(data: bytes, folder: Path) -> None:
    from registry.files.manifest import parse_manifest

    parse_manifest(data, "a model")


def _presigned(data: bytes, folder: Path) -> None:
    from registry.files.presigned_fetch import read_request

    (folder / "request.json").write_bytes(data)
    read_request(folder / "request.json")


def _ledger(data: bytes, folder: Path) -> None:
    from registry.models import ledger
    from registry.models.recorded_alias import recorded_states

    tags = _tags(data)
    ledger.entries(tags)
    ledger.faults("m", tags, list(tags.values()))
    recorded_states("m", tags)
    ledger.manifests(ledger.standing("m", tags))


def _sealed(data: bytes, folder: Path) -> None:
    """Entries well sealed, whatever they hold."""
    from registry.models import ledger

    found = _json(data)
    head, tags = ledger.Head.parse(None), {}
    for number, content in enumerate(found if isinstance(found, list) else [found], 1):
        if isinstance(content, dict):
            tags[ledger.key(number)] = ledger.encode(ledger.seal(content, head))
    _ledger(json.dumps(tags).encode(), folder)


def _owner(data: bytes, folder: Path) -> None:
    from registry.models import process

    text = data.decode(errors="replace")
    process.is_gone(text)
    process.is_here(text)


def _profile(data: bytes, folder: Path) -> None:
    from hetfeat.devices.fleet.route import route_of
    from hetfeat.devices.profile import load_profile

    (folder / "a.yaml").write_bytes(data)
    route_of(load_profile(folder / "a.yaml"))


def _image(data: bytes, folder: Path) -> None:
    import base64

    from mlflow.exceptions import MlflowException

    from registry.tracking import pyfunc_bundle

    with contextlib.suppress(MlflowException):
        pyfunc_bundle._rows([base64.b64encode(data).decode()], [1, 3, 8, 8], "float32")


def _npy(data: bytes, folder: Path) -> None:
    from hetfeat.deploy import runtime

    (folder / "x.npy").write_bytes(data)
    with contextlib.suppress(runtime.BundleError):
        runtime.load_arrays([folder / "x.npy"])


def _model(data: bytes, folder: Path) -> None:
    from hetfeat.models.persist import read_head

    (folder / "model.json").write_bytes(data)
    read_head(folder)


def _gates(data: bytes, folder: Path) -> None:
    from registry.models.gate_rules import load_rules

    (folder / "gates.yaml").write_bytes(data)
    load_rules(folder / "gates.yaml")


def _deploy_request(data: bytes, folder: Path) -> None:
    from hetfeat.deploy.request import DeployRequest

    (folder / "request.json").write_bytes(data)
    DeployRequest.of_journal(folder)


def _report(data: bytes, folder: Path) -> None:
    from hetfeat.devices.fleet.identity import mismatch
    from hetfeat.devices.fleet.report import report_of
    from hetfeat.devices.profile import DeviceProfile

    route = {"kind": "rpc", "key": "a", "tracker": "localhost:9190"}
    profile = DeviceProfile("a", "cpu-x86", {"kind": "llvm"}, 2, route=route)
    mismatch(profile, report_of(_json(data)))


TARGETS: dict[str, Target] = {
    "ansor": _importer("ansor"),
    "kernel-tuner": _importer("kernel-tuner", "cache.json"),
    "uci": _importer("kernel-tuner", "table.zip"),
    "metaschedule": _metaschedule,
    "search-space": _search_space,
    "journal": _store("journal.jsonl"),
    "shards": _store("shards.jsonl"),
    "bundle": _bundle,
    "manifest": _manifest,
    "presigned": _presigned,
    "ledger": _ledger,
    "sealed-ledger": _sealed,
    "owner": _owner,
    "profile": _profile,
    "image": _image,
    "npy": _npy,
    "model": _model,
    "gates": _gates,
    "deploy-request": _deploy_request,
    "report": _report,
    **more.TARGETS,
}
ALLOWED = (HetfeatError,)
