#!/usr/bin/env bash
# Make .venv with the first Python 3.11.5 or newer on PATH and install the locked packages into it.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x .venv/bin/python ]; then
  for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
    if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11, 5))' 2>/dev/null; then
      found=$candidate
      break
    fi
  done
  if [ -z "${found:-}" ]; then
    echo "Megalens needs Python 3.11.5 or newer with the venv module. Install it (Debian: apt install python3-venv) and run make again." >&2
    exit 1
  fi
  "$found" -m venv .venv
fi
echo "Installing the Python packages of requirements.lock"
# The lock names what each platform and Python needs, and the hash of every file.
.venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps --require-hashes -r requirements.lock 2> >(grep -v '^WARNING: Location' >&2)
# What torch needs beside them differs by index.
.venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -r requirements-torch.lock 2> >(grep -v '^WARNING: Location' >&2)
# On both cores, where pip uses one; tests and most of the models are never imported, and Python compiles the odd one when it is. Some
# packages hold files for other versions of Python, which do not compile.
.venv/bin/python -m compileall -qq -j 2 -x 'site-packages/.*/tests?/|/transformers/models/(?!auto|gpt2|llama|qwen)' "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" || true
