"""Proposes programs for a device that need not be here, and builds them into a pack.

What is built lies beside the pack until it is whole: the same request goes on where it was.
"""

import fcntl
import json
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from hetfeat.dataset.files import append_lines, json_lines, sha256
from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.precision import FLOAT32, need_half
from hetfeat.devices import host
from hetfeat.devices.profile import DeviceProfile
from hetfeat.durable import write_file
from hetfeat.errors import RequestError, WorkFailed
from hetfeat.measure.build_timeout import BuildTimeoutOptions
from hetfeat.measure.kernels import need_compiler
from hetfeat.measure.machine_lock import building
from hetfeat.measure.messages import Argument
from hetfeat.measure.worker_pool import PoolOptions, WorkerPool
from hetfeat.packs.archive import write_pack
from hetfeat.packs.manifest import PACK_FORMAT, Manifest, PackedProgram, PackedTask
from hetfeat.packs.proposals import Measured, load_measured, propose
from hetfeat.packs.tasks import PackTasks, tasks_of_networks, tasks_of_store
from hetfeat.parsing import parse
from hetfeat.records import ErrorKind, Program

CHILD = "hetfeat.measure.build_child"
PATIENT = PoolOptions(build_timeout=BuildTimeoutOptions(longest_s=120.0, shortest_s=60.0))
"""No device waits for a build, and one that is cut off is a record of a failure for good."""
LIBRARY, KERNELS = ".so", ".cubin"
OnBuilt = Callable[[int, int], None]
"""Called with the number of programs that are built, and of all."""
_REQUEST, _PROPOSED, _BUILT, _FILES = "request.json", "proposed.jsonl", "built.jsonl", "files"


@dataclass(frozen=True)
class PackRequest:
    """What a pack is to hold.

    Attributes:
        networks: Names of networks; none for those that the store knows.
        programs: Number of programs in all, shared evenly among tasks.
        store: Folder of the records that the pack goes on from; None for none.
        seed: Seed of every draw.
        precision: `float32`, the default, or `float16`; that of a store's tasks is theirs.
    """

    networks: tuple[str, ...]
    programs: int
    store: Path | None = None
    seed: int = 0
    precision: str = FLOAT32


@dataclass(frozen=True)
class BuiltPack:
    """A pack that was written.

    Attributes:
        programs: Number of programs in it.
        failed: Number of these that did not build.
        tasks: Number of tasks that have programs.
        known_before: Number of programs that an earlier run had built.
        bytes: Size of the pack in bytes.
        digest: Digest of its manifest.
    """

    programs: int
    failed: int
    tasks: int
    known_before: int
    bytes: int
    digest: str


def build_pack(
    profile: DeviceProfile,
    request: PackRequest,
    out: Path,
    on_built: OnBuilt = lambda done, total: None,
    options: PoolOptions = PATIENT,
    builders: int | None = None,
) -> BuiltPack:
    """Proposes and builds programs, and writes them as a pack.

    Args:
        profile: Profile of the device, which need not be here.
        request: What the pack is to hold.
        out: Path of the pack.
        on_built: Function called after each build; by default it does nothing.
        options: Settings of the children; `PATIENT` by default.
        builders: Number of children; None, the default, for one a core.

    Raises:
        RequestError: A target that nothing is built for, no such network, or no cross-compiler.
        WorkFailed: No program could be built, or there is no compiler for a GPU's kernels.
    """
    _need_target(profile)
    need_half(request.precision, profile.name, profile.target)
    store = RecordStore.open(request.store) if request.store else None
    if request.networks or store is None:
        tasks = tasks_of_networks(request.networks, profile, request.precision)
    else:
        tasks = tasks_of_store(store)
    measured = load_measured(store, profile.name) if store else {}
    known = store.digest() if store else ""
    with _work_folder(out, profile, request, known) as folder:
        pool = WorkerPool(profile, CHILD, builders or host.usable_cores(), options)
        with pool:
            for task in tasks.tasks.values():
                pool.add_task(task, tasks.modules[task.hash])
            work = _Building(folder, pool, tasks)
            work.propose(request, measured)
            known_before = work.build(on_built)
        manifest = work.manifest(profile)
        digest = write_pack(out, manifest, folder / _FILES)
        shutil.rmtree(folder)
    return BuiltPack(
        programs=len(manifest.programs),
        failed=sum(program.error is not None for program in manifest.programs),
        tasks=len(manifest.tasks),
        known_before=known_before,
        bytes=out.stat().st_size,
        digest=digest,
    )


def _need_target(profile: DeviceProfile) -> None:
    if profile.target.is_cpu:
        host.need_cross_compiler(profile.name, profile.target)
    elif profile.target.is_gpu:
        need_compiler(str(profile.target.get("arch")))
    else:
        raise RequestError(
            f"a pack for '{profile.name}', whose target is {profile.target.get('kind')}",
            "a CPU (llvm) or an NVIDIA GPU (cuda)",
            "choose another --device",
        )


@contextmanager
def _work_folder(
    out: Path, profile: DeviceProfile, request: PackRequest, known: str
) -> Iterator[Path]:
    """The folder beside a pack that its building goes on in; emptied for another request.

    Raises:
        RequestError: Another process builds this pack.
    """
    folder = out.with_name(f".{out.name}.building")
    folder.mkdir(parents=True, exist_ok=True)
    asked = asdict(request)
    if request.precision == FLOAT32:  # as it was written before there was another
        del asked["precision"]
    wanted = [profile.to_dict(), asked, known, version("apache-tvm")]
    text = json.dumps(wanted, default=str, sort_keys=True)
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RequestError(
                f"pack '{out}', which another process builds",
                "one that does at a time",
                "wait until it ends, or choose another --out",
            ) from error
        head = folder / _REQUEST
        if not head.is_file() or head.read_text() != text:
            for name in (_REQUEST, _PROPOSED, _BUILT):
                (folder / name).unlink(missing_ok=True)
            shutil.rmtree(folder / _FILES, ignore_errors=True)
            write_file(head, text.encode())
        (folder / _FILES).mkdir(exist_ok=True)
        yield folder


class _Building:
    """The work on a pack: each step is in the folder before the next."""

    def __init__(self, folder: Path, pool: WorkerPool, tasks: PackTasks) -> None:
        self._folder, self._pool, self._tasks = folder, pool, tasks
        self._programs: list[Program] = []
        self._built: dict[str, PackedProgram] = {}
        self._writing = threading.Lock()

    def propose(self, request: PackRequest, measured: Mapping[str, Measured]) -> None:
        """Draws the programs of each task that has none so far."""
        proposed = self._read_proposed()
        each = -(-request.programs // len(self._tasks.tasks)) if self._tasks.tasks else 0
        for task in self._tasks.tasks.values():
            if task.hash not in proposed:
                try:
                    known = measured.get(task.hash, {})
                    found = propose(self._pool, task, each, request.seed, known)
                except WorkFailed:  # TVM cannot make its design space
                    found = []
                proposed[task.hash] = [program.trace for program in found]
                line = {"task": task.hash, "traces": proposed[task.hash]}
                append_lines(self._folder / _PROPOSED, [line])
        self._programs = _dealt(
            [[Program(t, trace) for trace in proposed[t.hash]] for t in self._tasks.tasks.values()],
            request.programs,
        )

    def _read_proposed(self) -> dict[str, list[str]]:
        found = {}
        for line in json_lines(self._folder / _PROPOSED, action="remove the folder"):
            task, traces = line["task"], line["traces"]
            found[task] = parse(traces, list[str], what="traces", action="remove the folder")
        return found

    def build(self, on_built: OnBuilt) -> int:
        """Builds what is not built yet; returns how much was.

        Raises:
            WorkFailed: Nothing could be built.
        """
        for line in json_lines(self._folder / _BUILT, action="remove the folder"):
            packed = PackedProgram.model_validate_json(json.dumps(line))
            names = [name for name in (packed.library, packed.kernels) if name is not None]
            if all((self._folder / _FILES / name).is_file() for name in names):
                self._built[line["key"]] = packed
        queue = deque(program for program in self._programs if program.key not in self._built)
        known, total = len(self._programs) - len(queue), len(self._programs)

        def build_from(index: int) -> None:
            with suppress(IndexError):
                while True:
                    self._build(index, queue.popleft())
                    on_built(len(self._built), total)

        list(self._pool.threads.map(build_from, range(len(self._pool.workers))))
        if not any(packed.error is None for packed in self._built.values()):
            raise WorkFailed(
                f"{total} programs, of which none was built",
                "a target that this machine's compilers build for",
                "look at the device's profile, and at what docs/packs.md says is needed",
            )
        return known

    def _build(self, index: int, program: Program) -> None:
        path = self._folder / _FILES / f"{program.key}{LIBRARY}"
        self._pool.workers[index].restart_above(self._pool.options.restart_bytes)
        with building():
            arguments, error = self._pool.build_file(index, program, path)
        packed = _packed(program, path, arguments, error)
        with self._writing:
            line = {**packed.model_dump(), "key": program.key}
            append_lines(self._folder / _BUILT, [line])
            self._built[program.key] = packed

    def manifest(self, profile: DeviceProfile) -> Manifest:
        """What the pack says of itself."""
        from hetfeat.devices.target import code_features

        programs = [self._built[program.key] for program in self._programs]
        used = {program.task for program in programs}
        tasks = [task for task in self._tasks.tasks.values() if task.hash in used]
        names = [n for p in programs for n in (p.library, p.kernels) if n is not None]
        return Manifest(
            format=PACK_FORMAT,
            profile=profile.to_dict(),
            code_features=code_features(profile.target),
            tvm=version("apache-tvm"),
            networks={name: dict(weights) for name, weights in self._tasks.networks.items()},
            tasks=[
                PackedTask(
                    hash=task.hash,
                    operator=task.operator,
                    shapes=task.shapes,
                    dtype=task.dtype,
                    flops=task.flops,
                    module=self._tasks.modules[task.hash],
                )
                for task in tasks
            ],
            programs=programs,
            files={name: sha256(self._folder / _FILES / name) for name in sorted(names)},
        )


def _packed(
    program: Program, path: Path, arguments: list[Argument] | None, error: ErrorKind | None
) -> PackedProgram:
    kernels = path.with_suffix(KERNELS)
    built = error is None
    return PackedProgram(
        task=program.task.hash,
        trace=program.trace,
        arguments=tuple(arguments or ()),
        library=path.name if built else None,
        kernels=kernels.name if built and kernels.is_file() else None,
        error=error,
    )


def _dealt(of_each: Sequence[Sequence[Program]], most: int, *, at_once: int = 8) -> list[Program]:
    """At most so many programs; of each task the same number while it has any.

    Tasks take turns of `at_once` programs: what is cut off half-way has measured half of each.
    """
    count = len(of_each)
    taken = [0] * count
    left = most
    while left and any(taken[i] < len(of_each[i]) for i in range(count)):
        for i in range(count):
            if left and taken[i] < len(of_each[i]):
                taken[i] += 1
                left -= 1
    turns = range(0, max(taken, default=0), at_once)
    return [
        program
        for start in turns
        for i in range(count)
        for program in of_each[i][start : min(start + at_once, taken[i])]
    ]
