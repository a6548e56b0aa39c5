"""What docstrings say of arguments and attributes: noun phrases, which stand alone on a page."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hetfeat", "registry")
FRAGMENTS = "Of|By|In|To|For|As|From|With|On|At|Its|That|Those"
"""Words that only go on from the name of an entry: `seed: Of every draw.`"""
SECTION = re.compile(r"^(?:Args|Attributes):\n((?: {4}.*\n?|\n(?= {4}))+)", re.MULTILINE)
FRAGMENT = re.compile(rf"^ {{4}}(\S[^:]*): (?:{FRAGMENTS})\b", re.MULTILINE)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def fragments(source: str) -> Iterator[str]:
    """Lines and names of the entries that are fragments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (doc := ast.get_docstring(node)):
            for section in SECTION.findall(doc):
                for name in FRAGMENT.findall(section):
                    yield f"{getattr(node, 'lineno', 1)}: {name}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Of every draw.", ["1: seed"]),
        ("Seed of every draw.", []),
        ("Seed\n        Of every draw.", []),
        ("Offset of the draws.", []),
    ],
)
def test_a_fragment_is_told_from_a_noun_phrase(text, found):
    doc = f"Draws.\n\n    Args:\n        count: Number of draws.\n\n        seed: {text}\n    "
    assert list(fragments(f'def draw(count, seed):\n    """{doc}"""\n')) == found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_entry_of_a_docstring_is_a_fragment(package):
    sources = sorted((ROOT / package).rglob("*.py"))
    assert sources
    found = [
        f"{path.relative_to(ROOT)}:{entry}"
        for path in sources
        for entry in fragments(path.read_text())
    ]
    assert not found, f"say what it is, not how its name goes on: {found}"
