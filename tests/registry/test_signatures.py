import subprocess

import pytest
from conftest import on_sqlite_only

from hetfeat.deploy.runtime import PUBLIC_KEY
from hetfeat.deploy.signing import SIGNING_KEY
from hetfeat.errors import DataError
from registry.pull import pull
from registry.version import MANIFEST_TAG, SIGNATURE_TAG

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
