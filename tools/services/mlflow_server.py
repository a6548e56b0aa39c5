"""An MLflow server with basic auth that keeps artifacts in S3 for its clients."""

import base64
import os
import secrets
import sys
from pathlib import Path

from common import background, free_ports, log, wait_for

ADMIN = "admin"


def start(
    folder: Path, database: dict, storage: dict[str, str], bucket: str
) -> tuple[dict[str, str], int]:
    """Starts the server; returns `uri`, `user` and `password` of its administrator, its id."""
    folder.mkdir()
    password, (port,) = secrets.token_urlsafe(24), free_ports(1)
    settings = folder / "basic_auth.ini"
    settings.touch(mode=0o600)
    settings.write_text(
        "[mlflow]\n"
        "default_permission = READ\n"
        f"database_uri = {database['auth_uri']}\n"
        f"admin_username = {ADMIN}\n"
        f"admin_password = {password}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        "auth_cache_ttl_seconds = 60\n"
    )
    variables = {
        # In the environment, not on the command line, which every user of the machine can read.
        "MLFLOW_BACKEND_STORE_URI": database["uri"],
        "MLFLOW_AUTH_CONFIG_PATH": str(settings),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
        "MLFLOW_S3_ENDPOINT_URL": storage["endpoint"],
        "AWS_ACCESS_KEY_ID": storage["user"],
        "AWS_SECRET_ACCESS_KEY": storage["password"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": base64.urlsafe_b64encode(os.urandom(32)).decode(),
        # The example receiver of the tests listens on loopback, without TLS.
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    }
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth"]
    command += ["--artifacts-destination", f"s3://{bucket}/artifacts"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "2"]
    pid = background(command, folder / "log", variables)
    uri = f"http://127.0.0.1:{port}"
    wait_for(f"{uri}/health", folder / "log")
    log(f"MLflow on port {port}")
    return {"uri": uri, "user": ADMIN, "password": password}, pid
