"""Which build of a network is compared first, and when the untuned one is run at all."""

from types import SimpleNamespace

import pytest

from hetfeat.deploy import pipeline
from hetfeat.deploy.check_on_device import CHECK_DEFAULTS, CheckOptions
from hetfeat.deploy.request import DeployRequest
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import DeviceLost
from hetfeat.records import Task

SMALL, LARGE = 1e6, 8e9
MODEL = object()
PICKED = {"t": "the pick"}


def asked(trials):
    return DeployRequest("net", "net", (1,), "here", "m", "quick", trials, 0)


def lowered(flops, trials=None, is_gpu=False):
    task = Task("t", "matmul", ((1, 1),), "float32", flops)
    return SimpleNamespace(
        tasks_of_each=[[SimpleNamespace(task=task, weight=1)]],
        request=asked(trials),
        profile=SimpleNamespace(target=SimpleNamespace(is_gpu=is_gpu)),
        references=[None],
    )


def failure(words):
    return WorkFailed(words, "right outputs", "report it")


@pytest.fixture
def stages(monkeypatch):
    """What is built and checked, in order; `wrong` holds the builds that compute something else."""
    done, wrong = [], {}

    def check(name, result):
        done.append(name)
        if name in wrong:
            raise wrong[name]
        return result

    def check_untuned(profile, folder, *_):
        return check(folder.name, SimpleNamespace(median_ms=7.0))

    def report(lowered, first, *_):
        return SimpleNamespace(as_json=dict, latency=first.untuned, first=first)

    def read_tuned(*_):
        done.append("picking")
        return SimpleNamespace(result=SimpleNamespace(picked=PICKED))

    monkeypatch.setattr(pipeline, "build_untuned", lambda lowered, folder: None)
    monkeypatch.setattr(
        pipeline,
        "build_tuned",
        lambda lowered, tuned, source, folder: SimpleNamespace(folder=folder, seconds=1.0),
    )
    monkeypatch.setattr(pipeline, "check_untuned", check_untuned)
    monkeypatch.setattr(pipeline, "check_tuned", lambda *_: check("tuned", None))
    monkeypatch.setattr(pipeline, "tune_tasks", lambda *_: done.append("tuning"))
    monkeypatch.setattr(pipeline, "read_tuned", read_tuned)
    monkeypatch.setattr(pipeline, "_report", report)
    monkeypatch.setattr(pipeline, "add_facts", lambda *_: None)
    monkeypatch.setattr(pipeline, "publish_folder", lambda *_: None)
    return done, wrong


def deploy(monkeypatch, out, network, source=MODEL, check=CHECK_DEFAULTS):
    monkeypatch.setattr(pipeline, "lower_networks", lambda *_: network)
    return pipeline.deploy(network.request, [], network.profile, source, out, check)


@pytest.mark.parametrize(
    ("network", "source", "first"),
    [
        (lowered(SMALL), MODEL, ["untuned"]),
        (lowered(LARGE), MODEL, ["picking", "picked"]),
        (lowered(LARGE), None, ["untuned"]),
        (lowered(LARGE, is_gpu=True), MODEL, ["untuned"]),
        (lowered(SMALL, trials=0), MODEL, []),
    ],
)
def test_the_first_build_is_one_that_is_soon_there(
    stages, monkeypatch, tmp_path, network, source, first
):
    done, _ = stages
    report = deploy(monkeypatch, tmp_path / "bundle", network, source)
    assert done == [*first, "tuning", "tuned"]
    assert (report.latency is not None) == (first == ["untuned"])


@pytest.mark.parametrize(("flops", "picked"), [(LARGE, PICKED), (SMALL, None)])
def test_tuning_begins_with_what_was_picked(stages, monkeypatch, tmp_path, flops, picked):
    begun = []
    monkeypatch.setattr(pipeline, "tune_tasks", lambda *given: begun.append(given[-1]))
    report = deploy(monkeypatch, tmp_path / "bundle", lowered(flops))
    assert begun == [picked]
    assert bool(report.first.picked) == bool(picked), "its latency is told"


@pytest.mark.parametrize("trials", [None, 0])
def test_the_untuned_network_runs_where_it_is_asked_for(stages, monkeypatch, tmp_path, trials):
    done, _ = stages
    network = lowered(LARGE, trials)
    deploy(monkeypatch, tmp_path / "bundle", network, check=CheckOptions(untuned=True))
    assert done == ["untuned", "tuning", "tuned"]


def test_a_wrong_picked_network_is_compared_without_its_programs(stages, monkeypatch, tmp_path):
    done, wrong = stages
    wrong["tuned"] = failure("off by 3")
    with pytest.raises(WorkFailed, match="off by 3"):
        deploy(monkeypatch, tmp_path / "bundle", lowered(LARGE, trials=0))
    assert done == ["tuning", "tuned", "untuned"]
    wrong["untuned"] = failure("as TVM imports it")
    with pytest.raises(WorkFailed, match="as TVM imports it"):
        deploy(monkeypatch, tmp_path / "bundle", lowered(LARGE, trials=0))


def test_a_wrong_pick_alone_does_not_end_what_tuning_may_mend(stages, monkeypatch, tmp_path):
    done, wrong = stages
    wrong["picked"] = failure("off by 3")
    deploy(monkeypatch, tmp_path / "bundle", lowered(LARGE))
    assert done == ["picking", "picked", "untuned", "tuning", "tuned"]


def test_a_lost_device_is_not_asked_again(stages, monkeypatch, tmp_path):
    done, wrong = stages
    wrong["picked"] = wrong["tuned"] = DeviceLost("a device", "a server", "start one")
    for trials in (None, 0):
        done.clear()
        with pytest.raises(DeviceLost):
            deploy(monkeypatch, tmp_path / "bundle", lowered(LARGE, trials))
        assert done[-1] in ("picked", "tuned")


def test_without_measuring_peers_take_few_turns():
    options = CheckOptions(rounds={"quick": 20})
    assert options.rounds_of(asked(None)) == 20
    assert options.rounds_of(asked(0)) == options.picked_rounds
    assert CheckOptions(rounds={"quick": 1}).rounds_of(asked(0)) == 1
