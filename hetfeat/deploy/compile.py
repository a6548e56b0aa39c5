"""Compiles a lowered network with tuned programs, its parameters beside the code."""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm.s_tir.meta_schedule as ms
from tvm import relax
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from hetfeat.deploy.parts import compile_in_parts
from hetfeat.devices.profile import DeviceProfile
from hetfeat.records import Program
from hetfeat.schedules.design_space import replay
from hetfeat.workloads.passes.fold_layouts import fold_layouts
from hetfeat.workloads.relax import NetworkTask, as_target

log = logging.getLogger(__name__)

_ANY_S = [1.0]
"""Seconds that a record is given, which must have a time; the only one of its task is taken
whatever it says."""
KEEP_SOURCE = "TVM_COMPILE_FORCE_FALLBACK"
LAYS_OUT = "meta_schedule.layout_rewrite_preproc"
"""Annotation of a block that lays weights out anew."""


@dataclass(frozen=True)
class Compiled:
    """A compiled network.

    Attributes:
        executable: Executable whose `main` takes the inputs, then the parameters.
        parameters: Weights, already laid out as the tuned programs want them.
    """

    executable: Any
    parameters: list[npt.NDArray[Any]]


def compile_network(
    lowered: tvm.IRModule,
    profile: DeviceProfile,
    tasks: Sequence[NetworkTask],
    programs: Mapping[str, Program],
) -> Compiled:
    """Compiles what `workloads.relax.lower` returned.

    Args:
        lowered: The lowered network.
        profile: Profile of the device it is compiled for.
        tasks: Tasks of the lowered network.
        programs: Program of each task by hash; tasks without one get TVM's default schedule.
    """
    target = as_target(profile.target)
    step = relax.transform
    with target, _database(profile, tasks, programs):
        apply = [step.MetaScheduleApplyDatabase(enable_warning=False)] if programs else []
        pack = [step.SplitLayoutRewritePreproc(), step.LiftTransformParams()]
        fold = [fold_layouts, step.FoldConstant(), step.CanonicalizeBindings()]
        drop = step.DeadCodeElimination(["main"])  # what laid out weights, too
        module = tvm.ir.transform.Sequential([*apply, *pack, *fold, drop])(lowered)
    module, parameters = _constants_as_parameters(module)
    if not profile.target.is_gpu:
        return Compiled(compile_in_parts(module, target), parameters)
    with target, _kernels_as_source():
        return Compiled(tvm.compile(module, target), parameters)


@contextlib.contextmanager
def _kernels_as_source() -> Iterator[None]:
    """Kernels of a GPU stay source until the bundle is written, with a driver as without one.

    For this compilation alone: children that measure compile theirs to run them.
    """
    os.environ[KEEP_SOURCE] = "1"
    try:
        yield
    finally:
        del os.environ[KEEP_SOURCE]


def builds(task: NetworkTask, program: Program, profile: DeviceProfile) -> bool:
    """Whether a program that was never built can be."""
    target = as_target(profile.target)
    try:
        module = replay(task.module, program.trace).mod
        with target, _kernels_as_source():
            tvm.compile(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target)
    except Exception:
        return False
    return True


def _database(
    profile: DeviceProfile, tasks: Sequence[NetworkTask], programs: Mapping[str, Program]
) -> ms.database.Database:
    target = as_target(profile.target)
    database = ms.database.MemoryDatabase()
    for task in tasks:
        program = programs.get(task.task.hash)
        if program is None:
            continue
        schedule = replay(task.module, program.trace)
        if _loses_weights(schedule):
            log.warning(
                "the program of %s %s loses weights: TVM's default schedule instead",
                task.task.operator,
                task.task.shapes,
            )
            continue
        record = ms.database.TuningRecord(
            schedule.trace,
            database.commit_workload(task.module),
            _ANY_S,
            target,
            ms.arg_info.ArgInfo.from_prim_func(task.module["main"]),
        )
        database.commit_tuning_record(record)
    return database


def _loses_weights(schedule: tvm.s_tir.Schedule) -> bool:
    """Whether weights are laid out in less room than they take.

    TVM suggests such layouts for a table of which rows are looked up, where a vector is longer
    than a row.
    """
    for child in schedule.get_child_blocks(schedule.get_sblock("root")):
        block = schedule.get(child)
        if LAYS_OUT in block.annotations:
            before, after = (part[0].source.shape for part in (block.reads, block.writes))
            if np.prod([int(n) for n in after]) < np.prod([int(n) for n in before]):
                return True
    return False


@relax.expr_functor.mutator
class _Lifter(relax.PyExprMutator):  # type: ignore[misc]
    """Replaces constants of more than some elements by variables, and remembers which."""

    def __init__(self, most_elements: int) -> None:
        super().__init__()
        self._most_elements = most_elements
        self.lifted: list[tuple[Any, Any]] = []

    def visit_generic_const_(self, op: Any) -> Any:
        data = op.value
        if not isinstance(data, tvm.runtime.Tensor) or np.prod(data.shape) <= self._most_elements:
            return op
        for variable, constant in self.lifted:
            if constant.same_as(data):
                return variable
        variable = relax.Var(f"parameter_{len(self.lifted)}", op.ty)
        self.lifted.append((variable, data))
        return variable


def _constants_as_parameters(
    module: tvm.IRModule, *, most_elements: int = 16
) -> tuple[tvm.IRModule, list[npt.NDArray[Any]]]:
    """Makes constants of more elements parameters of the compiled function."""
    main = module["main"]
    lifter = _Lifter(most_elements)
    body = lifter.visit_expr(main.body)
    variables = [variable for variable, _ in lifter.lifted]
    module = tvm.IRModule(dict(module.functions), attrs=module.attrs)
    module["main"] = relax.Function(
        [*main.params, *variables], body, main.ret_ty, main.is_pure, main.attrs
    )
    return module, [data.numpy() for _, data in lifter.lifted]
