"""Make ``megalens-tracer`` of a copy of this folder: ``python -m scripts.tracer_distribution COPY``, then ``pip wheel COPY``.

The same package for a node that only trains: what it asks for is ``tool.megalens-tracer`` of ``pyproject.toml``, and nothing that draws or serves is in its wheel. It takes the place of ``megalens`` and
is never installed beside it, as with other packages that have a small twin.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import tomllib

__all__ = ["tracer_project"]

# What a wheel brings for JupyterLab, the server's pages, notebooks and the engine.
LEFT_OUT = re.compile(
    r"project\.optional-dependencies|.*nbconvert.*|.*jupyterlab\.locale.*|tool\.megalens-tracer|.*shared-data|.*jupyter-builder.*"
)


def tracer_project(text: str) -> str:
    """Return ``pyproject.toml`` of ``megalens-tracer``, from that of ``megalens``."""
    asked = tomllib.loads(text)["tool"]["megalens-tracer"]["dependencies"]
    tables = re.split(r"^(?=\[)", text, flags=re.M)
    kept = "".join(each for each in tables if not LEFT_OUT.fullmatch(each[1:].partition("]\n")[0]))
    for pattern, new in (
        (r'^name = "megalens"$', 'name = "megalens-tracer"'),
        (r"^dependencies = \[.*?^\]$", f"dependencies = {json.dumps(asked)}"),
        (r'^requires = \["hatchling.*$', 'requires = ["hatchling>=1.27", "hatch-nodejs-version>=0.3.2"]'),
        # Of the sdist, then of the wheel.
        (r"^artifacts = \[.*\]$", "artifacts = []"),
        (r"^artifacts = \[.*/.*\]$", "artifacts = []"),
    ):
        kept, count = re.subn(
            pattern, new, kept, count=1, flags=re.M | re.S if "dependencies" in pattern else re.M
        )
        if count != 1:
            raise ValueError(f"pyproject.toml must have a line like {pattern}; it has none.")
    return kept


def main(folder: str) -> None:
    """Rewrite the copy's ``pyproject.toml``."""
    path = Path(folder) / "pyproject.toml"
    path.write_text(tracer_project(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
