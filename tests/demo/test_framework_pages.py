"""The scripts of docs/frameworks, run as a reader runs them, and what they record."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import megalens

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "frameworks"
# What is called train.py in the pages, and what starts it there.
ALONE = ("{python}",)
TWO = ("{python}", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# Page, command, layers, steps at whose end it evaluates.
SCRIPTS = (
    ("plain-loop", ALONE, 4, [3, 6]),
    ("trainer", ALONE, 2, [3, 6]),
    ("accelerate", ALONE, 2, []),
    ("lightning", ALONE, 4, []),
    ("torchtitan", TWO, 2, []),
)
STEPS = list(range(1, 7))


def blocks(page: str, language: str) -> list[str]:
    """Return the code of one language on a page."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("page", "command", "layers", "evaluated"), SCRIPTS, ids=[each[0] for each in SCRIPTS]
)
def test_a_pages_script_records_its_steps_and_its_gradients_before_they_are_clipped(
    page: str, command: tuple[str, ...], layers: int, evaluated: list[int], tmp_path: Path
) -> None:
    (script,) = blocks(page, "python")
    if command == TWO:
        assert "torchrun --nproc-per-node 2 train.py\n" in blocks(page, "sh")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    environment = {
        **os.environ,
        "MEGALENS_RUNTIME_DIR": str(tmp_path / "runtime"),
        "PYTHONPATH": str(ROOT),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    started = [part.format(python=sys.executable) for part in command]
    done = subprocess.run(
        [*started, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = (tmp_path / "megalens-runs").iterdir()
    run = megalens.open(folder)

    rows = run.tensors("HiddenStates").to_pylist()
    found = [(row["step"], row["micro_batch"], row["layer"]) for row in rows if row["phase"] == "train"]
    assert sorted(found) == [
        (step, part, layer) for step in STEPS for part in (0, 1) for layer in range(layers)
    ]
    assert sorted({row["step"] for row in rows if row["phase"] == "eval"}) == evaluated
    assert run.scalars("held_out_loss")["step"].to_pylist() == evaluated

    gradients = run.table("moments").to_pandas().query("stat == 'grad'")
    assert set(gradients["gradient_stage"]) == {"pre_clip"}
    squares = gradients["m2"] + gradients["count"] * gradients["mean"] ** 2
    norms = np.sqrt(squares.groupby(gradients["step"]).sum())
    # The norm is the one that torch has when it clips.
    told = run.scalars("grad_norm").to_pandas().set_index("step")["value"]
    assert list(told.index) == list(norms.index) == STEPS
    np.testing.assert_allclose(norms, told, rtol=1e-5)
    assert run.scalars("loss")["step"].to_pylist() == STEPS


def test_the_page_of_megatron_shows_lines_of_its_example() -> None:
    excerpt, observer, _ = blocks("megatron", "python")
    script = (ROOT / "examples/megatron/train.py").read_text(encoding="utf-8")
    # tests/distributed/test_example.py runs it.
    places = [script.index(lines.rstrip("\n")) for lines in excerpt.partition("\n")[2].split("\n\n")]
    assert places == sorted(places)
    # tests/distributed/test_observed_megatron.py calls one as the loop does.
    given: dict[str, object] = {}
    exec(observer, {"pretrain": lambda *_, **named: given.update(named)})
    assert callable(given["tensor_metric_observer"])


def test_every_page_has_a_test_and_is_named_in_the_readme() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")}
    assert pages == {script[0] for script in SCRIPTS} | {"megatron"}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page for page in sorted(pages) if f"docs/frameworks/{page}.md" not in readme] == []
