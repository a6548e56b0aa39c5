"""What is carried to a GPU's machine: its script, with stand-ins for the GPU, and TVM's wheel."""

import gzip
import lzma
import os
import runpy
import shutil
import subprocess
import sys
import zipfile

import pytest

REFUSES = "import sys; sys.exit('pack for sm_90 on no NVIDIA GPU')"
MEASURES = """\
import pathlib, sys, carried
pathlib.Path(sys.argv[1]).write_text('{"head": 1}\\n' + '{"trace": ""}\\n' * carried.PROGRAMS)
print('{"programs": 3}')
"""
HANGS = MEASURES + "import time; time.sleep(60)\n"


@pytest.fixture
def check(project, tmp_path):
    """Runs the script beside a `run.py`, with an `nvidia-smi` and a toolkit that answer so."""
    folder = tmp_path / "gpu"
    (folder / "alone").mkdir(parents=True)
    (folder / "wheels").mkdir()
    with zipfile.ZipFile(folder / "wheels" / "carried-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "PROGRAMS = 3\n")
    shutil.copyfile(project / "tools" / "gpu_check.sh", folder / "check.sh")
    tools = tmp_path / "tools"
    tools.mkdir()

    def command(name, script):
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)

    def run(pack, gpu, toolkit="exit 1", half="both", **environment):
        (folder / "alone" / "run.py").write_text(pack)
        command("nvidia-smi", 'echo "NVIDIA H100"' if gpu else 'echo "no driver"; exit 9')
        command("nvcc", "exit 0")
        command("toolkit", toolkit)
        done = subprocess.run(
            ["sh", folder / "check.sh", tmp_path / "out", half],
            env={
                **os.environ,
                "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
                "PYTHON": sys.executable,
                "TOOLKIT": str(tools / "toolkit"),
                "TMPDIR": str(tmp_path),
                **environment,
            },
            capture_output=True,
            text=True,
        )
        summary = (tmp_path / "out" / "summary.txt").read_text()
        assert summary in done.stderr
        assert not list(tmp_path.glob("tmp.*"))
        return done.returncode, summary

    return run


def test_without_a_gpu_it_says_of_each_step_why_it_was_not_done(check, tmp_path):
    code, summary = check(REFUSES, gpu=False)
    assert code == 1
    assert "GPU: none that nvidia-smi lists\n" in summary
    assert "NOT DONE: measure the pack: exit code 1: pack for sm_90 on no NVIDIA GPU\n" in summary
    assert "NOT DONE: tests of GPUs: no NVIDIA GPU here\n" in summary
    assert "NOT DONE: deploy a network: no NVIDIA GPU here\n" in summary
    assert not (tmp_path / "out" / "records.jsonl.gz").exists()


def test_with_one_all_is_done_and_what_comes_back_lies_in_the_folder(check, tmp_path):
    code, summary = check(MEASURES, gpu=True, toolkit='echo "$*"; echo "$*" >> "$TMPDIR/../words"')
    assert code == 0, summary
    assert "NOT DONE" not in summary and summary.count("done: ") == 3
    assert "records.jsonl.gz: 3 programs" in summary
    out = tmp_path / "out"
    assert gzip.decompress((out / "records.jsonl.gz").read_bytes()).count(b"trace") == 3
    assert (out / "pack.json").read_text() == '{"programs": 3}\n'
    words = (tmp_path / "words").read_text()
    assert "test_cuda.py" in words
    assert "gpu_live.py resnet50" in words and "--records" in words
    assert "gpu_live.py" in (out / "deploy.json").read_text()


def test_a_half_is_worth_having_alone(check, tmp_path):
    code, summary = check(HANGS, gpu=True, toolkit="echo no tvm; exit 1", PACK_SECONDS="2")
    assert code == 1
    assert "NOT DONE: measure the pack: it was cut off after 2 s" in summary
    assert "records.jsonl.gz: 3 programs" in summary
    assert "NOT DONE: deploy a network: no toolkit by" in summary and "(no tvm)" in summary


def test_either_half_is_done_alone_and_the_second_goes_on_from_the_first(check, tmp_path):
    code, summary = check(MEASURES, gpu=True, half="pack")
    assert code == 0 and "left out: tests of GPUs, deploy a network" in summary
    (tmp_path / "out" / "records.jsonl.gz").unlink()
    code, summary = check(HANGS, gpu=True, toolkit='echo "$*"', half="live")
    assert code == 0 and "measure the pack" not in summary
    assert "--records" in (tmp_path / "out" / "deploy.json").read_text()


def test_a_compiler_in_parts_is_put_together(check, project, tmp_path):
    tools = runpy.run_path(str(project / "tools" / "gpu_packs.py"))
    packed = tmp_path / "packed.xz"
    packed.write_bytes(lzma.compress(b"compiler" * 99))
    folders = tools["split_compiler"](packed, tmp_path, 60)
    assert [folder.name for folder in folders] == ["gpu-more-1", "gpu-more-2"]
    (tmp_path / "gpu" / "wheels" / "carried-1-py3-none-any.whl").unlink()
    with zipfile.ZipFile(tmp_path / "gpu" / "wheels" / "tvm-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tvm/lib/__init__.py", "")
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
case "$*" in
*gpu_live*) exec cat "$TMPDIR"/wheels/tvm/lib/libtvm_compiler.so ;;
*"import hetfeat"* | *"-m pytest"*) exit 0 ;;
*) exec "{sys.executable}" "$@" ;;
esac
"""
    )
    python.chmod(0o755)
    code, summary = check(MEASURES, gpu=True, half="live", TOOLKIT="", PYTHON=str(python))
    assert code == 0, summary
    assert (tmp_path / "out" / "deploy.json").read_text() == "compiler" * 99


def test_the_compiler_is_left_out_of_tvm_s_wheel(project, tmp_path):
    wheel = tmp_path / "apache_tvm-1.whl"
    kept = "tvm/lib/libtvm_runtime.so,,\n"
    record = "tvm/lib/libtvm_compiler.so,sha256=x,9\ntvm/3rdparty/a.h,,\n" + kept
    with zipfile.ZipFile(wheel, "w") as whole:
        whole.writestr("tvm/lib/libtvm_compiler.so", b"x" * 1000)
        whole.writestr("tvm/3rdparty/a.h", b"header")
        whole.writestr("tvm/lib/libtvm_runtime.so", b"runtime")
        whole.writestr("apache_tvm-1.dist-info/RECORD", record)
    runpy.run_path(str(project / "tools" / "gpu_packs.py"))["leave_compiler_out"](wheel)
    with zipfile.ZipFile(wheel) as small:
        assert small.namelist() == ["tvm/lib/libtvm_runtime.so", "apache_tvm-1.dist-info/RECORD"]
        assert small.read(small.namelist()[0]) == b"runtime"
        assert small.read(small.namelist()[1]) == kept.encode()
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]
