"""An engine whose jobs behave badly on purpose."""

import subprocess
from pathlib import Path

import pytest

from megalens.engine import Engine

ROOT = Path(__file__).parents[2]


def built(folder, name):
    """A bundle of tests/engine/<name>.ts."""
    out = folder / f"{name}.js"
    subprocess.run(
        ["node", "scripts/build-bundles.mjs", f"tests/engine/{name}.ts", str(out)], cwd=ROOT, check=True
    )
    return out


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """tests/engine/jobs.ts as the engine loads it."""
    return built(tmp_path_factory.mktemp("engine"), "jobs")


@pytest.fixture(scope="module")
def engine(bundle):
    engine = Engine(bundle)
    yield engine
    engine.close()
