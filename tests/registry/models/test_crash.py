import pytest

from registry.files.moves import promote
from registry.models import aliases
from registry.models.aliases import State
from registry.models.lock import locks_of
from registry.models.stages import history


class Crash(BaseException):
    """Stands for a killed process: nothing may catch it."""


class Crashing:
    """A client that dies after so many writes.

    To die before a write and to die after the one before it leave the same behind.
    """

    WRITES = ("set_", "delete_", "transition_", "create_")

    def __init__(self, client, writes: int) -> None:
        self.client, self.left = client, writes

    def __getattr__(self, name):
        method = getattr(self.client, name)
        if not name.startswith(self.WRITES):
            return method

        def write(*args, **kwargs):
            if self.left == 0:
                raise Crash
            self.left -= 1
            return method(*args, **kwargs)

        return write


def no_gates(version, replaced, to):
    return []


@pytest.mark.parametrize("writes", range(11))
def test_the_next_command_finishes_what_a_crash_left(
    client, make_version, model_name, monkeypatch, writes
):
    for _ in range(3):
        make_version(model_name)
    promote(model_name, 1, "production", gates=no_gates)
    promote(model_name, 2, "staging", gates=no_gates)
    with pytest.raises(Crash):
        promote(model_name, 2, "production", gates=no_gates, client=Crashing(client, writes))
    monkeypatch.setattr("registry.models.process.is_gone", lambda owner: True)
    promote(model_name, 3, "staging", gates=no_gates)
    entries, faults = history(model_name)
    assert faults == []
    moved = any(e["version"] == 2 and e["to"] == "production" for e in entries)
    assert moved == (writes >= 2), "the lock, then the entry as pending: from there it is a move"
    state = State(3, 2, 1) if moved else State(3, 1, None)
    assert aliases.differences(client, model_name, state) == []
    assert locks_of(client, model_name) == []
