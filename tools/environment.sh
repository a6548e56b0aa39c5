#!/bin/sh
# Makes .venv, with hetfeat in it, and the link under which MLflow finds it.
# Quick when nothing changed. Paths are relative to the clone, whose own path may hold spaces.
set -eu

is_311='import sys; sys.exit(sys.version_info[:2] != (3, 11))'

make_venv() {
    if ! "$1" -c "$is_311" 2>/dev/null; then
        echo "hetfeat: '$1' does not run Python 3.11; expected Python 3.11 with pip; run \`make env PYTHON=/path/to/python3.11\`" >&2
        exit 2
    fi
    # $1 may be .venv's own, which is about to go.
    base=$("$1" -c 'import sys; print(f"{sys.base_prefix}/bin/python3.11")')
    rm -rf .venv
    # Debian's Python may come without what puts pip into an environment, but with a pip of its own.
    "$base" -m venv .venv 2>/dev/null || {
        rm -rf .venv
        "$base" -m venv --without-pip .venv
        "$base" -m pip --python .venv/bin/python install pip
    }
    pwd -P >.venv/made-for
}

# Scripts in .venv name its path, so a clone that was moved needs a new one.
if [ "$(cat .venv/made-for 2>/dev/null)" != "$(pwd -P)" ] || ! .venv/bin/python -c "$is_311" 2>/dev/null; then
    make_venv "$1"
fi

# Written last: an installation that was interrupted is taken up again.
made_from=$(cat pyproject.toml constraints.txt python_env.yaml tools/environment.sh | cksum)
if [ "$(cat .venv/made-from 2>/dev/null)" != "$made_from" ]; then
    rm -f .venv/made-from .venv/mlflow-env-name
    .venv/bin/python -m pip install --no-input --disable-pip-version-check -c constraints.txt -e '.[dev]'
    echo "$made_from" >.venv/made-from
fi

.venv/bin/python -m registry.maintenance.project_env
