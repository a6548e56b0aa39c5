#!/bin/sh
# On the machine with the GPU: sh gpu/check.sh OUT [pack|live]. `make gpu-packs` has put this
# beside a pack.
#
# The first half measures the pack; it needs Python and the driver. The second tests on the GPU and
# deploys one network, from the first's records on; it needs nvcc, torch and TVM's compiler: that of
# gpu-more-1/ and so on, or of TOOLKIT. Each is worth having alone. At most ten minutes in all.
# OUT/summary.txt says of each step whether it was done, and if not, why. The exit
# code is 1 unless all were done.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$1
half=${2:-both}
python=${PYTHON:-python3}
root=$(cd "$here/.." && pwd)
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

rm -f "$out/tests.log" "$out/deploy.log"
for wheel in "$here"/wheels/*.whl "$here"-more-*/wheels/*.whl; do
    [ -f "$wheel" ] && "$python" -m zipfile -e "$wheel" "$work/wheels" 2>> "$out/pack.log"
done

if [ "$half" != live ]; then
    rm -f "$out/pack.log"
    PYTHONPATH="$work/wheels" step "measure the pack" "${PACK_SECONDS:-240}" "$out/pack.log" \
        "$python" "$here/alone/run.py" "$work/records.jsonl" > "$out/pack.json"
    if [ -f "$work/records.jsonl" ]; then
        gzip -9 -c "$work/records.jsonl" > "$out/records.jsonl.gz"
        cp "$out/records.jsonl.gz" "$here/records.jsonl.gz"
        report "records.jsonl.gz: $(grep -c '"trace"' "$work/records.jsonl") programs," \
            "$(wc -c < "$out/records.jsonl.gz") bytes"
    fi
fi

toolkit=${TOOLKIT:-$python}
if [ -z "${TOOLKIT:-}" ] && [ -f "$here-more-1/compiler.xz" ]; then
    cat "$here"-more-*/compiler.xz | "$python" -c '
import lzma, shutil, sys
shutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer, 2**24)
' > "$work/wheels/tvm/lib/libtvm_compiler.so" 2>> "$out/deploy.log"
fi
export PYTHONPATH="$work/wheels:$root"
why=
if [ -z "$gpu" ]; then
    why="no NVIDIA GPU here"
elif ! said=$("$toolkit" -c 'import hetfeat, torch, tvm.s_tir' 2>&1); then
    why="no toolkit by $toolkit ($(echo "$said" | tail -n 1))"
elif ! command -v nvcc > /dev/null; then
    why="no nvcc on the path"
fi
if [ "$half" = pack ]; then
    report "left out: tests of GPUs, deploy a network"
elif [ -n "$why" ]; then
    not_done "tests of GPUs" "$why"
    not_done "deploy a network" "$why"
else
    records=
    [ -f "$here/records.jsonl.gz" ] && records="--records $here/records.jsonl.gz"
    # shellcheck disable=SC2086  # words
    step "deploy a network" "${DEPLOY_SECONDS:-270}" "$out/deploy.log" "$toolkit" \
        "$root/tools/gpu_live.py" "${NETWORK:-resnet50}" "$work/bundle" $records ${LIVE_WORDS:-} \
        > "$out/deploy.json"
    [ -d "$work/bundle.journal" ] && tar -czf "$out/journal.tar.gz" -C "$work" bundle.journal
    step "tests of GPUs" "${TEST_SECONDS:-90}" "$out/tests.log" "$toolkit" -m pytest -q \
        -p no:cacheprovider "$root/tests/hetfeat/deploy/test_cuda.py" > "$out/tests.log"
fi
rm -rf "$work"
exit $all_done
