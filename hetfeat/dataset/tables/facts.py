"""What records rest on, beside them in a store and as rows in a table."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from hetfeat.dataset.sidecar_files import evaluation_tasks, save_evaluation_tasks
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.tables.columns import FACTS_SCHEMA
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.parsing import Count, Json, decode, printable

_WEIGHTS = dict[str, Count]
_PROFILE = dict[str, Json]
_DEVICE, _NETWORK, _WORKLOAD, _EVALUATION = "device", "network", "workload", "evaluation"


@dataclass
class Facts:
    """Devices, networks and tasks of records.

    Attributes:
        devices: Profiles by name.
        networks: Occurrences of each task, by network and task hash.
        workloads: Serialised TVM modules by task hash.
        evaluation: Hashes of the evaluation tasks.
    """

    devices: dict[str, DeviceProfile] = field(default_factory=dict)
    networks: dict[str, dict[str, int]] = field(default_factory=dict)
    workloads: dict[str, str] = field(default_factory=dict)
    evaluation: list[str] = field(default_factory=list)

    @classmethod
    def of_store(cls, store: RecordStore) -> "Facts":
        """Those of a local store."""
        return cls(
            store.devices(), store.networks(), store.workloads(), evaluation_tasks(store.path)
        )

    @classmethod
    def of_rows(cls, rows: pa.Table, table: str) -> "Facts":
        """Those of a table's rows.

        Raises:
            DataError: A row is not what its kind says.
        """
        found = cls()
        for row in rows.to_pylist():
            name, content = row["name"], row["content"]
            what = f"'{table}' with a {printable(row['kind'])} amiss"
            match row["kind"]:
                case "device":
                    data = decode(content, _PROFILE, what=what, action=_RESTORE)
                    profile = DeviceProfile.from_dict(data, f"'{printable(name)}' of '{table}'")
                    found.devices.setdefault(profile.name, profile)
                case "network":
                    weights = decode(content, _WEIGHTS, what=what, action=_RESTORE)
                    found.networks[name] = found.networks.get(name, {}) | weights
                case "workload":
                    found.workloads[name] = content
                case "evaluation":
                    found.evaluation.append(name)
                case _:  # of a newer hetfeat
                    pass
        return found

    def renamed(self, names: Mapping[str, str]) -> "Facts":
        """The same with other names of devices.

        Raises:
            DataError: There is no such device, or two of them would have one name.
        """
        if unknown := sorted(set(names) - set(self.devices)):
            given = f"--rename of {', '.join(unknown)}"
            raise DataError(given, f"one of {', '.join(self.devices)}", "correct the name")
        new = [names.get(name, name) for name in self.devices]
        if len(set(new)) < len(new):
            raise DataError(
                f"--rename to {', '.join(names.values())}", "names of their own", "choose others"
            )
        profiles = zip(new, self.devices.values(), strict=True)
        return replace(self, devices={name: replace(p, name=name) for name, p in profiles})

    def beyond(self, there: "Facts") -> pa.Table:
        """Rows of what others do not have yet."""
        rows = [
            *((_DEVICE, name, _json(profile.to_dict())) for name, profile in self.devices.items()),
            *((_WORKLOAD, *pair) for pair in self.workloads.items()),
            *((_EVALUATION, task, "") for task in self.evaluation),
        ]
        known: dict[str, Collection[str]] = {
            _DEVICE: there.devices,
            _WORKLOAD: there.workloads,
            _EVALUATION: there.evaluation,
        }
        rows = [row for row in rows if row[1] not in known[row[0]]]
        for name, weights in self.networks.items():
            before = there.networks.get(name)
            if before is None or before | weights != before:
                rows.append((_NETWORK, name, _json(weights)))
        columns = zip(*rows, strict=True) if rows else [[], [], []]
        return pa.table([pa.array(c, pa.string()) for c in columns], schema=FACTS_SCHEMA)

    def save(self, store: RecordStore) -> None:
        """Adds them to a local store, in which what it has of a device stays."""
        for profile in self.devices.values():
            store.add_device(profile)
        store.add_workloads(self.workloads)
        for name, weights in self.networks.items():
            store.add_network(name, weights, {})
        known = evaluation_tasks(store.path)
        if new := [task for task in self.evaluation if task not in known]:
            save_evaluation_tasks(store.path, list(dict.fromkeys([*known, *new])))


_RESTORE = "read an older version with --as-of, or have it restored"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
