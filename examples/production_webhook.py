"""Acts when a version goes to production: a receiver for MLflow's webhooks, standard library alone.

    WEBHOOK_SECRET=... python examples/production_webhook.py --port 8787

Prints one JSON line for each version that the alias `production` was put on. Only what MLflow
signed with the secret in the last five minutes counts, and each delivery counts once.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ALIAS = "production"
MAX_AGE_SECONDS = 300
MAX_BODY_BYTES = 64 << 10
SECRET_VARIABLE = "WEBHOOK_SECRET"

OnProduction = Callable[[str, int], None]


def signature(secret: str, delivery: str, timestamp: str, body: bytes) -> str:
    """What MLflow writes in X-MLflow-Signature."""
    signed = f"{delivery}.{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


class Deliveries:
    """Which deliveries were seen: MLflow repeats one that was not answered, others replay it."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def is_new(self, delivery: str, now: float) -> bool:
        """Whether a delivery is seen for the first time; it is not from then on."""
        with self._lock:
            # A timestamp may be MAX_AGE_SECONDS ahead of this clock and as much behind it.
            kept = {key: at for key, at in self._seen.items() if now - at <= 2 * MAX_AGE_SECONDS}
            is_new = delivery not in kept
            self._seen = {delivery: now, **kept}
            return is_new

    def forget(self, delivery: str) -> None:
        """Lets a delivery count again that could not be acted on."""
        with self._lock:
            self._seen.pop(delivery, None)


class Receiver(ThreadingHTTPServer):
    """Answers 204 to what was signed, whether it concerns production or not.

    Args:
        address: Host and port; port 0 takes a free one.
        secret: As given to `create_webhook`.
        on_production: Called with the model's name and version.
    """

    def __init__(self, address: tuple[str, int], secret: str, on_production: OnProduction) -> None:
        if not secret:
            raise ValueError("no secret: anybody could sign")
        super().__init__(address, _Handler)
        self.secret, self.on_production = secret, on_production
        self.deliveries = Deliveries()


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    timeout = 10

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return self._answer(413)
        body = self.rfile.read(int(length))
        if not self._is_signed(body):
            return self._answer(401)
        delivery = self.headers["X-MLflow-Delivery-Id"]
        if self.server.deliveries.is_new(delivery, time.time()):
            try:
                self._act(json.loads(body))
            except Exception as error:
                self.log_error("%r", error)
                self.server.deliveries.forget(delivery)  # MLflow tries again
                return self._answer(500)
        return self._answer(204)

    def _is_signed(self, body: bytes) -> bool:
        delivery = self.headers.get("X-MLflow-Delivery-Id", "")
        timestamp = self.headers.get("X-MLflow-Timestamp", "")
        given = self.headers.get("X-MLflow-Signature", "")
        right = signature(self.server.secret, delivery, timestamp, body)
        return (
            hmac.compare_digest(right.encode(), given.encode())
            and timestamp.isdecimal()
            and abs(time.time() - int(timestamp)) <= MAX_AGE_SECONDS
        )

    def _act(self, event: dict) -> None:
        data = event.get("data", {})
        kind = (event.get("entity"), event.get("action"), data.get("alias"))
        if kind == ("model_version_alias", "created", ALIAS):
            self.server.on_production(data["name"], int(data["version"]))

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def print_line(name: str, version: int) -> None:
    """Put what should happen here: a deployment, a message, a cache to fill."""
    print(json.dumps({"model": name, "version": version, "alias": ALIAS}), flush=True)


def main() -> int:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1", help="put TLS in front before you widen it")
    parser.add_argument("--port", type=int, default=8787)
    given = parser.parse_args()
    secret = os.environ.get(SECRET_VARIABLE, "")
    if not secret:
        print(f"set {SECRET_VARIABLE} to the webhook's secret", file=sys.stderr)
        return 2
    with Receiver((given.host, given.port), secret, print_line) as receiver:
        try:
            receiver.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
