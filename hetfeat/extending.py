"""The names that models, searches, importers and devices of other packages are written with.

docs/extending.md shows each of them at work; the modules that they come from are not public.
"""

from hetfeat.dataset.importers.base import ImportedBatch, batch_of
from hetfeat.dataset.importers.files import read_lines
from hetfeat.dataset.importers.formats import FORMATS
from hetfeat.dataset.importers.import_records import import_records
from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.splits import split_examples
from hetfeat.devices.fleet.route import route_of
from hetfeat.devices.presets import preset
from hetfeat.devices.profile import load_profile
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Batch, Examples
from hetfeat.models.aggregate import flat_features, table_names
from hetfeat.models.engine_model import EngineModel, Fitted
from hetfeat.models.evaluate import evaluate
from hetfeat.models.hyperparameters import Choice, Range
from hetfeat.models.registry import MODELS, load_model, model_class
from hetfeat.records import Measurement, Program, Task
from hetfeat.search.base import Space, StateSearch, Timed
from hetfeat.search.runner import run_search
from hetfeat.search.space import gemm_space
from hetfeat.search.strategies import STRATEGIES, make_search
from hetfeat.search.visited import Visits

__all__ = [
    "FORMATS",
    "MODELS",
    "STRATEGIES",
    "Batch",
    "Choice",
    "EngineModel",
    "Examples",
    "Fitted",
    "ImportedBatch",
    "Measurement",
    "Program",
    "Range",
    "Space",
    "StateSearch",
    "Task",
    "Timed",
    "Visits",
    "assemble",
    "batch_of",
    "evaluate",
    "flat_features",
    "gemm_space",
    "import_records",
    "load_model",
    "load_profile",
    "make_search",
    "model_class",
    "packaged_store",
    "preset",
    "read_lines",
    "route_of",
    "run_search",
    "split_examples",
    "table_names",
]
