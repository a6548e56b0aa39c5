"""The auto-scheduler's records, damaged in every way that comes up."""

import json
import random
from typing import Any

import ansor_lines
from ansor_lines import read
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hetfeat.dataset.importers.ansor_tasks import task_of
from hetfeat.dataset.importers.import_records import import_records
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore

VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 511, 512, 2**31, 2**63, 2**70, 10**400, 0.5, 1e308, 1e-320),
    *(float("nan"), float("-inf"), "", "x", "SP", "\ud800", "\0", "9" * 5000, "a$b", [], {}, [[]]),
    {"i": []},
]


def mutated(record: Any, rng: random.Random) -> bytes:
    """A line with something wrong, or perhaps not."""
    if rng.random() < 0.6:
        _change(record, rng)
    if rng.random() < 0.05:
        return b"[" * rng.randrange(5000) + json.dumps(record).encode()
    data = bytearray(json.dumps(record, ensure_ascii=rng.random() < 0.5).encode("utf-8", "replace"))
    for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 3))):
        at = rng.randrange(len(data))
        data[at : at + rng.choice((0, 1, 9))] = rng.randbytes(rng.choice((0, 1, 4)))
    if rng.random() < 0.1:
        del data[rng.randrange(len(data)) :]
    return bytes(data).replace(b"\n", b"")


def _change(node: Any, rng: random.Random) -> None:
    """Replaces, removes, repeats or nudges something at a random depth."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    if not keys:
        return
    key = rng.choice(keys)
    child = node[key]
    if isinstance(child, list | dict) and child and rng.random() < 0.9:
        _change(child, rng)
    elif rng.random() < 0.2:
        del node[key]
    elif type(child) is int and rng.random() < 0.5:
        node[key] = child + rng.choice((-1, 1, 2))
    elif isinstance(node, list) and rng.random() < 0.2:
        node.insert(key, child)
    else:
        node[key] = rng.choice(VALUES)


@settings(max_examples=45, deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**64))
def test_ten_thousand_damaged_lines_are_all_counted(tmp_path_factory, seed):
    rng = random.Random(seed)
    makers = (ansor_lines.on_cpu, ansor_lines.on_gpu)
    lines = [mutated(rng.choice(makers)(64, 32, 128, rng), rng) for _ in range(240)]
    whole = [json.dumps(ansor_lines.on_cpu(32, 16, 8, rng)).encode() for _ in range(3)]
    mixed = lines + whole
    rng.shuffle(mixed)
    found, skipped = read(tmp_path_factory.mktemp("fuzz"), mixed)
    entries = [entry for entry in mixed if entry.strip() and not entry.lstrip().startswith(b"#")]
    assert len(found) + skipped.total() == len(entries)
    hashes = [measurement.program.task.hash for measurement in found]
    assert hashes.count(task_of('["matmul_layer", 32, 16, 8]', "").hash) >= 3
    for measurement in found:  # which `Measurement` itself has checked for its latencies
        instructions, decisions = json.loads(measurement.program.trace)
        assert all(instructions[at][0] == "SamplePerfectTile" for at, _ in decisions)
        assert all(factor >= 1 for _, factors in decisions for factor in factors[1:])


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**64))
def test_damaged_lines_leave_a_sound_store(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("fuzz")
    rng = random.Random(seed)
    lines = [mutated(ansor_lines.on_cpu(64, 32, 128, rng), rng) for _ in range(200)]
    (folder / "log").write_bytes(b"\n".join([*ansor_lines.log(1, seed), *lines]))
    counts = import_records("ansor", "a", [folder / "log"], folder / "store")
    entries = [entry for entry in lines if entry.strip() and not entry.lstrip().startswith(b"#")]
    assert counts.read == len(entries) + 1
    stored = list(from_table(RecordStore.open(folder / "store").read()))
    assert len(stored) == counts.kept + counts.failed
    assert len({measurement.program.key for measurement in stored}) == len(stored)
    again = import_records("ansor", "a", [folder / "log"], folder / "store")
    assert (again.kept, again.failed) == (0, 0)


def test_a_task_of_which_no_line_can_be_interpreted_costs_itself_alone(tmp_path):
    rng = random.Random(0)
    record = ansor_lines.on_cpu(64, 32, 128, rng)
    broken = json.loads(json.dumps(record))
    broken["i"][0][0] = json.dumps(["another_layer", 64, 32, 128])
    broken["i"][1][1] = [["no such step", 0]]
    lines = [json.dumps(one).encode() for one in (record, broken)]
    found, skipped = read(tmp_path, lines)
    assert (len(found), skipped.total()) == (1, 1)
