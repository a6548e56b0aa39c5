"""Which package to install for a module that is missing."""

import importlib.metadata
import re
from typing import TYPE_CHECKING

import hetfeat
from hetfeat.errors import WorkFailed

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_DISTRIBUTIONS = {
    "azure.identity": "azure-identity",
    "azure.storage.blob": "azure-storage-blob",
    "azure.storage.filedatalake": "azure-storage-file-datalake",
    "azure": "azure-storage-blob azure-identity",
    "google.auth": "google-auth",
    "google": "google-cloud-storage",
    "MySQLdb": "mysqlclient",
    "PIL": "pillow",
    "oracledb": "oracledb",
    "psycopg": "psycopg2-binary",
    "psycopg2": "psycopg2-binary",
    "pymssql": "pymssql",
    "pymysql": "PyMySQL",
    "pyodbc": "pyodbc",
    "pysftp": "pysftp",
    "sklearn": "scikit-learn",
    "ai_edge_litert": "ai-edge-litert",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "xgboost": "xgboost-cpu",
    "yaml": "PyYAML",
}
"""Module -> packages: those of MLflow's stores, and ours of another name than their module."""


def missing(error: ImportError) -> WorkFailed:
    """The one line that says which package is missing, and how to install it."""
    module = error.name or "a module"
    package = distribution_of(module)
    if package and (extra := extra_of(package)):
        return WorkFailed(
            f"the package '{package}', which is not installed",
            f"hetfeat with its extra '{extra}'",
            f"`pip install 'hetfeat[{extra}]'`",
        )
    lists = "`hetfeat doctor --environment true` lists what is missing"
    return WorkFailed(
        f"the {'package' if package else 'module'} '{package or module}', which is not installed",
        "the packages of pyproject.toml and of the stores that MLflow's variables name",
        f"{lists}; `pip install {package}`" if package else f"{lists}; install what holds it",
    )


def distribution_of(module: str) -> str | None:
    """The package that holds a module; None where that is not known."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if found := _DISTRIBUTIONS.get(".".join(parts[:length])):
            return found
    if installed := importlib.metadata.packages_distributions().get(parts[0]):
        return installed[0]  # of which a part is missing
    return parts[0] if _plain(parts[0]) in _required() else None


def extra_of(package: str) -> str | None:
    """The extra of ours that brings a package; None where none does, or every installation does."""
    markers = [
        requirement.marker
        for requirement in _requirements()
        if _plain(requirement.name) == _plain(package)
    ]
    if None in markers:
        return None
    extras = (re.search(r"extra == [\"']([\w-]+)", str(marker)) for marker in markers)
    return next((found[1] for found in extras if found), None)


def _required() -> set[str]:
    """Names of the packages that ours asks for, always or for an extra."""
    return {_plain(requirement.name) for requirement in _requirements()}


def _requirements() -> list["Requirement"]:
    from packaging.requirements import Requirement

    try:
        given = importlib.metadata.requires(hetfeat.__name__) or []
    except importlib.metadata.PackageNotFoundError:  # a clone that is not installed
        return []
    return [Requirement(line) for line in given]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
