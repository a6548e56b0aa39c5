"""Records of a pack into a store, so that the next pack, or tuning here, goes on from them."""

from pathlib import Path

from hetfeat.dataset.importers.import_records import Counts, import_records
from hetfeat.dataset.importers.pack import read_head
from hetfeat.devices.profile import DeviceProfile
from hetfeat.tune.feature_extraction import FeatureExtraction


def import_pack_records(path: Path, out: Path, device: str | None = None) -> tuple[Counts, str]:
    """Reads the records of a pack into the store at `out`, made if there is none.

    Args:
        path: Path of the file of records.
        out: Folder of the store.
        device: Name that the records get; None, the default, for that of the pack's profile.

    Returns:
        What became of the records, and the name of their device.

    Raises:
        DataError: No such records, or none that is whole.
    """
    of_pack = DeviceProfile.from_dict(read_head(path).profile, f"of '{path}'")
    device = device or of_pack.name
    with FeatureExtraction() as extraction:
        counts = import_records("pack", device, [path], out, complete=extraction)
    counts.check()
    return counts, device
