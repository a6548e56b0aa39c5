"""Commands killed, stopped, run twice at once, and on a disk that fills: what is lost?

    python benchmarks/interruptions --rounds 20 --out out/interruptions
                                    [--only ATTACK] [--commands train,hpo]

Each command is cut short at a random moment of its usual time and then run again. What it had kept
before must be there afterwards, once; `doctor` must name what is amiss, and repair it. A round is
a line of OUT/rounds.jsonl, so that the same command goes on. It ends with the table of
docs/interruptions.md.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from attacks import ATTACKS
from setting import Place


def main() -> int:
    given = _options().parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    journal = given.out / "rounds.jsonl"
    done = Counter(_label(row) for row in _rows(journal))
    wanted = [
        (attack, subject, work)
        for attack, subjects in ATTACKS.items()
        for subject, work in subjects.items()
        if (not given.only or attack in given.only)
        and (not given.commands or subject in given.commands)
    ]
    with tempfile.TemporaryDirectory(prefix="interruptions-") as folder:
        place = Place(Path(folder) / "place")
        place.prepare()
        for number in range(given.rounds):
            for attack, subject, work in wanted:
                if number >= done[f"{attack} {subject}"]:
                    rng = random.Random(f"{given.seed} {attack} {subject} {number}")
                    _write(journal, attack, subject, _round(place, work, rng))
    rows = list(_rows(journal))
    sys.stdout.write(_table(rows))
    return 1 if any(row["wrong"] for row in rows) else 0


def _options() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    made.add_argument("--rounds", type=int, default=20)
    made.add_argument("--out", type=Path, default=Path("out/interruptions"))
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--only", type=lambda text: set(text.split(",")), help="attacks")
    made.add_argument("--commands", type=lambda text: set(text.split(",")))
    return made


def _round(
    place: Place, work: Callable[[Place, random.Random], list[str]], rng: random.Random
) -> list[str]:
    place.reset()
    try:
        return work(place, rng)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def _write(journal: Path, attack: str, subject: str, wrong: list[str]) -> None:
    row = {"attack": attack, "subject": subject, "wrong": wrong}
    with journal.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(f"{attack} {subject}: {'; '.join(wrong) or 'nothing lost'}", file=sys.stderr)


def _rows(journal: Path) -> Iterator[dict[str, object]]:
    if journal.is_file():
        yield from map(json.loads, journal.read_text().splitlines())


def _label(row: dict[str, object]) -> str:
    return f"{row['attack']} {row['subject']}"


def _table(rows: list[dict[str, object]]) -> str:
    rounds: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        rounds[f"{row['attack']} | {row['subject']}"].append(bool(row["wrong"]))
    lines = [f"| {name} | {len(found)} | {sum(found)} |" for name, found in rounds.items()]
    head = ["| what was done | to | rounds | rounds in which something was lost or left |"]
    return "\n".join([*head, "| --- | --- | --- | --- |", *lines, ""])


if __name__ == "__main__":
    sys.exit(main())
