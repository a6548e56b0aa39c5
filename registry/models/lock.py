"""A lock that MLflow's registry itself provides, for all users and all machines.

Creating the registered model `lock--NAME` inserts a primary key: one of many succeeds. Under basic
auth nobody but its creator can delete it, so the lock of a dead or hostile holder is passed by
creating the next generation, `lock--NAME--2`, after it has been watched, unchanged, for
`LockOptions.stale_s`. No clock is compared with another machine's. Whoever takes a lock looks
again for other live ones before entering, so that two generations are never both held; a holder
that has been away for longer than `LockOptions.hold_s` stops before its next write.
"""

import contextlib
import functools
import json
import random
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetfeat.errors import DataError, RequestError, WorkFailed
from hetfeat.parsing import decode
from registry.models import process
from registry.models.mlflow_client import (
    EXISTS,
    MISSING,
    MODELS_A_PAGE,
    condition,
    error_code,
    is_busy,
    is_refused,
    pages,
    user,
)
from registry.models.names import LOCK_PREFIX

if TYPE_CHECKING:
    from mlflow import MlflowClient

PASSED = "lock.passed"
"""Tag of the registered model: identities of locks that need no more waiting for."""
_BLIND = f"{LOCK_PREFIX}{{name}}--0"
"""Key that no lock has: who may not read it may read no lock of another user's."""


@dataclass(frozen=True)
class LockOptions:
    """How a lock is waited for and held; all who share a registry have the same, but for tests.

    Attributes:
        stale_s: Seconds for which a lock is watched, unchanged, before it is passed, default 30.
        hold_s: Seconds for which its holder may go on writing, default 20; less than `stale_s`.
        wait_s: Seconds to wait for it in all, default 300.
        shortest_poll_s: Seconds to the first look at a lock that others hold, default 0.02.
        longest_poll_s: Seconds between looks at most, default 0.25; each pause is twice as long as
            the one before, until then.
        pause_looks: Least pause as a multiple of a look's duration, default 8: a store that is slow
            to say who holds a lock is busy, and who waits leaves it to the holder.
        long_s: Seconds of holding above which the tag `PASSED` is read, default 0.5: the lock may
            be one that need not be waited for.
    """

    stale_s: float = 30.0
    hold_s: float = 20.0
    wait_s: float = 300.0
    shortest_poll_s: float = 0.02
    longest_poll_s: float = 0.25
    pause_looks: float = 8.0
    long_s: float = 0.5


LOCK = LockOptions()


@dataclass(frozen=True)
class Seen:
    """A lock that exists.

    Attributes:
        key: Name of the registered model that it is.
        generation: Number in the lock's key, 1 for the plain one.
        identity: Text that differs from that of any other lock, of the same key, too.
        holder: Maker of the lock, for people.
        owner: Process that made it, as `registry.models.process` describes it.
        created_s: Time of its making by the server's clock, in seconds; default 0.
    """

    key: str
    generation: int
    identity: str
    holder: str
    owner: str
    created_s: float = 0.0


@dataclass
class Lock:
    """A lock that is held.

    Attributes:
        name: The registered model that it protects.
        key: Name of the registered model that the lock is.
        identity: Text that no other lock has, as in `Seen`.
        taken_s: Time when it was asked for, in seconds, on the clock of `_now_s`.
        hold_s: Seconds for which its holder may go on writing, as in `LockOptions`; default 20.
    """

    name: str
    key: str
    identity: str
    taken_s: float
    hold_s: float = LOCK.hold_s

    def check(self) -> None:
        """Raises WorkFailed if the holder was away for so long that another may have entered."""
        away_s = _now_s() - self.taken_s
        if away_s > self.hold_s:
            raise WorkFailed(
                f"the lock of '{self.name}' held for {away_s:.0f} s",
                f"at most {self.hold_s:.0f} s",
                "repeat the command; the next one finishes or drops what this one began",
            )


@dataclass
class _Watch:
    """How long each lock has been there unchanged, as this process saw it."""

    options: LockOptions
    since: dict[str, float] = field(default_factory=dict)

    def live(self, client: "MlflowClient", name: str, locks: list[Seen]) -> list[Seen]:
        """Those of the locks that must be waited for."""
        waited = [lock for lock in locks if not process.is_gone(lock.owner)]
        waited = [lock for lock in waited if self._watched_s(lock) < self.options.stale_s]
        if any(self._watched_s(lock) > self.options.long_s for lock in waited):
            passed = _passed(client, name)
            waited = [lock for lock in waited if lock.identity not in passed]
        return waited

    def _watched_s(self, lock: Seen) -> float:
        return _now_s() - self.since.setdefault(lock.identity, _now_s())


@contextlib.contextmanager
def locked(client: "MlflowClient", name: str, options: LockOptions = LOCK) -> Iterator[Lock]:
    """Holds the lock of a registered model.

    Args:
        client: Client of the registry.
        name: Name of the registered model.
        options: Options of waiting and holding, default `LOCK`.

    Raises:
        WorkFailed: Others held it all the time.
        RequestError: This user may not read the locks of others.
    """
    lock = _acquire(client, name, options)
    try:
        yield lock
    finally:
        _release(client, lock)


def listed(client: "MlflowClient", name: str = "") -> list[Any]:
    """MLflow's models that are locks: of a name and of those that begin so, else of all."""
    named = condition("name", f"{LOCK_PREFIX}{name}%", "LIKE")
    return [*pages(functools.partial(client.search_registered_models, named), MODELS_A_PAGE)]


def locks_of(client: "MlflowClient", name: str, among: Sequence[Any] | None = None) -> list[Seen]:
    """The locks of a registered model that exist, held or left behind.

    Args:
        client: Client of the registry.
        name: Name of the registered model.
        among: Models that `listed` found for many names, so that none is asked for; default None.
    """
    pattern = re.compile(re.escape(LOCK_PREFIX + name) + r"(?:--(\d+))?")
    seen = []
    for model in listed(client, name) if among is None else among:
        if match := pattern.fullmatch(model.name):
            tags = dict(model.tags)
            identity = f"{model.name}@{model.creation_timestamp}#{tags.get('token', '')}"
            holder = tags.get("holder", "an unknown user")
            generation = int(match[1] or 1)
            owner, created_s = tags.get("owner", ""), (model.creation_timestamp or 0) / 1000
            seen.append(Seen(model.name, generation, identity, holder, owner, created_s))
    return seen


def discard(client: "MlflowClient", name: str) -> None:
    """Deletes the locks of a registered model that nobody holds any more, where that is allowed.

    The others are marked, so that nobody waits for them.
    """
    with locked(client, name) as mine:
        left = [lock for lock in locks_of(client, name) if lock.identity != mine.identity]
        if stay := [lock for lock in left if not _delete(client, lock.key)]:
            _pass(client, name, stay)


def _acquire(client: "MlflowClient", name: str, options: LockOptions) -> Lock:
    _check_readable(client, name, _BLIND.format(name=name))
    token = uuid.uuid4().hex
    watch = _Watch(options)
    shortest_s, longest_s = options.shortest_poll_s, options.longest_poll_s
    started, generation, poll_s, look_s = _now_s(), 1, shortest_s, 0.0
    while True:
        taken_s = _now_s()
        key = LOCK_PREFIX + name + (f"--{generation}" if generation > 1 else "")
        taken = _create(client, key, token)
        seen = locks_of(client, name)
        mine = [lock for lock in seen if token in lock.identity]
        others = [lock for lock in seen if token not in lock.identity]
        if not taken and not mine and key not in [lock.key for lock in others]:
            _check_readable(client, name, key)
            _check_wait(name, "another user", started, options.wait_s)
            time.sleep(random.uniform(shortest_s, longest_s))  # it was there for a moment
            continue
        live = watch.live(client, name, others)
        if mine and not live:
            lock = Lock(name, mine[0].key, mine[0].identity, taken_s, options.hold_s)
            _clear(client, lock, others)
            return lock
        for left in mine:
            _delete(client, left.key)
        while live:
            _check_wait(name, live[0].holder, started, options.wait_s)
            time.sleep(max(random.uniform(shortest_s, poll_s), options.pause_looks * look_s))
            poll_s = min(2 * poll_s, longest_s)
            asked_s = _now_s()
            others = locks_of(client, name)
            live = watch.live(client, name, others)
            look_s = _now_s() - asked_s
        generation = 1 + max((lock.generation for lock in others), default=0)


def _check_wait(name: str, holder: str, started: float, wait_s: float) -> None:
    """Raises WorkFailed once the wait has been too long."""
    if _now_s() - started > wait_s:
        raise WorkFailed(
            f"the lock of '{name}', held by {holder}",
            f"a turn within {wait_s:.0f} s",
            "repeat the command; `hetfeat doctor` explains locks that stay",
        )


def _now_s() -> float:
    """A clock that goes on while the machine sleeps: others do not wait for it then."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _check_readable(client: "MlflowClient", name: str, key: str) -> None:
    """Raises RequestError where the server does not let this user see a lock, if it is there.

    A lock that cannot be seen cannot be waited for, and two would hold it.
    """
    from mlflow.exceptions import MlflowException

    try:
        client.get_registered_model(key)
    except MlflowException as error:
        if is_refused(error):
            raise RequestError(
                f"no right to read the locks of '{name}' as '{user()}'",
                f"the permission READ on what others register as '{LOCK_PREFIX}{name}'",
                "ask an administrator for `default_permission = READ` in the server's basic auth",
            ) from error
        if error_code(error) not in MISSING and not is_busy(error):
            raise


def _create(client: "MlflowClient", key: str, token: str) -> bool:
    from mlflow.exceptions import MlflowException

    tags = {"token": token, "holder": user(), "owner": process.describe()}
    try:
        client.create_registered_model(key, tags=tags)
    except MlflowException as error:
        # MLflow reads the model that is in the way, and its holder may have deleted it by then.
        if error_code(error) not in EXISTS | MISSING and not is_busy(error):
            raise
        return False
    return True


def _clear(client: "MlflowClient", lock: Lock, stale: list[Seen]) -> None:
    """Deletes what dead processes of ours left, and spares others the wait for the rest."""
    # Only a holder may: another could have deleted and taken the name since it was looked at.
    for left in [left for left in stale if left.holder == user() and process.is_gone(left.owner)]:
        if _delete(client, left.key):
            stale = [other for other in stale if other is not left]
    if stale:
        _pass(client, lock.name, stale)


def _release(client: "MlflowClient", lock: Lock) -> None:
    late = _now_s() - lock.taken_s > lock.hold_s
    if late and lock.identity not in [seen.identity for seen in locks_of(client, lock.name)]:
        return  # it was cleared away, and the name may be another's by now
    if _delete(client, lock.key):
        return
    # MLflow drops the grants on a deleted name late: they may have been those of its next holder.
    _pass(client, lock.name, [Seen(lock.key, 0, lock.identity, "", "")])


def _delete(client: "MlflowClient", key: str) -> bool:
    """Deletes our own lock; False if that is not allowed."""
    from mlflow.exceptions import MlflowException

    for attempt in range(5):
        try:
            client.delete_registered_model(key)
        except MlflowException as error:
            if error_code(error) in MISSING:
                return True
            if error_code(error) == "PERMISSION_DENIED":
                return False
            time.sleep(0.05 * 2**attempt)
        else:
            return True
    return False


def _passed(client: "MlflowClient", name: str) -> frozenset[str]:
    from mlflow.exceptions import MlflowException

    try:
        text = client.get_registered_model(name).tags.get(PASSED, "[]")
        passed = decode(text, list[str], what=f"'{PASSED}' of '{name}'", action="")
    except (MlflowException, DataError):
        return frozenset()
    return frozenset(passed)


def _pass(client: "MlflowClient", name: str, locks: list[Seen]) -> None:
    """Spares the next ones the wait. It takes the right to change the model, like a promotion."""
    from mlflow.exceptions import MlflowException

    still_there = [lock.identity for lock in locks_of(client, name)]
    kept = _passed(client, name) | {lock.identity for lock in locks}
    text = json.dumps([identity for identity in still_there if identity in kept][-20:])
    with contextlib.suppress(MlflowException):
        client.set_registered_model_tag(name, PASSED, text)
