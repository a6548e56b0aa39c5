"""How a cluster is reached, and what is said where it is not."""

import builtins
import socket
import time

import pytest

from hetfeat.cluster import connected, need_sight, over, result_of
from hetfeat.errors import RequestError, WorkFailed

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


def open_one(address: str) -> None:
    with connected(address):
        pass


@pytest.mark.parametrize("address", ["", "local", "local:0", "local:-1", "host:8786", "tcp://host"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(RequestError, match="as a cluster"):
        open_one(address)


def test_no_address_is_no_cluster():
    with connected(None) as client:
        assert client is None
        assert over(client) is map
        need_sight(client, None)


def test_nobody_there_is_said_within_ten_seconds():
    with socket.socket() as silent:  # it listens and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(WorkFailed, match="no Dask scheduler at"):
            open_one(address)
        assert time.monotonic() - started < 10
    with pytest.raises(WorkFailed, match="no Dask scheduler at"):
        open_one(address)


def test_a_scheduler_without_workers_is_said_within_ten_seconds():
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as made:
        started = time.monotonic()
        with pytest.raises(WorkFailed, match="without workers"):
            open_one(made.scheduler_address)
        assert time.monotonic() - started < 10


def test_without_dask_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "distributed":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(RequestError, match=r"pip install 'hetfeat\[cluster\]'"):
        open_one("local:1")


def test_a_cluster_that_goes_away_is_one_line(tmp_path):
    made = distributed.LocalCluster(n_workers=1, dashboard_address=None)
    with connected(made.scheduler_address) as client:
        need_sight(client, tmp_path)
        with pytest.raises(WorkFailed, match="does not see"):
            need_sight(client, tmp_path / "elsewhere")
        future = client.submit(time.sleep, 30, pure=False)
        made.close()
        with pytest.raises(WorkFailed, match="a cluster that was lost"):
            result_of(future)
