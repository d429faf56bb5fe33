#!/usr/bin/env bash
# Build the wheel, install it in clean venvs with no Node on PATH as README says, see both extensions enabled, run the snippets of README and docs, and remove it without a trace.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# From a copy: a build writes the version's module, which a suite beside it may just be importing.
mkdir "$work/source"
tar -c --exclude=./node_modules --exclude=./.venv --exclude=./.git --exclude=./megalens-runs --exclude=./.demo . | tar -x -C "$work/source"
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w "$work/dist" "$work/source" 2>&1 | grep -v '^WARNING: Location' || true
wheel=$(echo "$work"/dist/megalens-*.whl)
[ -f "$wheel" ] || { echo "no wheel was built"; exit 1; }
# An index takes it: its description is drawn, and the platform that it names is the one that auditwheel, which reads the library by itself, finds.
.venv/bin/python -m twine check --strict "$wheel"
if [[ $wheel == *linux* ]]; then
  tag=${wheel##*-none-}
  .venv/bin/python -m auditwheel show "$wheel" | tr '\n' ' ' | grep -F "platform tag: \"${tag%.whl}\"" || { echo "auditwheel finds another platform than ${tag%.whl}"; exit 1; }
fi
base=$PWD/.venv/bin/python
root=$PWD
compiler=$(command -v c++ || command -v g++ || command -v clang++ || true)
# README's own lines, with this wheel in the place of the published one: the training's, then JupyterLab's.
mapfile -t lines < <(sed -n 's/^pip install //p' README.md)
[ ${#lines[@]} = 2 ] || { echo "README has ${#lines[@]} lines of pip install; 2 are known here"; exit 1; }
# Our own pip fills the venvs; nothing of what it installs is imported often enough to be compiled first.
# Versions without their hashes, which pip would want of this wheel, too.
cat requirements-torch.lock <(sed -n 's/^\([a-z0-9].*\) \\$/\1/p' requirements.lock) >"$work/constraints.txt"
install() {
  local venv=$1 words
  shift
  eval "words=($*)"
  "$base" -m venv --without-pip "$venv"
  "$base" -m pip --python "$venv/bin/python" install --quiet --no-compile --disable-pip-version-check -c "$work/constraints.txt" "${words[@]/#megalens/$wheel}" 2>&1 |
    while read -r line; do case $line in *WARNING:\ Location*) ;; *) echo "$line" ;; esac; done
}
install "$work/training" "${lines[0]}"
# The language pack because JupyterLab speaks no other language without one, Polars for the page that reads recordings with it, anywidget for that of where views are shown.
install "$work/venv" "${lines[1]}" jupyterlab jupyterlab-language-pack-zh-CN polars anywidget
# Nothing but the venv and the system's shell tools: a wheel that needs Node fails here.
mkdir "$work/bin"
for tool in sh env uname cat tee rm; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
export PATH="$work/venv/bin:$work/bin"
if command -v node >/dev/null; then echo "Node is still on PATH"; exit 1; fi
cd "$work"
jupyter labextension list 2>&1 | tee labextensions.txt
jupyter server extension list 2>&1 | tee serverextensions.txt
lab=$(<labextensions.txt)
server=$(<serverextensions.txt)
line=$'[^\n]*'
[[ $lab =~ megalens\ v[0-9]${line}enabled${line}OK ]] || { echo "the labextension is not enabled and OK"; exit 1; }
[[ $server =~ megalens\.server\ ${line}OK ]] || { echo "the server extension is not OK"; exit 1; }
python -c 'import megalens; from megalens.protocol import STREAM_NAMES; megalens.connect; print(megalens.__version__, STREAM_NAMES)'
python - <<'P'
from importlib.resources import files
from importlib.util import find_spec
assert find_spec("py_mini_racer"), "the wheel does not bring what draws"
assert not find_spec("vl_convert"), "the wheel brings what only a test needs"
from jupyterlab_server.translation_utils import get_language_pack
words, message = get_language_pack("zh_CN")
assert words["megalens"]["Runs"] == ["运行"], message or "JupyterLab does not find the texts in Chinese"
for room, *script in (("report", "runtime", "report-page.json"), ("engine", "bundle", "engine.js")):
    assert files(f"megalens.{room}").joinpath(*script).is_file(), f"the wheel lacks {script[-1]}"
P
# Where there was a compiler the wheel holds the kernel, loads it without torch, and says that it is for one platform; else it is for any.
python - "$wheel" "$compiler" <<'P'
import ctypes, sys
from importlib.resources import files
library = files("megalens") / "tracer" / "moments" / "native" / "libmegalens_moments.so"
wheel, compiler = sys.argv[1:]
assert library.is_file() == bool(compiler), f"a compiler: {compiler or 'none'}; the kernel in the wheel: {library.is_file()}"
assert wheel.endswith("-py3-none-any.whl") != library.is_file(), wheel
if library.is_file():
    assert ctypes.CDLL(str(library)).megalens_moments_level() in (0, 1, 2)
P
cd "$root"
python -m scripts.snippets --training "$work/training/bin/python" --notebook "$work/venv/bin/python"
# Both environments are as they were without it.
for venv in "$work/training" "$work/venv"; do
  "$base" -m pip --python "$venv/bin/python" uninstall --quiet --yes --disable-pip-version-check megalens
  left=$(/usr/bin/find "$venv" -iname '*megalens*')
  [ -z "$left" ] || { echo "pip uninstall leaves $left"; exit 1; }
done
echo "1 passed"
