"""From a network to weighted tuning tasks: the graph pipeline.

Tasks are extracted, and tuned programs put back, through one and the same `lower`: a task's hash
includes the `layout_free_buffers` attribute, so that another pipeline would miss silently.
"""

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm.s_tir.meta_schedule as ms
import tvm_ffi
from tvm import relax
from tvm.s_tir.analysis import estimate_tir_flops

from hetfeat.errors import RequestError, WorkFailed
from hetfeat.records import Task
from hetfeat.workloads.exported import exported, importing
from hetfeat.workloads.library_errors import said
from hetfeat.workloads.network import Network
from hetfeat.workloads.onnx_static import open_node, static
from hetfeat.workloads.operators import anchor_operator
from hetfeat.workloads.passes.batch_norms import scale_and_shift
from hetfeat.workloads.passes.combine_matmuls import combine_siblings
from hetfeat.workloads.passes.fold_constants import fold_constants
from hetfeat.workloads.passes.halve_products import halve_products
from hetfeat.workloads.passes.integers import is_quantised, make_integers
from hetfeat.workloads.passes.keep_roundings import keep_roundings
from hetfeat.workloads.passes.lay_out_pads import lay_out_pads
from hetfeat.workloads.passes.name_pads import name_pads
from hetfeat.workloads.passes.pad_rows import pad_integer_rows, pad_rows
from hetfeat.workloads.passes.pad_scores import pad_scores
from hetfeat.workloads.passes.pads_apart import keep_pads_apart
from hetfeat.workloads.passes.products_in_fours import multiply_in_fours
from hetfeat.workloads.passes.quick_steps import quicken_steps
from hetfeat.workloads.passes.simplify import operator_of, simplify, static_shape
from hetfeat.workloads.passes.vectorise_functions import vectorise_functions
from hetfeat.workloads.passes.widen_integers import widen_integers
from hetfeat.workloads.qoperators import as_imported
from hetfeat.workloads.quantised_torch import converters, is_quantised_program
from hetfeat.workloads.tflite import import_tflite
from hetfeat.workloads.winograd import Choose, direct
from hetfeat.workloads.winograd.lowering import use_winograd

log = logging.getLogger(__name__)

Pass = Callable[[tvm.IRModule], tvm.IRModule]


@dataclass(frozen=True)
class NetworkTask:
    """A task as it occurs in a network.

    Attributes:
        task: Identity of the task.
        module: Module of TVM, unscheduled.
        weight: Number of times that the network runs it.
        fixed: Whether the network runs it however its convolutions are computed, default False.
    """

    task: Task
    module: tvm.IRModule
    weight: int
    fixed: bool = False


def as_target(target: Mapping[str, Any]) -> tvm.target.Target:
    """A TVM target from its dictionary (0.27 no longer takes command-line strings)."""
    return tvm.target.Target(dict(target))


def import_network(network: Network) -> tvm.IRModule:
    """A network as a Relax module, parameters bound as constants.

    Raises:
        RequestError: The network has an operator that the importer does not know.
    """
    with warnings.catch_warnings(), importing(network):
        warnings.simplefilter("ignore")
        if network.onnx is not None:
            module = _from_onnx(network)
            return name_pads(module) if is_quantised(module) else module
        if network.kind == "TFLite":
            return import_tflite(network)
        return _of_known_shapes(network, _from_torch(network), "")


def _from_torch(network: Network) -> tvm.IRModule:
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    with torch.no_grad():
        return from_exported_program(
            exported(network),
            keep_params_as_input=False,
            unwrap_unit_return_tuple=True,
            custom_convert_map=converters() if is_quantised_program(network.module) else None,
        )


def _from_onnx(network: Network) -> tvm.IRModule:
    """A module of an ONNX model as it is, or as `static` writes it where that is no use."""
    from tvm.relax.frontend.onnx import from_onnx

    model = as_imported(network.onnx)
    try:
        module = from_onnx(model)
        if not _first_open(module):
            return module
    except Exception as error:  # the importer's own are of many types
        try:
            return from_onnx(static(model))
        except Exception:
            raise error from None  # of the model as it was given
    written = static(model)
    return _of_known_shapes(network, from_onnx(written), open_node(written))


def _of_known_shapes(network: Network, module: tvm.IRModule, node: str) -> tvm.IRModule:
    """The module, if all of its shapes are known before it runs.

    Raises:
        RequestError: One of them is not.
    """
    opened = _first_open(module) and _first_open(relax.transform.FoldConstant()(module))
    if opened:
        raise RequestError(
            f"network '{network.name}', whose {node or opened} has a shape that its values decide",
            "shapes that are known before the network runs",
            "leave it out of the network, or give it constants",
        )
    return module


def _first_open(module: tvm.IRModule) -> str:
    """The first operator whose tensor has no known shape, or an empty string."""
    for _, function in module.functions_items():
        for block in function.body.blocks if isinstance(function, relax.Function) else ():
            for binding in block.bindings:
                kind = binding.var.ty
                if isinstance(kind, relax.TensorType) and static_shape(binding.var) is None:
                    return operator_of(binding.value) or "an operator"
    return ""


def lower(
    module: tvm.IRModule, target: tvm.target.Target, winograd: Choose = direct
) -> tvm.IRModule:
    """Graph-level passes up to the point where tasks are extracted or tuned programs applied.

    Args:
        module: A network with its parameters bound.
        target: Target that it is compiled for.
        winograd: Callable that says which convolutions Winograd's algorithm computes, see
            `use_winograd`; default none of them.
    """
    return into_kernels(in_layout(module, target), target, winograd)


def in_layout(
    module: tvm.IRModule, target: tvm.target.Target, *, half: str | None = None
) -> tvm.IRModule:
    """The first half of `lower`, the longer one, which all variants of convolutions share.

    Convolutions become NHWC, whose weights MetaSchedule may lay out anew for each program.

    Args:
        module: A network with its parameters bound.
        target: Target that it is compiled for.
        half: `float16` or `bfloat16`, which its products are computed in, or its weights are stored
            in, as `halve_products` has it; None, the default, for float32.
    """
    step = relax.transform
    normal = [step.CanonicalizeBindings(), fold_constants, step.FoldConstant()]
    passes: list[Pass] = [
        make_integers,  # before constants are folded: weights would become float32
        step.CanonicalizeBindings(),
        fold_constants,
        simplify,  # FoldConstant warns of each index that is still taken
        *normal,
        simplify,
        *normal,
        simplify,
        step.EliminateCommonSubexpr(),
        step.CanonicalizeBindings(),
        combine_siblings,
        step.CanonicalizeBindings(),
        step.DeadCodeElimination(),
        step.FoldBatchnormToConv2D(),
        fold_constants,
        step.FoldConstant(),
        step.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]}),
        lay_out_pads,
        fold_constants,
        step.FoldConstant(),
        scale_and_shift,
        step.DeadCodeElimination(),
        step.DecomposeOpsForInference(),  # a batch norm whose numbers the network computes
        step.CanonicalizeBindings(),
        fold_constants,
    ]
    with target:
        module = _where_they_can(module, passes)
        if half:
            module = step.CanonicalizeBindings()(halve_products(module, half, target))
        return module


def _where_they_can(module: tvm.IRModule, passes: Sequence[Pass]) -> tvm.IRModule:
    """What passes make of a module that it does without: one that refuses it is left out."""
    for apply in passes:
        try:
            module = apply(module)
        except Exception as error:  # TVM's own are of many types
            info = getattr(apply, "info", None)
            name = info.name if info else getattr(apply, "__name__", str(apply))
            log.warning("the pass %s refuses the network: on without it (%s)", name, said(error))
    return module


def into_kernels(
    module: tvm.IRModule, target: tvm.target.Target, winograd: Choose = direct
) -> tvm.IRModule:
    """The second half of `lower`, of what `in_layout` made."""
    step = relax.transform
    kernels = [
        step.CanonicalizeBindings(),
        relax.get_pipeline("zero"),
        step.AttachAttrLayoutFreeBuffers(),
    ]

    def with_winograd(module: tvm.IRModule) -> tvm.IRModule:
        return use_winograd(module, winograd)

    with target:
        apply = [pad_scores, pad_rows, with_winograd, vectorise_functions, keep_roundings]
        apply += [widen_integers, multiply_in_fours, quicken_steps, pad_integer_rows]
        apply += [keep_pads_apart]
        module = _where_they_can(module, apply)
        return tvm.ir.transform.Sequential(kernels)(module)


def extract_tasks(lowered: tvm.IRModule, target: tvm.target.Target) -> list[NetworkTask]:
    """The distinct tasks of a lowered network, largest share of the FLOPs first.

    Raises:
        WorkFailed: The network has none.
    """
    tasks = [
        NetworkTask(describe(task.dispatched[0]), task.dispatched[0], int(task.weight))
        for task in ms.relax_integration.extract_tasks(lowered, target)
    ]
    if not tasks:
        raise WorkFailed("a network without tensor programs", "at least one task", "check it")
    return sorted(tasks, key=lambda t: (-t.task.flops * t.weight, t.task.hash))


def describe(module: tvm.IRModule) -> Task:
    """The identity of a tuning task's module."""
    tensors = arguments(module)
    return Task(
        hash=workload_hash(module),
        operator=_operator(module),
        shapes=tuple(tuple(shape) for _, _, shape in tensors),
        dtype=tensors[-1][1],
        flops=float(estimate_tir_flops(module)),
    )


def workload_hash(module: tvm.IRModule) -> str:
    """Structural hash of a module, 16 hexadecimal digits."""
    return f"{tvm_ffi.structural_hash(module) & (2**64 - 1):016x}"


def save_workload(module: tvm.IRModule) -> str:
    """A task's module as text."""
    return str(ms.database.Workload(module).as_json()[1])


def load_workload(text: str) -> tvm.IRModule:
    """A module written by `save_workload`."""
    return ms.database.Workload.from_json(["0", text]).mod


def arguments(module: tvm.IRModule) -> list[Any]:
    """What a task's function takes, as a tuning record lists it: `["TENSOR", dtype, shape]`."""
    tensors = ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=True)
    return [["TENSOR", str(a.dtype), [int(extent) for extent in a.shape]] for a in tensors]


def _operator(module: tvm.IRModule) -> str:
    schedule = tvm.s_tir.Schedule(module)
    names = []
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        statement = schedule.get(block)
        if any(int(axis.iter_type) == 2 for axis in statement.iter_vars):  # 2: a reduction axis
            names.append(statement.name_hint)
    return anchor_operator(names)
