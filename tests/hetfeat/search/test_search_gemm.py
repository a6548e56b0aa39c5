"""GEMM programs of tile states, and live searches over them."""

import json
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

import mlproject
from hetfeat.deploy import gemm_bench
from hetfeat.deploy.bench import Latency
from hetfeat.errors import RequestError
from hetfeat.measure.local import LocalMeasurer, MeasureOptions
from hetfeat.measure.messages import RunProgram
from hetfeat.measure.timing_options import RankingOptions
from hetfeat.records import Program, Task
from hetfeat.search.base import Timed
from hetfeat.search.space import gemm_space
from hetfeat.tune.gemm_measurer import CHILD, gemm_measurer
from registry.cli import app

SHAPES = [(64, 64, 64), (1, 64, 32), (7, 13, 31), (24, 36, 10)]


@pytest.mark.tvm
@pytest.mark.parametrize("shape", SHAPES)
def test_every_kind_of_state_multiplies(shape, device):
    import tvm

    from hetfeat.measure.gemm_child import matmul

    m, n, k = shape
    space = gemm_space(*shape)
    rng = np.random.default_rng(0)
    a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
    innermost = (1, 1, 1, m, 1, k, 1, 1, 1, n)
    for state in [
        space.start(),
        innermost,
        *(space.state_at(i) for i in rng.integers(space.size, size=4)),
    ]:
        program = tvm.compile(matmul(m, n, k, state), tvm.target.Target(dict(device.target))).jit()
        c = tvm.runtime.tensor(np.full((m, n), np.nan, np.float32))
        program["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
        np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4, err_msg=str(state))


@pytest.mark.tvm
def test_states_are_measured_once(device, monkeypatch):
    measured = []
    original = LocalMeasurer.measure

    def counting(self, programs, incumbent_s=None):
        measured.extend(json.loads(p.trace) for p in programs)
        return original(self, programs, incumbent_s)

    monkeypatch.setattr(LocalMeasurer, "measure", counting)
    space = gemm_space(32, 32, 32)
    states = [space.state_at(i) for i in (0, 7, 100)]
    with gemm_measurer(device, 32, 32, 32) as measure:
        first = measure(states)
        again = measure([states[2], states[0], space.state_at(3)])
    assert [timed.state for timed in first] == states
    assert all(timed.seconds and timed.seconds > 0 for timed in first)
    assert again[:2] == [first[2], first[0]]
    assert all(timed.cost_s > timed.seconds for timed in first)
    assert measured == [list(s) for s in (*states, space.state_at(3))]


@pytest.fixture
def measuring(device):
    """Measures states of a cube, given its extent and the best time so far."""

    def measuring(extent, states, incumbent_s):
        task = Task("gemm", "matmul", ((extent, extent),) * 3, "float32", 2.0 * extent**3)
        with LocalMeasurer(device, child=CHILD, builders=1) as measurer:
            measurer.add_task(task, json.dumps([extent] * 3))
            programs = [Program(task, json.dumps(state)) for state in states]
            found = measurer.measure(programs, {"gemm": incumbent_s} if incumbent_s else {})
            return found, [worker.generation for worker in measurer.pool.workers]

    return measuring


@pytest.mark.tvm
@pytest.mark.parametrize(("incumbent_s", "repeats"), [(None, 3), (1e-9, 1), (1.0, 3)])
def test_a_state_clearly_slower_than_the_best_is_only_ranked(measuring, incumbent_s, repeats):
    (found,), _ = measuring(32, [gemm_space(32, 32, 32).start()], incumbent_s)
    assert len(found.latencies_s) == repeats


@pytest.fixture
def service(device):
    """The service with a fork that times a first run of 30 ms and repeats of the same."""
    from hetfeat.measure.gemm_child import GemmService

    made = GemmService(MeasureOptions().start(device))
    made._fork = Mock()
    answers = {"once": 0.03, "more": [0.03] * 3}
    made._fork.ask.side_effect = lambda timeout_s, request: answers[request.do]
    made._forked, made._built = {"program"}, {"program": None}
    return made


@pytest.mark.tvm
@pytest.mark.parametrize(("incumbent_s", "asked"), [(0.024, ["once"]), (1.0, ["once", "more"])])
def test_a_long_run_is_ranked_by_itself(service, incumbent_s, asked):
    found = service.run(RunProgram(program="program", incumbent_s=incumbent_s))
    assert found == [0.03] * (1 if asked == ["once"] else 3)
    assert [call.args[1].do for call in service._fork.ask.call_args_list] == asked


@pytest.mark.tvm
@pytest.mark.parametrize(("incumbent_s", "allowed_s"), [(None, None), (0.001, 0.3), (0.2, 2.0)])
def test_a_slow_run_is_killed_by_the_incumbent(service, incumbent_s, allowed_s):
    service.run(RunProgram(program="program", incumbent_s=incumbent_s))
    assert service._fork.ask.call_args_list[0].args[0] == allowed_s


@pytest.mark.tvm
def test_messages_to_a_fork_are_json(service):
    """Without a best time the child had sent `Infinity`, which is none."""
    service.run(RunProgram(program="program", incumbent_s=None))
    more = service._fork.ask.call_args_list[1].args[1].model_dump_json()
    assert json.loads(more, parse_constant=pytest.fail)["best_s"] is None


@pytest.mark.tvm
def test_a_measurer_of_states_ranks_them_as_it_is_told(device):
    """Options had stayed in the parent: a first run over nothing's multiple is the latency."""
    ranking = RankingOptions(ranked_ratio=1e9, slow_ranked_ratio=1e9)
    states = [gemm_space(32, 32, 32).start()]
    task = Task("gemm", "matmul", ((32, 32),) * 3, "float32", 2.0 * 32**3)
    options = MeasureOptions(ranking=ranking)
    with LocalMeasurer(device, options, child=CHILD, builders=1) as measurer:
        measurer.add_task(task, json.dumps([32] * 3))
        (found,) = measurer.measure([Program(task, json.dumps(s)) for s in states], {"gemm": 1e-6})
    assert len(found.latencies_s) == 3


@pytest.mark.tvm
@pytest.mark.clock
def test_a_state_that_takes_too_long_is_killed_and_nothing_else_is_lost(measuring):
    fast, slow = (16, 4, 1, 16, 16, 64, 16, 4, 1, 16), gemm_space(1024, 1024, 1024).start()
    others = [(8, 8, 1, 16, 16, 64, 16, 4, 1, 16), (4, 16, 1, 16, 16, 64, 16, 4, 1, 16)]
    found, generations = measuring(1024, [fast, slow, *others, slow], 1e-3)
    assert [each.error for each in found[:4]] == [None, "timeout", None, None]
    assert all(each.latency_s < 0.3 for each in (found[0], *found[2:4]))
    assert set(generations) == {0}


def test_only_this_machines_cpu(device):
    gpu = replace(device, family="gpu-nvidia", target={"kind": "cuda"})
    with pytest.raises(RequestError, match="cuda"), gemm_measurer(gpu, 8, 8, 8):
        pass


def test_the_program_that_is_fastest_in_its_own_process_is_chosen(device, monkeypatch):
    measured = [Timed((1,), 4.0), None, Timed((2,), 3.0), Timed((3,), None), Timed((4,), 1.0)]
    states = gemm_bench.finalists([*measured, Timed((2,), 3.0), Timed((5,), 2.0)])
    assert states == [(4,), (5,), (2,)]
    again_ms = {"(4,)": 9.0, "(5,)": 5.0, "(2,)": 6.0, "torch_matmul": 7.0}

    def compare(engines, threads, rounds):
        return {
            name: Latency(ms, ms, ms) if (ms := again_ms.get(name)) else None for name in engines
        }

    monkeypatch.setattr(gemm_bench, "compare", compare)
    state, timed = gemm_bench.compare_matmul((8, 8, 8), states, device, 4)
    assert state == (5,)
    assert {name: found and found.median_ms for name, found in timed.items()} == {
        "searched_matmul": 5.0,
        "torch_matmul": 7.0,
        "openblas_matmul": None,
    }


@pytest.mark.tvm
@pytest.mark.slow
def test_the_command_beside_the_libraries(
    device_file, registry_here, child_environment, monkeypatch, capsys
):
    monkeypatch.setenv("PYTHONPATH", child_environment["PYTHONPATH"])
    arguments = ["search", "--gemm", "64,64,64", "--device", str(device_file), "--budget", "12"]
    code = app.run(mlproject.cli, [*arguments, "--strategy", "gbfs,random", "--json"])
    assert code == 0
    result = json.loads(capsys.readouterr().out)
    assert result["space_size"] == gemm_space(64, 64, 64).size
    assert result["optimum_ms"] is None
    assert len(result["best_state"]) == 10
    assert set(result["strategies"]) == {"gbfs", "random"}
    assert all(found["best_ms"] > 0 for found in result["strategies"].values())
    assert set(result["libraries_ms"]) == {"searched_matmul", "torch_matmul", "openblas_matmul"}
    assert all(ms > 0 for ms in result["libraries_ms"].values())
