"""Whatever a run, its folder and its settings are called: the code in a notebook report calls what this package names, with literals."""

import ast
import json
import random

import nbformat
import pytest
from recorded_run import RUN_ID, write_run

from megalens.pictures.report import build_report
from megalens.runs import open_run

pytestmark = pytest.mark.slow

PIECES = [
    '"', "'", "'''", "\\", "\n", "\r", "\t", "\x1b[31m", "\u2028", "\u202e", "${x}", "{x}", "%s", "$a$", "`", "</script>", '"); import os; os.system("x") #', "é𝒳",
]  # fmt: skip


def literal_call(call):
    """The dotted name of what is called, and its arguments, which must be literals."""
    return (
        ast.unparse(call.func),
        [ast.literal_eval(each) for each in call.args],
        {each.arg: ast.literal_eval(each.value) for each in call.keywords},
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_notebooks_cells_are_calls_with_literals(tmp_path, seed):
    rng = random.Random(seed)
    # A slash would be another folder, and a name has at most 255 bytes.
    name = "N" + "".join(rng.sample(PIECES, 6)).replace("/", "|")
    folder = write_run(tmp_path / RUN_ID, steps=3)
    header = json.loads((folder / "run.json").read_text())
    header["run"]["name"] = name
    (folder / "run.json").write_text(json.dumps(header))
    folder = folder.rename(tmp_path / name)
    views = [
        {"view": "scalars", "names": [name]},
    ]
    notebook = nbformat.reads(build_report(open_run(folder), views, title=name, format="ipynb").decode(), 4)
    nbformat.validate(notebook)
    opening, *cells = [ast.parse(cell.source).body for cell in notebook.cells if cell.cell_type == "code"]
    assert isinstance(opening[0], ast.Import)
    assert literal_call(opening[1].value) == ("megalens.open", [f"megalens-runs/{name}"], {})
    [[shown]] = cells
    assert literal_call(shown.value)[0] == "run.scalars_view"
    assert literal_call(shown.value)[2]["names"] == [name]
