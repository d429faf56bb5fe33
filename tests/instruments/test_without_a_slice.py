"""Without the folders of slices the rest of the package imports, trains, records, opens and passes its tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What git does not know of a checkout and the package needs to run.
BUILT = ("_version.py", "tracer/moments/native/*.so", "pictures/engine/bundle", "pictures/report/runtime")
# By slice what it adds to a run; pipelines add nothing.
ATTRIBUTES = {
    "generation": ("generate", "generations"),
    "monitor": ("alarms", "first_anomaly"),
    "pipeline": (),
    "timeline": ("pipeline_metrics",),
}
# Two at a time, of which neither could need the other: what any other needs of one of them is found missing.
FIRST, SECOND = ("generation", "timeline"), ("monitor", "pipeline")


def run(where: Path, *command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=where,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def without(names: Sequence[str], to: Path) -> Path:
    """Copy the checkout, all but slices on both sides, with what git does not know of it and Python needs to run."""
    run(ROOT, "node", "scripts/without-slice.mjs", *names, to)
    for side in ("megalens", "src", "tests"):
        assert not any((to / side / "instruments" / name).exists() for name in names)
    built = [each for pattern in BUILT for each in (ROOT / "megalens").glob(pattern)]
    for file in (file for each in built for file in ([each] if each.is_file() else each.rglob("*"))):
        place = to / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    return to


def trained(names: Sequence[str], folder: Path) -> Path:
    """Copy the checkout without slices, and use the package there; return the copy."""
    root = without(names, folder / "copy")
    absent = [attribute for name in names for attribute in ATTRIBUTES[name]]
    run(root, sys.executable, ROOT / "tests/kit/rest_work.py", root, folder, *absent, PYTHONPATH=str(root))
    listed = (root / "src/instruments/slices.generated.ts").read_text(encoding="utf-8")
    assert {name for name in ATTRIBUTES if f"./{name}'" in listed} == ATTRIBUTES.keys() - {*names}
    return root


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_rest_stands_and_its_plugins_build_without_two_slices(tmp_path: Path) -> None:
    # It fails where a file imports what is gone; that none asks another slice for a type alone shows src/__tests__/imports.spec.ts.
    esbuild = (ROOT / "node_modules/.bin/esbuild", "src/index.ts", "--bundle", "--packages=external")
    run(
        trained(FIRST, tmp_path),
        *esbuild,
        "--splitting",
        "--format=esm",
        "--outdir=built",
        "--log-level=error",
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_rest_stands_builds_and_draws_without_the_other_two(tmp_path: Path) -> None:
    root = trained(SECOND, tmp_path)
    assert "usage: megalens" in run(root, sys.executable, "-m", "megalens", "--help", PYTHONPATH=str(root))
    run(root, "node", "scripts/build-bundles.mjs")
    # Each view that is left is drawn.
    jest = (ROOT / "node_modules/.bin/jest", "src/views/__tests__/still.spec.ts", "--runInBand")
    run(root, *jest, "--testNamePattern", "is read and drawn")
