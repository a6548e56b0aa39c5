"""The append-only history of a registered model, kept in its own tags.

    ledger.000001 ...   one entry each, with the digest of the one before
    ledger.head         `COUNT:DIGEST`, also on the version in production
    ledger.pending      an entry whose move is not known to be finished

Tags of the registered model, because whoever may move its aliases may write them and nobody else,
because each is one row, and because they last as long as the model. An entry is written only by
the holder of the model's lock.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetfeat.errors import RequestError

ENTRY_PREFIX = "ledger."
HEAD = "ledger.head"
PENDING = "ledger.pending"
MAX_ENTRY_CHARACTERS = 4900
"""MLflow keeps the value of a registered model's tag in a column of 5,000."""

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Head:
    """The end of the chain: how many entries, and the digest of the last."""

    count: int = 0
    digest: str = ""

    @classmethod
    def parse(cls, text: str | None) -> "Head":
        """From the text of a tag; the empty chain for anything else."""
        count, _, digest = (text or "").partition(":")
        return cls(int(count), digest) if count.isdecimal() and digest else cls()

    def __str__(self) -> str:
        return f"{self.count}:{self.digest}"


def key(number: int) -> str:
    """The tag that holds an entry."""
    return f"{ENTRY_PREFIX}{number:06d}"


def seal(content: Entry, head: Head) -> dict[str, Any]:
    """An entry that follows `head`: numbered, chained, with its own digest.

    Raises:
        RequestError: It is longer than a tag can hold.
    """
    chained = {**content, "n": head.count + 1, "before": head.digest}
    entry = {**chained, "digest": digest_of(chained)}
    if len(encode(entry)) > MAX_ENTRY_CHARACTERS:
        raise RequestError(
            f"an entry of {len(encode(entry))} characters in the history",
            f"at most {MAX_ENTRY_CHARACTERS}",
            "give a shorter --reason",
        )
    return entry


def digest_of(entry: Entry) -> str:
    """SHA-256 of an entry without its own digest."""
    rest = {name: value for name, value in entry.items() if name != "digest"}
    return hashlib.sha256(encode(rest).encode()).hexdigest()


def encode(entry: Entry) -> str:
    """An entry as the text of its tag: ASCII, so that its length is the same everywhere."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"))


def decode(text: str) -> dict[str, Any] | None:
    """An entry from the text of its tag, or None if it is not one."""
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def numbers(tags: Mapping[str, str]) -> list[int]:
    """Numbers of the entries that are there, in order."""
    tails = (name.removeprefix(ENTRY_PREFIX) for name in tags if name.startswith(ENTRY_PREFIX))
    return sorted(int(tail) for tail in tails if tail.isdecimal())


def entries(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """The entries that can be read, oldest first."""
    found = (decode(tags[key(number)]) for number in numbers(tags))
    return [entry for entry in found if entry is not None]


def faults(name: str, tags: Mapping[str, str], witness: str | None) -> list[str]:
    """What is wrong with a ledger; nothing if every entry is as it was written.

    Args:
        name: Of the registered model.
        tags: Of the registered model.
        witness: The head as the version in production has it, or None if there is none.
    """
    found = []
    before = ""
    for expected, number in enumerate(numbers(tags), start=1):
        if number != expected:
            found.append(f"entry {expected} is missing")
            break
        entry = decode(tags[key(number)])
        if entry is None or entry.get("digest") != digest_of(entry) or entry.get("n") != number:
            found.append(f"entry {number} was changed")
            break
        if entry["before"] != before:
            found.append(f"entry {number} does not follow entry {number - 1}")
            break
        if entry.get("name") != name:
            found.append(f"entry {number} belongs to {entry.get('name')!r}")
            break
        before = entry["digest"]
    end = Head(len(numbers(tags)), before)
    if not found and str(end) != str(Head.parse(tags.get(HEAD))):
        found.append(f"{end.count} entries, but the head says {Head.parse(tags.get(HEAD)).count}")
    if not found and witness is not None and Head.parse(witness) != end:
        seen = Head.parse(witness).count
        found.append(f"{end.count} entries, but the version in production has seen {seen}")
    return found
