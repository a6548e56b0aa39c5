"""`make release` stops at a wheel that does not work; building one takes the network."""

import importlib.util
from pathlib import Path

import pytest

SAYS = "#!/bin/sh\necho hetfeat {version}\nexit {code}\n"


@pytest.fixture(scope="module")
def release(project: Path):
    spec = importlib.util.spec_from_file_location("release", project / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def installed(folder: Path, name: str, version: str, code: int = 0) -> None:
    path = folder / name
    path.write_text(SAYS.format(version=version, code=code))
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("versions", "code", "said"),
    [
        (("0.2.0", "0.2.0"), 0, None),
        (("0.1.0", "0.2.0"), 0, "the wheel of 0.2.0 says that it is 0.1.0, 0.2.0"),
        (("0.2.0", "0.2.0"), 1, "hetfeat failed"),
    ],
)
def test_a_wheel_is_tried(release, tmp_path, versions, code, said):
    for name, version in zip(("hetfeat", "python"), versions, strict=True):
        installed(tmp_path, name, version, code)
    if said is None:
        return release.try_out(tmp_path, "0.2.0", tmp_path)
    with pytest.raises(SystemExit, match=said):
        release.try_out(tmp_path, "0.2.0", tmp_path)


def test_the_list_of_parts_is_made_by_a_pinned_tool(release, project):
    pins = {pin.split("==")[0] for pin in (project / "constraints.txt").read_text().splitlines()}
    assert set(release.TOOLS) <= pins
