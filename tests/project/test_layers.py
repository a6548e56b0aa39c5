import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

TVM_AT_MODULE_LEVEL = {
    "hetfeat/deploy/compile.py",
    "hetfeat/deploy/parts.py",
    "hetfeat/deploy/remote/child.py",
    "hetfeat/devices/cuda.py",
    "hetfeat/devices/target.py",
    "hetfeat/features/per_store.py",
    "hetfeat/measure/child.py",
    "hetfeat/measure/gemm_child.py",
    "hetfeat/measure/program_timer.py",
    "hetfeat/measure/remote/child.py",
    "hetfeat/measure/build_child.py",
    "hetfeat/packs/run_child.py",
    "hetfeat/schedules/concatenated.py",
    "hetfeat/schedules/design_space.py",
    "hetfeat/schedules/dot_products.py",
    "hetfeat/schedules/dot_intrinsics.py",
    "hetfeat/schedules/tensor_cores.py",
    "hetfeat/schedules/tile_intrinsics.py",
    "hetfeat/schedules/tiles.py",
    "hetfeat/schedules/transposed.py",
    "hetfeat/workloads/brain_floats.py",
    "hetfeat/workloads/half_products.py",
    "hetfeat/workloads/passes/batch_norms.py",
    "hetfeat/workloads/passes/combine_matmuls.py",
    "hetfeat/workloads/passes/exact_kernels.py",
    "hetfeat/workloads/passes/fold_constants.py",
    "hetfeat/workloads/passes/integer_graph.py",
    "hetfeat/workloads/passes/fold_layouts.py",
    "hetfeat/workloads/passes/halve_products.py",
    "hetfeat/workloads/passes/integer_moves.py",
    "hetfeat/workloads/passes/integer_products.py",
    "hetfeat/workloads/passes/integers.py",
    "hetfeat/workloads/passes/keep_roundings.py",
    "hetfeat/workloads/passes/lay_out_pads.py",
    "hetfeat/workloads/passes/name_pads.py",
    "hetfeat/workloads/passes/pad_rows.py",
    "hetfeat/workloads/passes/pad_scores.py",
    "hetfeat/workloads/passes/pads_apart.py",
    "hetfeat/workloads/passes/simplify.py",
    "hetfeat/workloads/passes/vectorise_functions.py",
    "hetfeat/workloads/passes/products_in_fours.py",
    "hetfeat/workloads/passes/quick_steps.py",
    "hetfeat/workloads/passes/widen_integers.py",
    "hetfeat/workloads/relax.py",
    "hetfeat/workloads/winograd/lowering.py",
}
"""TVM takes two seconds to load: everything else imports it where it is used."""

TORCH_AT_MODULE_LEVEL = {
    "hetfeat/workloads/program_files.py",
    "hetfeat/workloads/torch_outputs.py",
    "hetfeat/models/engines/attention.py",
    "hetfeat/models/engines/attention_net.py",
    "hetfeat/models/engines/inputs.py",
    "hetfeat/models/engines/losses.py",
    "hetfeat/models/engines/mlp.py",
    "hetfeat/models/engines/net.py",
    "hetfeat/models/engines/together.py",
    "hetfeat/workloads/transformers.py",
    "hetfeat/torch_compile/backend.py",
    "hetfeat/torch_compile/graph.py",
    "hetfeat/torch_compile/stored.py",
    "hetfeat/torch_compile/watch.py",
}
"""What trains a network may import torch at once; everything else imports it where it is used."""

HEAVY = {
    *("boto3", "botocore", "dask", "distributed", "lightgbm", "matplotlib", "mlflow", "onnx"),
    *("onnxruntime", "openvino", "optuna", "pandas", "pyarrow", "scipy", "sklearn", "torch"),
    *("torchvision", "tvm", "tvm_ffi", "xgboost"),
}
"""Libraries that take long to load."""

LAZY = {
    "registry.api": "importing the public names loads nothing that is not called",
    "registry.tracking.pyfunc_bundle": "a served bundle runs where hetfeat is not installed",
}
"""Modules that import light ones within functions, too, and why; beside those of the commands,
whose help loads nothing."""


@functools.cache
def sources(project: Path) -> list[tuple[str, ast.Module]]:
    paths = [*project.glob("hetfeat/**/*.py"), *project.glob("registry/**/*.py")]
    paths = [*sorted(paths), project / "mlproject.py"]
    return [(path.relative_to(project).as_posix(), ast.parse(path.read_text())) for path in paths]


def imports(node: ast.AST) -> Iterator[str]:
    """What an import statement imports: `a.b` and `a.b.c` for `from a.b import c`."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield module
            yield from (f"{module}.{alias.name}" for alias in names)


def imported_at_module_level(tree: ast.AST) -> Iterator[str]:
    """What a module imports when it is imported itself."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                pass
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case _:
                yield from imports(node)
                yield from imported_at_module_level(node)


def imported_in_functions(tree: ast.AST) -> Iterator[str]:
    """The modules that functions import, by the names that stand in the source."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                yield from imports(node)


@pytest.mark.slow
def test_import_contracts(project: Path):
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
        + ["--no-cache", "--no-logo"],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_import_one_another_without_circles(project: Path):
    """A lazy import hides a circle; one for types alone is no import at all."""
    graph = grimp.build_graph(
        "hetfeat", "registry", exclude_type_checking_imports=True, cache_dir=None
    )
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        pytest.fail("the last imports the one before it: " + ", ".join(error.args[1]))


def test_no_two_classes_share_a_name(project: Path):
    """One word, one meaning; a reader who looks a class up finds one."""
    places: dict[str, list[str]] = {}
    for path, tree in sources(project):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_tvm_is_imported_where_it_is_used(project: Path):
    importers = {
        path
        for path, tree in sources(project)
        if any(name.split(".")[0] in ("tvm", "tvm_ffi") for name in imported_at_module_level(tree))
    }
    assert importers == TVM_AT_MODULE_LEVEL


def test_torch_is_imported_where_it_is_used(project: Path):
    importers = {
        path
        for path, tree in sources(project)
        if any(
            name.split(".")[0] in ("torch", "torchvision")
            for name in imported_at_module_level(tree)
        )
    }
    assert importers <= TORCH_AT_MODULE_LEVEL


def test_what_is_imported_within_functions_is_heavy(project: Path):
    """All else stands at the top, where a reader looks for what a module needs."""
    trees = {module_name(path): tree for path, tree in sources(project)}
    graph = {name: set(imported_at_module_level(tree)) for name, tree in trees.items()}
    heavy = {name for name, loaded in graph.items() if HEAVY & {n.split(".")[0] for n in loaded}}
    while more := {n for n, loaded in graph.items() if n not in heavy and heavy & loaded}:
        heavy |= more
    light = {module_name(path) for path, _ in sources(project) if "__init__" not in path} - heavy
    importers = {
        name: sorted(light & set(imported_in_functions(tree)))
        for name, tree in trees.items()
        if not name.startswith(("registry.cli", "mlproject"))
    }
    assert {name for name, modules in importers.items() if modules} == set(LAZY), importers


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_nothing_imports_the_door(project: Path):
    """The top layer; import-linter knows packages only, and the door is a single file."""
    offenders = [
        path
        for path, tree in sources(project)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Import) and any(a.name == "mlproject" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "mlproject")
    ]
    assert offenders == []


def test_no_file_is_fetched_from_a_device(project: Path):
    """An RPC session's `download`: a server is not trusted with what is written or loaded here."""
    offenders = [
        f"{path}:{node.lineno}"
        for path, tree in sources(project)
        if path.startswith("hetfeat/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "download"
    ]
    assert offenders == []


def test_the_patent_is_named_beside_what_it_describes(project: Path):
    beside = (project / "hetfeat" / "search" / "README.md").read_text()
    for text in (beside, (project / "docs" / "search.md").read_text()):
        assert "US patent 11,842,178 B2" in text


def test_the_picture_of_rooms_is_drawn_from_the_contracts(project: Path):
    drawn = subprocess.run([sys.executable, project / "tools" / "rooms_picture.py", "--check"])
    assert drawn.returncode == 0, "run `python tools/rooms_picture.py`"
