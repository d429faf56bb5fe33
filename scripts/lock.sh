#!/usr/bin/env bash
# Write requirements.lock anew after a version in it was changed: with what each system and Python needs, and the hashes of all files of each package.
# It needs uv, which nothing else here does.
set -euo pipefail
cd "$(dirname "$0")/.."
uv pip compile --quiet --universal --generate-hashes --no-annotate --python-version 3.11.5 --custom-compile-command "bash scripts/lock.sh" \
  --override <(echo "torch ; sys_platform == 'never'") --no-emit-package torch requirements.lock -o requirements.lock
