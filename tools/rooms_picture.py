"""Draws docs/pictures/rooms.svg: the packages in the order that pyproject.toml's contracts hold.

    python tools/rooms_picture.py [--check]

Words in the boxes are the first lines of the packages' docstrings.
"""

import ast
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"
CONTRACTS = {"registry": "rooms", "hetfeat": "science"}
WIDTH, GAP, LEFT, NAME = 800, 6, 20, 118
ALONE, SHARED = 28, 42
"""Heights of a layer of one package, and of several side by side."""
LINE_CHARACTERS = 92


def main() -> int:
    drawn = "\n".join(picture()) + "\n"
    if "--check" in sys.argv:
        return int(PICTURE.read_text() != drawn)
    PICTURE.write_text(drawn)
    return 0


def picture() -> Iterator[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = {contract["id"]: contract.get("layers", []) for contract in contracts["contracts"]}
    bands = [(package, layers[contract]) for package, contract in CONTRACTS.items()]
    height = sum(48 + _height(rows) for _, rows in bands) + 12
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="14" fill="#222" role="img" '
        'aria-labelledby="title">'
    )
    yield '<title id="title">Packages, from the command line down to errors</title>'
    yield (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#444"/></marker></defs>'
    )
    yield f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    top = 12
    for package, rows in bands:
        end = top + 36 + _height(rows)
        yield (
            f'<rect x="8" y="{top}" width="{WIDTH - 16}" height="{end - top}" rx="10" '
            'fill="#f4f6f8"/>'
        )
        yield f'<text x="{LEFT}" y="{top + 24}" font-weight="bold" fill="#666">{package}</text>'
        yield (
            f'<line x1="{WIDTH - 24}" y1="{top + 30}" x2="{WIDTH - 24}" y2="{end - 8}" '
            'stroke="#444" stroke-width="1.5" marker-end="url(#tip)"/>'
        )
        for place, row in enumerate(rows):
            yield from _row(package, row, top + 34 + _height(rows[:place]))
        top = end + 12
    yield "</svg>"


def _height(rows: list[str]) -> int:
    return sum((SHARED if "|" in row else ALONE) + GAP for row in rows)


def _row(package: str, row: str, top: int) -> Iterator[str]:
    """The packages of one layer side by side: none of them imports another."""
    names = re.findall(r"\w+", row)
    width = (WIDTH - 2 * LEFT - 24 - GAP * (len(names) - 1)) // len(names)
    is_alone = len(names) == 1
    for place, name in enumerate(names):
        left = LEFT + place * (width + GAP)
        right, down = (NAME, 19) if is_alone else (10, 35)
        characters = LINE_CHARACTERS if is_alone else width // 7
        words = textwrap.shorten(_said_of(package, name).rstrip("."), characters, placeholder=" …")
        yield (
            f'<rect x="{left}" y="{top}" width="{width}" height="{ALONE if is_alone else SHARED}" '
            'rx="6" fill="#fff" stroke="#0072b2" stroke-width="1.5"/>'
        )
        yield f'<text x="{left + 10}" y="{top + 19}" font-weight="bold">{name}</text>'
        yield (
            f'<text x="{left + right}" y="{top + down}" font-size="12" fill="#444">'
            f"{escape(words)}</text>"
        )


def _said_of(package: str, name: str) -> str:
    path = ROOT / package / f"{name}.py"
    path = path if path.is_file() else ROOT / package / name / "__init__.py"
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    return said.splitlines()[0].replace("`", "")


if __name__ == "__main__":
    sys.exit(main())
