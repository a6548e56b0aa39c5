"""An Optuna study that several processes work on: its storage, its trials, its sampler.

The storage is a journal file, or a database of its own: MLflow and Optuna both migrate the
schema of theirs and each takes the other's migrations for its own.

Trials are numbered by the storage, one number each. Those lost with their worker and those asked
for beyond the total are marked and not counted, so that the total holds for any number of
workers.
"""

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import TPESampler
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from hetfeat import parsing
from hetfeat.errors import RequestError, WorkFailed
from hetfeat.models.hyperparameters import Choice, Range
from registry.models import process
from registry.tracking.packages import missing

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

DEFAULT_JOURNAL = "optuna.journal"
NOT_COUNTED = "not_counted"
"""User attribute of a trial that took no part: the reason."""
REASON = "reason"
"""User attribute of a failed trial: the error."""
WORKER = "worker"


@dataclass(frozen=True)
class TrialOptions:
    """How the workers of a study go about it; all have the same, but for tests.

    Attributes:
        report_rounds: Number of rounds from one report of a trial to the next, default 10: at each
            it may be pruned.
        warm_up_rounds: Number of rounds that no trial is pruned before, default 20.
        startup_trials: Number of trials before any is pruned, default 4.
        stale_s: Seconds that a trial of another machine may report nothing before it is taken for
            lost, default 300.
        claim_stale_s: Seconds to wait for a worker of another machine that said it would train the
            best trial, default 1,800.
        poll_s: Seconds between looks at what other workers do, default 1.
    """

    report_rounds: int = 10
    warm_up_rounds: int = 20
    startup_trials: int = 4
    stale_s: float = 300.0
    claim_stale_s: float = 1800.0
    poll_s: float = 1.0


TRIALS = TrialOptions()


class _Entry(parsing.Schema):
    """A line of Optuna's journal, as far as it tells one from another file."""

    op_code: int


def open_storage(given: str, tracking_uri: str) -> "BaseStorage":
    """The storage of `--storage`: a journal file, or a database by its URL.

    Raises:
        RequestError: The database is MLflow's, or cannot be used.
    """
    if "://" not in given:
        path = Path(given or DEFAULT_JOURNAL)
        if not path.parent.is_dir() or path.is_dir():
            raise _unusable(given, "not a file in a folder that exists")
        try:
            _refuse_other_files(path)  # Optuna appends to whatever is there
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
            if not all(study.directions for study in storage.get_all_studies()):
                raise ValueError("a study without a direction")
            return storage
        except Exception as error:  # Optuna believes every line
            raise _unusable(given, f"{type(error).__name__}: no journal of Optuna") from error
    from sqlalchemy.exc import SQLAlchemyError

    try:
        if _is_mlflows(given, tracking_uri):
            raise RequestError(
                "--storage with the database of MLflow",
                "a journal file or a database of its own",
                "leave --storage out, or name another database: the two would migrate each other",
            )
        return _database(given)
    except ModuleNotFoundError as error:
        raise missing(error) from error
    except (SQLAlchemyError, ImportError, ValueError, RuntimeError) as error:
        # Not the message: it may hold the URL and, with it, a password.
        raise _unusable(given.partition("://")[0] + "://...", type(error).__name__) from error


def _database(url: str, attempts: int = 4, pause_s: float = 0.5) -> "BaseStorage":
    """Optuna's storage in a database; workers that begin together each try to make its tables."""
    from sqlalchemy.exc import DatabaseError

    for _ in range(attempts - 1):
        with suppress(DatabaseError):
            return optuna.storages.RDBStorage(url)
        time.sleep(pause_s)
    return optuna.storages.RDBStorage(url)


def _refuse_other_files(path: Path) -> None:
    """Raises DataError where a file begins with anything but an entry of a journal."""
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            line = file.readline(parsing.MAX_BYTES)
        parsing.decode(line, _Entry, what="an entry", action="choose another --storage")


def attribute(study: optuna.Study, key: str, kind: Any, default: Any = None) -> Any:
    """A user attribute of a study, which every worker may write.

    Args:
        study: Study of any storage.
        key: Name of the attribute.
        kind: Type of the value, as in `hetfeat.parsing.parse`.
        default: Value where there is no attribute, default None.

    Raises:
        DataError: It is not of that type.
    """
    if (value := study.user_attrs.get(key)) is None:
        return default
    what, action = f"'{key}' of study '{study.study_name}'", "choose another --study"
    return parsing.parse(value, kind, what=what, action=action)


def counted(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that count towards the total."""
    return [t for t in study.get_trials(deepcopy=False) if NOT_COUNTED not in t.user_attrs]


def states(study: optuna.Study) -> dict[str, int]:
    """Number of trials by what became of them."""
    trials = study.get_trials(deepcopy=False)
    kept = [trial.state for trial in trials if NOT_COUNTED not in trial.user_attrs]
    return {
        "done": kept.count(TrialState.COMPLETE),
        "pruned": kept.count(TrialState.PRUNED),
        "failed": kept.count(TrialState.FAIL),
        "not_counted": len(trials) - len(kept),
    }


def ask(study: optuna.Study, total: int) -> optuna.Trial | None:
    """The next trial, or None when the total is reached."""
    if len(counted(study)) >= total:
        return None
    trial = study.ask()
    trial.set_user_attr(WORKER, process.describe())
    # Another worker may have asked at the same moment; numbers decide who was too late.
    if sum(other.number < trial.number for other in counted(study)) < total:
        return trial
    discard(study, trial, "beyond the total")
    return None


def discard(study: optuna.Study, trial: optuna.Trial, why: str) -> None:
    """Ends a trial so that it does not count."""
    with suppress(UpdateFinishedTrialError):  # another worker gave it up
        trial.set_user_attr(NOT_COUNTED, why)
        study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


@dataclass
class Watch:
    """Notices trials whose worker is gone, so that others take their place."""

    study: optuna.Study
    stale_s: float = TRIALS.stale_s
    since: dict[tuple[int, int], float] = field(default_factory=dict)

    def sweep(self) -> int:
        """Ends the lost trials; returns how many are running elsewhere."""
        running = 0
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not self._is_lost(trial):
                running += 1
                continue
            storage = self.study._storage  # a trial of another process has no public handle
            with suppress(UpdateFinishedTrialError):  # another worker was first
                storage.set_trial_user_attr(trial._trial_id, NOT_COUNTED, "its worker is gone")
                self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
        return running

    def _is_lost(self, trial: FrozenTrial) -> bool:
        worker = trial.user_attrs.get(WORKER, "")
        if process.is_gone(worker):
            return True
        if process.is_here(worker):
            return False
        seen = (trial.number, len(trial.intermediate_values))
        return time.monotonic() - self.since.setdefault(seen, time.monotonic()) > self.stale_s


class SeededByTrial(TPESampler):
    """TPE with a fresh seed for each trial, made of the study's seed and the trial's number.

    With one seed for the process, a study that is resumed would draw the same first values again,
    and two workers would try the same.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed)
        self.seed = seed

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Begins anew with the trial's own seed."""
        super().__init__(seed=(self.seed * 1_000_003 + trial.number) % 2**32)
        super().before_trial(study, trial)


def pruner(options: TrialOptions = TRIALS) -> optuna.pruners.BasePruner:
    """Ends trials that are worse than the median of those before, at the same round."""
    rounds = options.warm_up_rounds, options.report_rounds
    return optuna.pruners.MedianPruner(options.startup_trials, *rounds)


def suggest(trial: optuna.Trial, name: str, space: Range | Choice) -> Any:
    """A value of a hyperparameter, out of what it may be."""
    if isinstance(space, Choice):
        return trial.suggest_categorical(name, space.values)
    if space.whole:
        return trial.suggest_int(name, int(space.low), int(space.high), log=space.log)
    return trial.suggest_float(name, space.low, space.high, log=space.log)


def best_value(study: optuna.Study) -> float | None:
    """The highest value of a completed trial; None where none was completed."""
    return max(map(_value, _completed(study)), default=None)


def best_trial(study: optuna.Study) -> FrozenTrial:
    """The completed trial of the highest value, the first of equals.

    Raises:
        WorkFailed: None was completed.
    """
    done = _completed(study)
    if not done:
        known = [t.user_attrs[REASON] for t in counted(study) if REASON in t.user_attrs]
        reasons = [parsing.printable(str(reason)) for reason in known]
        raise WorkFailed(
            f"study '{study.study_name}' without a completed trial "
            f"({reasons[-1] if reasons else 'all were pruned'})",
            "at least one",
            "correct the cause and go on with more --trials, or under another --study",
        )
    return max(done, key=lambda trial: (_value(trial), -trial.number))


def _completed(study: optuna.Study) -> list[FrozenTrial]:
    return [t for t in counted(study) if t.state == TrialState.COMPLETE and t.value is not None]


def _value(trial: FrozenTrial) -> float:
    return trial.value or 0.0


def holds_studies(url: str) -> bool:
    """Whether a database has Optuna's tables."""
    return _has_table(url, "studies")


def _is_mlflows(url: str, tracking_uri: str) -> bool:
    """Whether a database is, or holds, a tracking store or registry."""
    from sqlalchemy.engine import make_url

    wanted = make_url(url)
    if wanted.get_backend_name() == "sqlite":
        file = Path(wanted.database or "")
        if tracking_uri.startswith("sqlite:"):
            theirs = Path(make_url(tracking_uri).database or "")
            if file.resolve() == theirs.resolve():
                return True
        if not file.is_file():
            return False  # connecting would make it
    return _has_table(url, "registered_models")


def _has_table(url: str, name: str) -> bool:
    from sqlalchemy import create_engine, inspect

    engine = create_engine(url)
    try:
        return bool(inspect(engine).has_table(name))
    finally:
        engine.dispose()


def _unusable(given: str, why: str) -> RequestError:
    return RequestError(
        f"--storage '{given}' ({why})",
        "a journal file, or the URL of a database that answers",
        "correct it, or leave it out",
    )
