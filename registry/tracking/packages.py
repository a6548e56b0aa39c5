"""Which package to install for a module that is missing."""

import importlib.metadata
import re

import hetfeat
from hetfeat.errors import WorkFailed

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
    "psycopg2": "psycopg2-binary",
    "pymssql": "pymssql",
    "pymysql": "PyMySQL",
    "pyodbc": "pyodbc",
    "pysftp": "pysftp",
    "sklearn": "scikit-learn",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "yaml": "PyYAML",
}
"""Module -> packages: those of MLflow's stores, and ours of another name than their module."""


def missing(error: ImportError) -> WorkFailed:
    """The one line that says which package is missing, and how to install it."""
    module = error.name or "a module"
    package = distribution_of(module)
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


def _required() -> set[str]:
    """Names of the packages that ours asks for, always or for an extra."""
    try:
        given = importlib.metadata.requires(hetfeat.__name__) or []
    except importlib.metadata.PackageNotFoundError:  # a clone that is not installed
        return set()
    return {_plain(re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0]) for line in given}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
