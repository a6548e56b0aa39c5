import json
from collections import Counter
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hetfeat.dataset.splits import (
    SPLITS,
    TENSET,
    Split,
    mask_unseen,
    of_units,
    split_as_tenset,
    split_examples,
    task_units,
)
from hetfeat.errors import DataError, RequestError


@dataclass(frozen=True)
class Keys:
    """Records as a split sees them."""

    device: np.ndarray
    task: np.ndarray
    operator: np.ndarray
    program: np.ndarray
    shapes: np.ndarray


def keys_of(rows: list[tuple[str, str, str, str, str]]) -> Keys:
    columns = [np.array(column, object) for column in zip(*rows, strict=True)]
    device, task, operator, shapes, program = columns
    return Keys(device, task, operator, program, shapes)


def shapes(size: int, extra: int = 0) -> str:
    return json.dumps([[1, size], [size, 4], *([[4]] * extra), [1, 4]])


@st.composite
def records(draw) -> Keys:
    """Records with duplicates, programs shared by devices, and one anchor in several tasks."""
    tasks = draw(
        st.lists(
            st.tuples(st.sampled_from(["conv2d", "matmul"]), st.integers(1, 4), st.integers(0, 2)),
            min_size=4,
            max_size=10,
            unique=True,
        )
    )
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", "c"]),
                st.integers(0, len(tasks) - 1),
                st.integers(0, 9),
            ),
            min_size=12,
            max_size=80,
        )
    )
    return keys_of(
        [
            (device, f"hash{t}", tasks[t][0], shapes(*tasks[t][1:]), f"program{t}-{p}")
            for device, t, p in rows
        ]
    )


def at(keys: Keys, index: np.ndarray) -> Keys:
    return Keys(*(getattr(keys, field.name)[index] for field in fields(Keys)))


def division(keys: Keys, kind: str, seed: int) -> Split | None:
    """The split, or None where the records are too few for it."""
    try:
        return split_examples(keys, kind, seed, ("a",) if kind == "by_target" else ())
    except (DataError, RequestError):
        return None


def values(split: Split, of) -> tuple[set, set, set]:
    sides = (split.train, split.valid, split.test)
    return tuple({of(i) for i in side.tolist()} for side in sides)


def disjoint(sides: tuple[set, set, set]) -> bool:
    train, valid, test = sides
    return not (train & valid or train & test or valid & test)


@settings(max_examples=150, deadline=None)
@given(records(), st.sampled_from(SPLITS), st.integers(0, 5))
def test_nothing_leaks(keys, kind, seed):
    split = division(keys, kind, seed)
    assume(split is not None)
    everything = np.concatenate([split.train, split.valid, split.test])
    assert sorted(everything.tolist()) == list(range(len(keys.task)))
    assert min(len(split.train), len(split.valid), len(split.test)) > 0
    assert disjoint(values(split, lambda i: (keys.device[i], keys.program[i])))
    if kind == "by_task":
        assert disjoint(values(split, lambda i: keys.task[i]))
        assert disjoint(values(split, lambda i: (keys.operator[i], keys.shapes[i])))
        anchors = values(split, lambda i: (keys.operator[i], str(json.loads(keys.shapes[i])[:2])))
        assert disjoint(anchors)
    if kind == "by_target":
        train, valid, test = values(split, lambda i: keys.device[i])
        assert test == {"a"}
        assert "a" not in train | valid
        train, valid, _ = values(split, lambda i: keys.program[i])
        assert not train & valid
    again = division(keys, kind, seed)
    assert again is not None
    np.testing.assert_array_equal(again.train, split.train)
    np.testing.assert_array_equal(again.valid, split.valid)


def many(devices=("a", "b"), tasks=20, programs=10) -> Keys:
    return keys_of(
        [
            (device, f"hash{t}", "matmul", shapes(t + 1), f"program{t}-{p}")
            for device in devices
            for t in range(tasks)
            for p in range(programs)
        ]
    )


@pytest.mark.parametrize("kind", ["within_task", "by_task"])
def test_sides_have_their_shares(kind):
    split = split_examples(many(), kind, 0)
    assert len(split.test) == pytest.approx(400 * 0.2, abs=20)
    assert len(split.valid) == pytest.approx(400 * 0.8 * 0.1, abs=20)


def test_tensets_protocol_stops_by_what_it_tests_and_knows_tasks_of_other_devices():
    keys = many()
    split = split_as_tenset(keys, 0)
    assert len(split.test) == pytest.approx(400 * 0.1, abs=10)
    np.testing.assert_array_equal(split.valid, split.test)
    train, _, test = values(split, lambda i: (keys.device[i], keys.task[i]))
    assert not train & test
    train, _, test = values(split, lambda i: keys.task[i])
    assert train & test
    with pytest.raises(RequestError):
        split_examples(keys, TENSET, 0)  # nobody gets it by its name


def test_within_task_takes_its_share_of_every_task_on_every_device():
    keys = many()
    split = split_examples(keys, "within_task", 0)
    for side, programs in ((split.train, 7), (split.valid, 1), (split.test, 2)):
        found = Counter((keys.device[i], keys.task[i]) for i in side)
        assert found == {(d, f"hash{t}"): programs for d in "ab" for t in range(20)}


def test_by_target_validates_on_programs_from_everywhere():
    rows = [("b", f"hash{t}", "matmul", shapes(t), f"{p}") for t in range(20) for p in range(10)]
    keys = keys_of([*rows, ("a", "hash0", "matmul", shapes(0), "0")])
    split = split_examples(keys, "by_target", 0, ("a",))
    assert len(split.valid) == 20
    assert len({keys.task[i] for i in split.valid}) > 2
    assert len({keys.program[i] for i in split.valid}) > 1


def test_another_seed_is_another_split():
    first, second = (split_examples(many(), "by_task", seed).test.tolist() for seed in (0, 1))
    assert first != second


def test_by_target_leaves_a_network_out_of_training_and_still_tests_on_it():
    keys, networks = many(), {"n": {"hash0": 1, "hash1": 2}}
    split = split_examples(keys, "by_target", 0, ("a", "n"), networks)
    known = np.concatenate([split.train, split.valid])
    assert set(keys.device[known]) == {"b"}
    assert not {"hash0", "hash1"} & set(keys.task[known])
    assert len(split.test) == 200
    new = mask_unseen(at(keys, split.test), at(keys, split.train), at(keys, split.valid))
    assert set(keys.task[split.test[new]]) == {"hash0", "hash1"}
    assert new.sum() == 20


def test_unseen_goes_by_the_hash_and_by_the_anchor():
    test = keys_of(
        [
            ("a", "h1", "matmul", shapes(1), "p1"),
            ("a", "h2", "matmul", shapes(2, extra=1), "p2"),
            ("a", "h2b", "softmax", shapes(2), "p3"),
            ("a", "h3", "matmul", shapes(3), "p4"),
        ]
    )
    known = keys_of(
        [("b", "h1", "matmul", shapes(9), "q1"), ("b", "h9", "matmul", shapes(2), "q2")]
    )
    assert mask_unseen(test, known).tolist() == [False, False, True, True]


def test_one_hash_under_two_shapes_stays_together():
    keys = keys_of(
        [("a", "h1", "matmul", shapes(1), "p1"), ("a", "h1", "matmul", shapes(2), "p2")]
        + [("a", "h2", "matmul", shapes(2), "p3"), ("a", "h3", "matmul", shapes(3), "p4")]
    )
    assert len(set(task_units(keys)[:3].tolist())) == 1
    assert task_units(keys)[3] != task_units(keys)[0]


def test_by_task_holds_out_a_network_and_what_shares_its_anchors():
    networks = {"n": {"hash0": 1, "hash1": 2}, "m": {"hash2": 1}}
    keys = many()
    split = split_examples(keys, "by_task", 0, ("n",), networks)
    train, valid, test = values(split, lambda i: keys.task[i])
    assert test == {"hash0", "hash1"}
    assert train | valid == set(keys.task) - test


NETWORKS = {"n": {"hash0": 1}, "m": {"hash1": 1}}


@pytest.mark.parametrize(
    ("kind", "holdout", "networks", "said"),
    [
        (
            "by_target",
            (),
            {},
            "--holdout (none) with the by_target split; expected devices of the records (a, b), "
            "beside them networks (it names none); "
            "name at least one device and leave at least one to train on",
        ),
        (
            "by_target",
            ("a", "y", "z"),
            NETWORKS,
            "--holdout a,y,z with the by_target split; expected devices of the records (a, b), "
            "beside them networks (m, n); "
            "name at least one device and leave at least one to train on",
        ),
        (
            "within_task",
            ("a", "b"),
            {},
            "--holdout a,b with the within_task split; expected no --holdout, since part of every "
            "task is held out; use --split by_target or by_task",
        ),
        (
            "by_task",
            ("z", "n", "y"),
            NETWORKS,
            "--holdout y, z with the by_task split; expected networks of the record store (m, n); "
            "choose among them, or use --split by_target to hold devices out",
        ),
        (
            "by_task",
            ("z",),
            {},
            "--holdout z with the by_task split; expected networks of the record store (it names "
            "none); choose among them, or use --split by_target to hold devices out",
        ),
        (
            "chronological",
            (),
            {},
            "split 'chronological'; expected one of within_task, by_task, by_target; choose one",
        ),
    ],
)
def test_wrong_requests(kind, holdout, networks, said):
    with pytest.raises(RequestError) as caught:
        split_examples(many(), kind, 0, holdout, networks)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("keys", "kind", "holdout", "said"),
    [
        (
            many(tasks=1),
            "by_task",
            (),
            "20 records of 1 tasks on 2 devices, whose by_task split has an empty valid side",
        ),
        (
            many(programs=1),
            "within_task",
            (),
            "40 records of 20 tasks on 2 devices, whose within_task split has an empty valid side",
        ),
        (
            many(),
            "by_target",
            ("a", "b"),
            "400 records of 20 tasks on 2 devices, whose by_target split has an empty train side",
        ),
        (
            many(),
            "by_task",
            ("elsewhere",),
            "400 records of 20 tasks on 2 devices, whose by_task split has an empty test side",
        ),
    ],
)
def test_an_empty_side_is_an_error(keys, kind, holdout, said):
    with pytest.raises(DataError) as caught:
        split_examples(keys, kind, 0, holdout, {"elsewhere": {"no such task": 1}})
    assert str(caught.value) == (
        f"{said}; expected at least one record on each side; "
        "collect more tasks or programs, or choose another split"
    )


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        *((kind, "task") for kind in SPLITS),
        ("within_task", "program"),
        ("by_task", "operator"),
        ("by_target", "program"),
    ],
)
def test_columns_of_unequal_lengths_are_refused(kind, column):
    keys = many()
    short = replace(keys, **{column: getattr(keys, column)[:-1]})
    with pytest.raises(ValueError, match="zip"):
        split_examples(short, kind, 0, ("a",) if kind == "by_target" else ())


def test_no_examples_have_no_units():
    none = at(many(), np.array([], np.int64))
    units = task_units(none)
    assert units.dtype == np.int64
    assert of_units(none, units, {"hash0"}).tolist() == []
    assert mask_unseen(none, many()).dtype == bool
