"""Networks by name, and the tasks that they come to."""

import json
import subprocess
import sys
from pathlib import Path

import nets
import pytest
import torch

from hetfeat.errors import RequestError
from hetfeat.workloads.exported import function_digest
from hetfeat.workloads.networks import load_network, network_slug

pytestmark = pytest.mark.tvm

PRINT_TASKS = """
import json, sys
from test_workloads import tasks_of
print(json.dumps([found.task.hash for found in tasks_of("nets:tiny", json.loads(sys.argv[1]))]))
"""


def tasks_of(network: str, target: dict) -> list:
    from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower

    made = as_target(target)
    return extract_tasks(lower(import_network(load_network(network)), made), made)


@pytest.fixture(scope="module")
def mixed_tasks(device):
    return tasks_of("nets:mixed", device.target)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_b_16", "timm/vit_tiny_patch16_224"])
def test_a_head_that_begins_as_zeros_is_drawn(name):
    network = load_network(name, seed=3)
    again = load_network(name, seed=3)
    with torch.inference_mode():
        output = network.module(*network.inputs)
        assert torch.equal(output, again.module(*again.inputs))
        assert output.std() > 0.1
        assert not torch.equal(output, network.module(-network.inputs[0]))


@pytest.mark.slow
class TestTimm:
    def test_a_network_by_name(self, device):
        found = load_network("timm/mobilenetv3_small_050", batch=2)
        assert (found.name, found.kind) == ("timm_mobilenetv3_small_050", "torch")
        assert found.inputs[0].shape == (2, 3, 224, 224)
        assert len(tasks_of("timm/mobilenetv3_small_050", device.target)) > 20

    def test_an_unknown_one_is_told_what_is_near(self):
        with pytest.raises(RequestError, match=r"such as .*resnet26d"):
            load_network("timm/resnet26dd")

    def test_the_extra_is_named_where_timm_is_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "timm", None)
        with pytest.raises(RequestError, match=r"hetfeat\[timm\]"):
            load_network("timm/resnet26d")


def test_operators_and_flops_of_known_layers(mixed_tasks):
    """A multiply and an add for each weight and position."""
    found = {t.task.operator: t.task.flops for t in mixed_tasks}
    assert found["conv2d"] == 2 * 8 * 4 * 9 * 64
    assert found["group_conv2d"] == 2 * 8 * 2 * 9 * 64
    assert found["matmul"] == 2 * 8 * 6
    assert {"max_pool2d", "softmax", "reduction"} <= set(found)


def test_tasks_come_largest_first_each_once(mixed_tasks):
    flops = [t.task.flops * t.weight for t in mixed_tasks]
    assert flops == sorted(flops, reverse=True)
    assert len({t.task.hash for t in mixed_tasks}) == len(mixed_tasks)
    assert all(t.weight >= 1 for t in mixed_tasks)


def test_shapes_are_channels_last(mixed_tasks):
    (conv,) = [t.task for t in mixed_tasks if t.task.operator == "conv2d"]
    assert conv.shapes[0] == (1, 8, 8, 4)
    assert conv.shapes[-1] == (1, 8, 8, 8)
    assert conv.dtype == "float32"


def test_a_stored_task_is_itself_again(mixed_tasks):
    from hetfeat.workloads.relax import load_workload, save_workload, workload_hash

    for found in mixed_tasks:
        assert workload_hash(load_workload(save_workload(found.module))) == found.task.hash


@pytest.mark.slow
def test_hashes_are_the_same_in_every_process(device, child_environment):
    command = [sys.executable, "-c", PRINT_TASKS, json.dumps(dict(device.target))]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, env=child_environment, capture_output=True, check=True
    )
    here = [found.task.hash for found in tasks_of("nets:tiny", device.target)]
    assert json.loads(done.stdout) == here
    assert len(here) >= 4


class TestNames:
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("resnet19", "resnet18"),
            ("mobilenet_v3", "mobilenet_v3_small"),
            ("zzzzzz", "module:function"),
            ("no_such_module:f", "No module named"),
            ("nets:no_such_function", "no_such_function"),
            (":tiny", "module:function"),
            ("nets:", "module:function"),
            (".nets:tiny", "module:function"),
            ("nets:A_CONSTANT", "not a function"),
            ("nets:not_a_network", "returning"),
            ("nets:no_inputs", "returning"),
        ],
    )
    def test_wrong_ones_say_what_would_be_right(self, name, said):
        with pytest.raises(RequestError, match="expected") as error:
            load_network(name)
        assert said in str(error.value)

    def test_a_batch_of_none_is_refused(self):
        with pytest.raises(RequestError, match="--batch"):
            load_network("resnet18", batch=0)

    def test_an_operator_that_cannot_be_imported_is_named(self):
        from hetfeat.workloads.relax import import_network

        with pytest.raises(RequestError, match="linalg_eig"):
            import_network(load_network("nets:unknown_operator"))

    @pytest.mark.parametrize(("name", "dtype"), [("half", "float16"), ("quantised", "int8")])
    def test_one_that_is_not_of_float32_is_refused_by_name(self, name, dtype):
        with pytest.raises(RequestError, match=f"nets_{name}' of {dtype}; expected float32"):
            load_network(f"nets:{name}")

    def test_the_seed_sets_weights_and_inputs(self):
        first, same, other = (load_network("nets:tiny", 2, seed) for seed in (1, 1, 2))
        assert first.inputs[0].shape == (2, 3, 16, 16)
        assert first.inputs[0].equal(same.inputs[0])
        assert first.module[0].weight.equal(same.module[0].weight)
        assert not first.module[0].weight.equal(other.module[0].weight)
        assert not first.module.training

    @pytest.mark.parametrize(
        ("name", "slug"), [("resnet18", "resnet18"), ("My.Nets:Tiny-2", "my_nets_tiny_2")]
    )
    def test_slugs(self, name, slug):
        assert network_slug(name) == slug


class TestFunctionDigest:
    @pytest.mark.slow
    def test_two_processes_agree(self, child_environment):
        code = (
            "from hetfeat.workloads.exported import function_digest\n"
            "print(function_digest('nets:tiny', (1, 2), 3))\n"
        )
        found = subprocess.run(
            [sys.executable, "-c", code],
            env=child_environment | {"PYTHONHASHSEED": "7"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == function_digest("nets:tiny", (1, 2), 3)

    @pytest.mark.parametrize("edit", ["operator", "weight", "constant", "shape"])
    def test_it_follows_what_the_function_returns(self, monkeypatch, edit):
        class Edited(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.dense = torch.nn.Linear(64, 16)

            def forward(self, x):
                if "operator" in edits:
                    return self.dense(x).relu()
                return self.dense(x) + torch.tensor([2.0 if "constant" in edits else 1.0])

        def edited(batch):
            module = Edited()
            if "weight" in edits:
                with torch.no_grad():
                    module.dense.bias += 1
            return module, (torch.randn(2 if "shape" in edits else 1, 64),)

        edits: list[str] = []
        monkeypatch.setattr(nets, "dense", edited)
        before = function_digest("nets:dense", (1,), 0)
        assert function_digest("nets:dense", (1,), 0) == before
        edits.append(edit)
        assert function_digest("nets:dense", (1,), 0) != before

    def test_names_and_files_have_none(self):
        assert function_digest("resnet18", (1,), 0) is None
        assert function_digest("c:nets.onnx", (1,), 0) is None

    def test_what_torch_cannot_export_is_told(self, monkeypatch):
        class Branching(torch.nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x

        monkeypatch.setattr(nets, "dense", lambda batch: (Branching(), (torch.ones(batch, 4),)))
        with pytest.raises(RequestError, match="nets_dense', which TVM cannot import"):
            function_digest("nets:dense", (1,), 0)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["as installed", "broken"])
def test_torchvision_with_and_without_its_library(child_environment, library):
    """Its compiled operators do not load beside another build of torch."""
    broken = (
        "import torch\n"
        "original = torch.library.register_fake\n"
        "def refuse(name, *rest, **others):\n"
        "    if name.startswith('torchvision::') and not hasattr(torch.ops.torchvision, 'nms'):\n"
        "        raise RuntimeError('operator torchvision::nms does not exist')\n"
        "    return original(name, *rest, **others)\n"
        "torch.ops.load_library = lambda path: (_ for _ in ()).throw(OSError('other build'))\n"
        "torch.library.register_fake = refuse\n"
    )
    use = (
        "from hetfeat.workloads.networks import load_network\n"
        "network = load_network('squeezenet1_1')\n"
        "print(network.module(network.inputs[0]).shape)\n"
        "from hetfeat.workloads import networks\n"
        "print('declared', len(networks._kept_alive))\n"
    )
    code = (broken if library == "broken" else "") + use
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "[1, 1000]" in done.stdout
    assert library == "as installed" or "declared 1" in done.stdout
