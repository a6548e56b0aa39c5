"""The `options` of `torch.compile(model, backend="hetfeat", options={...})`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetfeat.errors import RequestError, not_one_of


@dataclass(frozen=True)
class Settings:
    """Options by their names.

    Attributes:
        effort: `quick`, `standard` or `full`; default `quick`.
        device: `local`, or the path of a profile's file; default `local`.
        cache: Folder of compiled graphs; default None for one in the user's cache folder.
        model: Folder of a cost model; default None for the packaged one, `none` to tune without
            one.
        trials: Number of programs to measure; default None for what the effort allows, 0 to trust
            the model.
    """

    effort: str = "quick"
    device: str = "local"
    cache: Path | str | None = None
    model: Path | str | None = None
    trials: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> "Settings":
        """The settings that options say.

        Raises:
            RequestError: There is no such option, or it is of another type.
        """
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in (options or {}).items():
            if name not in fields:
                raise not_one_of("option of torch.compile", name, fields, "choose one of them")
            kind: Any = fields[name].type
            if not isinstance(value, kind) or isinstance(value, bool):
                raise RequestError(f"option {name}={value!r} of torch.compile", kind, "correct it")
        return cls(**(options or {}))

    def facts(self) -> list[Any]:
        """What tells one compiled graph from another; where it lies does not."""
        return [self.effort, str(self.model), self.trials]
