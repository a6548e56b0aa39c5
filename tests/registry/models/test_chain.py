"""The chain of a ledger by itself: what `seal` writes, and every way in which `faults` finds it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetfeat.errors import RequestError
from registry.models import ledger
from registry.models.ledger import HEAD, Head, key

NAME = "costmodel.cpu-x86"


DIGEST = "ab" * 32
WHOLE = {
    "name": NAME,
    "who": "ann",
    "when": "2026-11-27T05:00:00.000+00:00",
    "kind": "promote",
    "version": 1,
    "from": "none",
    "to": "staging",
    "reason": "",
    "forced": False,
    "gates": [],
    "replaced": None,
    "manifest": DIGEST,
    "state": {"staging": 1, "production": None, "previous": None},
}


def add(tags: dict[str, str], content: dict, head: Head | None = None) -> None:
    """Writes an entry as a promotion does: after the head, which it becomes."""
    entry = ledger.seal(WHOLE | content, head or Head.parse(tags.get(HEAD)))
    tags[key(entry["n"])] = ledger.encode(entry)
    tags[HEAD] = str(Head(entry["n"], entry["digest"]))


def chain(length: int, name: str = NAME) -> dict[str, str]:
    tags = {"ledger.pending": "{}", "ledger.note": "no entry", "owner": "somebody"}
    for number in range(length):
        add(tags, {"name": name, "reason": f"no. {number}"})
    return tags


def mend(tags: dict[str, str]) -> None:
    """As `doctor --repair true` does: vouches for what there is, and follows nothing."""
    last = ledger.numbers(tags)[-1]
    add(tags, {"mends": ledger.rest_digest(tags, last + 1)}, Head(last, ""))


def change(tags: dict[str, str], number: int, **content: object) -> None:
    tags[key(number)] = json.dumps({**json.loads(tags[key(number)]), **content})


def rewrite(tags: dict[str, str], number: int, **content: object) -> None:
    """Changes an entry and its digest, as whoever knows the format could."""
    entry = {**json.loads(tags[key(number)]), **content}
    tags[key(number)] = ledger.encode({**entry, "digest": ledger.digest_of(entry)})


@pytest.mark.parametrize("length", range(4))
def test_what_was_written_has_no_fault(length):
    tags = chain(length)
    assert ledger.faults(NAME, tags, [tags.get(HEAD, "")]) == []
    assert [entry["reason"] for entry in ledger.entries(tags)] == [
        f"no. {number}" for number in range(length)
    ]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda tags: tags.pop(key(1)), "entry 1 is missing"),
        (lambda tags: tags.pop(key(2)), "entry 2 is missing"),
        (lambda tags: tags.pop(key(3)), "the last entry is 2, but the head says 3"),
        (lambda tags: tags.pop(HEAD), "the last entry is 3, but the head says 0"),
        (lambda tags: tags.update({HEAD: "2:abc"}), "the last entry is 3, but the head says 2"),
        (lambda tags: tags.update({HEAD: "3:abc"}), "entry 3 is not the one that the head says"),
        (lambda tags: tags.update({key(2): "[]"}), "entry 2 was changed"),
        (lambda tags: tags.update({key(2): "{"}), "entry 2 was changed"),
        (lambda tags: tags.update({key(2): "{}"}), "entry 2 was changed"),
        (lambda tags: tags.update({key(2): tags[key(1)]}), "entry 2 was changed"),
        (lambda tags: change(tags, 2, reason="another"), "entry 2 was changed"),
        (lambda tags: rewrite(tags, 2, n=3), "entry 2 was changed"),
        (lambda tags: rewrite(tags, 1, reason="another"), "entry 2 does not follow entry 1"),
        (lambda tags: rewrite(tags, 1, before="abc"), "entry 1 does not follow entry 0"),
        (lambda tags: rewrite(tags, 3, name="other"), "entry 3 belongs to 'other'"),
    ],
)
def test_damage_is_named(damage, said):
    tags = chain(3)
    damage(tags)
    assert ledger.faults(NAME, tags) == [said]


def test_the_ledger_of_another_model_is_none_of_this_one():
    assert ledger.faults(NAME, chain(2, "other")) == ["entry 1 belongs to 'other'"]


@settings(deadline=None)
@given(st.data(), st.integers(1, 5))
def test_no_field_of_an_entry_can_be_changed_unseen(data, length):
    """Not even with its digest, as long as somebody has seen the head."""
    tags = chain(length)
    seen = tags[HEAD]
    number = data.draw(st.integers(1, length))
    entry = json.loads(tags[key(number)])
    field = data.draw(st.sampled_from(sorted(set(entry) - {"digest"})))
    other = {"manifest": "cd" * 32, "version": 2, "replaced": 2, "forced": True}
    other |= {"state": WHOLE["state"] | {"previous": 2}}
    other |= {"gates": [{"gate": "pca", "outcome": "passed", "figures": ""}]}
    rewrite(tags, number, **{field: other.get(field, f"not {entry[field]}")})
    if number == length:
        tags[HEAD] = f"{length}:{json.loads(tags[key(length)])['digest']}"
    assert ledger.faults(NAME, tags, [seen])


class TestWitnesses:
    def test_a_cut_tail_is_seen_by_who_saw_it(self):
        seen, tags = chain(3)[HEAD], chain(2)
        assert ledger.faults(NAME, tags) == []
        said = "entry 3 is not the one that a version in production saw"
        assert ledger.faults(NAME, tags, [tags[HEAD], seen]) == [said]

    def test_another_entry_in_its_place_is_seen(self):
        tags = chain(1)
        said = "entry 1 is not the one that a version in production saw"
        assert ledger.faults(NAME, tags, ["1:abc"]) == [said]

    @pytest.mark.parametrize("text", ["", "nonsense", "0:abc"])
    def test_who_has_seen_nothing_says_nothing(self, text):
        assert ledger.faults(NAME, chain(1), [text]) == []


class TestMending:
    def damaged(self) -> dict[str, str]:
        tags = chain(3)
        del tags[key(2)]
        change(tags, 1, reason="another")
        mend(tags)
        return tags

    def test_the_chain_begins_anew(self):
        tags = self.damaged()
        assert ledger.faults(NAME, tags) == []
        add(tags, {})
        assert ledger.faults(NAME, tags, [tags[HEAD]]) == []
        assert ledger.numbers(tags) == [1, 3, 4, 5]

    def test_what_was_seen_before_it_no_longer_counts_and_what_since_does(self):
        tags = self.damaged()
        assert ledger.faults(NAME, tags, [chain(3)[HEAD]]) == []
        said = "entry 4 is not the one that a version in production saw"
        assert ledger.faults(NAME, tags, ["4:abc"]) == [said]

    @pytest.mark.parametrize(
        "damage",
        [
            lambda tags: tags.pop(key(3)),
            lambda tags: change(tags, 1, reason="a third"),
            lambda tags: tags.update({key(2): "{}"}),
            lambda tags: change(tags, 4, reason="another"),
            lambda tags: change(tags, 4, digest="abc"),
            lambda tags: rewrite(tags, 4, mends="abc"),
            lambda tags: rewrite(tags, 4, before="abc"),
        ],
    )
    def test_further_damage_is_found(self, damage):
        tags = self.damaged()
        damage(tags)
        assert ledger.faults(NAME, tags) != []

    def test_it_can_be_mended_again(self):
        tags = self.damaged()
        del tags[key(1)]
        mend(tags)
        assert ledger.faults(NAME, tags) == []
        add(tags, {})
        del tags[key(5)]
        assert ledger.faults(NAME, tags) != []

    def test_an_entry_in_the_chain_that_claims_to_mend_begins_nothing(self):
        tags = chain(2)
        add(tags, {"mends": ledger.rest_digest(tags, 3)})
        assert ledger.faults(NAME, tags) == []
        del tags[key(1)]
        assert ledger.faults(NAME, tags) == ["entry 1 is missing"]


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("3:abc", Head(3, "abc")),
        ("12:a:b", Head(12, "a:b")),
        *((text, Head(0, "")) for text in (None, "", "3", "3:", ":abc", "x:abc", "-1:abc")),
    ],
)
def test_heads_are_read(text, head):
    assert Head.parse(text) == head


def test_heads_are_written_as_they_are_read():
    assert str(Head(3, "abc")) == "3:abc"


def test_an_entry_is_numbered_and_chained():
    entry = ledger.seal({"to": "staging"}, Head(7, "abc"))
    digest = ledger.digest_of({"to": "staging", "n": 8, "before": "abc"})
    assert entry == {"to": "staging", "n": 8, "before": "abc", "digest": digest}


def test_a_digest_is_of_everything_but_itself_in_any_order():
    # SHA-256 of {"a":1,"b":"\u00fc"}, by sha256sum.
    expected = "810a43bc0215b9ea42773ffb4fc92c184749b3676b4e3fda524018da652e229f"
    assert ledger.digest_of({"b": "ü", "a": 1}) == expected
    assert ledger.digest_of({"a": 1, "digest": "anything", "b": "ü"}) == expected


def test_an_entry_fills_its_tag_and_no_more():
    empty = len(ledger.encode(ledger.seal({"reason": ""}, Head())))
    longest = ledger.seal({"reason": "r" * (4900 - empty)}, Head())
    assert len(ledger.encode(longest)) == 4900
    with pytest.raises(
        RequestError,
        match=r"of 4901 characters .*; expected at most 4900; give a shorter --reason$",
    ):
        ledger.seal({"reason": "r" * (4901 - empty)}, Head())


def test_numbers_are_in_order_beyond_six_digits():
    tags = {key(number): "" for number in (1_000_000, 2, 999_999)}
    assert list(tags) == ["ledger.1000000", "ledger.000002", "ledger.999999"]
    assert ledger.numbers({**tags, HEAD: "", "ledger.pending": ""}) == [2, 999_999, 1_000_000]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null"])
def test_what_is_no_entry_is_left_out(text):
    assert ledger.decode(text) is None
    assert ledger.entries({**chain(2), key(1): text}) == [json.loads(chain(2)[key(2)])]


def test_of_each_version_the_first_manifest_that_was_recorded_counts():
    """Its files never change: who records another one launders it."""
    told = [(1, "a"), (2, "b"), (2, "c"), (1, ""), (None, "d")]  # a repair may record none
    entries = [{"version": number, "manifest": digest} for number, digest in told]
    repaired = {"version": 3, "manifest": "", "manifests": {"2": "e", "3": "f"}}
    assert ledger.manifests([*entries, repaired]) == {1: "a", 2: "b", 3: "f"}


@pytest.mark.parametrize(
    "odd",
    [
        {"version": [1]},
        {"version": "1"},
        {"version": 0},
        {"n": 10**30},
        {"manifest": "/home/somebody"},
        {"manifests": {"..": DIGEST}},
        {"manifests": {"1": "/home/somebody"}},
        {"state": None},
        {"state": {"production": "2"}},
        {"state": {"staging": None, "production": [2], "previous": None}},
        {"gates": [3]},
        {"replaced": {}},
        {"to": None},
        {"before": 3},
        {"reason": float("inf")},
        {"later": float("nan")},
    ],
)
def test_an_entry_that_holds_what_none_can_counts_as_changed(odd):
    """However well it is sealed: anybody can."""
    tags = chain(3)
    rewrite(tags, 2, **odd)
    assert ledger.decode(tags[key(2)]) is None
    assert ledger.faults(NAME, tags) == ["entry 2 was changed"]
    assert [entry["n"] for entry in ledger.standing(NAME, tags)] == [1, 3]


def test_an_entry_without_a_key_counts_as_changed():
    for name in {*WHOLE, "n", "before", "digest"}:
        tags = chain(2)
        entry = json.loads(tags[key(1)])
        del entry[name]
        tags[key(1)] = ledger.encode({**entry, "digest": ledger.digest_of(entry)})
        if name == "digest":
            tags[key(1)] = ledger.encode(entry)
        assert ledger.faults(NAME, tags) == ["entry 1 was changed"], name


def test_keys_of_later_versions_are_passed_over():
    tags = chain(1)
    add(tags, {"later": {"than": [1, 2.5]}})
    assert ledger.faults(NAME, tags) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda tags: change(tags, 2, manifest="cd" * 32),
        lambda tags: rewrite(tags, 2, manifest="cd" * 32),
        lambda tags: rewrite(tags, 2, n=1),
        lambda tags: rewrite(tags, 2, name="other"),
        lambda tags: tags.update({key(2): tags[key(1)]}),
    ],
)
def test_an_entry_that_was_damaged_counts_until_that_is_on_record(damage):
    tags = chain(3)
    damage(tags)
    assert len(ledger.standing(NAME, tags)) == 3
    mend(tags)
    assert [entry["n"] for entry in ledger.standing(NAME, tags)] == [1, 3, 4]


@pytest.mark.parametrize(
    "name", ["ledger.7", "ledger.0000001", "ledger.\u0661", "ledger." + "9" * 5000]
)
def test_a_tag_that_is_named_nearly_as_an_entry_is_none(name):
    tags = chain(2) | {name: "{}"}
    assert ledger.numbers(tags) == [1, 2]
    assert ledger.faults(NAME, tags) == []


def test_what_nests_too_deep_to_be_read_is_damage():
    tags = chain(2) | {key(2): "[" * 4900}
    assert ledger.faults(NAME, tags) == ["entry 2 was changed"]
