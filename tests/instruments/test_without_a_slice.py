"""Without the folder of a slice the rest of the package imports, trains, records, opens and passes its tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
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

IMPORTS = """
    import importlib, pathlib, megalens
    package = pathlib.Path(megalens.__file__).parent
    assert package.is_relative_to(root), package
    files = [path.relative_to(package.parent) for path in package.rglob("*.py") if path.stem != "__main__"]
    assert len(files) > 200, len(files)
    for path in files:
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A package that is not installed, such as Triton on a machine without a GPU.
            assert not (error.name or "megalens").startswith("megalens"), (name, error)
"""
TRAINS = """
    import sys, torch, megalens
    from megalens.demo.model import GPT, GPTConfig
    model = GPT(GPTConfig(vocabulary=32, layers=2, hidden=16, heads=2, sequence=8))
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 32, (2, 8))
    with megalens.trace(
        model, record=sys.argv[1], linger=0.1, flags={"HiddenStates": megalens.Tile(4)}
    ) as tracer:
        assert tracer.connected(30)
        megalens.log_statistics(model, optimizer, tracer=tracer, activation=1)
        for _ in range(3):
            with tracer.step():
                loss = model(ids).logsumexp(-1).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                tracer.log(loss=loss.detach())
    with megalens.open(tracer.folder) as opened:
        for stream in ("tensors", "moments", "scalars"):
            assert set(opened.run.table(stream)["step"].to_pylist()) == {1, 2, 3}, stream
        for name in sys.argv[2:]:
            for run in (opened, opened.run):
                try:
                    getattr(run, name)
                except AttributeError as error:
                    assert f"has no attribute '{name}'" in str(error), error
                else:
                    raise AssertionError(f"run.{name} is there")
"""


def run(where: Path, *command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=200,
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


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_the_rest_stands_without_a_slice(name: str, tmp_path: Path) -> None:
    root = without([name], tmp_path / "copy")
    environment = {"PYTHONPATH": str(root), "MEGALENS_RUNTIME_DIR": str(tmp_path / "runtime")}

    def python(*arguments: str) -> str:
        return run(root, sys.executable, *arguments, **environment)

    python("-c", f"root = {str(root)!r}\n{textwrap.dedent(IMPORTS)}")
    assert "usage: megalens" in python("-m", "megalens", "--help")
    python("-c", textwrap.dedent(TRAINS), str(tmp_path / "runs"), *ATTRIBUTES[name])
    python(
        *("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", "tests/test_slices.py"),
        *(
            "tests/protocol/test_streams.py",
            "tests/protocol/test_settings.py",
            "tests/runs/test_recorded_run.py",
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_the_page_builds_without_a_slice(name: str, tmp_path: Path) -> None:
    root = without([name], tmp_path / "copy")
    assert f"./{name}'" not in (root / "src/instruments/slices.generated.ts").read_text(encoding="utf-8")
    run(root, "node", "scripts/build-bundles.mjs")
    run(
        root,
        ROOT / "node_modules/.bin/jest",
        "src/__tests__/imports.spec.ts",
        "src/views/__tests__/still.spec.ts",
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_core_is_typed_without_any_slice(tmp_path: Path) -> None:
    # No slice imports another, so what is left has its types where each of them is gone.
    run(without(sorted(ATTRIBUTES), tmp_path / "copy"), ROOT / "node_modules/.bin/tsc", "--noEmit")
