"""What ``megalens-tracer`` brings, in an environment that has what it asks for and nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import megalens
from scripts.tracer_distribution import tracer_project

ROOT = Path(__file__).parents[2]
# Beside torch, numpy and pyarrow with what they ask for. Arrow's own wheel holds 170 MB, Flight and S3 among them, and is not to be had smaller.
MOST_BYTES = 20e6
# To download, of 60 MB in all: pyarrow's wheel has 55.
MOST_DOWNLOADED = 2e6
SCRIPT = """
import json, sys, time
import numpy, pyarrow, torch
from torch import nn

began = time.process_time()
import megalens
megalens.trace, megalens.log_statistics, megalens.monitor
imported = time.process_time() - began
early = [name for name in sys.modules if name.startswith(("megalens.adapters.watch", "megalens.runs", "megalens.hub"))]

model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
tracer = megalens.trace(model, name="node", record="runs")
megalens.monitor(model, optimizer, tracer=tracer)
for step in range(4):
    with tracer.step():
        loss = model(torch.arange(8)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tracer.log(loss=loss.item())
tracer.close()

said = {}
for what, call in (("open", lambda: megalens.open(tracer.folder)), ("show", megalens.show)):
    try:
        call()
    except Exception as error:
        said[what] = [type(error).__name__, str(error)]
there = [name for name in ("pandas", "duckdb", "py_mini_racer", "ipywidgets") if name in sys.modules]
print(json.dumps({"said": said, "there": there, "imported": imported, "early": early}))
"""


def wheel(folder: Path) -> Path:
    """Build ``megalens-tracer`` from a copy of what a wheel is made of."""
    source = folder / "source"
    for name in ("megalens", "protocol", "scripts"):
        shutil.copytree(
            ROOT / name,
            source / name,
            ignore=shutil.ignore_patterns("__pycache__", "labextension", "fixtures", "snippets"),
            symlinks=True,
        )
    for name in ("README.md", "LICENSE", "package.json", ".gitignore"):
        shutil.copy(ROOT / name, source)
    (source / "pyproject.toml").write_text(
        tracer_project((ROOT / "pyproject.toml").read_text("utf-8")), "utf-8"
    )
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=source,
        env={**os.environ, "MEGALENS_KERNEL": "plain"},
        check=True,
        capture_output=True,
    )
    (made,) = (source / "dist").glob("*.whl")
    return made


def needed(asked: list[str]) -> dict[str, Distribution]:
    """Return what requirements ask for, and what that asks for, as it is installed here."""
    found: dict[str, Distribution] = {}
    while asked:
        words = asked.pop()
        name = re.split(r"[^\w.-]", words, maxsplit=1)[0].lower().replace("_", "-")
        # A condition on an extra, a platform or a version: what torch brings where there are GPUs.
        if name not in found and ";" not in words:
            found[name] = distribution(name)
            asked += found[name].requires or []
    return found


def size(one: Distribution) -> int:
    return sum(
        path.stat().st_size
        for each in one.files or []
        if (path := Path(str(one.locate_file(each)))).is_file()
    )


@pytest.mark.slow
def test_a_node_with_the_tracer_alone_trains_records_and_names_what_it_lacks(tmp_path):
    made = wheel(tmp_path)
    assert made.name.startswith("megalens_tracer-")
    assert made.name.endswith("-py3-none-any.whl")
    assert made.stat().st_size < MOST_DOWNLOADED
    home = tmp_path / "venv"
    venv.create(home)
    packages = next(home.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(made) as held:
        held.extractall(packages)
        names = held.namelist()
    assert [name for name in names if name.startswith("megalens_tracer") and ".data/" in name] == []
    assert [name for name in names if re.search(r"engine\.js|report-page|server/page/", name)] == []
    (own,) = Distribution.discover(path=[str(packages)])
    brought = needed(list(own.requires or []))
    assert not {"pandas", "duckdb", "mini-racer", "jupyter-server", "ipywidgets"} & set(brought)
    for one in brought.values():
        for top in {each.parts[0] for each in one.files or []} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(one.locate_file(top))))
    of_torch = needed(["torch", "numpy", "pyarrow"])
    beside = size(own) + sum(size(one) for name, one in brought.items() if name not in of_torch)
    assert beside < MOST_BYTES

    done = subprocess.run(
        [home / "bin" / "python", "-c", SCRIPT],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "MEGALENS_RUNTIME_DIR": str(tmp_path / "runtime"),
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    print(f"{beside / 1e6:.1f} MB, imported in {told['imported']:.2f} s of CPU")
    assert told["there"] == []
    # What watches a pass waits for one; readers and the hub are no part of the training process.
    assert told["early"] == []
    assert set(told["said"]) == {"open", "show"}
    for kind, sentence in told["said"].values():
        assert kind == "NotInstalledError"
        assert "which is not installed here" in sentence
        assert "pip install megalens" in sentence
    # Whole: read here, where everything is installed.
    (folder,) = (tmp_path / "runs").iterdir()
    run = megalens.open(folder)
    assert run.scalars(names="loss")["step"].to_pylist() == [1, 2, 3, 4]
    assert run.table("moments").num_rows > 0

    runs = subprocess.run(
        [home / "bin" / "python", "-m", "megalens", "report", str(folder)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert runs.returncode == 1
    assert runs.stderr.startswith("megalens: Reading and showing runs needs ")
