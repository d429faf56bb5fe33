#!/usr/bin/env bash
# Write the documentation site into a folder, .make/docs when none is named. What Sphinx or typedoc warns of is an error: a link to nothing, a page that no list names, a docstring that cannot be read.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-.make/docs}")
mkdir -p "$out"
typedoc --options docs/site/typedoc.json --out "$out/typescript" --logLevel Warn &
typescript=$!
.venv/bin/python -m sphinx -q -W --keep-going -c docs/site -d .make/doctrees . "$out"
wait "$typescript"
echo "Written: $out/index.html"
