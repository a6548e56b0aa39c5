"""The backend `hetfeat` of `torch.compile`, which torch finds by an entry point."""

import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hetfeat.api.bundles import Bundle
from hetfeat.deploy.runtime import largest_error
from hetfeat.deploy.verify import ToleranceOptions
from hetfeat.errors import RequestError
from hetfeat.torch_compile.graph import is_weight, refusal
from hetfeat.torch_compile.settings import Settings
from hetfeat.torch_compile.stored import bundle_of
from hetfeat.torch_compile.watch import Outputs, Watched, run_observed
from hetfeat.workloads.library_errors import said

log = logging.getLogger(__name__)


class EagerWarning(UserWarning):
    """A graph runs in torch itself; the message says why."""


def backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Outputs]:
    """Compiles a graph for inference. torch calls it with the `options` of `torch.compile`.

    Raises:
        RequestError: There is no such option.
    """
    settings = Settings.of(options)
    reason = refusal(graph, example_inputs)
    if reason is None:
        return CompiledGraph(graph, list(map(is_weight, example_inputs)), settings)
    if reason:
        _warn(reason)
    return graph.forward


class CompiledGraph:
    """A graph that is compiled when it first runs, and anew when its weights have changed.

    Args:
        graph: Graph of torch.
        is_folded: Whether each of its arguments is a weight, in their order.
        settings: Options of the backend.
    """

    def __init__(
        self, graph: torch.fx.GraphModule, is_folded: Sequence[bool], settings: Settings
    ) -> None:
        self._graph, self._is_folded, self._settings = graph, is_folded, settings
        self._own_weights = [*graph.parameters(), *graph.buffers()]
        self._bundle: Bundle | None = None
        self._weights: Watched | None = None
        self._strides: list[tuple[int, ...]] = []
        self._is_eager = self._has_warned_of_gradients = False
        self._lock = threading.Lock()

    def __call__(self, *arguments: torch.Tensor) -> Outputs:
        """The outputs of the graph."""
        needs_gradients = torch.is_grad_enabled() and any(v.requires_grad for v in arguments)
        if needs_gradients and not (self._is_eager or self._has_warned_of_gradients):
            self._has_warned_of_gradients = True
            _warn("gradients are enabled; within torch.inference_mode() it is compiled")
        if self._is_eager or needs_gradients:
            outputs: Outputs = self._graph.forward(*arguments)
            return outputs
        with self._lock:
            if self._weights is None or not self._weights.unchanged(self._folded(arguments)):
                return self._first_run(arguments)
            return self._computed(arguments)

    def _folded(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        pairs = zip(arguments, self._is_folded, strict=True)
        return [value for value, folded in pairs if folded] + self._own_weights

    def _first_run(self, arguments: Sequence[torch.Tensor]) -> Outputs:
        """The outputs that torch computes; those of what is compiled are compared with them."""
        outputs, reason = run_observed(self._graph, arguments)
        folded = self._folded(arguments)
        if any(value.is_inference() for value in folded):
            reason = "its weights were made in inference mode, where torch does not count changes"
        if not reason:
            weights = Watched(folded)
            self._strides = [value.stride() for value in outputs]
            reason = self._compile(arguments) or self._misses(arguments, outputs)
            self._weights = weights
        if reason:
            self._is_eager, self._bundle, self._weights = True, None, None
            _warn(reason)
        return outputs

    def _compile(self, arguments: Sequence[torch.Tensor]) -> str:
        """Why there is no bundle; nothing where there is one."""
        try:
            with torch.inference_mode(False), torch.no_grad():
                self._bundle = bundle_of(self._graph, arguments, self._is_folded, self._settings)
        except RequestError as error:
            return str(error)
        except Exception as error:  # whatever it is, the model still runs
            log.warning("a graph of torch.compile fails to compile", exc_info=True)
            return f"it fails to compile ({said(error)})"
        return ""

    def _misses(self, arguments: Sequence[torch.Tensor], expected: Outputs) -> str:
        """In what the compiled graph differs from torch; nothing where it does not."""
        found = self._computed(arguments)
        if len(found) != len(expected):
            return f"it has {len(found)} outputs compiled, {len(expected)} in torch"
        for mine, theirs in zip(found, expected, strict=True):
            largest = float(theirs.abs().max()) if theirs.numel() else 0.0
            error = largest_error(mine.numpy(), theirs.detach().numpy())
            if mine.dtype != theirs.dtype or not error <= ToleranceOptions().relative * largest:
                return f"compiled it is off by {error:.3g}, where outputs are {largest:.3g} at most"
        return ""

    def _computed(self, arguments: Sequence[torch.Tensor]) -> Outputs:
        assert self._bundle is not None
        pairs = zip(arguments, self._is_folded, strict=True)
        outputs = self._bundle(*(value for value, folded in pairs if not folded))
        found = outputs if isinstance(outputs, tuple) else (outputs,)
        return tuple(map(_laid_out, found, self._strides))


def _laid_out(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The value with the strides that torch gives it: the code behind may rely on them."""
    if value.stride() == strides:
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype).copy_(value)


def _warn(reason: str) -> None:
    warnings.warn(f"hetfeat leaves a graph to torch: {reason}", EagerWarning, stacklevel=3)
