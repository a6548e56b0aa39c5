"""The example receiver, fed by a real MLflow server and by forgers."""

import base64
import importlib.util
import json
import os
import queue
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import mlflow_server

from registry.files.moves import promote
from registry.models.versions import resolve

SECRET = secrets.token_hex(16)
EVENT = {
    "entity": "model_version_alias",
    "action": "created",
    "data": {"name": "costmodel.cpu-x86", "alias": "production", "version": "3"},
}


@pytest.fixture(scope="module")
def example(project: Path):
    path = project / "examples" / "production_webhook.py"
    spec = importlib.util.spec_from_file_location("production_webhook", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def heard() -> queue.Queue:
    return queue.Queue()


@pytest.fixture
def url(example, heard) -> Iterator[str]:
    receiver = example.Receiver(
        ("127.0.0.1", 0), SECRET, lambda name, version: heard.put((name, version))
    )
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{receiver.server_port}"
    receiver.shutdown()
    receiver.server_close()


@pytest.fixture
def tracking_uri(new_registry, tmp_path: Path, monkeypatch) -> Iterator[str]:
    """An MLflow server of its own: webhooks are delivered by servers alone."""
    variables = {
        "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": base64.urlsafe_b64encode(os.urandom(32)).decode(),
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    }
    destination = str(tmp_path / "artifacts")
    with mlflow_server(tmp_path, new_registry(tmp_path), destination, variables) as uri:
        monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        yield uri


@pytest.mark.slow
def test_a_promotion_to_production_is_heard_once(client, make_version, model_name, url, heard):
    from mlflow.entities.webhook import WebhookAction, WebhookEntity, WebhookEvent

    event = WebhookEvent(WebhookEntity.MODEL_VERSION_ALIAS, WebhookAction.CREATED)
    made = client.create_webhook("on-production", f"{url}/", [event], secret=SECRET)
    assert client.test_webhook(made.webhook_id).success  # another alias: heard by nobody
    make_version(model_name)
    promote(model_name, 1, "staging", client=client)
    promote(model_name, 1, "production", client=client)
    assert resolve(model_name, "production", client=client).version == 1
    assert heard.get(timeout=60) == (model_name, 1)
    with pytest.raises(queue.Empty):
        heard.get(timeout=1)


def post(example, url: str, *, secret: str = SECRET, age: float = 0, **changed) -> int:
    body = json.dumps({**EVENT, **changed}).encode()
    delivery, timestamp = "d-1", str(int(time.time() - age))
    headers = {
        "X-MLflow-Delivery-Id": delivery,
        "X-MLflow-Timestamp": timestamp,
        "X-MLflow-Signature": example.signature(secret, delivery, timestamp, body),
    }
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as done:
            return done.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_signed_event_counts_once(example, url, heard):
    assert [post(example, url), post(example, url)] == [204, 204]
    assert heard.get_nowait() == ("costmodel.cpu-x86", 3)
    assert heard.empty()


def test_what_failed_may_be_delivered_again(example, url, heard):
    """MLflow repeats what was answered with 500, under the same delivery id."""
    data = {**EVENT["data"], "version": "three"}
    assert post(example, url, data=data) == 500
    assert post(example, url) == 204
    assert heard.get_nowait() == ("costmodel.cpu-x86", 3)


@pytest.mark.parametrize("forged", [{"secret": "guessed"}, {"age": 900}, {"age": -900}])
def test_a_forged_or_old_event_is_refused(example, url, heard, forged):
    assert post(example, url, **forged) == 401
    assert heard.empty()


def test_an_unsigned_event_is_refused(url, heard):
    with pytest.raises(urllib.error.HTTPError, match="401") as caught:
        urllib.request.urlopen(url, json.dumps(EVENT).encode(), timeout=10)
    caught.value.close()
    assert heard.empty()


def test_what_is_not_production_is_left_alone(example, url, heard):
    assert post(example, url, action="deleted") == 204
    assert heard.empty()


def test_a_receiver_without_a_secret_does_not_start(example):
    with pytest.raises(ValueError, match="no secret"):
        example.Receiver(("127.0.0.1", 0), "", print)


def test_signs_as_mlflow_does(example):
    from mlflow.webhooks.delivery import _generate_hmac_signature

    assert example.signature("s", "d", "1", b"{}") == _generate_hmac_signature("s", "d", "1", "{}")
