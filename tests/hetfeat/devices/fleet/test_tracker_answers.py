"""What a tracker says is checked: nonsense is one line."""

import socket
import struct
import threading

import pytest

from hetfeat.devices.fleet.control import status
from hetfeat.devices.fleet.route import Address
from hetfeat.devices.profile import load_profile
from hetfeat.errors import DataError, WorkFailed

pytestmark = pytest.mark.tvm
HOST = "127.0.0.1"


def answering(size: int, text: bytes) -> Address:
    """A tracker that gives one answer."""
    from tvm.rpc import base

    listening = socket.create_server((HOST, 0))

    def serve() -> None:
        link, _ = listening.accept()
        with link, listening:
            link.recv(4)
            link.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            link.sendall(struct.pack("<i", size) + text)
            link.recv(1 << 10)

    threading.Thread(target=serve, daemon=True).start()
    return Address(HOST, listening.getsockname()[1])


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 4000,
        b"[]",
        b"3",
        b"\xff\xfe",
        b"[0, null]",
        b"[0, {}]",
        b'[0, {"queue_info": [], "server_info": []}]',
        b'[0, {"queue_info": {"k": {"free": -1, "pending": 0}}, "server_info": []}]',
        b'[0, {"queue_info": {}, "server_info": [{"addr": ["h", 1]}]}]',
        b'[0, {"queue_info": {}, "server_info": [{"key": 3, "addr": ["h", 1]}]}]',
        b'[0, {"queue_info": {"a\\nb": {"free": 0, "pending": 0}}, "server_info": []}]',
    ],
)
def test_an_answer_without_sense_is_one_line(text):
    with pytest.raises(WorkFailed, match="which does not answer"):
        status(answering(len(text), text))


@pytest.mark.parametrize("size", [2**31 - 1, -1, 0])
def test_an_answer_of_a_size_that_cannot_be_is_not_waited_for(size):
    with pytest.raises(WorkFailed, match="bytes to come"):
        status(answering(size, b""))


@pytest.mark.parametrize("text", ["[" * 1500, "a: 2001-99-99\n", "a: " + "9" * 5000 + "\n"])
def test_a_profile_that_yaml_cannot_read_is_one_line(tmp_path, text):
    path = tmp_path / "device.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match="a readable YAML file"):
        load_profile(path)
