"""A short run of `make fuzz`: parsers of others' bytes raise their own errors alone."""

import pytest

from hetfeat.errors import DataError
from tests.fuzz import guided, run, targets

MOST = 150
TIME_S = 3.0


NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] * name.startswith("booster"))
    for name in targets.TARGETS
]
"""Each parser; boosters are loaded by a process of their own."""


@pytest.mark.parametrize("name", NAMES)
def test_others_bytes_are_read_or_refused(name):
    tried, found = run.fuzz(name, TIME_S, seed=1, most=MOST)
    assert tried
    assert not found, "\n".join(f"{data!r}\n{trouble}" for data, trouble in found.values())


def test_a_finding_is_saved_and_can_be_run_again(tmp_path, monkeypatch, capsys):
    def fails(data, folder):
        if b"x" not in data:
            raise KeyError(data)
        raise DataError("x", "y", "z")

    monkeypatch.setitem(targets.TARGETS, "owner", fails)
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "one").write_bytes(b"1")
    with pytest.raises(KeyError):
        run.main(["--again", str(tmp_path / "owner" / "one")])
    assert "KeyError" in run.trial("owner", b"1", tmp_path)
    assert run.trial("owner", b"x", tmp_path) is None
    tried, found = run.fuzz("owner", TIME_S, seed=1, most=20)
    assert (tried, len(found)) == (20, 1)


def test_coverage_guides_where_atheris_is_installed():
    pytest.importorskip("atheris")
    tried, found = guided.fuzz("description", TIME_S, seed=1)
    assert tried
    assert not found


def test_coverage_without_atheris_is_told_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        run.main(["--guide", "coverage"])
    assert "hetfeat[fuzz]" in capsys.readouterr().err
