"""The cost models there are: a name and an import string each, loaded when asked for."""

from pathlib import Path

from hetfeat.errors import not_one_of
from hetfeat.models.base import CostModel
from hetfeat.models.persist import read_head
from hetfeat.plugins import resolve, with_plugins

MODELS = with_plugins(
    "hetfeat.models",
    {
        "xgb": "hetfeat.models.gbdt:XgbModel",
        "lgbm": "hetfeat.models.gbdt:LgbmModel",
        "mlp": "hetfeat.models.neural:MlpModel",
        "attention": "hetfeat.models.neural:AttentionModel",
    },
)


def model_class(name: str) -> type[CostModel]:
    """The class of a model's name.

    Raises:
        RequestError: No such model, or a plug-in that cannot be imported.
    """
    if name not in MODELS:
        raise not_one_of("model", name, MODELS, "choose one of them")
    found: type[CostModel] = resolve("model", name, MODELS)
    return found


def load_model(folder: Path) -> CostModel:
    """Any model that `save` has written.

    Raises:
        DataError: The folder is not a model, is damaged, or is of other features.
    """
    return model_class(read_head(folder)["model"]).load(folder)
