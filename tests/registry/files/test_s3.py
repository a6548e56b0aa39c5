"""Sharing by S3: boto3 against a server that speaks S3, fetching without either."""

import hashlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import on_sqlite_only

import mlproject
from hetfeat.errors import DataError, HetfeatError, RequestError, WorkFailed
from registry.files import s3_upload
from registry.files.manifest import MANIFEST, write_manifest
from registry.files.moves import promote
from registry.files.presigned_fetch import fetch_presigned, parse_request, read_request

BUCKET = "models"
FILES = {"model.ubj": b"{weights", "meta/columns.json": b"[]", "bundle/lib.so": b"x" * (20 << 20)}
WITHOUT_MLFLOW = """
import sys
sys.modules.update({name: None for name in ("mlflow", "boto3", "botocore", "numpy", "torch")})
import mlproject
mlproject.main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


SWIFT = pytest.param("swift", marks=pytest.mark.services)


@pytest.fixture(params=["when_supported", "when_required", SWIFT])
def storage(monkeypatch, request):
    """A client and an empty bucket, with the server's checksums and without."""
    if request.param == "swift":
        request.getfixturevalue("services")  # whose variables say where and who
    else:
        monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", request.getfixturevalue("endpoint"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", request.param)
    client = s3_upload.connect()
    client.create_bucket(Bucket=BUCKET)
    yield client
    for found in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=found["Key"])
    client.delete_bucket(Bucket=BUCKET)


once = pytest.mark.parametrize("storage", ["when_supported"], indirect=True)
once_or_on_swift = pytest.mark.parametrize("storage", ["when_supported", SWIFT], indirect=True)
on_swift = pytest.mark.parametrize("storage", [SWIFT], indirect=True)


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "version"
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    write_manifest(folder)
    return folder


@pytest.fixture
def shared(storage, folder) -> dict:
    digest = s3_upload.upload_folder(folder, BUCKET, "here", storage)
    return s3_upload.presign("models:/m/1", digest, BUCKET, "here", 60, storage)


def fetch(shared: dict, out: Path) -> None:
    fetch_presigned(parse_request(shared, "the request"), out)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_is_uploaded_comes_back(storage, folder, shared, tmp_path):
    fetch(shared, tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(folder)


def test_objects_carry_their_digest_and_large_ones_come_in_parts(storage, folder, shared):
    listed = {e["path"]: e for e in json.loads((folder / MANIFEST).read_text())["files"]}
    for path, entry in listed.items():
        head = storage.head_object(Bucket=BUCKET, Key=f"here/{path}")
        assert head["Metadata"]["sha256"] == entry["sha256"]
        assert head["ETag"].endswith('-3"') == (path == "bundle/lib.so")


@once
def test_where_the_server_has_the_checksum_nothing_is_read_back(storage, folder, monkeypatch):
    monkeypatch.setattr(storage, "get_object", lambda **_: pytest.fail("read back"))
    s3_upload.upload_folder(folder, BUCKET, "here", storage)


def tampered(client, path: str, content: bytes) -> None:
    client.put_object(Bucket=BUCKET, Key=f"here/{path}", Body=content)


@once
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("model.ubj", b"{weightz"),
        ("model.ubj", b"{"),
        ("model.ubj", b"{weights and more"),
        (MANIFEST, b'{"format":1,"files":[]}'),
    ],
)
def test_what_was_changed_is_refused_and_nothing_is_kept(storage, shared, tmp_path, path, content):
    tampered(storage, path, content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DataError):
        fetch(shared, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


@once
@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("../outside", b"{", "inside"),
        ("/tmp/outside", b"{", "relative"),
        ("MANIFEST.json", b"{", "case"),
        ("model.pkl", b"{", "pickle"),
        ("model.ubj", b"\x80\x04K\x01K\x02\x86.", "pickle"),
    ],
)
def test_what_no_folder_may_hold_is_refused_under_the_right_digest(
    storage, tmp_path, path, content, said
):
    entry = {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    clash = {**entry, "path": "manifest.json"}
    files = [entry, clash] if path == "MANIFEST.json" else [entry]
    manifest = json.dumps({"format": 1, "files": files}).encode()
    urls = {}
    for number, (name, data) in enumerate({MANIFEST: manifest, path: content}.items()):
        key = {"Bucket": BUCKET, "Key": str(number)}
        storage.put_object(**key, Body=data)
        urls[name] = storage.generate_presigned_url("get_object", key)
    digest = hashlib.sha256(manifest).hexdigest()
    with pytest.raises(DataError, match=said):
        fetch(request_with(urls=urls, manifest_sha256=digest), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@once
def test_a_change_on_the_way_is_noticed(storage, folder, monkeypatch):
    send = storage.upload_file

    def change(path, bucket, key, **settings):
        send(path, bucket, key, **settings)
        storage.put_object(Bucket=bucket, Key=key, Body=Path(path).read_bytes()[::-1])

    monkeypatch.setattr(storage, "upload_file", change)
    with pytest.raises(DataError, match="changed on its way"):
        s3_upload.upload_folder(folder, BUCKET, "here", storage)


@once
def test_a_changed_folder_is_never_uploaded(storage, folder):
    (folder / "model.ubj").write_bytes(b"{weightz")
    with pytest.raises(DataError, match="changed content"):
        s3_upload.upload_folder(folder, BUCKET, "here", storage)
    assert "Contents" not in storage.list_objects_v2(Bucket=BUCKET)


@on_swift
def test_an_expired_request_is_refused(storage, folder, tmp_path):
    digest = s3_upload.upload_folder(folder, BUCKET, "here", storage)
    shared = s3_upload.presign("models:/m/1", digest, BUCKET, "here", 1, storage)
    time.sleep(2.5)
    with pytest.raises(WorkFailed, match=r"status 403.*hetfeat share"):
        fetch(shared, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@on_swift
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("AWS_SECRET_ACCESS_KEY", "changed meanwhile", "SignatureDoesNotMatch"),
        ("AWS_ACCESS_KEY_ID", "eve:eve", "InvalidAccessKeyId|AccessDenied|SignatureDoesNotMatch"),
        ("MLFLOW_S3_ENDPOINT_URL", "http://127.0.0.1:9", "127.0.0.1:9"),
    ],
)
def test_a_store_that_refuses_is_one_line(storage, folder, monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it remembers whom it asked for
    with pytest.raises(WorkFailed, match=f"({said}).*credentials") as caught:
        s3_upload.upload_folder(folder, BUCKET, "here", s3_upload.connect())
    assert "\n" not in str(caught.value)
    assert "Contents" not in storage.list_objects_v2(Bucket=BUCKET)


@once_or_on_swift
def test_a_bucket_that_is_not_there_is_one_line(storage, folder):
    with pytest.raises(WorkFailed, match="NoSuchBucket") as caught:
        s3_upload.upload_folder(folder, "another", "here", storage)
    assert "\n" not in str(caught.value)


@once
def test_a_server_without_checksums_is_told_how_to_go_on(storage, folder, monkeypatch):
    from boto3.exceptions import S3UploadFailedError

    def refuse(*args, **settings):
        raise S3UploadFailedError("An error occurred (NotImplemented) when calling")

    monkeypatch.setattr(storage, "upload_file", refuse)
    with pytest.raises(WorkFailed, match="AWS_REQUEST_CHECKSUM_CALCULATION"):
        s3_upload.upload_folder(folder, BUCKET, "here", storage)


@once_or_on_swift
@on_sqlite_only
def test_a_device_without_mlflow_fetches_what_was_shared(
    storage, client, make_version, model_name, tmp_path, project, capsys
):
    make_version(model_name, {"model.ubj": FILES["model.ubj"]})
    promote(model_name, 1, "production")
    ticket, out = tmp_path / "ticket.json", tmp_path / "out"
    with pytest.raises(SystemExit) as done:
        mlproject.main(["share", model_name, "--bucket", BUCKET, "--out", str(ticket), "--json"])
    printed = capsys.readouterr()
    assert done.value.code == 0, printed.err
    assert json.loads(printed.out)["files"] == 2
    assert ticket.stat().st_mode & 0o777 == 0o600
    fetched = subprocess.run(
        [sys.executable, "-c", WITHOUT_MLFLOW, "fetch", str(ticket), "--out", str(out)],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert fetched.returncode == 0, fetched.stderr
    assert (out / "model.ubj").read_bytes() == FILES["model.ubj"]


class Refusing(BaseHTTPRequestHandler):
    """Answers as S3 does to an expired URL, or leads elsewhere."""

    def do_GET(self) -> None:
        self.send_response(302 if self.path.startswith("/moved") else 403)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def request_with(**changed) -> dict:
    urls = {MANIFEST: "http://127.0.0.1:9/m?X-Amz-Signature=s3cret"}
    sound = {"format": 1, "model": "models:/m/1", "manifest_sha256": "0" * 64, "urls": urls}
    return {**sound, **changed}


@pytest.mark.parametrize(("path", "status"), [("gone", "403"), ("moved", "302")])
def test_a_refusal_is_one_line_and_keeps_nothing(refusing, tmp_path, path, status):
    urls = {MANIFEST: f"{refusing}/{path}?X-Amz-Signature=s3cret"}
    with pytest.raises(WorkFailed, match=f"status {status}.*hetfeat share") as caught:
        fetch(request_with(urls=urls), tmp_path / "out")
    assert "s3cret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["127.0.0.1:9", "127.0.0.1:port", "b\u00fccher.invalid/\u00fc"])
def test_storage_that_cannot_be_reached_is_one_line(tmp_path, host):
    urls = {MANIFEST: f"http://{host}/m?X-Amz-Signature=s3cret"}
    with pytest.raises(WorkFailed, match="repeat the command") as caught:
        fetch(request_with(urls=urls), tmp_path / "out")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        request_with(format=2),
        request_with(manifest_sha256="../../x"),
        request_with(urls={}),
        request_with(urls={MANIFEST: "file:///etc/hostname"}),
        request_with(urls={MANIFEST: 1}),
    ],
)
def test_what_is_no_request_is_refused(tmp_path, content):
    path = tmp_path / "ticket.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="hetfeat share"):
        read_request(path)


def test_a_request_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(HetfeatError, match="hetfeat share"):
        read_request(tmp_path / "none.json")


@once
def test_addresses_of_other_files_are_refused(shared, tmp_path):
    del shared["urls"]["model.ubj"]
    with pytest.raises(DataError, match="other files"):
        fetch(shared, tmp_path / "out")


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(RequestError, match="in use"):
        fetch(request_with(), tmp_path)
