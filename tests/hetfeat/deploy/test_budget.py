"""What a deployment's tuning may spend."""

import pytest
from deploy_reports import REPORT
from door import hetfeat

import registry.jobs.deploy
from hetfeat.deploy.request import DeployRequest
from hetfeat.deploy.tuned import _budget
from hetfeat.tune.session import BUDGETS
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
