import pytest
from conftest import on_sqlite_only

from hetfeat.errors import RequestError
from registry.files.moves import promote
from registry.models.description import card_of_model
from registry.models.names import bundle_name, cost_model_name
from registry.models.version import MANIFEST_TAG, PARENT_TAG
from registry.models.versions import model_names, resolve


def test_names():
    assert cost_model_name("cpu-x86") == "costmodel.cpu-x86"
    assert cost_model_name("cpu-x86", "my-laptop") == "costmodel.cpu-x86.my-laptop"
    assert bundle_name("resnet18", "my-laptop") == "network.resnet18.my-laptop"
    with pytest.raises(RequestError):
        cost_model_name("CPU/x86")


def test_a_registered_version_is_found_in_every_way(client, make_version, model_name):
    made = make_version(model_name)
    promote(model_name, 1, "production")
    for uri in (
        f"models:/{model_name}/1",
        f"{model_name}/1",
        f"models:/{model_name}/Production",
        f"models:/{model_name}@production",
        f"{model_name}@production",
    ):
        found = resolve(uri)
        assert (found.name, found.version, found.stage) == (model_name, 1, "production")
    assert resolve(model_name, "production").tags[MANIFEST_TAG] == made.tags[MANIFEST_TAG]
    assert resolve(model_name, "Production").aliases == ("production",)


def test_a_registered_model_says_what_it_is_and_how_to_use_it(client, make_version, model_name):
    make_version(model_name)
    said = client.get_registered_model(model_name).description
    assert said.startswith("Cost models of `cpu-x86.")
    assert f'mlflow.pyfunc.load_model("models:/{model_name}@production")' in said


def test_a_card_fits_the_kind_of_model():
    bundles = card_of_model(bundle_name("resnet18", "board"))
    assert bundles.startswith("The network and device `resnet18.board`")
    assert "hetfeat run DIR" in bundles
    assert card_of_model("mine").startswith("Versions of `mine`.")


def test_a_parent_is_kept_pinned(make_version, model_name):
    make_version(model_name)
    promote(model_name, 1, "staging")
    child = make_version(f"{model_name}.laptop", parent=f"{model_name}@staging")
    assert child.tags[PARENT_TAG] == f"models:/{model_name}/1"


def test_the_device_comes_before_its_family(make_version, model_name):
    make_version(model_name)
    promote(model_name, 1, "production")
    assert resolve(model_name, "production", device="laptop").name == model_name
    make_version(f"{model_name}.laptop")
    assert resolve(model_name, "production", device="laptop").name == model_name
    promote(f"{model_name}.laptop", 1, "production")
    assert resolve(model_name, "production", device="laptop").name == f"{model_name}.laptop"


@on_sqlite_only
def test_an_alias_that_mlflow_does_not_take_is_none(make_version, model_name):
    make_version(model_name)
    with pytest.raises(RequestError):
        resolve(f"{model_name}@v1.2")


@on_sqlite_only
def test_an_empty_registry_says_what_to_do(client):
    with pytest.raises(RequestError, match=r"hetfeat train.*hetfeat promote costmodel.cpu-x86 1"):
        resolve("costmodel.cpu-x86", "production")


@on_sqlite_only
@pytest.mark.parametrize(
    ("given", "stage", "said"),
    [
        ("costmodel.cpu-x68", "production", "costmodel.cpu-x86"),
        ("costmodel.cpu-x86", "production", "hetfeat promote costmodel.cpu-x86 VERSION"),
        ("costmodel.cpu-x86", "live", "staging or production"),
        ("costmodel.cpu-x86", None, "staging or production"),
        ("costmodel.cpu-x86@champion", None, "hetfeat versions costmodel.cpu-x86"),
        ("costmodel.cpu-x86/7", None, "version 7"),
        ("costmodel.cpu-x86/1", "production", "NAME with a stage"),
        ("a/b/c/d", None, "models:/NAME/VERSION"),
        ("it's", "production", "letters, digits"),
    ],
)
def test_a_wrong_request_says_what_there_is(make_version, given, stage, said):
    make_version("costmodel.cpu-x86")
    with pytest.raises(RequestError) as caught:
        resolve(given, stage)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@on_sqlite_only
def test_locks_are_no_models(client, make_version, model_name):
    make_version(model_name)
    client.create_registered_model(f"lock--{model_name}")
    assert model_names(client) == [model_name]
