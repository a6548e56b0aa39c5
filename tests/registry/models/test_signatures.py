import subprocess

import pytest
from conftest import on_sqlite_only

from hetfeat.deploy.runtime import PUBLIC_KEY
from hetfeat.deploy.signing import SIGNING_KEY
from hetfeat.errors import DataError, RequestError, WorkFailed
from registry.files.manifest import write_manifest
from registry.files.presigned_fetch import fetch_presigned, parse_request
from registry.files.pull import pull
from registry.jobs.evaluate import _check_signed
from registry.jobs.hpo import search_and_register
from registry.jobs.train import train_and_register
from registry.jobs.transfer import transfer_and_register
from registry.models.version import MANIFEST_TAG, SIGNATURE_TAG

pytestmark = on_sqlite_only

FILES = {"model.txt": b"{weights"}


@pytest.fixture
def keys(tmp_path):
    """Makes a pair of keys; the paths of the private and the public one."""

    def make(name: str) -> tuple[str, str]:
        private, public = str(tmp_path / f"{name}.pem"), str(tmp_path / f"{name}.pub")
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
        return private, public

    return make


@pytest.fixture
def signed(make_version, model_name, keys, monkeypatch) -> str:
    """The name of a model whose version 1 is signed, while its public key is configured."""
    private, public = keys("ours")
    monkeypatch.setenv(SIGNING_KEY, private)
    make_version(model_name, FILES)
    monkeypatch.delenv(SIGNING_KEY)
    monkeypatch.setenv(PUBLIC_KEY, public)
    return model_name


def test_a_signed_version_is_pulled(signed):
    assert (pull(f"{signed}/1").folder / "model.txt").read_bytes() == FILES["model.txt"]


def test_an_unsigned_version_is_refused_only_where_a_key_is_configured(
    signed, make_version, monkeypatch
):
    make_version(signed, {"model.txt": b"other"})
    with pytest.raises(DataError, match="unsigned"):
        pull(f"{signed}/2")
    monkeypatch.delenv(PUBLIC_KEY)
    assert pull(f"{signed}/2").version.version == 2


def test_another_key_is_refused(signed, keys, monkeypatch):
    monkeypatch.setenv(PUBLIC_KEY, keys("theirs")[1])
    with pytest.raises(DataError, match="another signature"):
        pull(f"{signed}/1")


def test_a_signature_does_not_pass_for_other_files_or_another_name(signed, make_version, client):
    tags = client.get_model_version(signed, "1").tags
    evil = make_version(signed, {"model.txt": b"evil"})
    other = make_version(f"{signed}.other", FILES)
    assert other.tags[MANIFEST_TAG] == tags[MANIFEST_TAG]
    for version in (evil, other):
        client.set_model_version_tag(
            version.name, str(version.version), SIGNATURE_TAG, tags[SIGNATURE_TAG]
        )
        with pytest.raises(DataError, match="another signature"):
            pull(version.uri)


def test_a_signature_that_is_no_text_of_ours_is_refused(signed, client):
    client.set_model_version_tag(signed, "1", SIGNATURE_TAG, "\x1b[31m")
    with pytest.raises(DataError, match="another signature"):
        pull(f"{signed}/1")


def test_a_folder_is_evaluated_only_if_a_version_of_it_is_signed(signed, make_version, monkeypatch):
    _check_signed(pull(f"{signed}/1").folder)
    monkeypatch.delenv(PUBLIC_KEY)
    make_version(signed, {"model.txt": b"other"})
    unsigned = pull(f"{signed}/2").folder
    _check_signed(unsigned)
    monkeypatch.setenv(PUBLIC_KEY, str(unsigned.parent / "none.pem"))
    with pytest.raises(RequestError, match="cannot be used"):
        _check_signed(unsigned)


def test_an_unsigned_or_unknown_folder_is_not_evaluated(signed, make_version, tmp_path):
    made = make_version(signed, {"model.txt": b"other"})
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "model.txt").write_bytes(b"other")
    assert write_manifest(folder) == made.tags[MANIFEST_TAG]
    with pytest.raises(DataError, match="unsigned"):
        _check_signed(folder)
    (folder / "model.txt").write_bytes(b"nobody's")
    write_manifest(folder)
    with pytest.raises(DataError, match="no version has"):
        _check_signed(folder)


def test_what_is_fetched_is_signed_by_the_key(signed, client, tmp_path):
    tags = client.get_model_version(signed, "1").tags
    shared = {
        "format": 1,
        "model": f"models:/{signed}/1",
        "manifest_sha256": tags[MANIFEST_TAG],
        "urls": {"manifest.json": "http://127.0.0.1:9/m"},
    }
    with pytest.raises(DataError, match="unsigned"):
        fetch_presigned(parse_request(shared, "it"), tmp_path / "out")
    for changed, error in (({}, WorkFailed), ({"model": "models:/other/1"}, DataError)):
        request = shared | {"signature": tags[SIGNATURE_TAG]} | changed
        with pytest.raises(error):
            fetch_presigned(parse_request(request, "it"), tmp_path / "out")


@pytest.mark.parametrize("holds", [None, "no key"])
def test_a_bad_signing_key_is_noticed_before_any_work(tracking_uri, tmp_path, monkeypatch, holds):
    path = tmp_path / "key.pem"
    if holds:
        path.write_text(holds)
    monkeypatch.setenv(SIGNING_KEY, str(path))
    for work in (train_and_register, transfer_and_register, search_and_register):
        with pytest.raises(RequestError, match="openssl genpkey"):
            work(None)
