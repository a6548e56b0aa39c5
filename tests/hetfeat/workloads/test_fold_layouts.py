"""Weights that are laid out without compiling what lays them out."""

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def mover(rows, indices, value="x[v0, v1]"):
    """A function that writes x, of 4 x 6, to `rows` x 4 x 2."""
    from tvm.script import from_source

    return from_source(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer((4, 6), "float32"), y: T.Buffer(({rows}, 4, 2), "float32")):
    for i, j in T.grid(4, 6):
        with T.sblock("y"):
            v0, v1 = T.axis.remap("SS", [i, j])
            T.reads(x[v0, v1])
            T.writes(y[{indices}])
            y[{indices}] = {value}
""")


def test_elements_go_where_the_layout_has_them():
    from hetfeat.workloads.passes.fold_layouts import moved

    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    (found,) = moved(mover(3, "v1 // 2, v0, v1 % 2"), [x])
    np.testing.assert_array_equal(found, x.reshape(4, 3, 2).transpose(1, 0, 2))


@pytest.mark.parametrize(
    "function",
    [
        (4, "v1 // 2, v0, v1 % 2"),  # leaves room
        (3, "v1 // 2, v0, v1 // 3"),  # two elements go to one place
        (3, "v1 // 2, v0, T.min(v1, 1)"),
        (3, "v1 // 2, v0, v1 % 2", "x[v0, v1] + T.float32(1)"),
        (3, "v1 // 2, v0, v1 % 2", "x[3 - v0, v1]"),
    ],
)
def test_what_does_more_than_move_is_left_alone(function):
    from hetfeat.workloads.passes.fold_layouts import moved

    assert moved(mover(*function), [np.zeros((4, 6), np.float32)]) is None


def test_what_laid_weights_out_is_not_compiled(device):
    import built

    from hetfeat.deploy.compile import compile_network
    from hetfeat.workloads.networks import load_network
    from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower

    target = as_target(device.target)
    lowered = lower(import_network(load_network("nets:tiny")), target)
    tasks = extract_tasks(lowered, target)
    made = compile_network(lowered, device, tasks, built.drawn(tasks, device))
    names = [name for part in made.executable.mod.imports for name in part["get_func_names"]()]
    assert any(name.endswith("_prepacked") for name in names)
    assert not [name for name in names if name.endswith("_weight_prepack")]
    assert "make_tuple" not in made.executable.as_text()
