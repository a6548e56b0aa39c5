"""The Python API of the registry: its examples as they stand in the docstrings."""

import doctest
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_deploys import deploy_small
from trained import registry_with_a_model

import registry
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError


@pytest.fixture(scope="module")
def folder(tmp_path_factory, trained_once: Path, device: DeviceProfile) -> Iterator[Path]:
    from hetfeat.devices.probe import remember

    with registry_with_a_model(tmp_path_factory.mktemp("registry"), trained_once) as folder:
        remember(device)
        with pytest.MonkeyPatch.context() as patch:
            deploy_small(patch, "registry.jobs.deploy")
            yield folder


def test_importing_loads_nothing(project: Path):
    code = "import sys, registry; dir(registry); print('mlflow' in sys.modules or len(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().isdecimal()


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("name", ["list_versions", "promote", "pull_version", "deploy", "train"])
def test_the_example_runs_as_it_stands(folder: Path, name: str):
    (found,) = doctest.DocTestFinder(recurse=False).find(getattr(registry, name), name, globs={})
    assert found.examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    runner.run(found, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_every_public_name_has_an_example_and_is_no_module(project: Path):
    modules = {path.stem for path in (project / "registry").iterdir()}
    assert modules.isdisjoint(registry.__all__)
    assert set(registry.__all__) <= set(dir(registry))
    with pytest.raises(AttributeError, match="no attribute 'deplo'"):
        registry.deplo  # noqa: B018


@pytest.mark.parametrize(
    "call", [registry.train, lambda effort: registry.deploy("x", effort=effort)]
)
def test_a_wrong_effort_is_refused(call):
    with pytest.raises(RequestError, match="one of quick, standard, full"):
        call(effort="huge")
