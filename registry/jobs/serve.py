"""Serves a bundle by MLflow's scoring server, with the loader that is installed here.

Nothing of the bundle's own code runs: `LoadedBundle` verifies what it copies into memory, and that
copy is what is served.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hetfeat.deploy import runtime
from hetfeat.deploy.runtime import BundleError
from hetfeat.errors import DataError
from registry.files.pull import pull
from registry.tracking import bundle_flavor, pyfunc_bundle

_ODD = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors that MLflow's parser raises of odd requests, beside its own."""


def serve(
    bundle_or_uri: str,
    stage: str | None,
    host: str,
    port: int,
    max_bytes: int,
    max_waiting: int,
    unrecorded: bool = False,
) -> None:
    """Serves until it is told to end.

    Args:
        bundle_or_uri: A bundle's folder, or a name or URI as in `registry.files.pull.pull`.
        stage: Stage of a plain name, as in `registry.files.pull.pull`.
        host: Address to listen on.
        port: Port to listen on.
        max_bytes: Most bytes of a request's body; a longer one is answered with 413.
        max_waiting: Most requests at once; further ones are answered with 503.
        unrecorded: Whether to follow an alias to where no promotion put it, as in
            `registry.files.pull.pull`; default False.

    Raises:
        DataError: No bundle, a changed one, or not signed by the configured key.
    """
    import uvicorn

    with tempfile.TemporaryDirectory(prefix="hetfeat-serve-") as own:
        folder = Path(bundle_or_uri)
        if not folder.is_dir():
            out = Path(own) / "bundle"
            folder = pull(bundle_or_uri, stage, out=out, unrecorded=unrecorded).folder
        app = Bounded(_scoring(folder), max_bytes, max_waiting)
    uvicorn.run(app, host=host, port=port)


def _scoring(folder: Path) -> Any:
    """MLflow's server of a bundle, which is in memory by now."""
    from mlflow.models import Model
    from mlflow.pyfunc import PyFuncModel, scoring_server
    from starlette.responses import JSONResponse

    function = pyfunc_bundle.BundleFunction()
    try:
        function.load(folder, runtime)
    except BundleError as error:
        raise DataError(*error.parts) from error
    signature = bundle_flavor.signature(function.bundle.manifest)
    app = scoring_server.init(PyFuncModel(Model(signature=signature), _Loaded(function)))

    async def refused(request: Any, error: Exception) -> Any:
        message = f"a request that cannot be read ({type(error).__name__})"
        return JSONResponse({"error_code": "BAD_REQUEST", "message": message}, 400)

    for kind in _ODD:
        app.add_exception_handler(kind, refused)
    return app


class _Loaded:
    """What MLflow calls."""

    def __init__(self, function: pyfunc_bundle.BundleFunction) -> None:
        self._function = function

    def predict(self, data: Any, params: Any = None) -> Any:
        """The output for rows."""
        return self._function.predict(None, data)  # type: ignore[no-untyped-call]


class Bounded:
    """An ASGI application with bounds on a request's bytes and on the requests at once.

    Args:
        app: The ASGI application.
        max_bytes: Most bytes of a request's body, as in `serve`.
        max_waiting: Most requests at once, as in `serve`.
        body_s: Seconds within which the body of a request must come, default 30.
    """

    def __init__(self, app: Any, max_bytes: int, max_waiting: int, body_s: float = 30.0) -> None:
        self._app, self._max_bytes, self._max_waiting = app, max_bytes, max_waiting
        self._body_s = body_s
        self._waiting = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers one request; those without a body are never counted."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return None
        if self._waiting >= self._max_waiting:
            return await _answer(scope, receive, send, 503, f"{self._waiting} requests wait")
        self._waiting += 1
        try:
            kind = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip()
            if kind != b"application/json":
                return await _answer(scope, receive, send, 415, "expected application/json")
            async with asyncio.timeout(self._body_s):
                body = await self._body(receive)
            if body is None:
                return None
            if len(body) > self._max_bytes:
                message = f"a request over {self._max_bytes} bytes"
                return await _answer(scope, receive, send, 413, message)
            await self._app(scope, _replayed(body, receive), send)
        except TimeoutError:
            message = f"no whole request in {self._body_s:.0f} s"
            await _answer(scope, receive, send, 408, message)
        finally:
            self._waiting -= 1

    async def _body(self, receive: Any) -> bytes | None:
        """The body, of one too long the beginning; None where its client has gone."""
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > self._max_bytes or not message.get("more_body"):
                return bytes(body)
        return None


def _replayed(body: bytes, receive: Any) -> Any:
    """What hands on a body that was read, then whatever comes after it."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return left.pop() if left else await receive()

    return replay


async def _answer(scope: Any, receive: Any, send: Any, status: int, message: str) -> None:
    from starlette.responses import JSONResponse

    headers = {"Connection": "close", "Retry-After": "1"}
    await JSONResponse({"message": message}, status, headers)(scope, receive, send)
