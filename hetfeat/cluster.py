"""A Dask cluster: how it is reached, and what takes the place of `map` there.

Its workers see stores under the same path and have the same hetfeat installed.
"""

import logging
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

import hetfeat
from hetfeat.errors import RequestError, WorkFailed

if TYPE_CHECKING:
    from distributed import Client

_AGAIN = "see that its scheduler and workers run; then give the same command again"


class Over(Protocol):
    """`map`, or what does the same on several machines; results in the order of the items."""

    def __call__(self, function: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
        """The results of a function that can be sent to other processes."""


@contextmanager
def connected(address: str | None, patience_s: float = 8.0) -> Iterator["Client | None"]:
    """A client of the cluster at an address; of no address, None.

    Args:
        address: `tcp://host:port` or `tls://host:port` of a scheduler, `local:N` for N workers on
            this machine, which end with it, or None.
        patience_s: Seconds that the scheduler, and then a first worker, may take to answer; 8 by
            default.

    Raises:
        RequestError: The address is none, or Dask is not installed.
        WorkFailed: Nobody answers there, no worker comes, or workers have another hetfeat.
    """
    if address is None:
        yield None
        return
    local = re.fullmatch(r"local:([1-9]\d{0,3})", address)
    if not local and not re.fullmatch(r"(tcp|tls)://[^/\s]+:\d{1,5}", address):
        raise RequestError(
            f"'{address}' as a cluster", "tcp://HOST:PORT or local:N", "correct the address"
        )
    distributed = _distributed()
    # Lost workers and closed links come to us as errors, of one line.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if local:
        with (
            distributed.LocalCluster(
                n_workers=int(local[1]),
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            ) as made,
            distributed.Client(made, set_as_default=False) as client,
        ):
            yield client
        return
    with _client(address, patience_s) as client:
        _need_workers(client, address, patience_s)
        yield client


def builders_at(text: str | None) -> str | None:
    """The address, for `connected`, of builders: `dask://host:port`, `local:N` or None.

    Raises:
        RequestError: It is none of these.
    """
    if text is None or text.startswith("local:"):
        return text
    if not text.startswith("dask://"):
        raise RequestError(
            f"'{text}' as builders", "dask://HOST:PORT or local:N", "correct the address"
        )
    return text.replace("dask://", "tcp://", 1)


def over(client: "Client | None", ahead_per_thread: int = 2) -> Over:
    """What takes the place of `map`: the same results, in the same order.

    Args:
        client: Client of the cluster; None for `map` itself.
        ahead_per_thread: Items a worker's thread has waiting, the most that the caller holds at
            once; 2 by default.
    """
    if client is None:
        return map

    def mapped(function: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
        ahead = ahead_per_thread * max(1, sum(client.nthreads().values()))
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append(client.submit(function, item, pure=False))
            if len(waiting) > ahead:
                yield result_of(waiting.popleft())
        while waiting:
            yield result_of(waiting.popleft())

    return mapped


def host_of(address: str) -> str:
    """The host of a worker's or a scheduler's address, `tcp://host:port`."""
    return address.rpartition("://")[2].rpartition(":")[0].strip("[]")


def free_port() -> int:
    """A port that nobody listens on, on the machine that this is called on."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        return int(taken.getsockname()[1])


def result_of(future: Any) -> Any:
    """The result of a future.

    Raises:
        WorkFailed: The cluster, or too many of its workers, went away.
    """
    with losses_told():
        return future.result()


@contextmanager
def losses_told() -> Iterator[None]:
    """Makes one line of what Dask raises where a cluster is lost.

    Raises:
        WorkFailed: The cluster, or too many of its workers, went away.
    """
    distributed = _distributed()
    lost = (
        distributed.scheduler.KilledWorker,
        distributed.client.FuturesCancelledError,
        distributed.comm.CommClosedError,
        *(distributed.client.CancelledError, ConnectionError),
    )
    try:
        yield
    except lost as error:
        raise WorkFailed(
            f"a cluster that was lost ({type(error).__name__})", "one that stays", _AGAIN
        ) from error


def need_sight(client: "Client | None", folder: Path) -> None:
    """Refuses a cluster one of whose workers does not see a folder.

    Raises:
        WorkFailed: Naming such a worker.
    """
    found = {} if client is None else client.run(Path.is_dir, folder.resolve())
    for worker, sees in found.items():
        if not sees:
            raise WorkFailed(
                f"the worker {worker}, which does not see '{folder.resolve()}'",
                "workers that see the records under the same path",
                "mount the folder there",
            )


def wait_for_all(
    client: "Client", futures: Sequence[Any], workers: Sequence[str], pause_s: float = 0.05
) -> list[Any]:
    """Results of what several workers do together; of one that is lost, the rest ends, too.

    Args:
        client: Client of the cluster.
        futures: A future of each worker.
        workers: Addresses of the workers.
        pause_s: Seconds between two looks; 0.05 by default.

    Raises:
        WorkFailed: A worker was lost.
    """
    try:
        wait_beside(client, futures, workers, pause_s)
        failed = [future for future in futures if future.status == "error"]
        return [result_of(future) for future in failed or futures]
    finally:
        client.cancel(list(futures))


def wait_beside(
    client: "Client", futures: Sequence[Any], workers: Sequence[str], pause_s: float = 0.05
) -> None:
    """Waits until all futures are done, or one has failed, as long as all workers are there.

    Args:
        client: Client of the cluster.
        futures: What is waited for; its results stay where they are.
        workers: Addresses of the workers.
        pause_s: Seconds between two looks; 0.05 by default.

    Raises:
        WorkFailed: A worker was lost.
    """
    while any(future.status == "pending" for future in futures):
        if gone := set(workers) - set(client.nthreads()):
            raise WorkFailed(f"the worker {min(gone)}, which was lost", "workers that stay", _AGAIN)
        if any(future.status == "error" for future in futures):
            return
        time.sleep(pause_s)


def _client(address: str, patience_s: float) -> "Client":
    """A client, made by a thread: Dask waits for ever for who is there and says nothing."""
    made: SimpleQueue[Any] = SimpleQueue()

    def make() -> None:
        try:
            made.put(_distributed().Client(address, timeout=patience_s, set_as_default=False))
        except (OSError, ValueError) as error:
            made.put(error)

    threading.Thread(target=make, daemon=True).start()
    try:
        found = made.get(timeout=patience_s + 1)
    except Empty as error:
        found = error
    if isinstance(found, Exception):
        raise WorkFailed(
            f"no Dask scheduler at {address}",
            f"one that answers within {patience_s:g} s",
            "start it with `dask scheduler`, or correct the address",
        ) from found
    client: Client = found
    return client


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise RequestError(
            "a cluster without Dask",
            "the packages of the extra `cluster`",
            "pip install 'hetfeat[cluster]'",
        ) from error
    return distributed


def _need_workers(client: "Client", address: str, patience_s: float) -> None:
    try:
        client.wait_for_workers(1, timeout=patience_s)
        found = client.run(_version)
    except TimeoutError as error:
        raise WorkFailed(
            f"the Dask scheduler at {address} without workers",
            f"a worker within {patience_s:g} s",
            "start some with `dask worker`",
        ) from error
    except (ImportError, AttributeError) as error:
        raise WorkFailed(
            f"workers of {address} that cannot load hetfeat ({error})",
            f"hetfeat {hetfeat.__version__} on each",
            "install it there",
        ) from error
    if others := sorted({found[worker] for worker in found} - {hetfeat.__version__}):
        raise WorkFailed(
            f"workers of {address} with hetfeat {', '.join(others)}",
            f"{hetfeat.__version__}, as here",
            "install the same on each",
        )


def _version() -> str:
    return hetfeat.__version__
