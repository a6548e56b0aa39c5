"""The Python API: what `import hetfeat` gives, and its examples as they stand in the docstrings."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from small_deploys import deploy_small
from stores import make_store

import hetfeat
from hetfeat.api import models
from hetfeat.dataset.packaged import packaged_store, packaged_stores
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, RequestError
from hetfeat.models.packaged import packaged_model

PUBLIC = [name for name in hetfeat.__all__ if name != "__version__"]
HEAVY = ("torch", "tvm", "numpy", "pandas", "pyarrow", "tqdm", "pydantic", "mlflow", "registry")


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.dense(x)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, device: DeviceProfile) -> Iterator[Path]:
    """The working folder, with records; this machine has been probed."""
    from hetfeat.devices.probe import remember

    folder = tmp_path_factory.mktemp("api")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HETFEAT_HOME", str(folder / "home"))
        deploy_small(patch, "hetfeat.api.deploying")
        remember(device)
        make_store(folder / "records", tasks=6, per_task=12)
        yield folder


@pytest.fixture(scope="module")
def module() -> torch.nn.Module:
    torch.manual_seed(0)
    return Scaled()


@pytest.fixture(scope="module")
def bundle(folder: Path, module: torch.nn.Module) -> hetfeat.Bundle:
    network = hetfeat.load_network(module, torch.randn(2, 8))
    return hetfeat.deploy_network(network, model="none", trials=1, out="bundle")


def test_importing_loads_nothing_and_takes_no_time(project: Path):
    code = (
        "import sys, time; start = time.process_time(); import hetfeat; dir(hetfeat); "
        f"print(time.process_time() - start, [m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True
    )
    seconds, _, loaded = done.stdout.strip().partition(" ")
    assert loaded == "[]"
    assert float(seconds) < 0.1


def test_a_name_that_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="has no attribute 'train'"):
        hetfeat.train  # noqa: B018
    assert set(PUBLIC) <= set(dir(hetfeat))


@pytest.mark.slow
def test_a_profile_made_by_hand_has_types(project: Path, tmp_path: Path):
    """A plain mapping as target is not of the field's type: `Target` and `Route` are public."""
    code = (
        "import hetfeat\n"
        "reveal_type(hetfeat.Target)\n"
        "target = hetfeat.Target({'kind': 'llvm'})\n"
        "route = hetfeat.Route({'kind': 'local'})\n"
        "hetfeat.DeviceProfile('board', 'cpu-arm', target, 4, route=route)\n"
    )
    user = tmp_path / "user.py"
    user.write_text(code)
    names = ("__init__.py", "devices/__init__.py", "devices/profile.py")
    sources = [str(project / "hetfeat" / name) for name in names]
    # What the profile needs and nothing else, or torch would be read: half a minute.
    command = [sys.executable, "-m", "mypy", "--config-file=", "--python-version=3.11", "--strict"]
    command += ["--follow-imports=skip", f"--cache-dir={tmp_path / 'cache'}", *sources, str(user)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if "user.py" in line]
    assert [line for line in said if " error: " in line] == []
    assert any("hetfeat.devices.profile.Target" in line for line in said), done.stdout
    run = subprocess.run([sys.executable, "-c", code.replace("reveal_type", "repr")], cwd=project)
    assert run.returncode == 0


def test_no_public_name_is_that_of_a_module():
    modules = {module.name for module in pkgutil.iter_modules(hetfeat.__path__)}
    assert modules.isdisjoint(PUBLIC)


@pytest.mark.tvm
@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_runs_as_it_stands(name: str, request: pytest.FixtureRequest):
    request.getfixturevalue("bundle" if "undle" in name else "folder")
    public = getattr(hetfeat, name)
    examples = doctest.DocTestFinder(recurse=False).find(public, name, globs={})
    assert any(test.examples for test in examples), f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    for test in examples:
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


class TestNetworks:
    def test_a_module_in_training_mode_stays_in_it_and_shares_its_weights(self, module):
        module.train()
        network = hetfeat.load_network(module, torch.zeros(2, 8))
        assert module.training
        assert not network.module.training
        assert network.module.dense.weight is module.dense.weight

    def test_a_function_of_the_batch_size_and_one_of_tensors(self, module):
        def scaled(batch: int) -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
            return module, (torch.zeros(batch, 8),)

        assert hetfeat.load_network(scaled, batch=3).inputs[0].shape == (3, 8)
        doubled = hetfeat.load_network(lambda x: 2 * x, torch.ones(2))
        assert doubled.module(torch.ones(2)).tolist() == [2, 2]

    @pytest.mark.parametrize(
        ("network", "inputs", "says"),
        [
            (Scaled(), None, "without example inputs"),
            (Scaled(), [], "one or more tensors"),
            (Scaled(), torch.zeros(2, 8).half(), "float16"),
            ("resnet18", torch.zeros(2, 8), "leave inputs out"),
            (lambda batch: batch, None, "returning"),
        ],
    )
    def test_what_is_no_network_is_refused(self, network, inputs, says):
        with pytest.raises(RequestError, match=says):
            hetfeat.load_network(network, inputs)


class TestModels:
    def test_progress_is_told_and_nothing_is_printed(self, folder, capfd):
        heard: list[hetfeat.Progress] = []
        hetfeat.train_cost_model("records", effort="quick", on_progress=heard.append)
        assert [p.done for p in heard] == list(range(1, len(heard) + 1))
        assert heard[0].unit == "round"
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"model": "xbg"}, "did you mean 'xgb'"),
            ({"effort": "none"}, "one of quick, standard, full"),
            ({"family": "gpu-amd"}, "of which there are no records"),
            ({"settings": {"leaves": 3}}, "leaves"),
        ],
    )
    def test_a_wrong_request_is_refused(self, folder, options, says):
        with pytest.raises(RequestError, match=says):
            hetfeat.train_cost_model("records", **options)

    def test_the_packaged_model_is_of_the_packaged_records(self, device):
        name, source = models.source_model(None, device)
        assert name is not None and source is not None
        assert name.startswith("packaged:")
        assert source.dataset_digest == hetfeat.RecordStore.open(packaged_store()).digest()
        assert source.model.valid_pca > 0.7

    def test_every_packaged_model_is_of_its_familys_packaged_records(self):
        for family, folder in packaged_stores().items():
            found = packaged_model(family)
            if found is not None:
                assert found.dataset_digest == hetfeat.RecordStore.open(folder).digest()
                assert hetfeat.load_model(found.folder).valid_pca is not None

    def test_a_family_without_packaged_records_has_no_model(self, folder):
        board = DeviceProfile("board", "cpu-arm", {"kind": "llvm"}, 4)
        assert models.source_model(None, board) == (None, None)

    def test_a_model_and_its_folder_are_the_same_request(self, folder, device):
        model = hetfeat.train_cost_model("records", effort="quick")
        model.save("same")
        assert models.source_model(model, device)[0] == models.source_model("same", device)[0]


@pytest.mark.tvm
class TestBundles:
    def test_it_computes_what_the_module_does(self, bundle, module):
        x = torch.randn(5, 8)
        expected = module(x).detach()
        assert torch.allclose(bundle(x), expected, atol=1e-5)
        found = bundle(x.numpy())
        assert isinstance(found, np.ndarray)
        assert np.allclose(found, expected, atol=1e-5)

    def test_it_is_loaded_the_same_and_found_again(self, bundle, module, capfd):
        assert hetfeat.load_bundle("bundle").manifest == bundle.manifest
        network = hetfeat.load_network(module, bundle_inputs(bundle))
        again = hetfeat.deploy_network(network, model="none", trials=1, out="bundle")
        assert again.manifest == bundle.manifest
        with pytest.raises(RequestError, match="from another request"):
            hetfeat.deploy_network(network, model="none", trials=2, out="bundle")
        assert capfd.readouterr() == ("", "")

    def test_wrong_inputs_and_folders_are_refused(self, bundle, folder):
        with pytest.raises(DataError, match="float32"):
            bundle(np.zeros((2, 9), np.float32))
        with pytest.raises(RequestError, match="without inputs"):
            bundle()
        with pytest.raises(DataError):
            hetfeat.load_bundle(folder / "records")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"effort": "huge"}, "one of quick, standard, full"),
        ({"trials": -1}, "trials -1"),
        ({"trials": 0, "model": "none"}, "no cost model"),
        ({"device": "no-such-device"}, "device 'no-such-device'"),
    ],
)
def test_a_wrong_deployment_is_refused(folder, module, options, says):
    network = hetfeat.load_network(module, torch.zeros(2, 8))
    with pytest.raises(RequestError, match=says):
        hetfeat.deploy_network(network, **options)


def bundle_inputs(bundle: hetfeat.Bundle) -> torch.Tensor:
    return torch.zeros(bundle.manifest["inputs"][0]["shape"])


def test_the_type_checkers_names_are_the_lazy_ones():
    for name, module in hetfeat._MODULES.items():
        assert getattr(importlib.import_module(module), name) is getattr(hetfeat, name)
    assert sorted([*hetfeat._MODULES, "__version__"]) == hetfeat.__all__
