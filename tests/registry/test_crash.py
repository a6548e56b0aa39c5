import pytest

from registry import mirror
from registry.lock import locks_of
from registry.mirror import State
from registry.stages import history, promote


class Crash(BaseException):
    """Stands for a killed process: nothing may catch it."""


class Crashing:
    """A client that dies at its n-th write, before or after it is done."""

    WRITES = ("set_", "delete_", "transition_", "create_")

    def __init__(self, client, at: int, after: bool) -> None:
        self.client, self.left, self.after = client, at, after

    def __getattr__(self, name):
        method = getattr(self.client, name)
        if not name.startswith(self.WRITES):
            return method

        def write(*args, **kwargs):
            self.left -= 1
            if self.left > 0:
                return method(*args, **kwargs)
            if self.left == 0 and self.after:
                method(*args, **kwargs)
            raise Crash

        return write


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 12))
def test_the_next_command_finishes_what_a_crash_left(
    client, make_version, model_name, monkeypatch, at, after
):
    for _ in range(3):
        make_version(model_name)
    promote(model_name, 1, "production")
    promote(model_name, 2, "staging")
    try:
        promote(model_name, 2, "production", client=Crashing(client, at, after))
        crashed = False
    except Crash:
        crashed = True
    assert crashed
    monkeypatch.setattr("registry.process.is_gone", lambda owner: True)
    promote(model_name, 3, "staging")
    entries, faults = history(model_name)
    assert faults == []
    moved = any(e["version"] == 2 and e["to"] == "production" for e in entries)
    state = State(3, 2, 1) if moved else State(3, 1, None)
    assert mirror.differences(client, model_name, state) == []
    assert locks_of(client, model_name) == []
