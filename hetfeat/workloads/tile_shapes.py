"""Which products AMX's tiles divide: registers of up to 16 rows of 64 bytes."""

LANES = 16
"""Sums of a tile's row, of 32 bits each."""
MOST_ROWS, MOST_BYTES = 16, 64
"""Rows of a tile, and bytes of a row."""
MOST_SUMS = 4
"""Tiles of sums in a block; as many are left for what is multiplied."""


def tiles_of(
    rows: int,
    channels: int,
    depth: int,
    bytes_: int,
    *,
    fewest_rows: int = 7,
    fewest_bytes: int = 16,
) -> tuple[int, int, int, int] | None:
    """The block of sums that divides a product: one tile of rows and many of channels, or 2 by 2.

    Of the two the one with fewer loads and products for a sum
    (docs/experiments/2026-11-30-programs-in-tiles.md).

    Args:
        rows: Rows of the output; of an image, pixels of one of its rows.
        channels: Channels of the output.
        depth: Products of each sum that are neighbours in memory.
        bytes_: Bytes of a factor.
        fewest_rows: Rows of a tile, 7 by default, as small images have; others are idle.
        fewest_bytes: Bytes of a tile's row of data, 16 by default, for the same reason.

    Returns:
        Tiles along the rows, rows of a tile, tiles along the channels, and products at a time; None
        where no block of such rows divides it.
    """
    group = 4 // bytes_
    of_row = range(group, MOST_BYTES // bytes_ + 1, group)
    deep = max((n for n in of_row if depth % n == 0), default=0)
    if channels % LANES or deep * bytes_ < fewest_bytes:
        return None
    found = []
    for along in (1, 2):
        tall = max((n for n in range(1, MOST_ROWS + 1) if rows % (along * n) == 0), default=0)
        most = MOST_SUMS // along
        wide = max(n for n in range(1, most + 1) if channels // LANES % n == 0)
        if tall >= fewest_rows:
            found.append((along, tall, wide, deep))
    return min(found, key=_work, default=None)


def _work(block: tuple[int, int, int, int]) -> float:
    """Loads and products that a sum takes in each step of the depth."""
    along, tall, wide, _ = block
    return (along + wide + along * wide) / (along * tall * wide)
