"""The MLflow server with basic auth that `make services` started, and users on it."""

import os
import secrets

import pytest
import requests


class Server:
    """Makes users as they are first needed; nobody but the administrator may do more than READ."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.passwords = {"admin": os.environ["HETFEAT_TEST_ADMIN_PASSWORD"]}
        self.suffix = secrets.token_hex(4)

    def act_as(self, user: str, monkeypatch: pytest.MonkeyPatch) -> str:
        """Makes this process that user, and returns the name that the user has."""
        name = user if user == "admin" else f"{user}-{self.suffix}"
        if user not in self.passwords:
            self.passwords[user] = secrets.token_urlsafe(16)
            with monkeypatch.context() as patched:
                self.act_as("admin", patched)
                self._post("2.0/mlflow/users/create", username=name, password=self.passwords[user])
        monkeypatch.setenv("MLFLOW_TRACKING_URI", self.uri)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", name)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", self.passwords[user])
        return name

    def grant(
        self, user: str, model: str, permission: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Gives a user a permission on a registered model."""
        with monkeypatch.context() as patched:
            self.act_as("admin", patched)
            self._post(
                "3.0/mlflow/users/permissions/grant",
                username=f"{user}-{self.suffix}",
                resource_type="registered_model",
                resource_id=model,
                permission=permission,
            )

    def _post(self, what: str, **content: str) -> None:
        user, password = (
            os.environ[f"MLFLOW_TRACKING_{name}"] for name in ("USERNAME", "PASSWORD")
        )
        url = f"{self.uri}/api/{what}"
        answer = requests.post(url, json=content, auth=(user, password), timeout=30)
        assert answer.ok, answer.text
