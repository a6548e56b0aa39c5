"""The files of a version, wherever MLflow keeps them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.errors import DataError
from registry.files.manifest import MANIFEST, plain_files
from registry.files.safe_paths import PathRefused, check_paths
from registry.models.version import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True)
class Artifacts:
    """The folder of a version that its manifest describes.

    Attributes:
        repository: MLflow's artifact repository of all files of the version.
        folder: Path in it of the folder with the manifest; empty for the top.
    """

    repository: Any
    folder: str

    @classmethod
    def of(cls, client: "MlflowClient", version: Version, search_depth: int = 3) -> "Artifacts":
        """Finds the folder of a version.

        Args:
            client: Client of the registry.
            version: Version whose folder is looked for.
            search_depth: Levels below a logged model that are searched for the folder with the
                manifest, default 3: `artifacts/NAME`.

        Raises:
            DataError: There is none.
        """
        repository = repository_of(client, version)
        level = [""]
        for _ in range(search_depth):
            deeper = []
            for folder in level:
                found = repository.list_artifacts(folder or None)
                manifest = _join(folder, MANIFEST)
                if any(info.path == manifest and not info.is_dir for info in found):
                    _check_paths([manifest])
                    return cls(repository, folder)
                deeper += [info.path for info in found if info.is_dir]
            level = deeper
        raise DataError(
            f"{version.uri} without a {MANIFEST} among its artifacts",
            "a version registered by hetfeat, its artifacts in place",
            "promote or pull another version; `hetfeat doctor` lists what is gone",
        )

    def sizes(self, max_files: int = 10_000, max_depth: int = 8) -> dict[str, int]:
        """Size in bytes of each file, by path relative to the folder.

        Args:
            max_files: Most files of a folder, default 10,000: more are refused.
            max_depth: Most folders below one another, default 8.

        Raises:
            DataError: A link among them, a name that leads outside, or more than those bounds.
        """
        if (local := _local_folder(self.repository)) is not None:
            for _ in plain_files(local / self.folder):
                pass  # a store on a local disk would follow links without a word
        sizes = dict(self._walk(self.folder, max_files, max_depth))
        _check_paths(sizes)
        return sizes

    def fetch(self, path: str, into: Path) -> Path:
        """Copies one file into a folder, under its own path."""
        remote = _join(self.folder, path)
        fetched = Path(self.repository.download_artifacts(remote, dst_path=str(into)))
        target = into / path
        if fetched != target:
            target.parent.mkdir(parents=True, exist_ok=True)
            fetched.replace(target)
        return target

    def _walk(
        self, folder: str, max_files: int, max_depth: int, depth: int = 0
    ) -> Iterator[tuple[str, int]]:
        for count, info in enumerate(self.repository.list_artifacts(folder or None)):
            if depth == max_depth or count >= max_files:
                raise DataError(
                    "artifacts without end",
                    f"at most {max_files} files, {max_depth} folders deep",
                    "do not use this version",
                )
            if info.is_dir:
                yield from self._walk(info.path, max_files, max_depth, depth + 1)
            else:
                relative = info.path[len(self.folder) + 1 :] if self.folder else info.path
                yield relative, int(info.file_size or 0)


def _check_paths(paths: Iterable[str]) -> None:
    try:
        check_paths(paths)
    except PathRefused as error:
        raise DataError(
            f"an artifact named {error.path!r}", error.expected, "do not use this version"
        ) from error


def repository_of(client: "MlflowClient", version: Version) -> Any:
    """MLflow's repository of all artifacts of a version."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    uri = client.get_model_version_download_uri(version.name, str(version.version))
    return get_artifact_repository(uri, tracking_uri=client.tracking_uri)


def is_own(client: "MlflowClient", version: Version) -> bool:
    """Whether a version's files lie where MLflow put those of its run or logged model.

    Whoever registers a version may name any place as its source: nothing is deleted there.
    """
    where = str(client.get_model_version_download_uri(version.name, str(version.version)))
    if version.run_id is None or ".." in where.split("/"):
        return False
    root = client.get_run(version.run_id).info.artifact_uri.rstrip("/")
    if where.startswith((f"{root}/", f"runs:/{version.run_id}/")):
        return True
    model = re.fullmatch(r"models:/(m-[0-9a-f]+)", version.source)
    return model is not None and where == client.get_logged_model(model[1]).artifact_location


def _local_folder(repository: Any) -> Path | None:
    while hasattr(repository, "repo"):
        repository = repository.repo
    folder = getattr(repository, "artifact_dir", None)
    return Path(folder) if folder else None


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
