#!/bin/sh
# On the machine with the GPU: sh gpu/check.sh OUT. `make gpu-packs` has put this beside a pack.
#
# The first half measures the pack; it needs Python and the driver. The second tests on the GPU and
# deploys one network; it needs the toolkit and nvcc. Each is worth having alone. At most ten
# minutes in all. OUT/summary.txt says of each step whether it was done, and if not, why. The exit
# code is 1 unless all were done.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$1
python=${PYTHON:-python3}
toolkit=${TOOLKIT:-.venv/bin/python}
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out/summary.txt"
work=$(mktemp -d)
export TMPDIR="$work" MLFLOW_TRACKING_URI="sqlite:///$work/mlflow.db"
libraries="$work/wheels/nvidia/cu13/lib:/usr/local/cuda/lib64:/usr/local/nvidia/lib64"
export LD_LIBRARY_PATH="$libraries:${LD_LIBRARY_PATH:-}"
all_done=0

report() {
    echo "$*" | tee -a "$out/summary.txt" >&2
}

not_done() { # STEP WHY
    report "NOT DONE: $1: $2"
    all_done=1
}

step() { # STEP SECONDS LOG COMMAND...: its errors go into the log
    name=$1 seconds=$2 log=$3
    shift 3
    timeout "$seconds" "$@" 2>> "$log"
    code=$?
    case $code in
        0) report "done: $name" ;;
        124) not_done "$name" "it was cut off after $seconds s; what it left is kept" ;;
        *) not_done "$name" "exit code $code: $(tail -n 1 "$log")" ;;
    esac
    return $code
}

report "$(date -u +%Y-%m-%dT%H:%MZ), $(nproc) cores, $("$python" --version 2>&1)"
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1) || {
    report "nvidia-smi: $gpu"
    gpu=
}
report "GPU: ${gpu:-none that nvidia-smi lists}"

rm -f "$out/pack.log" "$out/tests.log" "$out/deploy.log"
for wheel in "$here"/wheels/*.whl; do
    [ -f "$wheel" ] && "$python" -m zipfile -e "$wheel" "$work/wheels" 2>> "$out/pack.log"
done
PYTHONPATH="$work/wheels" step "measure the pack" "${PACK_SECONDS:-240}" "$out/pack.log" \
    "$python" "$here/alone/run.py" "$work/records.jsonl" > "$out/pack.json"
if [ -f "$work/records.jsonl" ]; then
    gzip -9 -c "$work/records.jsonl" > "$out/records.jsonl.gz"
    report "records.jsonl.gz: $(grep -c '"trace"' "$work/records.jsonl") programs," \
        "$(wc -c < "$out/records.jsonl.gz") bytes"
fi

why=
if [ -z "$gpu" ]; then
    why="no NVIDIA GPU here"
elif ! said=$("$toolkit" -c 'import mlproject, torch, tvm.s_tir' 2>&1); then
    why="no toolkit by $toolkit ($(echo "$said" | tail -n 1))"
elif ! command -v nvcc > /dev/null; then
    why="no nvcc on the path"
fi
if [ -n "$why" ]; then
    not_done "tests of GPUs" "$why"
    not_done "deploy a network" "$why"
else
    step "tests of GPUs" "${TEST_SECONDS:-90}" "$out/tests.log" "$toolkit" -m pytest -q \
        -p no:cacheprovider tests/hetfeat/deploy/test_cuda.py > "$out/tests.log"
    step "probe the GPU" 30 "$out/deploy.log" "$toolkit" -m mlproject devices probe --gpu true \
        --out "$out/gpu.yaml" > "$out/deploy.log" &&
        step "deploy a network" "${DEPLOY_SECONDS:-210}" "$out/deploy.log" "$toolkit" -m mlproject \
            deploy --device "$out/gpu.yaml" --network "${NETWORK:-resnet18}" --minutes 2 \
            --out "$work/bundle" --json > "$out/deploy.json"
fi
rm -rf "$work"
exit $all_done
