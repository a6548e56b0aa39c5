#!/bin/sh
# On the machine with the GPU: sh gpu/check.sh OUT. `make gpu-packs` has put this beside a pack.
# The first half measures the pack; the second, where the toolkit is installed, tests on the GPU.
# Each is worth having alone. What comes back lies in OUT, packed, under 16 MiB.
set -u
export LD_LIBRARY_PATH="/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}"
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
work=$(mktemp -d)
{
    date
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    python3 --version
} > "$out/machine.txt" 2>&1

python3 -m venv "$work/venv" >> "$out/machine.txt" 2>&1 || exit 1
"$work/venv/bin/pip" install --quiet --no-index --no-deps --find-links "$here/wheels" \
    -r "$here/alone/requirements.txt" >> "$out/machine.txt" 2>&1 || exit 1
timeout "${PACK_SECONDS:-240}" "$work/venv/bin/python" "$here/alone/run.py" "$work/records.jsonl" \
    > "$out/pack.json" 2> "$out/pack.log"
echo "pack: exit code $?" >> "$out/machine.txt"
[ -f "$work/records.jsonl" ] && gzip -9 -c "$work/records.jsonl" > "$out/records.jsonl.gz"

if [ -x .venv/bin/python ] && [ -d tests ]; then
    timeout "${TEST_SECONDS:-240}" .venv/bin/python -m pytest -q -p no:cacheprovider \
        tests/hetfeat/deploy/test_cuda.py tests/hetfeat/packs > "$out/tests.log" 2>&1
    echo "tests: exit code $?" >> "$out/machine.txt"
fi
rm -rf "$work"
cat "$out/machine.txt"
tail -n 3 "$out/pack.log"
