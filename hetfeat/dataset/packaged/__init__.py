"""The data set that comes with the package: this folder is itself a record store, of x86 CPUs.

Each other family of devices has a record store in a folder of its name, where there are records.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
FIRST = "cpu-x86"


def packaged_stores(root: Path = HERE) -> dict[str, Path]:
    """Where the packaged record stores lie, by family.

    Args:
        root: Folder of the data set; default that of the package.
    """
    others = sorted(head.parent for head in root.glob("*/store.json"))
    return {FIRST: root, **{folder.name: folder for folder in others}}


def packaged_store(family: str | None = None, root: Path = HERE) -> Path:
    """Where the packaged record store of a family lies.

    Args:
        family: Family or union; default None for x86 CPUs, whose store stands for those of a family
            without packaged records, too.
        root: Folder of the data set; default that of the package.
    """
    found = packaged_stores(root).items()
    return next((path for name, path in found if family in (name, name.partition("-")[0])), root)
