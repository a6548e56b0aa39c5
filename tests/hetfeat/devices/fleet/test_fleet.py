"""`hetfeat fleet`: trackers, servers and what they say of themselves."""

import dataclasses
import json
import signal
import socket
import subprocess
import sys

import fleets
import psutil
import pytest

import mlproject
from hetfeat.devices import host, probe
from hetfeat.devices.fleet import control
from hetfeat.devices.fleet.control import status
from hetfeat.devices.fleet.route import Address, RpcRoute, route_of
from hetfeat.devices.profile import load_profile
from hetfeat.errors import RequestError, WorkFailed
from registry.cli import app

pytestmark = pytest.mark.tvm


@pytest.fixture
def started(hetfeat_command, child_environment, tmp_path):
    """Starts commands, and ends them."""
    running = []

    def start(*arguments: str) -> subprocess.Popen:
        running.append(
            subprocess.Popen(
                [*hetfeat_command, *arguments],
                env=child_environment,
                cwd=tmp_path,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stderr.close()


def answers(tracker: Address) -> bool:
    try:
        status(tracker)
    except WorkFailed:
        return False
    return True


@pytest.mark.slow
def test_a_tracker_and_a_server_by_the_command_line(
    started, device_file, hetfeat_command, child_environment
):
    tracker = Address("127.0.0.1", fleets.free_port())
    first = started("fleet", "start-tracker", "--port", str(tracker.port))
    fleets.wait_until(lambda: answers(tracker))
    assert status(tracker) == []
    port = fleets.free_port()
    server = started(
        *("fleet", "start-server", "--device", str(device_file), "--port", str(port)),
        *("--tracker", str(tracker)),
    )
    fleets.wait_until(lambda: status(tracker) != [])
    expected = {"device": "here", "servers": 1, "free": 1, "waiting": 0}
    assert status(tracker) == [expected | {"addresses": [f"127.0.0.1:{port}"]}]
    done = subprocess.run(
        [*hetfeat_command, "fleet", "status", "--tracker", str(tracker), "--json"],
        env=child_environment,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"tracker": str(tracker), "devices": status(tracker)}
    server.send_signal(signal.SIGINT)
    assert server.wait(10) == 130
    fleets.wait_until(lambda: status(tracker)[0]["servers"] == 0)
    children = psutil.Process(first.pid).children()
    first.kill()  # however the command ends, the tracker ends with it
    psutil.wait_procs(children, timeout=10)
    assert not answers(tracker)


def test_a_tracker_on_a_port_that_is_taken_is_refused(started):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = started("fleet", "start-tracker", "--port", str(taken.getsockname()[1]))
        assert refused.wait(30) == 2
        assert "an address of this machine that is free" in refused.stderr.read()


@pytest.mark.slow
def test_no_tracker(started):
    refused = started("fleet", "status", "--tracker", f"127.0.0.1:{fleets.free_port()}")
    assert refused.wait(30) == 1
    assert "start one with `hetfeat fleet start-tracker`" in refused.stderr.read()


@pytest.mark.parametrize(
    ("name", "warned"),
    [("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("h", True)],
)
def test_a_warning_unless_bound_to_loopback(name, warned, monkeypatch, caplog):
    monkeypatch.setattr(control, "_run", lambda *given: 0)
    monkeypatch.setattr(control, "_check_free", lambda address: None)
    address = Address(name, 9090)
    assert control.start_server(address, Address("127.0.0.1", 9190), "k", 1, None) == 0
    assert ("TVM's RPC knows no passwords" in caplog.text) == warned


@pytest.mark.parametrize(
    ("host", "tracker", "key", "said"),
    [
        ("192.0.2.1", "127.0.0.1", "k", "choose another --host"),
        ("127.0.0.1", "no-such-host.invalid", "k", "correct --tracker"),
        ("127.0.0.1", "127.0.0.1", "lab 1", "without blanks"),
        ("127.0.0.1", "127.0.0.1", "l\u00e4b", "without blanks"),
    ],
)
def test_a_server_that_could_never_be_reached_is_refused(monkeypatch, host, tracker, key, said):
    monkeypatch.setattr(control, "_run", lambda *given: 0)
    with pytest.raises(RequestError, match=said):
        control.start_server(Address(host, 9090), Address(tracker, 9190), key, 1, None)


def test_routes(device):
    def of(**route):
        return route_of(dataclasses.replace(device, route=route))

    assert of(kind="rpc", key="k") == RpcRoute(Address("127.0.0.1", 9190), "k")
    given = of(kind="rpc", key="k", tracker="lab:1", cpu="AMD EPYC")
    assert given == RpcRoute(Address("lab", 1), "k", "AMD EPYC")
    for wrong in (
        {"kind": "local"},
        {"kind": "rpc"},
        {"kind": "rpc", "key": ""},
        {"kind": "rpc", "key": "lab 1"},
        {"kind": "rpc", "key": "k", "password": "x"},
        {"kind": "rpc", "key": 3},
        {"kind": "rpc", "key": "k", "tracker": "lab"},
        {"kind": "rpc", "key": "k", "tracker": "lab:99999"},
        {"kind": "rpc", "key": "k", "tracker": f"lab:{'9' * 5000}"},
    ):
        with pytest.raises(RequestError):
            of(**wrong)


@pytest.mark.slow
def test_a_server_needs_little_beside_tvm(project):
    """A device may have a copy of the package, and nothing else that the toolkit needs."""
    listing = (
        "import sys\nbefore = set(sys.modules)\nimport tvm.rpc.server, tvm.rpc.tracker\n"
        "with_tvm = set(sys.modules)\nimport hetfeat.devices.fleet.server as s\n"
        "s._description(1)\n"
        "print(*{n.split('.')[0] for n in set(sys.modules) - with_tvm} - sys.stdlib_module_names)"
    )
    done = subprocess.run(
        [sys.executable, "-c", listing], cwd=project, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["hetfeat"]


def test_probing_writes_a_route(device, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(probe, "probe", lambda *given: device)
    out = tmp_path / "lab.yaml"
    asked = ["devices", "probe", "--tracker", "lab:9190"]
    assert app.run(mlproject.cli, asked) == 2
    assert "add --out FILE" in capsys.readouterr().err
    assert app.run(mlproject.cli, [*asked, "--out", str(out)]) == 0
    assert route_of(load_profile(out)) == RpcRoute(Address("lab", 9190), "here", host.cpu_model())
