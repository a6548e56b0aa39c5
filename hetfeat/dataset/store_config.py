"""Settings of a record store."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StoreConfig:
    """How records are written, and what is too large to be read.

    Attributes:
        buffer_bytes: Records kept in memory until the largest partition becomes a row group; 64 MB
            by default.
        shard_rows: Records at which a shard is closed, the unit of verifying, copying and damage;
            262,144 by default.
        compression_level: Level of zstd; 9 by default. On the packaged records 19 is 5 % smaller
            and takes 25 times as long, 3 is 29 % larger and takes a third.
        journal_bytes: Bytes of a journal that are read at once; 4 MB by default.
        max_line_bytes: Longest line of a journal, an index or notes; 16 MB by default. Those of the
            packaged records have 0.3 MB at most.
        max_unpacked_bytes: Most that the packed workloads may hold, some 10,000 tasks; 1 GB by
            default. Those of the packaged records have 87 MB.
        max_group_rows: Most rows of a row group; 1,048,576 by default: Arrow writes no more unless
            told to.
        max_group_bytes: Most memory of a row group, as its file declares its columns; 256 MB by
            default, four times `buffer_bytes`.
    """

    buffer_bytes: int = 2**26
    shard_rows: int = 2**18
    compression_level: int = 9
    journal_bytes: int = 2**22
    max_line_bytes: int = 2**24
    max_unpacked_bytes: int = 2**30
    max_group_rows: int = 2**20
    max_group_bytes: int = 2**28
