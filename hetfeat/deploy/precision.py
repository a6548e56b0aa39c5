"""The precision that a network is deployed in: float32, its half, or quantised to 8 bits."""

from collections.abc import Iterable, Mapping
from typing import Any

from hetfeat.devices.nvidia import has_tensor_cores
from hetfeat.errors import RequestError
from hetfeat.workloads.half_types import MULTIPLIED_BY

FLOAT32, FLOAT16, BFLOAT16, INT8 = "float32", "float16", "bfloat16", "int8"
PRECISIONS = (FLOAT32, FLOAT16, BFLOAT16, INT8)
QUANTISED = "quantised.onnx"
"""Name of the file in a deployment's journal that is the quantised network."""


def check_precision(
    precision: str, calibration: object, batches: int, max_loss: float | None = None
) -> None:
    """Refuses a precision without what it needs.

    Raises:
        RequestError: It is unknown, has no calibration data, has some that it does not need, there
            are several batch sizes, or a loss that is no share or of float32.
    """
    if precision not in PRECISIONS:
        known = f"{', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}"
        raise RequestError(f"precision '{precision}'", known, "correct it")
    if (precision == INT8) != (calibration is not None):
        given = f"--precision {precision} with{'' if calibration is not None else 'out'}"
        raise RequestError(
            f"{given} --calibration",
            "calibration data for int8, and for nothing else",
            "pass --precision int8 --calibration DATA.npz, or neither",
        )
    if max_loss is not None and (precision != INT8 or not 0 <= max_loss < 1):
        raise RequestError(
            f"--precision {precision} with --max-loss {max_loss:g}",
            "int8, and a share from 0 to under 1",
            "say --max-loss 0.01, or leave it out",
        )
    if precision == INT8 and batches > 1:
        raise RequestError(
            f"--precision int8 with {batches} batch sizes",
            "one: each would be quantised to other integers",
            "deploy each by itself",
        )


def need_half(precision: str, device: str, target: Mapping[str, Any]) -> None:
    """Refuses half precision on a device that neither multiplies it nor reads it.

    Args:
        precision: Precision that is asked for.
        device: Name of the device.
        target: TVM's target of it.

    Raises:
        RequestError: It is float16, and the device a GPU but no NVIDIA one of sm_80 or later, or an
            x86 without F16C; or bfloat16, and the device no CPU.
    """
    on_cpu = target["kind"] == "llvm"
    if precision == BFLOAT16 and not on_cpu:
        raise RequestError(
            f"--precision bfloat16 on '{device}', of {target['kind']}",
            "a CPU",
            "say --precision float16, or leave it out",
        )
    if precision == FLOAT16 and not (has_tensor_cores(target) or (on_cpu and _reads_half(target))):
        raise RequestError(
            f"--precision float16 on '{device}', of "
            f"{target.get('arch', target.get('mcpu', target['kind']))}",
            "an NVIDIA GPU of sm_80 or later, or a CPU with F16C",
            "choose such a --device, or leave --precision out",
        )


def _reads_half(target: Mapping[str, Any]) -> bool:
    """Whether a CPU makes float32 of float16: all of Arm, and x86 with F16C."""
    return _has_one_of(("f16c", "neon"), target)


def _has_one_of(features: Iterable[str], target: Mapping[str, Any]) -> bool:
    import tvm
    from tvm.target.codegen import target_has_features

    made = tvm.target.Target(dict(target))
    return any(target_has_features(name, made) for name in features)


def half_of(precision: str) -> str | None:
    """The type that weights are stored in where that is half of float32's bits, else None."""
    return precision if precision in (FLOAT16, BFLOAT16) else None


def multiplied_in(precision: str, target: Mapping[str, Any]) -> str | None:
    """The type of half precision that products are of on a device; None where that is float32.

    Args:
        precision: Precision that a network is deployed in.
        target: TVM's target of the device.
    """
    if target["kind"] != "llvm":
        return half_of(precision)
    return precision if precision == BFLOAT16 and _has_one_of(MULTIPLIED_BY, target) else None


def slug_in(slug: str, precision: str) -> str:
    """The slug of a network in a precision: its bundles in another are versions of their own."""
    return slug if precision == FLOAT32 else f"{slug}_{precision}"
