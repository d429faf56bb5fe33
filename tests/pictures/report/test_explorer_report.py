"""The explorer in reports: drawn without a network and without code from text, from rows that were grouped before."""

import json
import re

import nbformat
import pytest
from explored_run import BAD, BAD_STEP, SPIKE_STEP, row_of, values_of_tensor, write_explored_run
from page_probe import probe
from recorded_run import RUN_ID, write, write_run

from megalens.pictures.report import build_report, write_report
from megalens.runs import open_run

pytestmark = pytest.mark.slow

VIEWS = [
    {"view": "statistics"},
    {"view": "statistics", "kind": "overview", "stat": "residual", "statistic": "kurtosis", "smoothing": 5},
    {"view": "statistics", "kind": "layer_map", "transform": "log"},
    {"view": "statistics", "kind": "layers", "by": ["layer", "family"], "marks": "bars"},
    {"view": "statistics", "kind": "map", "by": ["layer"], "cells": ["[2,12]"]},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return open_run(write_explored_run(tmp_path_factory.mktemp("runs") / RUN_ID))


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    return write_report(run, tmp_path_factory.mktemp("reports") / "report.html", VIEWS, "Where it spiked")


@pytest.fixture(scope="module")
def found(page):
    """What a browser finds in the page, with its script and without."""
    return probe(page, "--axe", "--still")


def test_every_chart_of_the_explorer_is_live_with_no_network(found):
    assert (found["requests"], found["messages"], found["violations"], found["live"]) == ([], [], [], 5)
    lines, total, families, cells, bars, layers, chosen = found["tips"]
    assert lines.startswith("step ")
    assert "layer 3" in lines
    assert "all tensors" in total
    assert families.startswith("step ")
    assert re.match(r"layer [12]\nstep \d+\n", cells)
    assert bars.startswith("layer ")
    assert "mlp" in bars
    assert re.match(r"layer \d\nstep \d+\n", layers)
    assert re.match(r"step \d+\n(.*\n)*.*layer 2", chosen)


def test_rows_are_grouped_filtered_and_put_in_order_with_no_network(run, tmp_path):
    views = [{"view": "statistics"}, {"view": "statistics", "kind": "table"}]
    page = write_report(run, tmp_path / "report.html", views)
    row, by_value = "#view-1 tbody tr:first-child", "#view-1 th:nth-child(3) button"
    done = [
        ["choose", 0, "By", "family"],
        ["until", "#view-0 .jp-MegalensView-title", "Gradient L2 by family"],
        ["choose", 0, "Statistic", "kurtosis"],
        ["until", "#view-0 .jp-MegalensView-title", "Gradient kurtosis by family"],
        ["click", by_value],
        ["until", f"{row} td:nth-child(2)", f"^{SPIKE_STEP}$"],
        ["press", 1, "More"],
        ["write", 1, "Layers", "1"],
        ["until", "#view-1:has(tbody tr:nth-child(40):last-child)", "Gradient L2 by layer"],
    ]
    # Dark from the start.
    found = probe(page, "--dark", "--do", json.dumps(done))
    assert (found["requests"], found["messages"], found["live"]) == ([], [], 2)
    assert len(found["did"]) == len(done)


def test_the_page_is_readable_without_its_script(page, found):
    assert found["still"]["svgs"] == 7
    for words in (
        "Gradient L2 by layer, steps 1 to 40",
        f"First non-finite gradients: step {BAD_STEP}, {BAD} (2).",
        "Residual stream kurtosis of all tensors",
        "Residual stream kurtosis by family",
        "Trailing mean of 5 points",
        "Gradient L2 by layer and family, step 40",
    ):
        assert words in found["still"]["text"]
    assert 'run.statistics(kind="layer_map", transform="log")' in page.read_text(encoding="utf-8").replace(
        "&quot;", '"'
    )


def test_a_page_of_many_rows_stays_small_and_keeps_the_spike(tmp_path):
    folder = write_run(tmp_path / RUN_ID, statistics={"grad": 1})
    names = [f"decoder.layers.{layer}.mlp.linear_fc1.weight" for layer in range(30)]
    one = row_of("grad", names[0], 1, values_of_tensor("param", "embedding.word_embeddings.weight", 1))
    rows = [
        {**one, "name": name, "step": step, "mean": 3e4 if (place, step) == (17, 1234) else 0.0}
        for step in range(1, 3001)
        for place, name in enumerate(names)
    ]
    write(folder, "moments", rows)
    page = build_report(open_run(folder), [{"view": "statistics"}]).decode("utf-8")
    assert len(page) < 1_500_000
    assert "of 3\u202f000 steps are drawn; every minimum and maximum is kept." in page
    assert re.search("between step [^.]*1\u202f234[^.]* in layer 17", page)


def test_a_notebook_has_pictures_and_the_call(run):
    notebook = nbformat.reads(build_report(run, VIEWS, format="ipynb").decode("utf-8"), 4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert [cell.source for cell in cells][:2] == [
        "run.statistics()",
        'run.statistics(stat="residual", statistic="kurtosis", kind="overview", smoothing=5)',
    ]
    for cell in cells:
        data = cell.outputs[0].data
        assert data["application/vnd.vegalite.v5+json"]["$schema"].endswith("v5.json")
        assert "<svg" in data["image/svg+xml"]
        assert "light-dark" not in str(data)


def test_the_usual_report_has_the_explorer_where_statistics_were_logged(run, tmp_path):
    assert "<code>run.statistics()</code>" in build_report(run).decode("utf-8")
    plain = open_run(write_run(tmp_path / RUN_ID))
    assert "run.statistics" not in build_report(plain).decode("utf-8")
