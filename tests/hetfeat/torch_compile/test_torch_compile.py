"""`torch.compile(model, backend="hetfeat")`: what it computes, and what it leaves to torch."""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from small_deploys import deploy_small

from hetfeat.devices.probe import remember
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from hetfeat.torch_compile import backend as backend_module
from hetfeat.torch_compile import stored
from hetfeat.torch_compile.backend import EagerWarning, backend
from hetfeat.torch_compile.graph import as_network
from hetfeat.torch_compile.settings import Settings

SMALLEST = {"model": "none", "trials": 1}


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: DeviceProfile) -> Iterator[None]:
    """A cache of one's own; this machine has been probed; torch has compiled nothing."""
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
    deploy_small(monkeypatch, "hetfeat.api.deploying")
    remember(device)
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Graphs that are compiled at once, into copies of themselves; grows with each."""
    made: list[object] = []

    def snapshot(graph, arguments, is_folded, settings) -> Callable[..., object]:
        copies = [value.detach().clone() for value in arguments]
        made.append(as_network(graph, copies, is_folded, "copy").module)
        return made[-1]

    monkeypatch.setattr(backend_module, "bundle_of", snapshot)
    return made


def compile_it(function, **options):
    return torch.compile(function, backend=backend, options=options or None)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)
        self.second = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.norm(self.first(x))))


class Encoder(torch.nn.Module):
    """As BERT's, but small: embeddings, masked self-attention, GELU, layer norms."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(50, 32), torch.nn.Embedding(8, 32)
        self.query_key_value, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.wide, self.narrow = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(32) for _ in range(3))

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](self.words(words) + self.places.weight[: words.shape[1]])
        heads = self.query_key_value(x).reshape(*words.shape, 3, 4, 8).permute(2, 0, 3, 1, 4)
        scores = heads[0] @ heads[1].transpose(-1, -2) / 8**0.5
        scores = scores + (1.0 - mask[:, None, None, :]) * -1e4
        attended = (scores.softmax(-1) @ heads[2]).transpose(1, 2).reshape(x.shape)
        x = self.norms[1](x + self.out(attended))
        return self.norms[2](x + self.narrow(torch.nn.functional.gelu(self.wide(x))))


@torch.inference_mode()
def check_compiled(model, /, *inputs, **options) -> None:
    """Compiles it, without a warning, and compares it with torch on the same and other inputs."""
    expected = model(*inputs)
    function = compile_it(model, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EagerWarning)
        function(*inputs)
        found = function(*inputs)
    assert torch.allclose(found, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
    assert found.stride() == expected.stride()


@pytest.mark.slow
@pytest.mark.tvm
class TestCompiled:
    def test_a_network_of_torchvision(self):
        from hetfeat.workloads.networks import load_network

        check_compiled(load_network("squeezenet1_1").module, torch.randn(1, 3, 32, 32), **SMALLEST)

    def test_an_encoder(self):
        words = torch.randint(0, 50, (1, 8))
        check_compiled(Encoder().eval(), words, torch.ones(1, 8), **SMALLEST)

    @torch.inference_mode()
    def test_a_later_process_finds_it_and_other_weights_use_what_was_measured(self, monkeypatch):
        with torch.inference_mode(False):
            model, x = Net().eval(), torch.randn(2, 8)
        deployed: list[object] = []
        deploy_network = stored.deploy_network
        monkeypatch.setattr(
            stored,
            "deploy_network",
            lambda *given, **options: (
                deployed.append(options["journal"]),
                deploy_network(*given, **options),
            )[1],
        )
        check_compiled(model, x, **SMALLEST)
        torch._dynamo.reset()
        check_compiled(model, x, **SMALLEST)
        assert deployed == [None]
        with torch.no_grad():
            model.first.weight.add_(1)
        check_compiled(model, x, **SMALLEST)
        assert len(deployed) == 2
        assert deployed[1].name.endswith(".journal")

    def test_torch_finds_it_by_its_name(self, project: Path, tmp_path: Path):
        """As the installed project says it, whatever is installed."""
        info = tmp_path / "named-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 0\n")
        lines = (project / "pyproject.toml").read_text().splitlines()
        line = lines[lines.index("[project.entry-points.torch_dynamo_backends]") + 1]
        (info / "entry_points.txt").write_text(
            "[torch_dynamo_backends]\n" + line.replace('"', "") + "\n"
        )
        code = (
            "import torch; print('hetfeat' in torch._dynamo.list_backends());"
            "torch.compile(lambda x: x.view(-1), backend='hetfeat')(torch.ones(2, 2))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": f"{tmp_path}:{project}", "HETFEAT_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "True\n"
        assert "EagerWarning: hetfeat leaves a graph to torch: an output shares" in done.stderr


def changed_by_a_state(model: Net) -> None:
    model.load_state_dict({key: value + 1 for key, value in model.state_dict().items()})


def changed_in_place(model: Net) -> None:
    model.second.bias.add_(1)


def changed_buffer(model: Net) -> None:
    model.norm.running_mean.add_(1)


def changed_data(model: Net) -> None:
    for _ in range(3):  # memory that was let go may be had again
        model.first.weight.data = model.first.weight.data * 2


def changed_parameter(model: Net) -> None:
    model.first.weight = torch.nn.Parameter(model.first.weight * 2)


@torch.no_grad()
@pytest.mark.parametrize(
    "change",
    [changed_by_a_state, changed_in_place, changed_buffer, changed_data, changed_parameter],
)
def test_changed_weights_are_never_served(compiled, change):
    model, x = Net().eval(), torch.randn(2, 8)
    function = compile_it(model)
    for _ in range(3):
        assert torch.equal(function(x), model(x))
    assert len(compiled) == 1
    change(model)
    for _ in range(3):
        assert torch.equal(function(x), model(x))
    assert len(compiled) == 2


@torch.no_grad()
def test_inputs_that_change_are_no_weights(compiled):
    model, x = Net().eval(), torch.randn(2, 8)
    function = compile_it(model)
    for _ in range(3):
        assert torch.equal(function(x), model(x))
        x = x + 1
        x.mul_(2)
    assert len(compiled) == 1


@torch.inference_mode()
def test_several_outputs_and_their_layout(compiled):
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, (x * 2).t()

    x = torch.randn(2, 8)
    found = compile_it(both)(x), compile_it(both)(x)
    for outputs in found:
        assert all(map(torch.equal, outputs, both(x)))
        assert [value.stride() for value in outputs] == [(8, 1), (1, 8)]


def mutated(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def alias_of_input(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1)[2:]


def alias_of_output(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    return y, y[0]


def random_numbers(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5, training=True)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (mutated, "changes its inputs"),
        (alias_of_input, "shares memory"),
        (alias_of_output, "shares memory"),
        (random_numbers, "random numbers"),
        (Net().train(), "changes its inputs or weights"),
    ],
)
def test_what_a_bundle_would_not_do_is_left_to_torch(compiled, function, says):
    x = torch.randn(2, 8)
    expected, found = x.clone(), x.clone()
    with torch.no_grad(), pytest.warns(EagerWarning, match=says) as warned:
        run = compile_it(function)
        for _ in range(3):
            torch.manual_seed(0)
            theirs = function(expected)
            torch.manual_seed(0)
            mine = run(found)
            pairs = zip(
                torch.utils._pytree.tree_leaves(mine),
                torch.utils._pytree.tree_leaves(theirs),
                strict=True,
            )
            if not isinstance(function, Net):  # its statistics move with every call
                assert all(torch.equal(*pair) for pair in pairs)
                assert torch.equal(found, expected)
    assert (len([w for w in warned if w.category is EagerWarning]), compiled) == (1, [])


def test_gradients_are_left_to_torch_and_what_needs_none_is_compiled(compiled):
    model, x = Net().eval(), torch.randn(2, 8)
    function = compile_it(model)
    with pytest.warns(EagerWarning, match="gradients are enabled"):
        function(x).sum().backward()
    assert model.first.weight.grad is not None
    with torch.no_grad():
        function(x)
    assert len(compiled) == 1


@torch.no_grad()
def test_a_broken_graph_is_left_to_torch_with_one_warning(compiled, capfd):
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print("in between")
        return y * 2

    with pytest.warns(EagerWarning, match="it breaks") as warned:
        function = compile_it(broken)
        assert torch.equal(function(torch.ones(2)), torch.full((2,), 4.0))
        function(torch.ones(2))
    assert len(warned) == 1
    assert capfd.readouterr().out == "in between\n" * 2
    assert compiled == []


@torch.no_grad()
def test_dynamic_shapes_are_left_to_torch_unless_each_is_compiled(compiled):
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    run = compile_it(function)
    with pytest.warns(EagerWarning, match="dynamic=False") as warned:
        for rows in (2, 3, 4, 5):
            assert run(torch.ones(rows)).tolist() == [2.0] * rows
    assert (len(warned), len(compiled)) == (1, 1)
    torch._dynamo.reset()
    run = torch.compile(function, backend=backend, dynamic=False)
    for rows in (2, 3):
        assert run(torch.ones(rows)).tolist() == [2.0] * rows
    assert len(compiled) == 3


@torch.no_grad()
def test_what_computes_something_else_is_not_used(monkeypatch):
    monkeypatch.setattr(backend_module, "bundle_of", lambda *_: lambda x: x * 2.001)
    run = compile_it(lambda x: x * 2)
    with pytest.warns(EagerWarning, match="compiled it is off by 0.00[12]"):
        assert run(torch.ones(2)).tolist() == [2, 2]
    assert run(torch.ones(2)).tolist() == [2, 2]


@torch.no_grad()
@pytest.mark.parametrize("error", [RequestError("a", "b", "c"), RuntimeError("c")])
def test_what_does_not_compile_is_left_to_torch(monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(backend_module, "bundle_of", fails)
    with pytest.warns(EagerWarning, match="c"):
        assert compile_it(lambda x: x * 2)(torch.ones(2)).tolist() == [2, 2]


@torch.inference_mode()
def test_weights_made_in_inference_mode_cannot_be_watched(compiled):
    model = Net().eval()
    with pytest.warns(EagerWarning, match="made in inference mode"):
        compile_it(model)(torch.randn(2, 8))


@pytest.mark.parametrize(
    ("options", "says"),
    [({"efort": "quick"}, "did you mean 'effort'"), ({"trials": "3"}, "trials='3'")],
)
def test_options_are_checked(options, says):
    with pytest.raises(RequestError, match=says):
        Settings.of(options)
