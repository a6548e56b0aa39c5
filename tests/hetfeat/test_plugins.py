"""Models, searches and importers that other packages bring by entry points."""

import sys
from pathlib import Path

import pytest

from hetfeat.dataset.importers import formats
from hetfeat.dataset.importers.sniff import sniff
from hetfeat.errors import RequestError
from hetfeat.models import registry as models
from hetfeat.models.hyperparameters import Choice, space_of
from hetfeat.plugins import resolve, with_plugins
from hetfeat.search import strategies


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package with entry points, and a module `plugin` of some code."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(package: str, group: str, entries: str, code: str = "") -> None:
        info = tmp_path / f"{package}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")
        (tmp_path / "plugin.py").write_text(code)

    yield install
    sys.modules.pop("plugin", None)


def test_entry_points_join_the_table(install):
    install("some-models", "hetfeat.models", "ridge = plugin:Ridge", "class Ridge: pass")
    table = with_plugins("hetfeat.models", {"xgb": "hetfeat.models.gbdt:XgbModel"})
    assert table == {"xgb": "hetfeat.models.gbdt:XgbModel", "ridge": "plugin:Ridge"}
    assert "plugin" not in sys.modules
    assert resolve("model", "ridge", table).__name__ == "Ridge"


def test_a_name_that_stands_twice_is_an_error_of_one_line(install):
    install("some-models", "hetfeat.models", "xgb = plugin:Ridge")
    with pytest.raises(RequestError, match="uninstall some-models") as raised:
        with_plugins("hetfeat.models", {"xgb": "hetfeat.models.gbdt:XgbModel"})
    assert "\n" not in str(raised.value)


def test_the_same_twice_is_once(install):
    for package in ("a", "b"):
        install(package, "hetfeat.models", "ridge = plugin:Ridge")
    assert with_plugins("hetfeat.models", {}) == {"ridge": "plugin:Ridge"}


def test_what_is_no_import_string_costs_a_line_of_the_log(install, caplog):
    install("some-models", "hetfeat.models", "ridge = plugin\nlasso = plugin:Lasso")
    assert with_plugins("hetfeat.models", {}) == {"lasso": "plugin:Lasso"}
    assert [record.getMessage() for record in caplog.records] == [
        "ridge of some-models is no import string: left out"
    ]


@pytest.mark.parametrize("code", ["1 / 0", "import no_such_module", "class Other: pass"])
def test_a_broken_one_is_an_error_of_one_line_where_it_is_asked_for(install, monkeypatch, code):
    install("some-models", "hetfeat.models", "ridge = plugin:Ridge", code)
    monkeypatch.setitem(models.MODELS, "ridge", "plugin:Ridge")
    monkeypatch.setitem(strategies.STRATEGIES, "climbing", "plugin:Ridge")
    with pytest.raises(RequestError, match="model 'ridge', whose plugin:Ridge cannot be imported"):
        models.model_class("ridge")
    assert models.model_class("xgb").name == "xgb"


class TestImporters:
    @pytest.fixture(autouse=True)
    def as_it_was(self):
        yield
        formats.patterns_of_plugins.cache_clear()

    def test_a_file_is_known_by_the_look_that_its_importer_gives(
        self, install, monkeypatch, tmp_path
    ):
        code = "def read(files, device): ...\nread.looks = [(rb'm,n,k', 'times')]"
        install("some-format", "hetfeat.importers", "gemm-csv = plugin:read", code)
        monkeypatch.setitem(formats.FORMATS, "gemm-csv", "plugin:read")
        formats.patterns_of_plugins.cache_clear()
        (tmp_path / "times.csv").write_text("m,n,k\n")
        assert sniff(tmp_path / "times.csv") == ("gemm-csv", "times")

    def test_a_broken_one_costs_a_line_of_the_log(self, install, monkeypatch, tmp_path, caplog):
        install("some-format", "hetfeat.importers", "gemm-csv = plugin:read", "1 / 0")
        monkeypatch.setitem(formats.FORMATS, "gemm-csv", "plugin:read")
        formats.patterns_of_plugins.cache_clear()
        (tmp_path / "log").write_text('{"r": [[0.1], 0, 1, 1]}\n')
        for _ in range(2):
            assert sniff(tmp_path / "log") == ("ansor", "Ansor records")
        assert len([r for r in caplog.records if "gemm-csv" in r.getMessage()]) == 1


def test_a_plugins_model_says_what_to_search(install, monkeypatch):
    code = "class Ridge: space = {'penalty': 1}\nclass Bare: pass"
    install("some-models", "hetfeat.models", "ridge = plugin:Ridge", code)
    monkeypatch.setitem(models.MODELS, "ridge", "plugin:Ridge")
    monkeypatch.setitem(models.MODELS, "bare", "plugin:Bare")
    assert space_of("ridge") == {"penalty": 1}
    assert isinstance(space_of("mlp")["rounds"], Choice)
    with pytest.raises(RequestError, match="model 'bare'"):
        space_of("bare")
