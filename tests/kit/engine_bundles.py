"""Bundles of tests/engine, built as the engine's own is."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def built(folder, name):
    """Bundle tests/pictures/engine/<name>.ts into a folder."""
    out = Path(folder) / f"{name}.js"
    command = ["node", "scripts/build-bundles.mjs", f"tests/pictures/engine/{name}.ts", str(out)]
    subprocess.run(command, cwd=ROOT, check=True)
    return out
