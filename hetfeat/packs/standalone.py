"""A folder with a pack and the little of this package that runs it, for a machine without it."""

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path

from hetfeat.durable import publish_folder
from hetfeat.errors import RequestError
from hetfeat.packs.archive import open_pack

PACKAGE = "hetfeat"
ROOT = Path(__file__).resolve().parents[2]
ENTRIES = ("hetfeat.packs.run", "hetfeat.packs.run_child")
WHEELS = ("apache-tvm", "apache-tvm-ffi", "numpy", "psutil", "pydantic", "PyYAML")
"""Packages that these modules import; what they need themselves is looked up."""
SCRIPT = '''\
"""Measures the pack that lies beside this file: python run.py [RECORDS] [--cold].

Needs Python 3.11 or later and the wheels of requirements.txt; of TVM the runtime alone.
"""

import sys
from pathlib import Path

from hetfeat.packs.run import main

here = Path(__file__).resolve().parent
words = [word for word in sys.argv[1:] if not word.startswith("-")] or ["records.jsonl"]
flags = [word for word in sys.argv[1:] if word.startswith("-")]
sys.exit(main([str(here / "pack.tar.xz"), *words, *flags]))
'''


def write_standalone(pack: Path, folder: Path) -> list[str]:
    """Makes a folder that runs a pack: a script, the pack, and names of wheels.

    Args:
        pack: Path of the pack, which is verified before.
        folder: Folder that is made; it must not exist, or be empty.

    Returns:
        The wheels, as `requirements.txt` names them.

    Raises:
        DataError: It is no pack.
        RequestError: The folder holds something.
    """
    with tempfile.TemporaryDirectory(prefix="pack-") as place:
        open_pack(pack, Path(place))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"'{folder}'", "an empty folder, or none", "choose another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    draft.chmod(0o755)
    for source in sorted(needed_files(ENTRIES)):
        copy = draft / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    wheels = needed_wheels()
    shutil.copyfile(pack, draft / "pack.tar.xz")
    (draft / "run.py").write_text(SCRIPT)
    (draft / "requirements.txt").write_text("".join(f"{wheel}\n" for wheel in wheels))
    publish_folder(draft, folder)
    return wheels


def needed_files(modules: tuple[str, ...]) -> set[Path]:
    """The files of this package that modules import when they are imported, and so on."""
    found: set[Path] = set()
    rest = list(modules)
    while rest:
        name = rest.pop()
        path = _path_of(name)
        if path is None or path in found:
            continue
        found.add(path)
        rest += [name.rpartition(".")[0], *_imported(ast.parse(path.read_text()))]
    return found


def _path_of(name: str) -> Path | None:
    """The file of a module of this package; None for what is none."""
    if name.partition(".")[0] != PACKAGE:
        return None
    base = ROOT.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imported(tree: ast.AST) -> Iterator[str]:
    """Names that a module imports at once: `a.b` and `a.b.c` for `from a.b import c`."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case _:
                yield from _imported(node)


def needed_wheels() -> list[str]:
    """Packages in the versions of this environment, those that they require included."""
    found: dict[str, str] = {}
    rest = list(WHEELS)
    while rest:
        name = rest.pop()
        if (key := name.lower().replace("_", "-")) in found:
            continue
        found[key] = f"{name}=={version(name)}"
        lines = [line for line in requires(name) or () if "extra ==" not in line]
        rest += [match[0] for line in lines if (match := re.match(r"[\w.-]+", line))]
    return [found[key] for key in sorted(found)]
