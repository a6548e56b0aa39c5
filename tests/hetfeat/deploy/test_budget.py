"""What a deployment's tuning may spend."""

from types import SimpleNamespace

import pytest
import stores
from deploy_reports import REPORT
from door import hetfeat

import registry.jobs.deploy
from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.request import DeployRequest
from hetfeat.deploy.tuned import KERNELS_MS, TASKS, TUNING_S, _best_s, _budget, _on_round
from hetfeat.progress import recorded_by
from hetfeat.records import Measurement, Program, Task
from hetfeat.tune.session import BUDGETS, TuningProgress
from registry.jobs.deploy import Deployment

QUICK = BUDGETS["quick"]


@pytest.mark.parametrize(
    ("minutes", "seconds"), [(None, QUICK.seconds), (1.5, 90), (60.0, QUICK.seconds)]
)
def test_minutes_bound_the_seconds_of_the_effort(minutes, seconds):
    request = DeployRequest("x", "x", (1,), "here", None, "quick", None, 0, minutes=minutes)
    budget = _budget(request, 3)
    assert (budget.seconds, budget.trials) == (seconds, 3 * QUICK.trials_per_task)


def test_the_command_hands_them_over(monkeypatch, tmp_path, capfd):
    jobs = []

    def instead(job):
        jobs.append(job)
        return Deployment(REPORT, "run", "models:/m/1", tmp_path, reused=False)

    monkeypatch.setattr(registry.jobs.deploy, "deploy_and_register", instead)
    assert hetfeat(capfd, "deploy", "resnet18", "--minutes", "2.5").code == 0
    assert [job.minutes for job in jobs] == [2.5]
    assert hetfeat(capfd, "deploy", "resnet18", "--minutes", "0").code == 2


def test_what_the_kernels_add_up_to_is_recorded_by_trials(tmp_path):
    fast, slow = (Task(name * 16, "matmul", ((1, 8),), "float32", 1.0) for name in "ab")
    lowered = SimpleNamespace(
        tasks=[SimpleNamespace(task=fast), SimpleNamespace(task=slow)],
        weights={fast: 1, slow: 2},
        alternatives={},
        profile=stores.profile("a"),
    )

    def measured(task, seconds):
        return Measurement(Program(task, "[]"), "a", (seconds,), None, 1.0, "x")

    journal = RecordStore.create(tmp_path / "journal")
    with journal.writing():
        journal.append([measured(fast, 3e-3), measured(fast, 2e-3)])
    on_round = _on_round(lambda *_: None, lowered, QUICK, _best_s(lowered, journal))
    recorded = []
    with recorded_by(lambda step, figures: recorded.append((step, figures))):
        reached = TuningProgress(trials=8, resumed=2, failed=0, seconds=9.0, earlier_s=4.0)
        on_round(reached, SimpleNamespace(task=slow, best=measured(slow, 1e-3)))
    assert recorded == [(10, {KERNELS_MS: pytest.approx(4.0), TASKS: 2, TUNING_S: 9.0})]
