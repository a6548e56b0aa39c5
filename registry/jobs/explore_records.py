"""The exploratory study of a record store: what it holds, and which features matter in it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.dataset.column_study import operators_by_device
from hetfeat.models.gbdt import XgbModel
from hetfeat.models.importance import Importance, importances
from hetfeat.report import figures
from registry.jobs.train import TrainingRequest, load_data
from registry.tracking import command_run

if TYPE_CHECKING:
    from distributed import Client

FLOPS = "task.flops"


def study_records(
    records: Path,
    family: str | None,
    seed: int,
    most_columns: int = 20,
    cluster: "Client | None" = None,
) -> dict[str, Any]:
    """Does the whole of `hetfeat records study`.

    Args:
        records: Folder of the record store.
        family: Hardware family; None for that of the records.
        seed: Seed of the model.
        most_columns: Most columns in the result and the figure, default 20; the run's artifact has
            all.
        cluster: Client of a cluster that computes features and grows trees; default None for here.

    Returns:
        The study, as `--json` prints it.

    Raises:
        RequestError: No such family.
        DataError: Records that are missing, damaged or too few.
    """
    import mlflow

    request = TrainingRequest(records, family, "xgb", "by_task", (), "quick", seed)
    data = load_data(request, cluster=cluster)
    with command_run.tracked_run("records study", {"family": data.family}) as run:
        command_run.log_resolved({"records": records, "seed": seed, **data.facts})
        command_run.log_records(records, data.digest, "study")
        operators = operators_by_device(data.store)
        model = XgbModel.for_effort("quick", seed)
        model.fit(data.train, data.valid)
        found = importances(model, data.train, data.test, seed)
        hardware = [row for row in found if row.column.startswith(("hardware.", FLOPS))]
        mlflow.log_dict({"operators": operators}, "study/operators.json")
        mlflow.log_dict({"columns": [row.to_dict() for row in found]}, "study/importance.json")
        for name, rows in (("importance", found[:most_columns]), ("hardware_and_flops", hardware)):
            mlflow.log_figure(figures.bars(_by_figure(rows)), f"figures/{name}.png")
        return {
            "run_id": run.info.run_id,
            "dataset_digest": data.digest,
            "operators": operators,
            "columns": [row.to_dict() for row in found[:most_columns]],
            "hardware_and_flops": [row.to_dict() for row in hardware],
        }


def _by_figure(rows: list[Importance]) -> dict[str, dict[str, float]]:
    """Figure -> column -> value."""
    plain = [row.to_dict() for row in rows]
    names = [name for name in plain[0] if name != "column"]
    return {name: {str(row["column"]): float(row[name]) for row in plain} for name in names}
