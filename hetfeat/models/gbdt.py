"""Gradient-boosted trees on per-store, task and hardware features: XGBoost and LightGBM."""

from typing import ClassVar

from hetfeat.models.engine_model import EngineModel
from hetfeat.models.gbdt_parameters import GbdtParameters, LgbmParameters


class XgbModel(EngineModel):
    """A cost model of XGBoost's trees."""

    name = "xgb"
    engine = "hetfeat.models.engines.xgb"
    packages = ("xgboost",)
    defaults = GbdtParameters()
    rounds: ClassVar = {"quick": 150, "standard": 600, "full": 2000}


class LgbmModel(EngineModel):
    """A cost model of LightGBM's trees."""

    name = "lgbm"
    engine = "hetfeat.models.engines.lgbm"
    packages = ("lightgbm",)
    defaults = LgbmParameters()
    rounds: ClassVar = {"quick": 150, "standard": 600, "full": 2000}
