"""Where the time of a run goes, as a trace of MLflow's."""

import contextlib
from collections.abc import Iterator

from hetfeat.progress import staged_by


@contextlib.contextmanager
def traced(name: str) -> Iterator[None]:
    """Logs a trace of the active run; stages of `hetfeat.progress` in the block are its spans.

    A store that takes no traces fails no work: MLflow writes them on threads of its own.

    Args:
        name: Name of the trace's first span.
    """
    import mlflow

    try:
        with mlflow.start_span(name), staged_by(mlflow.start_span):
            yield
    finally:
        mlflow.flush_trace_async_logging()
