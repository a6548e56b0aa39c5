"""Lines of the records that a pack brings back from its device.

The first says which pack and which device. Then come tasks, each before its first record, and
records. What the device writes, an importer reads; both need no more than this.
"""

from typing import Annotated, Literal

from pydantic import Field

from hetfeat.parsing import Count, Digest, Json, PositiveFloat, Schema
from hetfeat.records import ErrorKind

RECORDS_FORMAT: Literal[1] = 1
LONGEST_LINE_BYTES = 2**24


class RecordsHead(Schema):
    """The first line.

    Attributes:
        pack_records: Version of the format.
        pack: Digest of the pack's manifest.
        profile: Profile of the device, as `DeviceProfile.to_dict` gives it.
        networks: Occurrences of tasks, by network and task hash.
        machine: Words for the machine that measured.
    """

    pack_records: Literal[1]
    pack: Digest
    profile: dict[str, Json]
    networks: dict[str, dict[str, Count]]
    machine: str


class TaskLine(Schema):
    """A task of the records that follow.

    Attributes:
        task: Hash of the task.
        module: Module of the task, as `save_workload` writes it.
    """

    task: str
    module: str


class RecordLine(Schema):
    """A measured program.

    Attributes:
        task: Hash of the task.
        trace: Schedule of the program.
        latencies_s: Seconds of each repeat; none for a failure.
        error: Kind of failure, or None.
        unix_s: Time of the measurement, in seconds since 1970.
        versions: Names and versions of the tools that took part.
    """

    task: str
    trace: str
    latencies_s: Annotated[list[PositiveFloat], Field(max_length=1000)]
    error: ErrorKind | None
    unix_s: float
    versions: str


Line = RecordsHead | TaskLine | RecordLine
