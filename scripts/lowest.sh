#!/usr/bin/env bash
# Install the lowest versions that pyproject.toml allows into a venv of its own, and run the tests that need no browser with it.
# bash scripts/lowest.sh [FOLDER [words for pytest]]: FOLDER holds uv and the venv, .make/lowest when none is named.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(realpath -m "${1:-.make/lowest}")
shift || true
python=$PWD/.venv/bin/python
mkdir -p "$work"
[ -x "$work/uv/bin/uv" ] || { "$python" -m venv "$work/uv" && "$work/uv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9; }
uv=$work/uv/bin/uv
# What Megalens itself asks for at its lowest; what tests use beside it, and what all of these ask for, as it is elsewhere.
"$uv" pip compile --quiet --resolution lowest-direct --no-annotate --no-header --all-extras --python "$python" pyproject.toml -o "$work/lowest.txt"
"$python" -c 'import re, sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
asked = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
names = {re.match(r"[\w-]+", each)[0].lower().replace("_", "-") for each in asked}
print(*(line for line in open(sys.argv[1]) if line.split("==")[0] in names), sep="", end="")' "$work/lowest.txt" >"$work/direct.txt"
[ -x "$work/venv/bin/python" ] || "$uv" venv --quiet --python "$python" "$work/venv"
"$uv" pip install --quiet --python "$work/venv/bin/python" -r "$work/direct.txt" pytest pytest-timeout 'pytest-jupyter[server]' hypothesis jsonschema nbconvert nbclient jupyterlab 'transformers>=5' accelerate peft polars s3fs tensorboard onnx onnxscript lightning 'moto[server]' \
  'hatchling>=1.27' 'hatch-nodejs-version>=0.3.2' 'jupyter-builder>=1.2,<2' 'hatch-jupyter-builder>=0.9' editables setuptools
# Without npm, which would install and build anew what make setup has built.
SKIP_JUPYTER_BUILDER=1 "$uv" pip install --quiet --python "$work/venv/bin/python" --no-deps --no-build-isolation -e .
echo "With $(tr '\n' ' ' <"$work/direct.txt")"
# Those of packaging build and install with what the lock has.
PATH="$work/venv/bin:$PATH" PYTHONPATH=$PWD exec nice "$work/venv/bin/python" -m pytest --ignore=tests/packaging "${@:--m not slow}"
