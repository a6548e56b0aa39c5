"""A pack's file, its manifest, and which programs are proposed; nothing is built or run."""

import ast
import base64
import dataclasses
import hashlib
import io
import json
import sys
import tarfile
from importlib.metadata import version

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from hetfeat.devices.presets import preset
from hetfeat.errors import DataError, RequestError
from hetfeat.measure.kernels import without_headers
from hetfeat.packs import standalone
from hetfeat.packs.archive import ArchiveLimits, open_pack, write_pack
from hetfeat.packs.device_checks import runs_code_of
from hetfeat.packs.manifest import Manifest, PackedProgram, PackedTask
from hetfeat.packs.proposals import propose
from hetfeat.packs.run import run_pack
from hetfeat.records import Program, Task

TASK = Task("0" * 16, "matmul", ((8, 8), (8, 8)), "float32", 1e3)
CODE = {"a.so": b"code of a", "b.so": b"code of b"}


def manifest_of(device, **changes) -> Manifest:
    packed = PackedTask(**{**vars(TASK), "module": "module"})
    programs = [
        PackedProgram(
            task=TASK.hash,
            trace=f"[{name!r}]",
            arguments=(((8, 8), "float32"),),
            library=name,
            kernels=None,
            error=None,
        )
        for name in CODE
    ]
    files = {name: hashlib.sha256(code).hexdigest() for name, code in CODE.items()}
    facts = {
        "format": 1,
        "profile": device.to_dict(),
        "code_features": [],
        "tvm": "0",
        "networks": {"net": {TASK.hash: 2}},
        "tasks": [packed],
        "programs": programs,
        "files": files,
    }
    return Manifest(**{**facts, **changes})


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    for name, content in CODE.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def into(tmp_path):
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def test_a_pack_comes_out_as_it_went_in_and_its_bytes_are_always_the_same(
    device, code, into, tmp_path
):
    written = manifest_of(device)
    digest = write_pack(tmp_path / "pack", written, code)
    write_pack(tmp_path / "again", written, code)
    assert (tmp_path / "pack").read_bytes() == (tmp_path / "again").read_bytes()
    pack = open_pack(tmp_path / "pack", into)
    assert (pack.digest, pack.manifest) == (digest, written)
    assert {path.name: path.read_bytes() for path in into.iterdir()} == CODE
    assert pack.manifest.device("here").to_dict() == device.to_dict()


def rewritten(path, members):
    with tarfile.open(path, "w:xz") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def members_of(path):
    with tarfile.open(path) as archive:
        return [(m.name, archive.extractfile(m).read()) for m in archive.getmembers()]


def test_what_is_not_as_it_was_written_is_refused(device, code, into, tmp_path):
    write_pack(tmp_path / "pack", manifest_of(device), code)
    (name, manifest), *files = members_of(tmp_path / "pack")
    bad = {
        "has changed": [(name, manifest), ("a.so", b"other co"), files[1]],
        "without b.so": [(name, manifest), files[0]],
        "was added": [(name, manifest), *files, ("c.so", b"")],
        "without a.so": [(name, manifest), ("../a.so", CODE["a.so"]), files[1]],
        "without pack.json": files,
    }
    for words, members in bad.items():
        with pytest.raises(DataError, match=words):
            open_pack(rewritten(tmp_path / "bad", members), into)
    facts = json.loads(manifest)
    for change in ({"files": {}}, {"format": 2}, {"tasks": []}, {"files": {"../x": "0" * 64}}):
        text = json.dumps(facts | change).encode()
        with pytest.raises(DataError, match="manifest of pack"):
            open_pack(rewritten(tmp_path / "bad", [(name, text), *files]), into)
    assert {path.name for path in into.iterdir()} <= set(CODE)


def test_no_bytes_raise_anything_but_a_refusal(device, code, into, tmp_path):
    written, refused = manifest_of(device), 0
    write_pack(tmp_path / "pack", written, code)
    data = (tmp_path / "pack").read_bytes()
    cut = [data[:size] for size in range(0, len(data), 23)]
    flipped = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(0, len(data), 17)]
    for broken in (*cut, *flipped, b"no archive"):
        (tmp_path / "bad").write_bytes(broken)
        try:  # what follows the last file may be damaged
            assert open_pack(tmp_path / "bad", into).manifest == written
        except DataError:
            refused += 1
    assert refused > len(cut)
    with pytest.raises(DataError, match="No such file"):
        open_pack(tmp_path / "none", into)
    with pytest.raises(DataError, match="over 5"):
        open_pack(tmp_path / "pack", into, ArchiveLimits(file_bytes=5))


def test_a_configured_key_signs_and_only_its_packs_are_read(
    device, code, into, tmp_path, monkeypatch
):
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key").write_bytes(private)
    (tmp_path / "public").write_bytes(public)
    write_pack(tmp_path / "unsigned", manifest_of(device), code)
    monkeypatch.setenv("HETFEAT_SIGNING_KEY", str(tmp_path / "key"))
    monkeypatch.setenv("HETFEAT_PUBLIC_KEY", str(tmp_path / "public"))
    write_pack(tmp_path / "pack", manifest_of(device), code)
    assert open_pack(tmp_path / "pack", into).manifest == manifest_of(device)
    with pytest.raises(DataError, match="unsigned"):
        open_pack(tmp_path / "unsigned", into)
    other = base64.b64encode(Ed25519PrivateKey.generate().sign(b"other"))
    members = [
        (name, other if name.endswith("sig") else data)
        for name, data in members_of(tmp_path / "pack")
    ]
    with pytest.raises(DataError, match="another signature"):
        open_pack(rewritten(tmp_path / "bad", members), into)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"code_features": ["no-such-feature"]}, "a CPU with no-such-feature"),
        ({"threads": 4096}, "4096 threads"),
    ],
)
def test_another_cpu_is_refused_before_anything_runs(device, code, tmp_path, changes, words):
    profile = dataclasses.replace(device, threads=changes.pop("threads", device.threads))
    written = manifest_of(device, profile=profile.to_dict(), **changes)
    write_pack(tmp_path / "pack", written, code)
    with pytest.raises(RequestError, match=words) as refused:
        run_pack(tmp_path / "pack", tmp_path / "records", on_program=pytest.fail)
    assert refused.value.given.startswith("pack")
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    ("found", "wanted", "runs"),
    [
        ("sm_90", "sm_90", True),
        ("sm_89", "sm_86", True),
        ("sm_86", "sm_89", False),
        ("sm_100", "sm_90", False),
        ("sm_80", "sm_90", False),
        ("sm_90", "sm_90a", True),
        ("sm_121", "sm_120a", False),
    ],
)
def test_machine_code_runs_within_its_major_architecture(found, wanted, runs):
    assert runs_code_of(found, wanted) is runs


@pytest.mark.slow
@pytest.mark.tvm
def test_a_machine_without_the_gpu_of_a_pack_is_refused_with_the_reason(code, tmp_path):
    t4 = preset("nvidia-t4")
    old = dataclasses.replace(t4, target=t4.target | {"arch": "sm_30"})  # no driver runs it
    write_pack(tmp_path / "pack", manifest_of(old, tvm=version("apache-tvm")), code)
    words = r"for sm_30 on (sm_\d+|no NVIDIA GPU( \(lib\S+: cannot open .*\))?); expected"
    with pytest.raises(RequestError, match=words):
        run_pack(tmp_path / "pack", tmp_path / "records", on_program=pytest.fail)
    assert not (tmp_path / "records").exists()


class Draws:
    """Programs by number: drawn at random below 100, near a parent above it."""

    def sample(self, task, count, seed):
        return [Program(task, str(n)) for n in range(count)]

    def vary(self, task, parents, count, seed):
        self.parents = parents
        return [Program(task, str(100 + n)) for n in range(count)]


def test_programs_near_the_fastest_are_proposed_and_some_at_random():
    draws = Draws()
    first = propose(draws, TASK, 8, 0, {})
    assert [p.trace for p in first] == [str(n) for n in range(8)]
    measured = {"0": 2.0, "1": 1.0, "100": None, **{str(n): 3.0 + n for n in range(2, 9)}}
    then = [p.trace for p in propose(draws, TASK, 8, 0, measured)]
    assert draws.parents == ["1", "0", "2", "3", "4", "5"]
    assert then[:6] == ["101", "102", "103", "104", "105", "106"]
    assert not set(then) & set(measured)


def test_what_a_standalone_folder_holds_needs_neither_a_compiler_nor_a_framework():
    files = {
        path.relative_to(standalone.ROOT).as_posix()
        for path in standalone.needed_files(standalone.ENTRIES)
    }
    assert {"hetfeat/packs/run.py", "hetfeat/measure/program_timer.py"} <= files
    assert not any("schedules" in name or "workloads" in name for name in files)
    imported = set()
    for name in files:
        tree = ast.parse((standalone.ROOT / name).read_text())
        imported |= {word.partition(".")[0] for word in standalone._imported(tree)}
    outside = imported - sys.stdlib_module_names - {"hetfeat"}
    assert outside == {"numpy", "psutil", "pydantic", "tvm", "tvm_ffi", "yaml"}


def test_headers_are_left_out_where_nothing_needs_them():
    head = "\n#ifdef __CUDACC_RTC__\n  #include <cuda/std/cstdint>\n#else\n#include <x>\n#endif\n"
    plain = head + "void main_kernel() {}\n"
    assert "#include" not in without_headers(plain)
    assert without_headers(plain).endswith("void main_kernel() {}\n")
    half = without_headers(plain + "#include <cuda_fp16.h>\n#include <mma.h>\n")
    assert half.count("#include") == 2 and "cstdint" not in half
    for needs in ("#include <curand.h>\n", "std::is_same\n"):
        assert without_headers(plain + needs) == plain + needs
