"""`hetfeat hpo`: one study, any number of calls and workers, one registered best."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import adapting
import mlflow
import optuna
import pytest
import stores
from mlflow.exceptions import MlflowException
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.exc import IntegrityError

import mlproject
from hetfeat.errors import RequestError, WorkFailed
from registry.cli import app
from registry.jobs import hpo, optuna_study, train
from registry.models import process
from registry.models.mlflow_client import connect

pytestmark = pytest.mark.slow

NAME = "small"
COMMON = ("--records", "records", "--effort", "quick", "--study", NAME)


@pytest.fixture
def here(registry_here: Path) -> Path:
    stores.make_store(registry_here / "records")
    return registry_here


def call(capfd, *arguments: str) -> dict[str, Any]:
    return adapting.succeed(capfd, "hpo", *COMMON, *arguments)


def refused(capfd, *arguments: str) -> str:
    return adapting.refuse(capfd, "hpo", *COMMON, *arguments)


def stored(folder: Path, storage: str = "") -> optuna.Study:
    journal = JournalStorage(JournalFileBackend(str(folder / "optuna.journal")))
    return optuna.load_study(study_name=NAME, storage=storage or journal)


def nested_of(result: dict[str, Any]) -> list[Any]:
    """The runs under the study's run: those of trials and of the best."""
    client = connect()
    best = client.get_run(result["run_id"])
    query = f"tags.`mlflow.parentRunId` = '{best.data.tags['mlflow.parentRunId']}'"
    return list(client.search_runs([best.info.experiment_id], query))


def worker(project: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    return subprocess.Popen(
        [
            sys.executable,
            *(arguments or ("-m", "mlproject", "hpo", *COMMON, "--trials", "6", "--json")),
        ],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(project)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_registers_the_best_under_one_parent_and_goes_on(here, capfd):
    first = call(capfd, "--trials", "2")
    assert first["trials"] == {"done": 2, "pruned": 0, "failed": 0, "not_counted": 0}
    client = connect()
    version = client.get_model_version(first["model"], str(first["version"]))
    assert version.run_id == first["run_id"]
    assert version.tags["study"] == NAME
    assert float(version.tags["metric.pca"]) == first["metrics"]["pca"]

    best = client.get_run(first["run_id"])
    parent = client.get_run(best.data.tags["mlflow.parentRunId"])
    assert parent.data.metrics["best.valid_pca"] == first["best"]["value"]
    assert parent.data.metrics["decides/pca"] == first["metrics"]["pca"]
    so_far = client.get_metric_history(parent.info.run_id, "progress/best_valid_pca")
    assert [point.step for point in so_far] == [1, 2]
    assert so_far[0].value <= so_far[1].value == first["best"]["value"]
    nested = nested_of(first)
    trials = {run.data.tags["study_trial"]: run for run in nested if run != best}
    assert set(trials) == {"0", "1"}
    of_best = next(
        run
        for run in nested
        if run.data.tags["study_trial"] == str(first["best"]["number"])
        and run.info.run_id != first["run_id"]
    )
    assert of_best.data.metrics["valid_pca"] == first["best"]["value"]
    assert set(first["best"]["params"]) <= set(of_best.data.params)

    assert call(capfd, "--trials", "2") == first, "a study that is done is only told again"
    more = call(capfd, "--trials", "4")
    assert sum(more["trials"].values()) == 4
    assert [trial.number for trial in stored(here).trials] == [0, 1, 2, 3]
    assert more["best"]["value"] >= first["best"]["value"]
    assert (more["version"] == first["version"]) == (more["best"] == first["best"])
    assert "another seed" in refused(capfd, "--seed", "5")


WAITS_IN_MID_TRIAL = """
import pathlib, sys, time
import optuna
report, until = optuna.Trial.report, pathlib.Path(sys.argv[1])
def wait(trial, value, step):
    report(trial, value, step)
    if not until.exists():
        print("in mid-trial", flush=True, file=sys.stderr)
    for _ in range(6000):  # a test that fails leaves nobody waiting for ever
        if until.exists():
            break
        time.sleep(0.1)
optuna.Trial.report = wait
import mlproject
mlproject.main(sys.argv[2:])
"""


@pytest.fixture(params=["journal", pytest.param("postgresql", marks=pytest.mark.services)])
def storage(request) -> Iterator[str]:
    """What `--storage` says; the database of `make services` has other tests' studies, too."""
    if request.param == "journal":
        yield ""
        return
    if "HETFEAT_TEST_STUDIES" not in os.environ:
        pytest.skip("no servers; `make services` starts them, `make test-services` uses them")
    url = os.environ["HETFEAT_TEST_STUDIES"]
    yield url
    optuna.delete_study(study_name=NAME, storage=url)


def test_a_killed_worker_costs_its_own_trial_alone(here, project, storage):
    """Two are in mid-trial when one of them is killed; a third comes later."""
    asked = ("hpo", *COMMON, "--trials", "6", "--json", "--storage", storage)
    begun = [worker(project, here, "-c", WAITS_IN_MID_TRIAL, file, *asked) for file in "ab"]
    for one in begun:
        said = list(itertools.takewhile(lambda line: "in mid-trial" not in line, one.stderr))
        assert one.poll() is None, said
    killed, alive = begun
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (here / "b").touch()

    workers = [alive, worker(project, here, "-m", "mlproject", *asked)]
    printed = [process.communicate(timeout=240) for process in workers]
    assert [process.returncode for process in workers] == [0, 0], "".join(e for _, e in printed)
    results = [json.loads(out) for out, _ in printed]
    assert results[0]["version"] == results[1]["version"] == 1
    assert len(connect().search_model_versions(f"name = '{results[0]['model']}'")) == 1

    by = {process.pid: [] for process in (*workers, killed)}
    for trial in (trials := stored(here, storage).get_trials()):
        by[json.loads(trial.user_attrs[optuna_study.WORKER])["pid"]].append(trial)
    (lost,) = by[killed.pid]
    assert lost.user_attrs[optuna_study.NOT_COUNTED] == "its worker is gone"
    assert by[alive.pid][0].number < 2, "the trial it was in"
    assert optuna_study.NOT_COUNTED not in by[alive.pid][0].user_attrs
    counted = [trial.number for trial in trials if optuna_study.NOT_COUNTED not in trial.user_attrs]
    assert len(counted) == 6
    ended = [
        run.data.tags["study_trial"] for run in nested_of(results[0]) if "state" in run.data.tags
    ]
    assert sorted(map(int, ended)) == counted, "each has one run that ended"


KILLED_ONCE_REGISTERED = """
import os, signal, sys
from registry.jobs import hpo
fit_and_register = hpo.fit_and_register
def die(*args):
    fit_and_register(*args)
    os.kill(os.getpid(), signal.SIGKILL)
hpo.fit_and_register = die
import mlproject
mlproject.main(sys.argv[1:])
"""


def test_killed_between_registering_and_writing_it_down_it_registers_once(here, project, capfd):
    killed = worker(project, here, "-c", KILLED_ONCE_REGISTERED, "hpo", *COMMON, "--trials", "2")
    killed.communicate(timeout=240)
    assert killed.returncode == -signal.SIGKILL
    client = connect()
    (version,) = client.search_model_versions()
    result = call(capfd, "--trials", "2")
    (after,) = client.search_model_versions()
    assert (result["model"], str(result["version"])) == (after.name, str(version.version))
    assert result["run_id"] == version.run_id
    assert float(version.tags["metric.pca"]) == result["metrics"]["pca"]
    assert client.get_run(version.run_id).info.status == "FINISHED"
    assert call(capfd, "--trials", "2") == result


def test_another_study_of_the_same_name_registers_its_own(here, capfd):
    first = call(capfd, "--trials", "1")
    second = call(capfd, "--trials", "1", "--storage", "other.journal")
    assert second["version"] == first["version"] + 1


def test_a_deleted_run_of_the_study_is_replaced(here, capfd):
    first = call(capfd, "--trials", "1")
    parent = stored(here).user_attrs[hpo._PARENT]
    assert connect().get_run(first["run_id"]).data.tags["mlflow.parentRunId"] == parent
    connect().delete_run(parent)
    assert sum(call(capfd, "--trials", "2")["trials"].values()) == 2
    assert stored(here).user_attrs[hpo._PARENT] != parent


def fails_at(*numbers: int):
    objective = hpo._objective

    def failing(work, trial, run_id):
        if trial.number in numbers:
            raise MemoryError("too large")
        return objective(work, trial, run_id)

    return failing


def test_a_failing_trial_is_data(here, capfd, monkeypatch):
    monkeypatch.setattr(hpo, "_objective", fails_at(0))
    result = call(capfd, "--trials", "2")
    assert result["trials"] == {"done": 1, "pruned": 0, "failed": 1, "not_counted": 0}
    failed = stored(here).trials[0]
    assert failed.user_attrs[optuna_study.REASON] == "MemoryError: too large"


def test_all_trials_failing_is_a_failure(here, monkeypatch, capfd):
    monkeypatch.setattr(hpo, "_objective", fails_at(0, 1))
    assert app.run(mlproject.cli, ["hpo", *COMMON, "--trials", "2"]) == WorkFailed.exit_code
    assert "MemoryError: too large" in capfd.readouterr().err.splitlines()[-1]


def test_trials_see_the_valid_side_only(here):
    """With a test side that cannot be read, every trial still has its value."""
    request = train.TrainingRequest(Path("records"), None, "xgb", "by_task", (), "quick", 0)
    data = train.load_data(request)
    object.__setattr__(data, "test", None)
    made = optuna.create_study(direction="maximize", pruner=optuna.pruners.NopPruner())
    work = hpo._Work(hpo.HyperparameterSearch(request, 1, "", None), data, made, None, "", {})
    with mlflow.start_run() as run:
        assert 0 < hpo._objective(work, made.ask(), run.info.run_id) <= 1


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ("sqlite:///mlflow.db", "database of MLflow"),
        ("no/such/folder/x.journal", "folder that exists"),
        ("oracle9://user:secret@nowhere/x", "oracle9://..."),
    ],
)
def test_a_storage_that_cannot_be_is_refused(here, capfd, storage, said):
    line = refused(capfd, "--storage", storage)
    assert said in line
    assert "secret" not in line


def test_a_copy_of_mlflows_database_is_known_by_its_tables(here, tmp_path):
    connect().search_experiments()
    shutil.copy("mlflow.db", "other.db")
    with pytest.raises(RequestError, match="database of MLflow"):
        optuna_study.open_storage("sqlite:///other.db", "http://elsewhere")


def test_a_database_of_its_own_serves(here, capfd):
    result = call(capfd, "--trials", "1", "--storage", "sqlite:///optuna.db")
    assert result["trials"]["done"] == 1


def test_workers_that_make_the_tables_at_once_both_have_them(monkeypatch):
    storage, met = optuna.storages.RDBStorage, []

    def opened(url):
        if not met.append(url) and len(met) == 1:
            raise IntegrityError(
                "CREATE TABLE studies", None, Exception("pg_type_typname_nsp_index")
            )
        return storage(url)

    monkeypatch.setattr(optuna.storages, "RDBStorage", opened)
    assert optuna_study.open_storage("sqlite://", "").get_all_studies() == []


def test_a_store_that_is_busy_has_not_lost_the_run_of_the_study():
    def away(run_id):
        raise MlflowException("no answer")

    made = optuna.create_study()
    made.set_user_attr(hpo._PARENT, "0" * 32)
    with pytest.raises(MlflowException, match="no answer"):
        hpo._parent_run(SimpleNamespace(get_run=away), made, None, {})


def test_a_bad_trial_is_pruned_early():
    made = optuna.create_study(
        direction="maximize", sampler=optuna_study.SeededByTrial(0), pruner=optuna_study.pruner()
    )
    for value in (0.9, 0.9, 0.9, 0.9, 0.2):
        trial = made.ask()
        for epoch in range(0, 60, 10):
            trial.report(value, epoch)
            if trial.should_prune():
                break
        made.tell(trial, value)
    assert len(made.trials[4].intermediate_values) < 6 == len(made.trials[3].intermediate_values)


def test_each_trial_has_its_own_seed_and_a_study_repeats():
    def draw(resume_at: int) -> list[float]:
        made = optuna.create_study(sampler=optuna_study.SeededByTrial(3))
        values = []
        for number in range(4):
            if number == resume_at:
                made.sampler = optuna_study.SeededByTrial(3)
            trial = made.ask()
            values.append(trial.suggest_float("x", 0, 1))
            made.tell(trial, values[-1])
        return values

    assert draw(resume_at=2) == draw(resume_at=9)
    assert len(set(draw(9))) == 4


def test_the_watch_gives_a_silent_trial_up_after_its_time():
    made = optuna.create_study()
    trial = made.ask()
    trial.set_user_attr(optuna_study.WORKER, "{}")
    watch = optuna_study.Watch(made, stale_s=0.05)
    assert watch.sweep() == 1
    time.sleep(0.1)
    assert watch.sweep() == 0
    assert optuna_study.counted(made) == []


def test_a_living_worker_of_this_machine_may_take_its_time():
    made = optuna.create_study()
    made.ask().set_user_attr(optuna_study.WORKER, process.describe())
    assert optuna_study.Watch(made, stale_s=-1.0).sweep() == 1


def test_two_workers_may_give_up_the_same_trial(monkeypatch):
    made = optuna.create_study()
    trial = made.ask()
    seen = made.get_trials()
    for _ in range(2):
        optuna_study.discard(made, trial, "its worker is gone")
    monkeypatch.setattr(made, "get_trials", lambda **_: seen)
    assert optuna_study.Watch(made, stale_s=-1.0).sweep() == 0


@pytest.mark.parametrize("error", [None, MemoryError(), optuna.TrialPruned()])
def test_a_trial_that_another_worker_gave_up_ends_no_worker(monkeypatch, error):
    made = optuna.create_study()

    def given_up_meanwhile(work, trial, run_id):
        made.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if error:
            raise error
        return 0.5

    monkeypatch.setattr(hpo, "_trial_run", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(hpo, "_objective", given_up_meanwhile)
    hpo._run_trial(hpo._Work(None, None, made, None, "", {}), made.ask())
    assert made.trials[0].state == optuna.trial.TrialState.FAIL
