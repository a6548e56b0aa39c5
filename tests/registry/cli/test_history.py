"""What `hetfeat history` prints for people."""

from registry.cli.history import _as_text

GATES = [{"gate": name, "outcome": "passed", "figures": "0.8304"} for name in ("artifacts", "pca")]
ENTRY = {
    "n": 12,
    "when": "2026-11-27T16:00:15.123456+00:00",
    "who": "alice@builder",
    "kind": "promote",
    "version": 3,
    "from": "staging",
    "to": "production",
    "replaced": 2,
    "gates": [*GATES, {"gate": "transfer", "outcome": "skipped"}],
    "reason": "",
}


def lines(*entries) -> list[str]:
    text = _as_text({"name": "costmodel.cpu-x86", "entries": entries, "faults": []})
    return text.splitlines()


def test_an_entry_is_one_short_line():
    (head, entry) = lines(ENTRY)
    assert head.split()[:2] == ["n", "when"]
    assert "2026-11-27 16:00" in entry and "staging -> production" in entry
    assert "2 passed" in entry
    assert len(entry) <= 100


def test_a_gate_that_was_overridden_is_named():
    overridden = {"gate": "top1", "outcome": "overridden"}
    (_, entry) = lines(ENTRY | {"gates": [*GATES, overridden], "reason": "to see"})
    assert "top1 overridden" in entry and "passed" not in entry and "to see" in entry


def test_an_edited_entry_may_lack_anything():
    assert len(lines({}, ENTRY | {"from": 1, "gates": [{}]})) == 3
