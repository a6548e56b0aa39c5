"""Packs built here for this machine, run by the runtime alone, and brought back."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys

import kernels
import numpy as np
import pytest

from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import save_profile
from hetfeat.errors import DataError, RequestError, WorkFailed
from hetfeat.features.assemble import assemble
from hetfeat.features.columns import HARDWARE, STORE
from hetfeat.features.unapplied_traces import as_unapplied
from hetfeat.measure.timing_options import TimingOptions
from hetfeat.measure.worker_pool import WorkerPool
from hetfeat.packs import build
from hetfeat.packs.archive import open_pack, write_pack
from hetfeat.packs.bring_back import import_pack_records
from hetfeat.packs.build import PackRequest, build_pack
from hetfeat.packs.manifest import Manifest
from hetfeat.packs.records_file import RecordsFile
from hetfeat.packs.run import PackRunOptions, run_pack
from hetfeat.packs.standalone import write_standalone
from hetfeat.packs.tasks import PackTasks
from hetfeat.records import Measurement, Program
from hetfeat.workloads.relax import describe, save_workload

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

QUICK = PackRunOptions(timing=TimingOptions(repeat_s=1e-4), run_timeout_s=30.0)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def programs_of(path, folder):
    folder.mkdir()
    return open_pack(path, folder).manifest


@pytest.fixture(scope="module")
def device(device):
    """This machine with one thread, however few cores the tests have."""
    return dataclasses.replace(device, threads=1)


@pytest.fixture(scope="module")
def packed(device, tmp_path_factory):
    """A pack of a network of one task."""
    path = tmp_path_factory.mktemp("packs") / "pack.tar.xz"
    built = build_pack(device, PackRequest(("nets:dense",), 3), path, builders=1)
    assert (built.programs, built.failed, built.known_before) == (3, 0, 0)
    return path


def written(path, device, modules, traces=(kernels.UNTOUCHED,)):
    """A pack of kernels as they are."""
    tasks = {(task := describe(module)).hash: (task, save_workload(module)) for module in modules}
    of_kernels = PackTasks(
        {key: task for key, (task, _) in tasks.items()},
        {key: module for key, (_, module) in tasks.items()},
        {"kernels": dict.fromkeys(tasks, 1)},
    )
    folder = path.with_name(f"{path.name}.work")
    (folder / "files").mkdir(parents=True)
    proposed = [json.dumps({"task": key, "traces": list(traces)}) + "\n" for key in tasks]
    (folder / "proposed.jsonl").write_text("".join(proposed))
    with WorkerPool(device, build.CHILD, 1, build.PATIENT) as pool:
        for task, module in tasks.values():
            pool.add_task(task, module)
        work = build._Building(folder, pool, of_kernels)
        work.propose(PackRequest((), 100), {})
        work.build(lambda done, total: None)
    write_pack(path, work.manifest(device), folder / "files")
    return path


def test_a_pack_is_measured_and_brought_back_and_the_next_goes_on(packed, device, tmp_path):
    records, store = tmp_path / "records.jsonl", tmp_path / "store"
    summary = run_pack(packed, records, QUICK)
    assert (summary.programs, summary.failed, summary.known_before) == (3, 0, 0)
    assert summary.programs_per_s > 0
    counts, name = import_pack_records(records, store)
    assert (counts.kept, counts.skipped, name) == (3, 0, device.name)
    known = RecordStore.open(store)
    measured = [m for table in known.scan() for m in from_table(table)]
    manifest = programs_of(packed, tmp_path / "one")
    assert {m.program.trace for m in measured} == {p.trace for p in manifest.programs}
    (task,) = manifest.tasks
    assert {m.program.task for m in measured} == {task.task}  # all fields of it
    assert all(1e-7 < m.latency_s < 1e-2 and m.program.stores is not None for m in measured)
    assert known.networks() == manifest.networks
    assert known.devices()[device.name].to_dict() == device.to_dict()
    again, _ = import_pack_records(records, store)
    assert (again.kept, again.duplicates) == (0, 3)

    request = PackRequest((), 4, store)
    build_pack(device, request, tmp_path / "next.tar.xz", builders=1)
    following = programs_of(tmp_path / "next.tar.xz", tmp_path / "two")
    assert {p.task for p in following.programs} == {task.hash}
    assert not {p.trace for p in following.programs} & {p.trace for p in manifest.programs}


def test_what_is_measured_already_is_not_measured_again(packed, device, tmp_path):
    records = tmp_path / "records.jsonl"
    run_pack(packed, records, QUICK)
    whole = records.read_bytes()
    kept = whole.splitlines(keepends=True)[:-2]
    records.write_bytes(b"".join(kept) + b'{"task": "torn')
    summary = run_pack(packed, records, QUICK)
    assert (summary.programs, summary.known_before) == (2, 1)
    assert records.read_bytes().startswith(b"".join(kept))
    assert len(lines_of(records)) == 2 + 3
    with pytest.raises(DataError, match="of another pack"):
        other = [json.dumps(lines_of(records)[0] | {"pack": "0" * 64})]
        (tmp_path / "other").write_text("\n".join(other) + "\n")
        run_pack(packed, tmp_path / "other", QUICK)


def test_a_program_that_fails_or_hangs_costs_itself(device, tmp_path):
    bad = [kernels.calling("abort"), kernels.calling("sleep", 600)]
    modules = [kernels.scaled(2.0), *bad, kernels.scaled(3.0)]
    pack = written(tmp_path / "pack", device, modules)
    records = tmp_path / "records"
    summary = run_pack(pack, records, QUICK)
    assert (summary.programs, summary.failed) == (4, 2)
    measured = [line for line in lines_of(records) if "trace" in line]
    assert [line["error"] for line in measured] == [None, "crash", "timeout", None]


def test_a_machine_on_which_nothing_runs_gives_no_records(device, tmp_path):
    pack = written(tmp_path / "pack", device, [kernels.calling("abort")], traces=("[[],[]]",))
    options = dataclasses.replace(QUICK, failures_at_first=1)
    with pytest.raises(WorkFailed, match="none runs"):
        run_pack(pack, tmp_path / "records", options)
    assert [line for line in lines_of(tmp_path / "records") if "trace" in line] == []


def test_what_does_not_build_is_a_record_of_its_own(device, tmp_path):
    traces = (kernels.UNTOUCHED, kernels.BROKEN)
    pack = written(tmp_path / "pack", device, [kernels.scaled(2.0)], traces)
    run_pack(pack, tmp_path / "records", QUICK)
    measured = [line for line in lines_of(tmp_path / "records") if "trace" in line]
    assert [line["error"] for line in measured] == [None, "build"]


def test_another_tvm_is_refused(packed, tmp_path):
    folder = tmp_path / "files"
    manifest = programs_of(packed, folder)
    changed = Manifest.model_validate_json(
        json.dumps(json.loads(manifest.model_dump_json()) | {"tvm": "0.1"})
    )
    write_pack(tmp_path / "pack", changed, folder)
    with pytest.raises(RequestError, match=r"of TVM 0\.1 on a machine with TVM"):
        run_pack(tmp_path / "pack", tmp_path / "records", QUICK)


def test_building_goes_on_where_it_was_and_ends_in_the_same_pack(packed, device, tmp_path):
    request = PackRequest(("nets:dense",), 3)
    path = tmp_path / "pack.tar.xz"

    class Stopped(Exception):
        pass

    def stop(done, total):
        if done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        build_pack(device, request, path, stop, builders=1)
    assert not path.exists()
    built = build_pack(device, request, path, builders=1)
    assert built.known_before == 2
    assert path.read_bytes() == packed.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_folder_stands_alone(packed, tmp_path):
    """In a process that has neither this package nor TVM's compiler."""
    folder = tmp_path / "alone"
    wheels = write_standalone(packed, folder)
    assert any(wheel.startswith("apache-tvm==") for wheel in wheels)
    assert not any(wheel.startswith(("torch", "mlflow", "pyarrow")) for wheel in wheels)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", folder / "run.py", "records.jsonl"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["programs"] == 3
    assert len(lines_of(tmp_path / "records.jsonl")) == 2 + 3
    assert "hetfeat.packs.run_child" not in done.stderr  # that is the child's alone
    for heavy in ("torch", "mlflow", "pyarrow", "click", "tvm"):
        assert f"| {heavy}\n" not in done.stderr
    with pytest.raises(RequestError, match="an empty folder"):
        write_standalone(packed, folder)


def test_the_child_loads_no_compiler():
    look = "import hetfeat.packs.run_child as m; print(open('/proc/self/maps').read())"
    environment = os.environ | {"TVM_USE_RUNTIME_LIB": "1"}
    maps = subprocess.run(
        [sys.executable, "-c", look], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "libtvm_runtime" in maps and "libtvm_compiler" not in maps


def test_records_that_are_not_what_they_say_are_skipped(packed, tmp_path):
    records = tmp_path / "records"
    run_pack(packed, records, QUICK)
    head, task, *measured = lines_of(records)
    other = save_workload(kernels.scaled(5.0))
    bad = [
        task | {"task": "0" * 16, "module": other},
        task | {"task": "1" * 16, "module": "no module"},
        measured[0] | {"task": "0" * 16},
        measured[0] | {"latencies_s": [-1.0]},
        measured[0] | {"latencies_s": []},
        measured[0] | {"error": "other"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in [head, task, *bad, measured[1]])
    records.write_text(text + "{}\nno json\n")
    counts, name = import_pack_records(records, tmp_path / "store", "renamed")
    assert (counts.kept, counts.skipped, name) == (1, len(bad) + 2, "renamed")
    with pytest.raises(DataError, match="no file of records"):
        (tmp_path / "bad").write_text("{}\n")
        import_pack_records(tmp_path / "bad", tmp_path / "store")


@pytest.fixture(scope="module")
def packed_for_gpu(tmp_path_factory):
    """A pack of a network of one task for a GPU, which nothing here can run."""
    from hetfeat.devices.presets import preset
    from hetfeat.measure import kernels as cuda

    if cuda._nvrtc() is None and shutil.which("nvcc") is None:
        pytest.skip("neither NVRTC nor nvcc")
    t4 = preset("nvidia-t4")
    gpu = dataclasses.replace(t4, target=t4.target | {"arch": "sm_90"}, route={"kind": "local"})
    path = tmp_path_factory.mktemp("gpu") / "pack"
    built = build_pack(gpu, PackRequest(("nets:dense",), 10), path, builders=1)
    assert (built.programs, built.failed) == (10, 0)
    return path


def test_programs_for_a_gpu_are_built_without_one(packed_for_gpu, tmp_path):
    manifest = programs_of(packed_for_gpu, tmp_path / "files")
    for program in manifest.programs:
        cubin = (tmp_path / "files" / program.kernels).read_bytes()
        assert cubin.startswith(b"\x7fELF") and int.from_bytes(cubin[18:20], "little") == 190
        library = (tmp_path / "files" / program.library).read_bytes()
        assert b"main_kernel" in cubin and b"main_kernel" in library
        assert b"__global__" not in library  # the source stays here
    assert manifest.device("x").target["arch"] == "sm_90"


def test_the_records_of_a_gpu_have_features_to_learn_from(packed_for_gpu, tmp_path):
    """Whatever the latencies are, which are made up here."""
    (tmp_path / "files").mkdir()
    pack = open_pack(packed_for_gpu, tmp_path / "files")
    records = RecordsFile(tmp_path / "records", [], pack, "no machine")
    (task,) = pack.manifest.tasks
    for i, program in enumerate(pack.manifest.programs):
        own = Program(task.task, program.trace)
        records.append(task, Measurement(own, "any", (1e-5 * (i + 1),), None, 1e9 + i, "tvm"))
    counts, _ = import_pack_records(tmp_path / "records", tmp_path / "store", "gpu")
    assert (counts.kept, counts.skipped) == (10, 0)
    batch = assemble(RecordStore.open(tmp_path / "store")).examples.batch
    names = [[column.name for column in kind] for kind in (STORE, HARDWARE)]
    assert batch.stores[:, names[0].index("is_gpu")].any()
    assert (batch.hardware[:, names[1].index("warp_size")] == 5).all()  # log2 of 32
    assert len(np.unique(as_unapplied(batch).trace, axis=0)) == 10


def test_a_killed_run_goes_on(packed, tmp_path):
    script = f"from hetfeat.packs.run import main; main([{str(packed)!r}, 'records'])"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    summary = run_pack(packed, tmp_path / "records", QUICK)
    assert summary.programs + summary.known_before == 3


def test_the_commands_build_measure_and_bring_back(
    device, hetfeat_command, child_environment, tmp_path
):
    def run(*words):
        return subprocess.run(
            [*hetfeat_command, "pack", *words, "--json"],
            env=child_environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    def answer(*words):
        done = run(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    save_profile(device, tmp_path / "here.yaml")
    refused = run("build", "--device", "here.yaml")
    assert refused.returncode == 2 and "--network or --from" in refused.stderr
    wanted = ("--network", "nets:dense", "--programs", "2")
    built = answer("build", "--device", "here.yaml", *wanted)
    assert (built["programs"], built["failed"], built["device"]) == (2, 0, "here")
    ran = answer("run", built["out"], "--out", "records.jsonl")
    assert (ran["programs"], ran["failed"], ran["device"]) == (2, 0, "here")
    assert ran["programs_per_s"] > 0
    kept = answer("import", "records.jsonl", "--device", "renamed", "--out", "store")
    assert (kept["kept"], kept["device"]) == (2, "renamed")


def test_programs_are_dealt_evenly():
    task = describe(kernels.scaled(2.0))
    many, few = ([Program(task, f"{n}{k}") for k in range(n)] for n in (9, 2))
    assert [len(build._dealt([many, few], most)) for most in (3, 4, 8, 20)] == [3, 4, 8, 11]
    assert build._dealt([many, few], 6) == [*many[:4], *few]


def test_tasks_take_turns_so_that_what_is_cut_off_has_some_of_each():
    task = describe(kernels.scaled(2.0))
    many, few = ([Program(task, f"{n}{k}") for k in range(n)] for n in (5, 3))
    dealt = build._dealt([many, few], 8, at_once=2)
    assert dealt == [*many[:2], *few[:2], *many[2:4], *few[2:], *many[4:]]
