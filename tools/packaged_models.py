"""Trains the cost models that come with the package, of the packaged records.

    python tools/packaged_models.py

Each takes minutes. Trainings of the same records and versions give the same trees.
"""

import json
import shutil
from pathlib import Path

import hetfeat
from hetfeat.dataset.packaged import packaged_store
from hetfeat.models import packaged

FOLDER = Path(packaged.__file__).parent


def main() -> None:
    records = hetfeat.RecordStore.open(packaged_store())
    for family in sorted({profile.family for profile in records.devices().values()}):
        model = hetfeat.train_cost_model(records, family=family)
        shutil.rmtree(FOLDER / family, ignore_errors=True)
        model.save(FOLDER / family)
        print(f"{family}: PCA {model.valid_pca:.3f} on tasks held out")
    (FOLDER / packaged.RECORDS).write_text(json.dumps({"sha256": records.digest()}) + "\n")


if __name__ == "__main__":
    main()
