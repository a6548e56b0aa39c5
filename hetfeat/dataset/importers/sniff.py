"""What a file looks like, so that one of another format is refused by name."""

import codecs
import contextlib
import re
import zipfile
from pathlib import Path

from hetfeat.dataset.importers.files import head
from hetfeat.dataset.importers.formats import patterns_of_plugins

ANSOR_KINDS = ("llvm", "cuda", "rocm", "hip", "metal")
"""Kinds of targets that the auto-scheduler tunes for and a family of devices fits."""
METASCHEDULE_RECORDS = "MetaSchedule records"
UCI_TABLE = "sgemm_product.csv"
"""The file within the ZIP archive of UCI SGEMM."""
_MAGIC = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PAR1", "Parquet"),
    (b"SQLite format 3", "a SQLite database"),
    (b"\x1f\x8b", "gzip that is damaged"),
    (codecs.BOM_UTF16_LE, "text in UTF-16, not UTF-8"),
    (codecs.BOM_UTF16_BE, "text in UTF-16, not UTF-8"),
)
_TASK = rb'\s*\[\s*\[\s*"(?:[^"\\]|\\.)*"\s*,\s*"'
_OTHER_KIND = _TASK + rb"(?!(?:%s)\b)\w" % "|".join(ANSOR_KINDS).encode()
LINES: list[tuple[bytes, str | None, str]] = [
    (rb'\s*\{\s*"(?:r|v|i(?!"\s*:%s))"\s*:' % _OTHER_KIND, "ansor", "Ansor records"),
    (rb'\s*\{\s*"i"\s*:', None, f"Ansor records of a target other than {', '.join(ANSOR_KINDS)}"),
    (rb'\s*\{\s*"(input|config|result)"\s*:', None, "an AutoTVM log"),
    (rb'\{"pack_records":', "pack", "records of a pack"),
    (rb"\s*\[\s*\d+\s*,\s*\[", "metaschedule", METASCHEDULE_RECORDS),
    (rb'\s*\[\s*"-?\w+"\s*,\s*"', "metaschedule", "MetaSchedule workloads"),
    (rb'.*"workload_index"\s*:', "metaschedule", "networks of MetaSchedule workloads"),
]
"""What a line begins with, the format's name (None if no importer reads it), the look in words."""
_KERNEL_TUNER = re.compile(rb'"(device_name|tune_params_keys|tune_params|cache)"\s*:')


def sniff(path: Path) -> tuple[str | None, str]:
    """What the first bytes of a file say.

    Returns:
        Name of the format, None if no importer reads it; and the look in words.
    """
    begin = head(path)
    if not begin.strip():
        return None, "an empty file"
    if begin.startswith(b"PK") and uci_table(path) is not None:
        return "kernel-tuner", "the table of UCI SGEMM"
    for magic, words in _MAGIC:
        if begin.startswith(magic):
            return None, words
    if begin.lstrip().startswith(b"{") and _KERNEL_TUNER.search(begin):
        return "kernel-tuner", "a Kernel Tuner cache"
    lines = begin.split(b"\n")
    for pattern, name, words in (*LINES, *patterns_of_plugins()):
        if any(re.match(pattern, line) for line in lines):
            return name, words
    if b"\0" in begin:
        return None, "a binary file"
    return None, f"text that begins with {lines[0][:30].decode(errors='replace')!r}"


def uci_table(path: Path) -> zipfile.ZipInfo | None:
    """Where the table of UCI SGEMM stands in a ZIP archive; None if it is not one of it."""
    # Of another version, encrypted, or with a name that is no text: it is none of ours.
    odd = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile)
    with contextlib.suppress(*odd), zipfile.ZipFile(path) as archive:
        return next((f for f in archive.infolist() if Path(f.filename).name == UCI_TABLE), None)
    return None
