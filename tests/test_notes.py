"""What lies beside the records: damage is told, and a torn last line is nothing."""

import pytest
import stores

from hetfeat.dataset import notes
from hetfeat.errors import DataError


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        (notes.EVALUATION, "{", notes.evaluation_tasks),
        (notes.EVALUATION, "{}", notes.evaluation_tasks),
        (notes.SPENT, "[]", lambda store: notes.spent_s(store, "a")),
        (notes.SPENT, '{"seconds": {"a": "many"}}', lambda store: notes.spent_s(store, "a")),
        (notes.ANCHORS, "what\n", lambda store: list(notes.noted(store, notes.ANCHORS))),
    ],
)
def test_damage_is_told(tmp_path, name, content, read):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=name):
        read(tmp_path)


def test_a_torn_last_line_is_left_out_and_nothing_is_appended_to_it(tmp_path):
    (program,) = stores.programs(stores.task(1), 1, seed=0)
    measured = stores.measured(program, stores.profile("a"))
    notes.note(tmp_path, notes.REJECTED, measured)
    with (tmp_path / notes.REJECTED).open("a") as file:
        file.write('{"torn": ')
    (whole,) = notes.noted(tmp_path, notes.REJECTED)
    notes.note(tmp_path, notes.REJECTED, measured)
    assert list(notes.noted(tmp_path, notes.REJECTED)) == [whole, whole]
