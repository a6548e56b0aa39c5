"""Whether an alias is where the history of its model put it."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hetfeat.errors import DataError
from registry.models import ledger
from registry.models.aliases import ALIASES, State
from registry.models.ledger import Head
from registry.models.version import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)


def recorded_version(
    client: "MlflowClient",
    look_up: Callable[[], Version],
    alias: str | None,
    unrecorded: bool,
    settle_s: float = 0.5,
) -> Version:
    """The version that an alias is on, if the history of its model has it there.

    Args:
        client: Client of the registry.
        look_up: Callable that finds the version.
        alias: Alias that the version was found by; only those that promotions set are in the
            history.
        unrecorded: Whether to take the version even so, with a warning.
        settle_s: Seconds to wait before a second look, default 0.5: a promotion may have been under
            way between two of our reads.

    Raises:
        DataError: The alias was moved past the gates, or the history was changed.
    """
    version = look_up()
    if alias not in ALIASES or _is_recorded(client, version, alias):
        return version
    time.sleep(settle_s)
    version = look_up()
    if _is_recorded(client, version, alias):
        return version
    said = f"'{version.name}@{alias}' on version {version.version}, where no promotion put it"
    if not unrecorded:
        raise DataError(
            said,
            "the version that its history has there",
            f"`hetfeat doctor {version.name}` explains it; --unrecorded true takes it even so",
        )
    log.warning("%s: taken, as --unrecorded true says", said)
    return version


def _is_recorded(client: "MlflowClient", version: Version, alias: str) -> bool:
    tags = client.get_registered_model(version.name).tags
    return version.version in [getattr(s, alias) for s in recorded_states(version.name, tags)]


def recorded_states(name: str, tags: Mapping[str, str]) -> list[State]:
    """What aliases may show: the last state of a sound ledger, and that of a move being made."""
    pending = ledger.decode(tags.get(ledger.PENDING, ""))
    before = dict(tags)
    if pending is not None:  # whose entry may be written already
        before.pop(ledger.key(pending["n"]), None)
        if Head.parse(tags.get(ledger.HEAD)).count == pending["n"]:
            before[ledger.HEAD] = str(Head(pending["n"] - 1, pending["before"]))
    if ledger.faults(name, before):
        return []
    last = ledger.entries(before)[-1:]
    return [State.of(entry["state"]) for entry in (*last, *filter(None, [pending]))]
