#!/bin/sh
# Makes .venv, with hetfeat in it, and the link under which MLflow finds it.
# Quick when nothing changed. Paths are relative to the clone, whose own path may hold spaces.
set -eu

python=$1
need='Python 3.11 with pip'
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
    echo "hetfeat: '$python' does not run Python 3.11; expected $need; run \`make env PYTHON=/path/to/python3.11\`" >&2
    exit 2
fi

# Scripts in .venv name its path, so a clone that was moved needs a new one.
home="$(pwd -P) $("$python" --version)"
pins=$(cat pyproject.toml python_env.yaml tools/environment.sh | cksum)

if [ "$(cat .venv/made-for 2>/dev/null)" != "$home" ]; then
    rm -rf .venv
    # Debian's python3.11 may lack the venv package's own pip, and then brings its pip along.
    "$python" -m venv .venv 2>/dev/null || {
        rm -rf .venv
        "$python" -m venv --without-pip .venv
        "$python" -m pip --python .venv/bin/python install pip
    }
    echo "$home" >.venv/made-for
fi

if [ "$(cat .venv/made-from 2>/dev/null)" != "$pins" ]; then
    rm -f .venv/made-from .venv/mlflow-env-name
    .venv/bin/python -m pip install --no-input --disable-pip-version-check -e '.[dev]'
    echo "$pins" >.venv/made-from
fi

.venv/bin/python -m registry.project_env
