#!/usr/bin/env bash
# Write the sdist into dist, and build and test packaging/conda/recipe.yaml of it with rattler-build, which a venv of its own holds.
# bash scripts/conda.sh [FOLDER]: FOLDER holds that venv and the package, .make/conda when none is named.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(realpath -m "${1:-.make/conda}")
mkdir -p "$work"
[ -x "$work/venv/bin/python" ] || .venv/bin/python -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check py-rattler-build==0.73.0 2> >(grep -v '^WARNING: Location' >&2)
rm -rf dist/megalens-*.tar.gz
.venv/bin/python -m build --sdist --no-isolation --outdir dist . >"$work/sdist.log" 2>&1 || { cat "$work/sdist.log"; exit 1; }
exec "$work/venv/bin/python" scripts/conda_package.py "$work" "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
