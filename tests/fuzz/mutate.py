"""Changes texts as damage, other versions and malice do: their JSON's structure, or their bytes."""

import json
import random
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**63, 2**64, 10**400, 1.5, 1e308, 1e-320),
    *(float("nan"), float("inf"), -float("inf"), "", "\ud800", "\0", "\x1b]0;x\x07\n"),
    *("/etc/passwd", "../x", "a/../../b", "x" * 300, "1e999", [], {}, [[]], [1] * 400, {"": {}}),
)
DEEP = 5000


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A changed copy: of the structure of a line where that is JSON, else of its bytes."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        value = json.loads(data if rng.random() < 0.5 else lines[at])
    except (ValueError, RecursionError):
        return _bytes(data, rng)
    if rng.random() < 0.2:
        return _bytes(data, rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = _changed(value, rng)
    made = json.dumps(value).encode()
    if rng.random() < 0.03:
        made = made.replace(b"0", b"[" * DEEP + b"]" * DEEP, 1)
    whole = lines[at : at + 1] != [data] and len(lines) > 1
    return b"\n".join([*lines[:at], made, *lines[at + 1 :]]) if whole else made


def _changed(value: Any, rng: random.Random) -> Any:
    """The value with one place of it changed."""
    if not value or not isinstance(value, list | dict) or rng.random() < 0.15:
        return _instead(value, rng)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        match rng.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value[:at], value[at], *value[at:]]
            case _:
                return [*value[:at], _changed(value[at], rng), *value[at + 1 :]]
    key = rng.choice(list(value))
    match rng.randrange(10):
        case 0:
            return {k: v for k, v in value.items() if k != key}
        case 1:
            return {**value, str(rng.choice(ODD))[:300]: value[key]}
        case 2:
            return {(rng.choice(ODD[13:19]) if k == key else k): v for k, v in value.items()}
        case _:
            return {**value, key: _changed(value[key], rng)}


def _instead(value: Any, rng: random.Random) -> Any:
    match rng.randrange(4):
        case 0 if isinstance(value, int | float) and abs(value) < 1e300:
            return value * rng.choice((-1, 10, 0.1))
        case 1:
            return [value]
        case 2 if isinstance(value, str):
            return _bytes(value.encode(errors="replace"), rng).decode(errors="surrogateescape")
    return rng.choice(ODD)


def _bytes(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, end = sorted(rng.randrange(len(made) + 1) for _ in range(2))
        match rng.randrange(5):
            case 0:
                del made[at : min(end, at + 40)]
            case 1:
                made[at:at] = made[at : min(end, at + 40)]
            case 2:
                made[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
            case 3:
                del made[end:]
            case _ if at < len(made):
                made[at] = rng.randrange(256)
    return bytes(made)
