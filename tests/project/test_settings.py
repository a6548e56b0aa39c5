"""Settings are arguments: which numbers stay constants of modules, and that nobody sets one.

A number that decides behaviour is a field of a frozen dataclass or an argument with a documented
default. What stays a constant stands here with the kind of its reason.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

Constants = dict[str, set[str]]

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
    "hetfeat/dataset/importers/metaschedule_workloads.py": {"HEADER_BYTES": "format"},
    "hetfeat/dataset/prune.py": {"LEAST_QUOTA": "default"},
    "hetfeat/dataset/schema.py": {"FEATURES_PER_STORE": "format"},
    "hetfeat/durable.py": {"_AT_FDCWD": "protocol", "_RENAME_EXCHANGE": "protocol"},
    "hetfeat/features/columns.py": {
        "FEATURES_VERSION": "format",
        "BUFFERS": "format",
        "SPLITS": "format",
        "PARTS": "format",
    },
    "hetfeat/features/trace.py": {"STEPS": "format", "WIDTH": "format"},
    "hetfeat/models/engine_model.py": {"_LARGEST_MARGIN": "formula"},
    "hetfeat/models/engines/attention_net.py": {"LABELS": "format"},
    "hetfeat/models/engines/losses.py": {"_POINT_SCALE": "formula"},
    "hetfeat/models/engines/regression.py": {"BELIEF": "default"},
    "hetfeat/models/metrics.py": {"NOISE": "default", "PAIRS_AT_ONCE": "default"},
    "hetfeat/models/metrics_topk.py": {"SMALLEST_TASK": "definition"},
    "hetfeat/models/objective.py": {"POINT_SCALE": "formula", "_LEAST_HESSIAN": "formula"},
    "hetfeat/models/persist.py": {"FORMAT_VERSION": "format"},
    "hetfeat/models/settings.py": {"_MOST": "bound"},
    "hetfeat/parsing.py": {"MAX_BYTES": "bound"},
    "hetfeat/records.py": {"SCHEMA_VERSION": "format"},
    "hetfeat/report/deployments.py": {"_LEVEL": "definition"},
    "hetfeat/report/drawings.py": {"_WIDTH": "drawing", "_BAR": "drawing"},
    "hetfeat/schedules/blocked.py": {
        "LARGEST_TILE": "protocol",
        "REGISTER_ROWS": "definition",
        "REGISTER_VECTORS": "definition",
        "_REDUCTION": "protocol",
    },
    "hetfeat/schedules/design_space.py": {"FLOAT32_BITS": "unit"},
    "hetfeat/schedules/threads.py": {"MAX_VTHREADS": "protocol"},
    "hetfeat/workloads/example_inputs.py": {"NARROW_BITS": "unit"},
    "hetfeat/workloads/network.py": {"DIGEST_DIGITS": "format"},
    "hetfeat/workloads/onnx_static.py": {"OPSET": "protocol"},
    "hetfeat/workloads/passes/__init__.py": {"OUT_ELEMENTWISE_FUSABLE": "protocol"},
    "hetfeat/workloads/transformers.py": {"VOCABULARY": "definition", "TOKENS": "definition"},
}
"""Constants by file, each with the kind of its reason."""

STILL: Constants = {
    "hetfeat/api/deploying.py": {"KEY_DIGITS"},
    "hetfeat/api/models.py": {"_SEED"},
    "hetfeat/deploy/bench.py": {"LOAD_TIMEOUT_S", "SETTLE_S", "TURN_S", "TURN_TIMEOUT_S"},
    "hetfeat/deploy/check_on_device.py": {"SLOW_MS", "UNTUNED_ROUNDS"},
    "hetfeat/deploy/compile.py": {"PARAMETER_ELEMENTS"},
    "hetfeat/deploy/engines.py": {"GPU_FLUSH_BYTES", "SLOW_S"},
    "hetfeat/deploy/remote/child.py": {"LONGEST_S"},
    "hetfeat/deploy/remote/device.py": {
        "ATTEMPTS",
        "LOAD_TIMEOUT_S",
        "REST_S",
        "RUN_TIMEOUT_S",
        "SESSION_S",
    },
    "hetfeat/deploy/runtime.py": {"FORMAT_VERSION", "MAX_MANIFEST_BYTES", "SEVERAL_OUTPUTS"},
    "hetfeat/deploy/verify.py": {
        "OF_WHAT_CHANGES",
        "RANDOM_INPUTS",
        "RELATIVE_TOLERANCE",
        "ROUNDING",
        "TELLING",
    },
    "hetfeat/devices/cuda.py": {
        "CACHE_LINE_BYTES",
        "LOCAL_MEMORY_BYTES",
        "VECTOR_BYTES",
        "VTHREADS",
    },
    "hetfeat/devices/fleet/identity.py": {"SPEED_FACTOR"},
    "hetfeat/devices/fleet/report.py": {"MOST_FEATURES"},
    "hetfeat/devices/nvidia.py": {"_KB"},
    "hetfeat/devices/profile.py": {"FP32_BYTES", "PROFILE_VERSION"},
    "hetfeat/devices/target.py": {
        "FLOP_DEPTH",
        "FLOP_JOBS",
        "FLOP_PASSES",
        "READ_BYTES",
        "READ_VECTORS",
        "STREAM_ELEMENTS",
    },
    "hetfeat/measure/child.py": {"BIG_CORES_FIRST"},
    "hetfeat/measure/gemm_child.py": {"LANES", "UNROLLED", "VECTOR"},
    "hetfeat/measure/latencies.py": {"MOST", "SHORTEST_S"},
    "hetfeat/measure/worker_loop.py": {"MAX_REPLY_BYTES"},
    "hetfeat/torch_compile/stored.py": {"KEY_DIGITS"},
    "hetfeat/transfer/finetune.py": {"LEAST_BUDGET"},
    "registry/cli/app.py": {"INTERRUPTED"},
    "registry/cli/doctor.py": {"LEFT"},
    "registry/cli/output.py": {"STDERR", "STDIN", "STDOUT"},
    "registry/cli/share.py": {"MAX_EXPIRES_S"},
    "registry/files/artifacts.py": {"MAX_DEPTH", "MAX_FILES", "_SEARCH_DEPTH"},
    "registry/files/cache_eviction.py": {"IN_USE_S"},
    "registry/files/manifest.py": {"FORMAT", "MAX_FILE_BYTES", "MAX_MANIFEST_BYTES"},
    "registry/files/pickle_check.py": {"_OPCODES_TO_BELIEVE"},
    "registry/files/presigned_fetch.py": {
        "FORMAT",
        "MAX_REQUEST_BYTES",
        "TIMEOUT_SECONDS",
        "_READ_BYTES",
    },
    "registry/files/s3_upload.py": {"PART_BYTES", "_READ_BYTES"},
    "registry/files/safe_paths.py": {"MAX_PATH_CHARACTERS"},
    "registry/jobs/explore_records.py": {"SHOWN"},
    "registry/jobs/hpo.py": {"_CLAIM_STALE_S", "_POLL_S"},
    "registry/jobs/optuna_study.py": {
        "ROUNDS_A_REPORT",
        "STALE_S",
        "_ATTEMPTS",
        "_PAUSE_S",
        "_STARTUP_TRIALS",
        "_WARM_UP_ROUNDS",
    },
    "registry/jobs/report_plan.py": {"DEPLOY_SEED"},
    "registry/jobs/search.py": {"ROUNDS"},
    "registry/jobs/serve.py": {"BODY_S"},
    "registry/jobs/train.py": {"SPLIT_SEED"},
    "registry/maintenance/audit.py": {"BUNDLE_BYTES", "OLD_LOCK_S", "_RUNS_A_PAGE", "_SETTLE_S"},
    "registry/maintenance/machine.py": {"COMPILER_S", "DISK_BYTES"},
    "registry/maintenance/repair.py": {"_ROUNDS"},
    "registry/maintenance/retention.py": {"TURN_S", "_DAY_S"},
    "registry/maintenance/subprocess_check.py": {"CHILD_S"},
    "registry/models/description.py": {"MAX_CHARACTERS"},
    "registry/models/gates.py": {"MAX_FIGURES_CHARACTERS"},
    "registry/models/ledger.py": {"MAX_ENTRY_CHARACTERS", "MOST_DIGITS"},
    "registry/models/lineage.py": {"MAX_NODES", "MIN_DIGITS"},
    "registry/models/lock.py": {
        "HOLD_S",
        "STALE_S",
        "WAIT_S",
        "_LOCKS_A_PAGE",
        "_LONG_S",
        "_PAUSE_FOR_A_LOOK",
    },
    "registry/models/mlflow_client.py": {"_ATTEMPTS"},
    "registry/models/names.py": {"_MAX_CHARACTERS"},
    "registry/models/process.py": {"MOST_CHARACTERS"},
    "registry/models/recorded_alias.py": {"SETTLE_S"},
    "registry/models/stages.py": {"MAX_REASON_CHARACTERS"},
    "registry/models/version.py": {"_FIGURE_BYTES"},
    "registry/models/versions.py": {"MODELS_A_PAGE", "VERSIONS_A_PAGE"},
    "registry/tracking/command_run.py": {"DIGEST_CHARACTERS"},
    "registry/tracking/cost_model_flavor.py": {"_EXAMPLE_ROWS"},
    "registry/tracking/finished_runs.py": {"_PAGE"},
    "registry/tracking/pyfunc_bundle.py": {
        "MAX_PIXELS",
        "MAX_ROWS",
        "MAX_SCANS",
        "TIMES_THE_INPUT",
    },
    "registry/tracking/system_metrics.py": {"FIRST_S", "GROWTH", "LONGEST_S"},
}
"""Constants that are to become arguments."""

STILL_SET: Constants = {
    "tests/commands/test_deploy.py": {"PEERS", "ROUNDS"},
    "tests/commands/test_deploy_config.py": {"PEERS", "ROUNDS"},
    "tests/commands/test_fleet_deploy.py": {"ATTEMPTS", "REST_S"},
    "tests/hetfeat/deploy/test_bench.py": {"SETTLE_S", "SLOW_S"},
    "tests/hetfeat/deploy/test_outputs.py": {"PEERS", "ROUNDS"},
    "tests/hetfeat/devices/test_devices.py": {"CACHES", "CGROUP_QUOTAS"},
    "tests/hetfeat/devices/test_host.py": {"CGROUPS", "CGROUP_MEMORY"},
    "tests/registry/files/test_pull.py": {"SETTLE_S"},
    "tests/registry/maintenance/test_audit.py": {"_SETTLE_S"},
    "tests/registry/maintenance/test_environment_checks.py": {
        "CHECKS",
        "CHILD_S",
        "DISK_BYTES",
        "LOADS",
    },
    "tests/registry/maintenance/test_retention.py": {"TURN_S"},
    "tests/registry/models/test_lost_servers.py": {"_SETTLE_S"},
    "tests/registry/models/test_searches.py": {"MAX_NODES", "MODELS_A_PAGE", "_LOCKS_A_PAGE"},
    "tests/registry/tracking/test_finished_runs.py": {"_PAGE"},
}
"""Constants that are still set from outside, by file of the tests and benchmarks."""


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
    listed = {path: set(STAY.get(path, {})) | STILL.get(path, set()) for path in STAY | STILL}
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
    assert {path: names for path, names in found.items() if names} == STILL_SET


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
