"""Settings are arguments: which numbers stay constants of modules, and that nobody sets one.

A number that decides behaviour is a field of a frozen dataclass or an argument with a documented
default. What stays a constant stands here with the kind of its reason.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

KINDS = {
    "bound": "refuses what nothing real comes near; nobody would ever set it",
    "default": "the default of arguments of several functions, and read nowhere else",
    "definition": "part of a published or documented definition: another value, another figure",
    "drawing": "sizes of a figure's parts",
    "formula": "a constant of a formula, or what keeps one from dividing by zero or overflowing",
    "format": "part of a format, a layout or a name that is kept",
    "protocol": "fixed by the operating system, TVM, ONNX or whoever else writes what we read",
    "unit": "a width or a conversion",
}

STAY: dict[str, dict[str, str]] = {
    "hetfeat/api/deploying.py": {"KEY_DIGITS": "format"},
    "hetfeat/api/models.py": {"_SEED": "definition"},
    "hetfeat/dataset/bounds.py": {"_OFFSET_BYTES": "format"},
    "hetfeat/dataset/importers/ansor.py": {"FAILED_S": "protocol"},
    "hetfeat/dataset/importers/ansor_steps.py": {
        "MOST_IDS": "bound",
        "MOST_PARTS": "bound",
        "MOST_VARIABLES": "bound",
        "LARGEST": "unit",
        "MAX_INNERMOST": "protocol",
    },
    "hetfeat/dataset/importers/ansor_targets.py": {"_NO_LIMIT": "protocol"},
    "hetfeat/dataset/importers/ansor_tasks.py": {"_LIMIT": "bound"},
    "hetfeat/dataset/importers/kernel_tuner.py": {"FAILED_MS": "protocol"},
    "hetfeat/dataset/importers/metaschedule.py": {"FAILED_S": "protocol"},
    "hetfeat/dataset/importers/metaschedule_targets.py": {"_NO_LIMIT": "protocol"},
    "hetfeat/dataset/pack_records.py": {"LONGEST_LINE_BYTES": "bound", "RECORDS_FORMAT": "format"},
    "hetfeat/dataset/prune.py": {"LEAST_QUOTA": "default"},
    "hetfeat/dataset/schema.py": {"FEATURES_PER_STORE": "format"},
    "hetfeat/dataset/serialised.py": {"HEADER_BYTES": "format"},
    "hetfeat/dataset/tables/upkeep.py": {"LEAST_HOURS": "bound"},
    "hetfeat/dataset/tables/uri.py": {"MAX_CHARACTERS": "bound"},
    "hetfeat/deploy/runtime.py": {
        "FORMAT_VERSION": "format",
        "MAX_MANIFEST_BYTES": "bound",
        "SEVERAL_OUTPUTS": "format",
    },
    "hetfeat/devices/cuda.py": {
        "CACHE_LINE_BYTES": "protocol",
        "LOCAL_MEMORY_BYTES": "protocol",
        "VECTOR_BYTES": "protocol",
        "VTHREADS": "protocol",
    },
    "hetfeat/devices/fleet/identity.py": {"SPEED_FACTOR": "definition"},
    "hetfeat/devices/fleet/report.py": {"MOST_FEATURES": "bound"},
    "hetfeat/devices/nvidia.py": {"_KB": "unit"},
    "hetfeat/devices/profile.py": {"FP32_BYTES": "unit", "PROFILE_VERSION": "format"},
    "hetfeat/devices/target.py": {
        "FLOP_DEPTH": "definition",
        "FLOP_JOBS": "definition",
        "FLOP_PASSES": "definition",
        "READ_BYTES": "definition",
        "READ_VECTORS": "definition",
        "STREAM_ELEMENTS": "definition",
    },
    "hetfeat/durable.py": {"_AT_FDCWD": "protocol", "_RENAME_EXCHANGE": "protocol"},
    "hetfeat/features/columns.py": {
        "FEATURES_VERSION": "format",
        "BUFFERS": "format",
        "SPLITS": "format",
        "PARTS": "format",
    },
    "hetfeat/features/trace.py": {"STEPS": "format", "WIDTH": "format"},
    "hetfeat/measure/child.py": {"BIG_CORES_FIRST": "protocol"},
    "hetfeat/measure/gemm_child.py": {
        "LANES": "definition",
        "UNROLLED": "definition",
        "VECTOR": "definition",
    },
    "hetfeat/measure/latencies.py": {"MOST": "bound", "SHORTEST_S": "bound"},
    "hetfeat/measure/messages.py": {"MAX_MESSAGE_BYTES": "bound"},
    "hetfeat/models/engine_model.py": {"_LARGEST_MARGIN": "formula"},
    "hetfeat/models/engines/attention_net.py": {"LABELS": "format"},
    "hetfeat/models/engines/losses.py": {"_POINT_SCALE": "formula"},
    "hetfeat/models/engines/regression.py": {"BELIEF": "default"},
    "hetfeat/models/metrics.py": {"NOISE": "default", "PAIRS_AT_ONCE": "default"},
    "hetfeat/models/metrics_topk.py": {"SMALLEST_TASK": "definition"},
    "hetfeat/models/objective.py": {"POINT_SCALE": "formula", "_LEAST_HESSIAN": "formula"},
    "hetfeat/models/persist.py": {"FORMAT_VERSION": "format"},
    "hetfeat/models/settings.py": {"_MOST": "bound"},
    "hetfeat/packs/manifest.py": {"PACK_FORMAT": "format"},
    "hetfeat/parsing.py": {"MAX_BYTES": "bound"},
    "hetfeat/records.py": {"SCHEMA_VERSION": "format"},
    "hetfeat/report/deployments.py": {"_LEVEL": "definition"},
    "hetfeat/report/drawings.py": {"_WIDTH": "drawing", "_BAR": "drawing"},
    "hetfeat/schedules/blocked.py": {
        "LARGEST_TILE": "protocol",
        "LEAST_SHARES": "definition",
        "MOST_PADDED": "definition",
        "REGISTER_ROWS": "definition",
        "REGISTER_VECTORS": "definition",
        "REDUCTION": "protocol",
    },
    "hetfeat/schedules/concatenated.py": {"LARGEST_PIECE": "definition"},
    "hetfeat/schedules/dot_products.py": {
        "MOST_ROWS": "definition",
        "MOST_VECTORS": "definition",
        "ROWS_OF_MANY": "definition",
    },
    "hetfeat/schedules/registers.py": {"FLOAT32_BYTES": "unit", "WIDEST_BYTES": "unit"},
    "hetfeat/schedules/tensor_cores.py": {
        "FRAGMENT": "protocol",
        "FRAGMENT_REGISTERS": "protocol",
        "HALF_BYTES": "unit",
        "MOST_REGISTERS": "protocol",
        "STATIC_BYTES": "protocol",
        "SUM_BYTES": "unit",
    },
    "hetfeat/schedules/threads.py": {"MAX_VTHREADS": "protocol", "WARP": "protocol"},
    "hetfeat/torch_compile/stored.py": {"KEY_DIGITS": "format"},
    "hetfeat/schedules/tile_intrinsics.py": {"DATA": "definition", "WEIGHTS": "definition"},
    "hetfeat/transfer/finetune.py": {"LEAST_BUDGET": "formula"},
    "hetfeat/workloads/brain_floats.py": {"NOT_A_NUMBER": "protocol"},
    "hetfeat/workloads/example_inputs.py": {"NARROW_BITS": "unit"},
    "hetfeat/workloads/integer_rules.py": {"NARROW": "unit", "LARGEST_INT32": "unit"},
    "hetfeat/workloads/network.py": {"DIGEST_DIGITS": "format"},
    "hetfeat/workloads/onnx_static.py": {"OPSET": "protocol"},
    "hetfeat/workloads/passes/__init__.py": {
        "BROADCAST": "protocol",
        "INJECTIVE": "protocol",
        "OUT_ELEMENTWISE_FUSABLE": "protocol",
    },
    "hetfeat/workloads/passes/keep_roundings.py": {"ELEMENTWISE": "protocol"},
    "hetfeat/workloads/passes/products_in_fours.py": {"DEEP": "protocol"},
    "hetfeat/workloads/passes/quick_steps.py": {"MANTISSA": "protocol", "NO_FRACTION": "formula"},
    "hetfeat/workloads/qoperators.py": {"OPSET": "protocol"},
    "hetfeat/workloads/seeded_resnet18.py": {
        "BLOCKS": "definition",
        "CLASSES": "definition",
        "IR_VERSION": "protocol",
        "OPSET": "protocol",
    },
    "hetfeat/workloads/tile_shapes.py": {
        "LANES": "protocol",
        "MOST_BYTES": "protocol",
        "MOST_ROWS": "protocol",
        "MOST_SUMS": "protocol",
    },
    "hetfeat/workloads/transformers.py": {"VOCABULARY": "definition", "TOKENS": "definition"},
    "registry/cli/app.py": {"INTERRUPTED": "protocol"},
    "registry/cli/doctor.py": {"LEFT": "format"},
    "registry/cli/output.py": {"STDERR": "protocol", "STDIN": "protocol", "STDOUT": "protocol"},
    "registry/cli/share.py": {"MAX_EXPIRES_S": "protocol"},
    "registry/files/manifest.py": {
        "FORMAT": "format",
        "MAX_FILE_BYTES": "bound",
        "MAX_MANIFEST_BYTES": "bound",
    },
    "registry/files/presigned_fetch.py": {"FORMAT": "format", "MAX_REQUEST_BYTES": "bound"},
    "registry/files/s3_upload.py": {"PART_BYTES": "protocol"},
    "registry/files/safe_paths.py": {"MAX_PATH_CHARACTERS": "protocol"},
    "registry/jobs/report_plan.py": {"DEPLOY_SEED": "definition"},
    "registry/jobs/train.py": {"SPLIT_SEED": "definition"},
    "registry/maintenance/retention.py": {"_DAY_S": "unit"},
    "registry/models/description.py": {"MAX_CHARACTERS": "protocol"},
    "registry/models/gates.py": {"MAX_FIGURES_CHARACTERS": "format"},
    "registry/models/ledger.py": {"MAX_ENTRY_CHARACTERS": "protocol", "MOST_DIGITS": "format"},
    "registry/models/lineage.py": {"MIN_DIGITS": "format"},
    "registry/models/mlflow_client.py": {
        "MODELS_A_PAGE": "protocol",
        "RUNS_A_PAGE": "protocol",
        "VERSIONS_A_PAGE": "protocol",
    },
    "registry/models/names.py": {"_MAX_CHARACTERS": "protocol"},
    "registry/models/process.py": {"MOST_CHARACTERS": "format"},
    "registry/models/stages.py": {"MAX_REASON_CHARACTERS": "format"},
    "registry/models/version.py": {"_FIGURE_BYTES": "format"},
    "registry/tracking/command_run.py": {
        "DIGEST_CHARACTERS": "format",
        "MOST_CHARACTERS": "format",
    },
    "registry/tracking/live.py": {"_MOST_METRICS": "protocol"},
}
"""Constants by file, each with the kind of its reason."""


def is_constant(name: str) -> bool:
    return re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name) is not None


def is_number(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant(value=int() | float()) if not isinstance(value.value, bool):
            return True
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return all(isinstance(side, ast.Name) or is_number(side) for side in (left, right))
    return False


def numbers(tree: ast.Module) -> Iterator[str]:
    """Names of a module that are bound to numbers or to arithmetic of numbers."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[*targets], value=value):
                pass
            case ast.AnnAssign(target=ast.Name() as target, value=value):
                targets = [target]
            case _:
                continue
        for target in targets:
            both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=True) if both else [(target, value)]
            for name, bound in pairs:
                if isinstance(name, ast.Name) and is_constant(name.id) and is_number(bound):
                    yield name.id


def parsed(project: Path, *folders: str) -> dict[str, ast.Module]:
    paths = sorted(path for folder in folders for path in project.glob(f"{folder}/**/*.py"))
    return {path.relative_to(project).as_posix(): ast.parse(path.read_text()) for path in paths}


@pytest.fixture(scope="module")
def packages(pytestconfig) -> dict[str, ast.Module]:
    return parsed(pytestconfig.rootpath, "hetfeat", "registry")


def test_numbers_that_decide_behaviour_are_arguments(packages):
    found = {path: set(numbers(tree)) for path, tree in packages.items()}
    listed = {path: set(names) for path, names in STAY.items()}
    assert {path: names for path, names in found.items() if names} == listed
    assert {kind for names in STAY.values() for kind in names.values()} == set(KINDS)


def defaults_of(tree: ast.Module) -> Iterator[ast.AST]:
    """What stands as a default: of an argument, or of a field of a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            yield from node.defaults
            yield from filter(None, node.kw_defaults)
        elif isinstance(node, ast.ClassDef):
            yield from (f.value for f in node.body if isinstance(f, ast.AnnAssign) and f.value)


def test_a_constant_that_is_a_default_is_nothing_else(packages):
    names = {n for own in STAY.values() for n, kind in own.items() if kind == "default"}
    for path, tree in packages.items():
        allowed = {id(node) for default in defaults_of(tree) for node in ast.walk(default)}
        used = [
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names
            if id(node) not in allowed
        ]
        assert not used, f"{path} reads {used}, which are only defaults"


def is_set(node: ast.AST) -> str:
    """The constant of the packages that a node sets from outside, or nothing."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="setattr" | "patch" | "object") | ast.Name(id="setattr"),
            args=[ast.Constant(value=str() as path), *_],
        ) if path.startswith(("hetfeat.", "registry.", "mlproject.")):
            name = path.rpartition(".")[2]
        case ast.Call(
            func=ast.Attribute(attr="setattr" | "object") | ast.Name(id="setattr"),
            args=[_, ast.Constant(value=str() as name), *_],
        ):
            pass
        case ast.Attribute(attr=name, ctx=ast.Store()):
            pass
        case _:
            return ""
    return name if is_constant(name) else ""


def test_nobody_sets_a_constant(pytestconfig):
    trees = parsed(pytestconfig.rootpath, "tests", "benchmarks")
    found = {
        path: {name for node in ast.walk(tree) if (name := is_set(node))}
        for path, tree in trees.items()
    }
    assert not {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("A = B = 1", ["A1", "B1"]),
        ("A: float = -1e3", ["A1"]),
        ("A, B = 2**4, 60 * OTHER", ["A1", "B1"]),
        ("A = True", []),
        ("A = 'text'", []),
        ("A = (1, 2)", []),
        ("lower = 1", []),
    ],
)
def test_numbers_are_found(line, names):
    named = re.sub(r"\b([AB])\b", r"\g<1>1", line)
    assert list(numbers(ast.parse(named))) == names


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("monkeypatch.setattr(module, 'LIMIT', 1)", "LIMIT"),
        ("patch.setattr('hetfeat.models.native._CPU_S', 1)", "_CPU_S"),
        ("mock.patch.object(module, 'LIMIT', 1)", "LIMIT"),
        ("mock.patch('registry.jobs.hpo.POLL_S', 1)", "POLL_S"),
        ("module.LIMIT = 1", "LIMIT"),
        ("monkeypatch.setattr(module, 'function', 1)", ""),
        ("monkeypatch.setattr('boto3.DEFAULT_SESSION', None)", ""),
    ],
)
def test_settings_from_outside_are_found(line, name):
    assert "".join(filter(None, map(is_set, ast.walk(ast.parse(line))))) == name
