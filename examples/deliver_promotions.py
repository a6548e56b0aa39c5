"""Delivers every move into production to a receiver of webhooks until it has said yes.

    WEBHOOK_SECRET=... python examples/deliver_promotions.py --url URL --state FILE [--every 30]

MLflow's server loses events that it has not delivered when it dies. The history of each model has
them all: what the receiver has not answered with 2xx is posted again, in order, in MLflow's form.
The id of a delivery is the same at each try, so that a receiver can leave out what it has seen.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hetfeat.durable import write_file
from hetfeat.errors import HetfeatError
from hetfeat.parsing import Count, decode
from registry.models.ledger import encode
from registry.models.mlflow_client import connect
from registry.models.stages import history
from registry.models.versions import model_names

SECRET_VARIABLE = "WEBHOOK_SECRET"
TIMEOUT_S = 30
_STATE = dict[str, Count]

Post = Callable[[str, bytes], bool]
"""Posts the body of a delivery, by its id; whether the receiver has said yes."""


def deliver(state: Path, post: Post, *, from_now: bool = False) -> int:
    """Posts what was not delivered yet; the number of models of which something is left.

    Args:
        state: File with the number of the last entry that was delivered, by model.
        post: Posts a delivery.
        from_now: Whether all that is in the history counts as delivered; default False.
    """
    client, left = connect(), 0
    delivered = _read(state)
    for name in model_names(client):
        entries, faults = history(name, client=client)
        if faults:
            print(f"the history of {name}: {faults[0]}", file=sys.stderr)
            left += 1
            continue
        for entry, body in _moves(name, entries, delivered.get(name, 0)):
            delivery = f"{name}-{entry['n']}-{entry['digest'][:12]}"
            if body and not from_now and not post(delivery, body):
                left += 1
                break
            delivered[name] = entry["n"]
            write_file(state, encode(delivered).encode())
    return left


def _moves(
    name: str, entries: list[dict[str, Any]], done: int
) -> Iterator[tuple[Mapping[str, Any], bytes]]:
    """Entries after a number, each with what is posted of it; nothing of most."""
    before = None
    for entry in entries:
        production = entry["state"]["production"]
        if entry["n"] > done:
            moved = production is not None and production != before
            yield entry, _body(name, production, entry) if moved else b""
        before = production


def _body(name: str, version: int, entry: Mapping[str, Any]) -> bytes:
    """As MLflow writes of an alias that was put on a version, with the entry's number."""
    event = {
        "entity": "model_version_alias",
        "action": "created",
        "timestamp": entry["when"],
        "data": {
            "name": name,
            "alias": "production",
            "version": str(version),
            "entry": entry["n"],
        },
    }
    return json.dumps(event).encode()


def poster(url: str, secret: str) -> Post:
    """Posts to a URL, signed with the secret as MLflow signs."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url}: expected a URL that begins with https:// or http://")

    def post(delivery: str, body: bytes) -> bool:
        timestamp = str(int(time.time()))
        signed = f"{delivery}.{timestamp}.".encode() + body
        digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
        headers = {
            "Content-Type": "application/json",
            "X-MLflow-Delivery-Id": delivery,
            "X-MLflow-Timestamp": timestamp,
            "X-MLflow-Signature": "v1," + base64.b64encode(digest).decode(),
        }
        try:
            request = urllib.request.Request(url, body, headers)
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return 200 <= answer.status < 300
        except OSError as error:  # HTTPError and URLError are, too
            print(f"{delivery} was not taken: {error}", file=sys.stderr)
            return False

    return post


def _read(state: Path) -> dict[str, int]:
    if not state.exists():
        return {}
    return dict(decode(state.read_bytes(), _STATE, what=f"'{state}'", action="correct it"))


def main() -> int:
    """Delivers once, or again and again until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--state", type=Path, required=True, help="file of what was delivered")
    parser.add_argument("--every", type=float, help="seconds between rounds; one round without")
    parser.add_argument("--from-now", action="store_true", help="leave out what was moved before")
    given = parser.parse_args()
    secret = os.environ.get(SECRET_VARIABLE, "")
    if not secret:
        print(f"set {SECRET_VARIABLE} to the receiver's secret", file=sys.stderr)
        return 2
    from_now = given.from_now and not given.state.exists()
    while True:
        try:
            left = deliver(given.state, poster(given.url, secret), from_now=from_now)
        except (HetfeatError, ValueError) as error:
            print(error, file=sys.stderr)
            left = 1
        if given.every is None:
            return 1 if left else 0
        from_now = False
        try:
            time.sleep(given.every)
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main())
