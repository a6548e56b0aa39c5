"""What a report still has to run, from runs made up by hand."""

import dataclasses
from pathlib import Path

import pytest
import report_runs as made
import stores
from deploy_reports import deployment

from hetfeat.report.deployments import BATCHES
from hetfeat.report.scope import STRATEGIES, Device
from registry.jobs import report_plan
from registry.jobs.report_plan import ReportPlan
from registry.models.mlflow_client import connect
from registry.models.versions import search_versions
from registry.tracking.finished_runs import finished_runs


def plan(
    effort: str = "standard", devices: tuple[str, ...] = (made.HERE, "zen4-avx2-2t")
) -> ReportPlan:
    scope = made.scope(effort, devices)
    here = Device(made.HERE, "cpu", "device")
    return ReportPlan(scope, Path("records"), here, 484, Path("bundles"))


@pytest.mark.parametrize(
    ("effort", "devices", "expected"),
    [
        # 3 models, with and without pruning.
        ("quick", 1, 6),
        # 4 models on by_task, 3 on within_task and as TenSet, with and without pruning, 3 seeds.
        ("standard", 1, 60),
        # And 3 on by_target, one device held out.
        ("standard", 3, 78),
        # 5 seeds, each of three devices held out.
        ("full", 3, 190),
    ],
)
def test_trainings(effort, devices, expected):
    names = (made.HERE, "zen4-avx2-2t", "zen4-sse42-2t")[:devices]
    assert len(list(report_plan.missing_trainings(plan(effort, names), []))) == expected


def test_what_was_trained_is_not_trained_again():
    runs = [made.training(1, effort="quick"), made.training(2, "mlp", digest="e" * 64)]
    steps = list(report_plan.missing_trainings(plan("quick"), runs))
    assert [step.what for step in steps] == [
        "train xgb by_task on pruned cpu records, seed 0",
        "train mlp by_task on all cpu records, seed 0",
        "train mlp by_task on pruned cpu records, seed 0",
        "train lgbm by_task on all cpu records, seed 0",
        "train lgbm by_task on pruned cpu records, seed 0",
    ]


@pytest.mark.slow
def test_a_training_as_tenset_is_logged_and_registers_nothing(registry_here):
    """It was stopped by what it was tested on: nobody may tune with it."""
    stores.make_store(registry_here / "records", devices=("a",), per_task=24)
    own = dataclasses.replace(plan(), records=registry_here / "records")
    own = dataclasses.replace(own, scope=dataclasses.replace(own.scope, effort="quick"))
    steps = {step.what: step for step in report_plan.missing_trainings(own, [])}
    steps["train xgb tenset on all cpu records, seed 0"].run()
    (run,) = finished_runs()
    assert (run.command, run.setting("split")) == ("train", "tenset")
    assert 0 <= run.metrics["pca_tenset_on.a"] <= 1
    assert run.setting("valid_records") == run.setting("test_records")
    assert not list(search_versions(connect()))


def test_only_searches_that_are_absent():
    runs = [made.search(strategy, 1.0, seed=seed) for strategy in STRATEGIES for seed in range(3)]
    assert list(report_plan.missing_searches(plan(), runs)) == []
    (step,) = report_plan.missing_searches(plan(), runs[:-1])
    assert step.what == "search gemm 512,512,512 by rnn, seed 2"


class TestDeployments:
    @pytest.fixture(autouse=True)
    def versions(self, monkeypatch):
        monkeypatch.setattr(report_plan, "_version_of", lambda run: f"models:/m/{run.id[-1]}")

    def test_quick_deploys_nothing(self):
        assert list(report_plan.missing_deployments(plan("quick"), [])) == []

    def test_without_models_only_from_scratch(self):
        steps = list(report_plan.missing_deployments(plan(), []))
        assert [step.what for step in steps] == [
            "deploy resnet50, batch 1,2,4,8, quick, from scratch",
            "deploy resnet50, batch 1, standard, from scratch",
            "deploy mobilenet_v3_large, batch 1, standard, from scratch",
            "deploy inception_v3, batch 1, standard, from scratch",
        ]

    def test_with_models_once_each(self):
        runs = [made.training(1), made.training(2, pruned=True)]
        steps = [step.what for step in report_plan.missing_deployments(plan(), runs)]
        assert len(steps) == 9
        assert "deploy resnet50, batch 1,2,4,8, quick, with xgb, pruned" in steps
        assert "deploy inception_v3, batch 1, quick, with xgb" in steps
        runs += [
            made.deployment(1, batches=BATCHES, effort="quick"),
            made.deployment(2, batches=BATCHES, effort="quick", source="train2"),
            made.deployment(3, "inception_v3"),
        ]
        left = [step.what for step in report_plan.missing_deployments(plan(), runs)]
        assert sorted(set(steps) - set(left)) == [
            "deploy inception_v3, batch 1, standard, from scratch",
            "deploy resnet50, batch 1,2,4,8, quick, from scratch",
            "deploy resnet50, batch 1,2,4,8, quick, with xgb, pruned",
        ]

    def test_the_request_pins_the_version_or_asks_for_none(self, monkeypatch):
        import registry.jobs.deploy

        asked = []
        monkeypatch.setattr(
            registry.jobs.deploy,
            "deploy_and_register",
            lambda job: asked.append(job) or deployment(),
        )
        for step in report_plan.missing_deployments(plan(), [made.training(1)]):
            step.run()
        models = [job.model for job in asked]
        assert models == ["none", "models:/m/1", *["none", "models:/m/1"] * 3]
        assert asked[1].out.name == "resnet50-1.2.4.8-quick-with-xgb-v1"
        assert len({job.out for job in asked}) == len(asked)
        assert {job.out.parent for job in asked} == {Path("bundles")}
        assert all(job.stage is None for job in asked)

    def test_a_tuning_that_the_user_stops_ends_the_report(self, monkeypatch):
        import registry.jobs.deploy

        monkeypatch.setattr(
            registry.jobs.deploy, "deploy_and_register", lambda job: deployment(stopped=True)
        )
        first = next(report_plan.missing_deployments(plan(), [made.training(1)]))
        with pytest.raises(KeyboardInterrupt):
            first.run()

    def test_an_interrupted_deployment_is_still_missing(self):
        steps = [step.what for step in report_plan.missing_deployments(plan(), [])]
        cut = dataclasses.replace(
            made.deployment(1, "inception_v3"),
            tags={"network": "inception_v3", "interrupted": "true"},
        )
        left = [step.what for step in report_plan.missing_deployments(plan(), [cut])]
        assert left == steps


def test_no_model_means_no_model(device):
    from hetfeat.errors import RequestError
    from registry.jobs.chosen_model import FROM_SCRATCH, find_source

    assert find_source(FROM_SCRATCH, None, device) is None
    with pytest.raises(RequestError, match="--model none with --stage staging"):
        find_source(FROM_SCRATCH, "staging", device)
