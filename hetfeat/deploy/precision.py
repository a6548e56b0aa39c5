"""The precision that a network is deployed in: float32, its half, or quantised to 8 bits."""

from collections.abc import Mapping
from typing import Any

from hetfeat.devices.nvidia import has_tensor_cores
from hetfeat.errors import RequestError

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
    """Refuses half precision on a device that does not multiply it, or that nothing is made for.

    Args:
        precision: Precision that is asked for.
        device: Name of the device.
        target: TVM's target of it.

    Raises:
        RequestError: It is float16, and the device no NVIDIA GPU of sm_80 or later; or bfloat16,
            and the device no CPU with AMX.
    """
    if precision == BFLOAT16 and not _multiplies_bfloat16(target):
        raise RequestError(
            f"--precision bfloat16 on '{device}', of {target.get('mcpu', target['kind'])}",
            "a CPU with AMX for bfloat16",
            "choose such a --device, or leave --precision out",
        )
    if precision == FLOAT16 and not has_tensor_cores(target):
        raise RequestError(
            f"--precision float16 on '{device}', of {target.get('arch', target['kind'])}",
            "an NVIDIA GPU of sm_80 or later",
            "choose such a --device, or leave --precision out",
        )


def _multiplies_bfloat16(target: Mapping[str, Any]) -> bool:
    if target["kind"] != "llvm":
        return False
    import tvm
    from tvm.target.codegen import target_has_features

    return bool(target_has_features("amx-bf16", tvm.target.Target(dict(target))))


def half_of(precision: str) -> str | None:
    """The type that products are computed in where that is half of float32's bits, else None."""
    return precision if precision in (FLOAT16, BFLOAT16) else None


def slug_in(slug: str, precision: str) -> str:
    """The slug of a network in a precision: its bundles in another are versions of their own."""
    return slug if precision == FLOAT32 else f"{slug}_{precision}"
