"""Scripts of tests/engine as the engine and Node load them."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def built(folder, name):
    """Return the path of a bundle of ``tests/engine/<name>.ts``."""
    out = folder / f"{name}.js"
    subprocess.run(
        ["node", "scripts/build-bundles.mjs", f"tests/engine/{name}.ts", str(out)], cwd=ROOT, check=True
    )
    return out
