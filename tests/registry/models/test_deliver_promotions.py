"""Moves into production reach a receiver at least once, whatever fails meanwhile."""

import importlib.util
import json
import threading
from pathlib import Path

import pytest
from conftest import on_sqlite_only

from hetfeat.errors import DataError
from registry.files.moves import promote, rollback

pytestmark = on_sqlite_only

SECRET = "s3cret"


def example(project: Path, name: str):
    spec = importlib.util.spec_from_file_location(name, project / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def deliver(project: Path):
    return example(project, "deliver_promotions").deliver


@pytest.fixture
def moved(client, make_version, model_name) -> str:
    """A model whose versions 1 and 2 went to production in turn, and then 1 again."""
    for _ in range(2):
        make_version(model_name)
    promote(model_name, 1, "staging")
    promote(model_name, 1, "production")
    promote(model_name, 2, "staging")
    promote(model_name, 2, "production")
    rollback(model_name)
    return model_name


class Receiver:
    """Says yes, but to the tries that are refused."""

    def __init__(self, *refused: int) -> None:
        self.refused, self.tries, self.ids, self.versions = set(refused), 0, [], []

    def __call__(self, delivery: str, body: bytes) -> bool:
        self.tries += 1
        if self.tries in self.refused:
            return False
        self.ids.append(delivery)
        self.versions.append(json.loads(body)["data"]["version"])
        return True


def test_each_move_into_production_is_delivered_once_in_order(deliver, moved, tmp_path):
    receiver = Receiver()
    assert [deliver(tmp_path / "state", receiver) for _ in range(2)] == [0, 0]
    assert receiver.versions == ["1", "2", "1"]
    assert len(set(receiver.ids)) == 3


def test_what_was_refused_is_delivered_again_under_the_same_id(deliver, moved, tmp_path):
    tried = []
    receiver = Receiver(2)

    def post(delivery, body):
        tried.append(delivery)
        return receiver(delivery, body)

    assert deliver(tmp_path / "state", post) == 1
    assert receiver.versions == ["1"], "none goes before one that was refused"
    assert deliver(tmp_path / "state", post) == 0
    assert receiver.versions == ["1", "2", "1"]
    assert tried[1] == tried[2]


def test_a_deliverer_that_dies_before_it_is_written_down_delivers_again(deliver, moved, tmp_path):
    received = []

    def dies(delivery, body):
        received.append(delivery)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deliver(tmp_path / "state", dies)
    receiver = Receiver()
    assert deliver(tmp_path / "state", receiver) == 0
    assert receiver.ids[0] == received[0]


def test_from_now_leaves_out_what_was_before(deliver, moved, tmp_path):
    receiver = Receiver()
    assert deliver(tmp_path / "state", receiver, from_now=True) == 0
    promote(moved, 2, "production")
    assert deliver(tmp_path / "state", receiver) == 0
    assert receiver.versions == ["2"]


def test_a_history_that_was_changed_delivers_nothing(deliver, moved, client, tmp_path, capsys):
    client.set_registered_model_tag(moved, "ledger.000001", "{}")
    receiver = Receiver()
    assert deliver(tmp_path / "state", receiver) == 1
    assert receiver.tries == 0 and moved in capsys.readouterr().err


def test_a_state_that_is_none_is_refused(deliver, moved, tmp_path):
    (tmp_path / "state").write_text('{"m": -1}')
    with pytest.raises(DataError, match="state"):
        deliver(tmp_path / "state", Receiver())


def test_the_example_receiver_takes_it(project, deliver, moved, tmp_path):
    heard = []
    receiver = example(project, "production_webhook").Receiver(
        ("127.0.0.1", 0), SECRET, lambda name, version: heard.append((name, version))
    )
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        poster = example(project, "deliver_promotions").poster
        url = f"http://127.0.0.1:{receiver.server_port}/"
        assert deliver(tmp_path / "state", poster(url, "another")) == 1
        assert deliver(tmp_path / "state", poster(url, SECRET)) == 0
    finally:
        receiver.shutdown()
        receiver.server_close()
    assert heard == [(moved, 1), (moved, 2), (moved, 1)]
    with pytest.raises(ValueError, match="https://"):
        poster("file:///etc/passwd", SECRET)
