"""The way out: a store's records as MetaSchedule JSON databases, which plain TVM loads."""

import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.dataset.duplicates import older_duplicates
from hetfeat.dataset.store import RecordStore
from hetfeat.durable import sync, write_file
from hetfeat.errors import DataError, RequestError

RECORDS, WORKLOADS, NETWORKS = (
    "database_tuning_record.json",
    "database_workload.json",
    "networks.json",
)
FAILED = "[1e10]"
"""How TVM writes the run seconds of a program that failed."""


@dataclass(frozen=True)
class Exported:
    """What became of the records of a device.

    Attributes:
        device: Name of the device.
        exported: Number of records in the database, failures among them.
        tasks: Number of workloads in the database.
        duplicates: Number of older measurements of the same program, left out.
        without_module: Number of records left out because the store has no TVM module of their
            task, as of those that other tools measured.
    """

    device: str
    exported: int
    tasks: int
    duplicates: int
    without_module: int


def export_metaschedule(store: RecordStore, out: Path, device: str | None = None) -> list[Exported]:
    """Writes a database a device, for TVM's take no heed of the target.

    The arguments of a record are those of its task, weights not yet in the layout of its program.
    Memory is a piece of the store, the modules, and what `older_duplicates` needs.

    Args:
        store: Store whose records are exported.
        out: Folder of the database of `device`, or of one folder a device.
        device: Name of the only device to export; None, the default, for all.

    Raises:
        RequestError: No such device, or there are databases already.
        DataError: No record has a module, or the store is damaged.
    """
    known = store.devices()
    if device is not None and device not in known:
        raise RequestError(
            f"device '{device}'", f"a device of the records ({', '.join(known)})", "choose one"
        )
    folders = {name: out / name for name in known} if device is None else {device: out}
    for folder in folders.values():
        if any((folder / name).exists() for name in (RECORDS, WORKLOADS)):
            raise RequestError(
                f"'{folder}' with a database in it", "a new folder", "choose another --out"
            )
    modules = store.workloads()
    done = [_export(store, name, folder, modules) for name, folder in folders.items()]
    if not any(one.exported for one in done):
        raise DataError(
            f"record store '{store.path}', whose records have no TVM module",
            "records of `hetfeat collect`, or of a MetaSchedule database of this TVM",
            "export another store",
        )
    return done


def _export(store: RecordStore, device: str, folder: Path, modules: dict[str, str]) -> Exported:
    tasks: dict[str, tuple[int, str]] = {}
    exported = duplicates = without_module = 0
    target = json.dumps(dict(store.devices()[device].target))
    folder.mkdir(parents=True, exist_ok=True)
    records_draft = folder / f".records.{secrets.token_hex(8)}"
    try:
        with records_draft.open("x") as records:
            for rows, older in _newest(store, device):
                duplicates += older
                columns = [rows[name].to_pylist() for name in ("task", "trace", "latencies_s")]
                for task, trace, latencies in zip(*columns, strict=True):
                    if task not in modules:
                        without_module += 1
                        continue
                    if task not in tasks:
                        tasks[task] = len(tasks), _arguments(modules[task])
                    index, arguments = tasks[task]
                    seconds = json.dumps(latencies) if latencies else FAILED
                    records.write(f"[{index},[{trace},{seconds},{target},{arguments}]]\n")
                    exported += 1
        lines = (json.dumps([str(int(t, 16)), modules[t]]) + "\n" for t in tasks)
        write_file(folder / WORKLOADS, "".join(lines).encode())
        sync(records_draft)
        os.replace(records_draft, folder / RECORDS)
    except BaseException:
        records_draft.unlink(missing_ok=True)
        raise
    networks = {
        name: [
            {"workload_index": tasks[task][0], "weight": weight}
            for task, weight in weights.items()
            if task in tasks
        ]
        for name, weights in store.networks().items()
    }
    write_file(folder / NETWORKS, json.dumps(networks, indent=1).encode())
    return Exported(device, exported, len(tasks), duplicates, without_module)


def _newest(store: RecordStore, device: str) -> Iterator[tuple[pa.Table, int]]:
    """The newest record of each program, a piece at a time, and how many older were left out."""
    where = pc.field("device") == device
    pieces = list(store.pieces(device))
    older = older_duplicates(pieces, lambda _: where)
    for position, piece in enumerate(pieces):
        rows = piece.read(["task", "trace", "latencies_s"], where)
        kept = np.ones(rows.num_rows, bool)
        kept[older.get(position, [])] = False
        yield rows.filter(pa.array(kept)), int((~kept).sum())


def _arguments(module: str) -> str:
    from hetfeat.workloads.relax import arguments, load_workload

    return json.dumps(arguments(load_workload(module)))
