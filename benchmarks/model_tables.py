"""All tables of the models in docs/experiments: each step goes on where it was interrupted.

    python benchmarks/model_tables.py --own DIR --public ../shared/data --out DIR [--jobs 2]
        [--only NAME,...]

`--own` is a store of this project's records with evaluation tasks; the folder given as `--public`
holds the auto-scheduler's logs of four devices and one kernel's recorded space on seven. OUT keeps
the imported records, a JSON line of each trained cell, and the tables.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HETFEAT = Path(sys.executable).with_name("hetfeat")
PUBLIC = {
    "nvidia-k80": "roller_ansor/k80",
    "nvidia-v100": "roller_ansor/v100",
    "nvidia-rtx-2080-ti": "rtx2080ti_ansor",
    "intel-xeon-platinum-8358": "xeon8358_ansor",
}
SPACES = {
    "nvidia-gtx-titan-x": "GEMM_GTX_Titan_X_processed_run1.json.gz",
    "nvidia-p100": "GEMM_P100_processed_run1.json.gz",
    "nvidia-gtx-1080-ti": "GEMM_GTX_1080Ti_processed_run1.json.gz",
    "nvidia-v100": "GEMM_V100_processed_run1.json.gz",
    "nvidia-rtx-2070-super": "GEMM_RTX_2070_SUPER_processed_run1.json.gz",
    "nvidia-rtx-2080-ti": "hub/RTX_2080_Ti.json.gz",
    "nvidia-titan-rtx": "GEMM_TITAN_RTX_processed_run1.json.gz",
}
SHARE = 0.12
"""Of the auto-scheduler's records, chosen by `hetfeat prune`: they are 300,000."""
OURS, TVM = "xgb,lgbm,mlp,attention", "tvm_xgb,tvm_mlp,tvm_xgb_tuned,tvm_mlp_tuned"
MACHINES = "*znver3*,*znver4*,*znver5*"
PROFILES = "*znver5-avx2-2t,*znver5-sse42-2t,*znver5-avx512-1t"


@dataclass(frozen=True)
class Step:
    """A benchmark's arguments beside records, file and jobs."""

    name: str
    script: str
    store: str
    arguments: dict[str, str]


def models(name: str, store: str, splits: str, models: str, **more: str) -> Step:
    return Step(name, "models.py", store, {"splits": splits, "models": models, **more})


STEPS = [
    models("tasks", "own", "within_task,by_task,by_dense_task", f"{OURS},{TVM},remeasured"),
    models("machines", "own", "by_target,by_target_new", f"{OURS},{TVM}", holdout=MACHINES),
    models(
        "left_out",
        "own",
        "by_task,by_target",
        "xgb",
        holdout=MACHINES,
        without="hardware,task,program,trace,hardware_shuffled,hardware_of_nearest",
    ),
    models("profiles", "own", "by_target", "xgb,tvm_xgb", holdout=PROFILES, seeds="0"),
    models("public", "public", "within_task,by_task,by_target", f"{OURS},nest_sum,nest_tlp"),
    models("public_left_out", "public", "by_target", "xgb", without="hardware,hardware_shuffled"),
    models("classes", "public", "by_class", "xgb", without="none,hardware"),
    Step("recorded", "recorded_devices.py", "recorded", {}),
    Step("few", "few_shot.py", "own", {"models": "xgb,attention", "holdout": "*znver4*avx512*"}),
]


def imported(form: str, source: Path, files: dict[str, str], out: Path) -> None:
    """Imports what each device's path below `source` holds; what is there stays."""
    for device, path in files.items():
        told = [HETFEAT, "import", "--format", form, "--device", device, source / path]
        subprocess.run([*told, "--out", out], check=True)


def public_records(source: Path, out: Path) -> None:
    """Imports and thins the auto-scheduler's records, unless that is done."""
    whole = out.with_name("public-whole")
    imported("ansor", source, PUBLIC, whole)
    if not (out / "store.json").exists():
        subprocess.run(
            [HETFEAT, "prune", whole, "--out", out, "--fraction", str(SHARE)], check=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--own", type=Path, required=True)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--only", default=",".join(step.name for step in STEPS))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    stores = {"own": given.own, **{name: given.out / name for name in ("public", "recorded")}}
    steps = [step for step in STEPS if step.name in given.only.split(",")]
    if any(step.store == "public" for step in steps):
        public_records(given.public, stores["public"])
    if any(step.store == "recorded" for step in steps):
        imported("kernel-tuner", given.public / "gemm_spaces", SPACES, stores["recorded"])
    for step in steps:
        command = [sys.executable, HERE / step.script, "--records", stores[step.store]]
        command += ["--out", given.out / f"{step.name}.jsonl", "--jobs", given.jobs]
        for name, value in step.arguments.items():
            command += [f"--{name}", value]
        table = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        (given.out / f"{step.name}.md").write_text(table)
        print(f"\n{step.name}\n\n{table}", flush=True)


if __name__ == "__main__":
    main()
