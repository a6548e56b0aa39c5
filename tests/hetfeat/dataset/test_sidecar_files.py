"""What lies beside the records: damage is told, and a torn last line is nothing."""

import pytest
import stores

from hetfeat.dataset import sidecar_files
from hetfeat.errors import DataError


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        (sidecar_files.EVALUATION, "{", sidecar_files.evaluation_tasks),
        (sidecar_files.EVALUATION, "{}", sidecar_files.evaluation_tasks),
        (sidecar_files.SPENT, "[]", lambda store: sidecar_files.spent_s(store, "a")),
        (
            sidecar_files.SPENT,
            '{"seconds": {"a": "many"}}',
            lambda store: sidecar_files.spent_s(store, "a"),
        ),
        (
            sidecar_files.DRIFT_PROBES,
            "what\n",
            lambda store: list(sidecar_files.read_rows(store, sidecar_files.DRIFT_PROBES)),
        ),
    ],
)
def test_damage_is_told(tmp_path, name, content, read):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=name):
        read(tmp_path)


def test_a_torn_last_line_is_left_out_and_nothing_is_appended_to_it(tmp_path):
    (program,) = stores.programs(stores.task(1), 1, seed=0)
    measured = stores.measured(program, stores.profile("a"))
    sidecar_files.append_measurement(tmp_path, sidecar_files.REJECTED, measured)
    with (tmp_path / sidecar_files.REJECTED).open("a") as file:
        file.write('{"torn": ')
    (whole,) = sidecar_files.read_rows(tmp_path, sidecar_files.REJECTED)
    sidecar_files.append_measurement(tmp_path, sidecar_files.REJECTED, measured)
    assert list(sidecar_files.read_rows(tmp_path, sidecar_files.REJECTED)) == [whole, whole]
