"""Signals that stop a command, closed standard streams, and texts that a terminal obeys."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hetfeat.errors import RequestError
from registry.cli import app, logs, output

EVIL = "v2\n1  \x1b]0;owned\x07\x9b31m\u202eevil\x7f"
STOPPABLE = """
    import os, sys, time
    import click, mlflow
    from registry.tracking import command_run as tracking
    from registry.cli import app

    @app.command("wait", interrupted="nothing is kept")
    def wait():
        with tracking.tracked_run("train slowly", {}), tracking.nested_run("part", {}):
            told, tells = os.pipe()
            child = 0
            try:
                if (child := os.fork()) == 0:
                    try:
                        os.write(tells, b"!")  # a signal during the fork itself would be lost
                        time.sleep(60)
                        os.write(2, b"the child was not stopped")
                    finally:
                        os.write(2, b"the child cleaned up")
                        os._exit(1)
                os.read(told, 1)
                os.write(2, b"ready")
                time.sleep(60)
            finally:
                os.kill(child, 15)
                os.write(2, b"child ended by %d;" % os.waitpid(child, 0)[1])

    sys.exit(app.run(wait, []))
"""


def start(code: str, folder: Path, **how) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        **how,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_ends_the_runs_as_killed_with_its_own_code(registry_here, number, code):
    from registry.models.mlflow_client import connect

    process = start(STOPPABLE, registry_here)
    while b"ready" not in (said := os.read(process.stderr.fileno(), 1 << 16)):
        assert said, "it ended"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors.decode()
    assert b"child ended by 15;" in errors and b"cleaned up" not in errors
    assert errors.decode().splitlines()[-1] == "hetfeat: interrupted; nothing is kept"
    client = connect()
    runs = client.search_runs([client.get_experiment_by_name("hetfeat").experiment_id])
    assert [run.info.status for run in runs] == ["KILLED", "KILLED"]


def test_a_hangup_that_nohup_ignores_stays_ignored(tmp_path):
    code = """
        import os, signal, sys
        from registry.cli import app

        @app.command("work")
        def work():
            os.kill(os.getpid(), signal.SIGHUP)
            return {"went": "on"}

        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        sys.exit(app.run(work, []))
    """
    process = start(code, tmp_path, stdout=subprocess.PIPE)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"went  on\n"), errors


def test_a_signal_while_text_is_executed_has_its_own_code_too(tmp_path):
    code = """
        import os, signal, sys
        from registry.cli import app

        @app.command("work")
        def work():
            exec("os.kill(os.getpid(), signal.SIGTERM)")

        sys.exit(app.run(work, []))
    """
    (tmp_path / "door.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "-m", "door"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
    )
    assert done.returncode == 143, done.stderr


def test_handlers_are_put_back():
    @app.command("work")
    def work():
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
        return {}

    assert app.run(work, []) == 0
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


CLOSED = [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"]


@pytest.mark.parametrize("closed", CLOSED)
def test_closed_streams_are_no_traceback(tmp_path, project, closed):
    line = f'"{sys.executable}" "{project}/mlproject.py" devices show nvidia-t4 {closed}'
    env = {**os.environ, "HETFEAT_HOME": str(tmp_path), "PYTHONPATH": str(project)}
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=env)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_what_is_printed_goes_into_no_file_that_took_the_number_of_a_closed_stream(tmp_path):
    code = """
        import os, sys
        from registry.cli import app

        @app.command("work")
        def work():
            with open("precious", "wb", 0) as file:
                assert file.fileno() > 2
                print("chatter")
                os.system("echo from a child; echo errors >&2")
                sys.stderr.write("errors")
                sys.stdin.read()
                file.write(b"precious")
            return {"a": "result"}

        sys.exit(app.run(work, []))
    """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    line = f'"{sys.executable}" {script} <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=env)
    assert done.returncode == 0
    assert (tmp_path / "precious").read_bytes() == b"precious"


def is_safe(text: str) -> bool:
    return all(line.isprintable() for line in text.splitlines()) and "\x85" not in text


class TestEscaping:
    def test_fields_tables_and_keys(self, capfd):
        @app.command("show")
        def show():
            return {"name": EVIL, EVIL: 1, "rows": [{"a": EVIL, "b": [EVIL]}], "ünï": "日本 é"}

        assert app.run(show, []) == 0
        out = capfd.readouterr().out
        assert is_safe(out)
        assert "\\x1b]0;owned\\x07" in out and "日本 é" in out and "\\u202e" in out
        assert len(out.splitlines()) == 7, "a newline makes no row"

    def test_a_renderer_of_its_own(self, capfd):
        @app.command("show", render=lambda value: f"first {value['name']}\nsecond")
        def show():
            return {"name": EVIL}

        assert app.run(show, []) == 0
        out = capfd.readouterr().out
        assert is_safe(out) and len(out.splitlines()) == 2

    def test_the_line_of_an_error(self, capfd):
        assert app.fail(RequestError(f"version {EVIL}", "x", "y")) == 2
        err = capfd.readouterr().err
        assert is_safe(err) and err.count("\n") == 1

    def test_a_line_of_the_log(self, capfd):
        logs.log_to_stderr()
        logging.getLogger("registry.any").warning("holder %s", EVIL)
        err = capfd.readouterr().err
        assert is_safe(err) and err.count("\n") == 1

    def test_a_traceback_in_the_log_keeps_its_lines(self, capfd):
        logs.log_to_stderr()
        try:
            raise ValueError(EVIL)
        except ValueError:
            logging.getLogger("registry.any").exception("failed")
        err = capfd.readouterr().err
        assert is_safe(err) and err.startswith("failed\nTraceback") and err.count("\n") > 3

    def test_json_is_as_it_was(self):
        assert output.as_json({"a": EVIL}) == (
            '{"a": "v2\\n1  \\u001b]0;owned\\u0007\\u009b31m\\u202eevil\\u007f"}'
        )
