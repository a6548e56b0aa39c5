"""The append-only history of a registered model, kept in its own tags.

    ledger.000001 ...   one entry each, with the digest of the one before
    ledger.head         `COUNT:DIGEST`, also on the version in production
    ledger.pending      an entry whose move is not known to be finished

Tags of the registered model, because whoever may move its aliases may write them and nobody else,
because each is one row, and because they last as long as the model. An entry is written only by
the holder of the model's lock.
"""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from hetfeat import parsing
from hetfeat.errors import DataError, RequestError
from hetfeat.parsing import Digest, Schema

ENTRY_PREFIX = "ledger."
HEAD = "ledger.head"
PENDING = "ledger.pending"
MOST_DIGITS = 18
"""Most digits of an entry's number: as a whole number of 64 bits holds."""
MAX_ENTRY_CHARACTERS = 4900
"""Most characters of an entry: MLflow keeps the value of a registered model's tag in a column of
5,000."""

Entry = Mapping[str, Any]
_Number = Annotated[int, Field(gt=0, lt=10**MOST_DIGITS)]

_Digits = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,17}$")]


class _Gate(Schema):
    gate: str
    outcome: str
    figures: str


class _State(Schema):
    staging: _Number | None
    production: _Number | None
    previous: _Number | None


class _Content(Schema):
    """What each entry holds, of whatever kind."""

    n: _Number
    name: str
    who: str
    when: str
    kind: str
    version: _Number | None
    from_: str = Field(alias="from")
    to: str
    reason: str
    forced: bool
    gates: list[_Gate]
    replaced: _Number | None
    manifest: Digest | Literal[""]
    manifests: dict[_Digits, Digest] = Field(default_factory=dict)
    state: _State
    before: str
    digest: Digest
    mends: str | None = None


@dataclass(frozen=True)
class Head:
    """The end of the chain: how many entries, and the digest of the last."""

    count: int = 0
    digest: str = ""

    @classmethod
    def parse(cls, text: str | None) -> "Head":
        """From the text of a tag; the empty chain for anything else."""
        count, _, digest = (text or "").partition(":")
        return cls(int(count), digest) if _is_number(count) and digest else cls()

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
    entry = _decoded(text)
    return None if entry is None else dict(entry)


@functools.lru_cache(maxsize=4096)
def _decoded(text: str) -> Entry | None:
    """The same text is the same entry: a turn at the lock looks at each several times."""
    what, action = "an entry of the history", "`hetfeat doctor` explains it"
    try:
        entry: Entry = parsing.decode(text, dict[str, parsing.Json], what=what, action=action)
        parsing.parse(entry, _Content, what=what, action=action)
    except DataError:
        return None
    return entry


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= MOST_DIGITS


def numbers(tags: Mapping[str, str]) -> list[int]:
    """Numbers of the entries that are there, in order."""
    named = ((name, name.removeprefix(ENTRY_PREFIX)) for name in tags)
    numbered = ((name, int(tail)) for name, tail in named if _is_number(tail))
    return sorted(number for name, number in numbered if name == key(number))


def entries(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """The entries that can be read, oldest first."""
    decoded = (decode(tags[key(number)]) for number in numbers(tags))
    return [entry for entry in decoded if entry is not None]


def standing(name: str, tags: Mapping[str, str], mended: bool = False) -> list[dict[str, Any]]:
    """The entries that count, oldest first.

    All of the chain, and of those before an entry that mended a ledger the ones that are as they
    were written, as far as they and the next one tell.

    Args:
        name: Name of the registered model.
        tags: Tags of the registered model.
        mended: Whether to read it as it will be once the ledger is mended, default False: nothing
            counts that was changed.
    """
    first = max(numbers(tags), default=0) + 1 if mended else _first_of_chain(tags)
    kept: dict[int, Entry] = {}
    for number in reversed(numbers(tags)):
        entry = decode(tags[key(number)])
        if entry is not None and (
            number >= first or _stands(name, number, entry, kept.get(number + 1))
        ):
            kept[number] = entry
    return [dict(kept[number]) for number in sorted(kept)]


def _stands(name: str, number: int, entry: Entry, following: Entry | None) -> bool:
    if entry.get("digest") != digest_of(entry):
        return False
    if (entry.get("n"), entry.get("name")) != (number, name):
        return False
    # An entry that mends follows none.
    return following is None or "mends" in following or following.get("before") == entry["digest"]


def manifests(entries: Iterable[Entry]) -> dict[int, str]:
    """Digest of each version's manifest, as first recorded: a version's files never change."""
    digests: dict[int, str] = {}
    for entry in entries:
        told = {int(number): digest for number, digest in entry.get("manifests", {}).items()}
        if entry.get("manifest") and entry["version"] is not None:
            told[entry["version"]] = entry["manifest"]
        digests = told | digests
    return digests


def last_sound(name: str, tags: Mapping[str, str], heads: Iterable[str]) -> dict[str, Any] | None:
    """The newest entry, if it is as it was written and nobody has seen a newer or another one.

    Args:
        name: Name of the registered model.
        tags: Tags of the registered model.
        heads: Heads of the ledger, as versions have them.
    """
    number = max(numbers(tags), default=0)
    entry = decode(tags.get(key(number), ""))
    if entry is None or not _stands(name, number, entry, None):
        return None
    seen = [Head.parse(text) for text in (tags.get(HEAD), *heads)]
    entry_head = Head(number, entry["digest"])
    newer = [head for head in seen if head.count >= number and head != entry_head]
    return None if newer or seen[0] != entry_head else entry


def rest_digest(tags: Mapping[str, str], before: int) -> str:
    """SHA-256 of all entries before a number as they are, damaged or not."""
    rest = {key(number): tags[key(number)] for number in numbers(tags) if number < before}
    return hashlib.sha256(encode(rest).encode()).hexdigest()


def faults(name: str, tags: Mapping[str, str], witnesses: Iterable[str] = ()) -> list[str]:
    """What is wrong with a ledger; nothing if every entry is as it was written.

    An entry that mends a damaged ledger vouches for what was left of it, and the chain begins
    anew there: the damage stays on record, and further damage is found.

    Args:
        name: Name of the registered model.
        tags: Tags of the registered model.
        witnesses: Heads as versions that are or were in production have them, default none: a chain
            alone cannot show that its tail was cut.
    """
    first = _first_of_chain(tags)
    digests: dict[int, str] = {}
    before, last = "", first - 1
    for number in (number for number in numbers(tags) if number >= first):
        entry = decode(tags[key(number)])
        if number != last + 1:
            return [f"entry {last + 1} is missing"]
        if entry is None or entry.get("digest") != digest_of(entry) or entry.get("n") != number:
            return [f"entry {number} was changed"]
        if entry["before"] != before:
            return [f"entry {number} does not follow entry {number - 1}"]
        if entry.get("name") != name:
            return [f"entry {number} belongs to {entry.get('name')!r}"]
        before, last = entry["digest"], number
        digests[number] = before
    end, head = Head(last, before), Head.parse(tags.get(HEAD))
    if end.count != head.count:
        return [f"the last entry is {end.count}, but the head says {head.count}"]
    if end != head:
        return [f"entry {end.count} is not the one that the head says"]
    for seen in map(Head.parse, witnesses):
        if seen.count >= first and digests.get(seen.count) != seen.digest:
            return [f"entry {seen.count} is not the one that a version in production saw"]
    return []


def _first_of_chain(tags: Mapping[str, str]) -> int:
    for number in reversed(numbers(tags)):
        entry = decode(tags[key(number)])
        if entry is None or "mends" not in entry or entry.get("digest") != digest_of(entry):
            continue
        if entry["before"] == "" and entry["mends"] == rest_digest(tags, number):
            return number
    return 1
