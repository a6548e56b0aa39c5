"""Trains the cost models that come with the package, each of its family's packaged records.

    python tools/packaged_models.py [FAMILY ...]

Without a family all of them, minutes each. Trainings of the same records and versions give the
same trees.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import hetfeat
from hetfeat.dataset.packaged import packaged_stores
from hetfeat.models import packaged

FOLDER = Path(packaged.__file__).parent


def train(families: Sequence[str], stores: Mapping[str, Path], folder: Path) -> None:
    """Trains and saves models of some families, all if none is named, and notes their records."""
    digests = folder / packaged.RECORDS
    learnt_from = json.loads(digests.read_text()) if digests.exists() else {}
    for family in families or stores:
        records = hetfeat.RecordStore.open(stores[family])
        model = hetfeat.train_cost_model(records, family=family)
        shutil.rmtree(folder / family, ignore_errors=True)
        model.save(folder / family)
        learnt_from[family] = records.digest()
        digests.write_text(json.dumps(learnt_from) + "\n")
        print(f"{family}: PCA {model.valid_pca:.3f} on tasks held out")


if __name__ == "__main__":
    train(sys.argv[1:], packaged_stores(), FOLDER)
