"""The files that a report is: what is in them, what is not, and how a browser and a notebook reader show them."""

import ast
import base64
import json
import os
import re
import socket
import zlib
from pathlib import Path

import nbformat
import numpy as np
import pyarrow as pa
import pytest
from page_probe import probe
from recorded_run import RUN_ID, flag_info, tensor, values_of, write, write_run

from megalens.pictures.report import ReportError, build_report, write_report
from megalens.pictures.report.build import check_views
from megalens.protocol import Histogram
from megalens.runs import open_run

pytestmark = pytest.mark.slow

FOUR = [
    {"view": "scalars", "smoothing": 5},
    {"view": "heatmap", "flag": "MLP1_mat_mul", "layers": "all", "step": 30},
    {"view": "trend", "flag": "MLP1_mat_mul"},
    {"view": "trend", "flag": "MLP1_mat_mul", "kind": "heatmap", "statistic": "max"},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return open_run(write_run(tmp_path_factory.mktemp("runs") / RUN_ID))


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    return write_report(run, tmp_path_factory.mktemp("reports") / "report.html", FOUR, "What layer 1 does")


@pytest.fixture(scope="module")
def found(page):
    """What a browser finds in the page, with its script and without."""
    return probe(page, "--axe", "--still")


def test_a_page_is_live_in_a_browser_with_no_network_and_asks_for_nothing(found):
    assert found["requests"] == []
    assert found["messages"] == []
    assert found["violations"] == []
    assert found["live"] == 4
    assert found["zoomed"]
    assert found["title"] == "MLP1 output, mean of 16 tiles, layers 0 to 3, step 30"
    assert found["movedTitle"] == "MLP1 output, mean of 16 tiles, layers 0 to 3, step 1"
    scalars, cell, lines, block = found["tips"]
    assert re.match(r"step \d+\n", scalars)
    assert "layer 3" in lines
    assert re.match(r"step \d+\nlayer \d\n\d", block)
    tip = re.fullmatch(r"layer (\d)\nvalue\n(.+)\nposition\n(\d+)(?: “.”)?\ntile\n(\d+)\nstep\n30", cell)
    layer, position, tile = int(tip[1]), int(tip[3]), int(tip[4])
    expected = float(values_of(30, layer)[0, position, tile])
    assert float(tip[2].replace("−", "-")) == pytest.approx(expected, rel=5e-3)


def held_rows(page):
    """The rows of tensors in a page, read as its script reads them."""
    said = re.search(r'id="megalens-data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    planes = zlib.decompress(base64.b64decode(json.loads(said[1])["runs"][0]["tensors"]))
    whole, at = bytearray(len(planes)), 0
    for plane in range(8):
        size = len(range(plane, len(planes), 8))
        whole[plane::8] = planes[at : at + size]
        at += size
    return pa.ipc.open_stream(bytes(whole)).read_all().to_pylist()


def test_a_page_holds_the_values_of_the_recording_to_three_digits(page, run):
    rows = [row for row in held_rows(page) if row["flag"] == "MLP1_mat_mul" and row["shape"] != [0]]
    steps = {row["step"] for row in rows}
    assert len(rows) == 4 * len(steps)
    assert {1, 30, 40} <= steps
    for row in rows:
        (of_layer,) = run.tensors(row["flag"], row["layer"], steps=row["step"]).to_pylist()
        assert row["shape"] == of_layer["shape"]
        np.testing.assert_allclose(row["values"], of_layer["values"], rtol=5e-4, atol=0)
        same = ("phase", "pass", "part", "rank", "micro_batch", "nan_count", "inf_count", "source_shape")
        assert [row[name] for name in same] == [of_layer[name] for name in same]
    at_30 = np.concatenate([row["values"] for row in rows if row["step"] == 30])
    assert (np.isnan(at_30).sum(), np.isinf(at_30).sum()) == (1, 2)


def test_a_page_answers_what_its_views_hold_and_says_what_it_does_not(page):
    state = ".jp-MegalensState"
    done = [
        ["hover", 2, 0.5, 0.4],
        ["until", "#view-3:has(.jp-MegalensLinked)", "maximum"],
        ["choose", 2, "Statistic", "mean"],
        ["until", "#view-2 .jp-MegalensView-title", "mean of layers 0 to 3"],
        ["write", 1, "Layers", "1"],
        ["until", "#view-1 .jp-MegalensView-title", "layer 1, step 40"],
        ["choose", 1, "Flag", "Queries, keys and values"],
        ["until", f"#view-1 {state}", "does not hold these rows of Queries, keys and values"],
        ["color", "#view-3 .role-axis-label text"],
        ["dark"],
        ["until", "#view-3:has(text[fill='#a3abb3'])", "maximum"],
        ["color", "#view-3 .role-axis-label text"],
    ]
    found = probe(page, "--do", json.dumps(done))
    assert (found["requests"], found["messages"]) == ([], [])
    assert len(found["did"]) == len(done)
    step, *layers = re.findall(r"(?:step|layer) \d+", found["did"][0])
    tip = dict(zip(layers, map(float, re.findall(r"\n(\d\.\d+)", found["did"][0])), strict=True))
    for layer in range(4):
        values = values_of(int(step.split()[1]), layer).astype(float)
        assert tip[f"layer {layer}"] == pytest.approx(float(np.sqrt((values**2).mean())), rel=1e-7)
    assert found["did"][8] != found["did"][-1]


def test_a_page_is_readable_without_its_script(found):
    still = found["still"]
    assert still["svgs"] >= 4
    assert found["requests"] == []
    for words in (
        "What layer 1 does",
        "Tile(tiles=16, reduction='mean')",
        "Cells that are not finite (hatched): 3.",
    ):
        assert words in still["text"]


def test_a_page_allows_its_own_script_and_nothing_else(page):
    text = page.read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert re.search(r"script-src[^;]*unsafe-inline", policy) is None
    # Addresses in the script are names of XML and schema, which nothing follows; the browser test counts requests.
    assert re.search(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=[\"']?(?!data:)\w", text) is None


def test_a_page_carries_what_one_must_know_of_the_run(page):
    text = page.read_text(encoding="utf-8")
    for words in (
        "gpt-demo",
        RUN_ID,
        "4 layers, 128 hidden, 4 heads, 842k parameters",
        "TP 1, PP 1, DP 1, 1 rank",
        "megalens 0.1.0, torch 2.9.0, python 3.11.9",
        "Tracing cost",
        "40 steps, 1 to 40",
        "all layers; Layer output off (by a viewer)",
        "Queries, keys and values off (by kernel)",
        "settings changed (by kernel)",
        "The recording lacks steps 8 to 9.",
        "run.heatmap(&quot;MLP1_mat_mul&quot;, layers=&quot;all&quot;, step=30)",
    ):
        assert words in text


@pytest.mark.parametrize("kind", ["html", "ipynb"])
def test_a_report_names_no_path_no_person_and_no_machine(run, tmp_path, kind):
    views = [*FOUR, {"view": "heatmap", "flag": "QKV_mat_mul"}]
    text = write_report(run, tmp_path / f"report.{kind}", views).read_text(encoding="utf-8")
    host = socket.gethostname()
    secrets = ["/home/", "wandaq", "secret", str(run.folder.parent), str(Path.cwd()), "Bearer"]
    for secret in secrets:
        assert secret not in text, secret
    # A machine may be called by two letters, which its script and packed pictures may hold as well.
    said = re.sub(r"<script>.*</script>|base64,[\w+/=]+|\"[\w+/=]{200,}\"", "", text, flags=re.DOTALL)
    assert len(said) > 20_000
    assert re.search(rf"(?<![\w-]){re.escape(host)}(?![\w-])", said) is None


def test_four_views_of_a_real_size_stay_below_two_megabytes(tmp_path):
    run = open_run(write_run(tmp_path / RUN_ID, steps=60, size=(128, 96)))
    views = [
        FOUR[0],
        {"view": "heatmap", "flag": "MLP1_mat_mul", "layers": "all"},
        {"view": "heatmap", "flag": "MLP1_mat_mul", "layers": "0", "transform": "log"},
        FOUR[2],
    ]
    data = build_report(run, views)
    assert 600_000 < len(data) <= 2_000_000
    text = data.decode("utf-8")
    held = [
        int(n)
        for n in re.findall(
            r"This page holds steps 1(?:, .*)? and 60, (\d+) of 60 traced steps; the others", text
        )
    ]
    assert len(held) == 2
    assert min(held) >= 2


def test_a_report_speaks_the_language_that_was_asked_for_also_where_it_is_live(run, tmp_path):
    page = write_report(run, tmp_path / "report.html", FOUR, language="zh-CN")
    text = page.read_text(encoding="utf-8")
    assert '<html lang="zh-CN"' in text
    assert "<h2>追踪的内容</h2>" in text
    assert "What was traced" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    found = probe(page)
    assert (found["live"], found["messages"]) == (4, [])
    # Both are of the same view: of the picture in the file, and of the one that the script drew after a move.
    assert re.search(r"[\u4e00-\u9fff]", found["title"])
    assert re.search(r"[\u4e00-\u9fff]", found["movedTitle"])
    assert "第 1 步" in found["movedTitle"]
    assert "追踪的内容" in build_report(run, [], format="md", language="zh_CN").decode()
    assert "追踪" not in build_report(run, FOUR[:1]).decode()
    with pytest.raises(ReportError, match="language must be one of en, zh-CN, got 'fr'"):
        build_report(run, FOUR, language="fr")


def test_a_report_of_nobodys_choice_shows_the_run_at_a_glance_scalars_a_trend_and_a_heatmap(run):
    text = build_report(run).decode("utf-8")
    assert re.findall(r'<figure id="view-(\d)"', text) == ["0", "1", "2", "3"]
    assert "Out of the ordinary" in text


def test_a_view_that_names_no_flag_takes_the_first_traced_one_and_views_have_their_names_of_the_page(run):
    checked = check_views(run, ["trend", {"view": "heatmap", "layers": "1"}, "Statistics", "statistics"])
    assert [(each["view"], each.get("flag")) for each in checked] == [
        ("trend", "MLP1_mat_mul"),
        ("heatmap", "MLP1_mat_mul"),
        ("statistics", None),
        ("statistics", None),
    ]


def test_a_view_with_nothing_to_show_says_so_in_the_page(run):
    text = build_report(run, [{"view": "heatmap", "flag": "HiddenStates"}]).decode("utf-8")
    assert '<p class="nothing">This run holds no train step of Layer output.</p>' in text


@pytest.mark.parametrize(
    ("views", "view", "field", "says"),
    [
        ([{"view": "scalars"}, {"view": "pie"}], "views[1]", "views[1].view", "heatmap, trend, scalars"),
        (
            [{"view": "trend", "flag": "MLP1_mat_mul", "statistic": "median"}],
            "views[0]",
            "views[0].statistic",
            "one of mean",
        ),
        ([{"view": "heatmap", "flag": "Nope"}], "views[0]", "views[0].flag", "no flag 'Nope'"),
        ([5], "views[0]", "views[0]", "must be a widget such as run.heatmap"),
        (
            [{"view": "scalars"}, {"view": "weight_norms", "relative": True}],
            "views[1]",
            "views[1].view",
            "got 'weight_norms'. A view of another package is drawn in JupyterLab only.",
        ),
        ({"view": "scalars"}, None, "views", "must be a list"),
    ],
)
def test_a_wrong_view_is_named_with_its_field(run, tmp_path, views, view, field, says):
    with pytest.raises(ReportError, match=re.escape(says)) as caught:
        write_report(run, tmp_path / "report.html", views)
    assert (caught.value.view, caught.value.field) == (view, field)
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_another_ending_and_a_folder_that_is_not_there_are_refused(run, tmp_path):
    with pytest.raises(ReportError, match=r"must end in \.html, \.ipynb or \.md"):
        write_report(run, tmp_path / "report.pdf", FOUR)
    told = []
    with pytest.raises(ReportError, match=r"There is no folder 'nowhere' to write report\.html into"):
        write_report(
            run, tmp_path / "nowhere" / "report.html", FOUR[:1], progress=lambda *at: told.append(at)
        )
    assert told == []


def test_a_reports_file_obeys_the_umask(run, tmp_path):
    before = os.umask(0o077)
    try:
        path = write_report(run, tmp_path / "report.ipynb", [FOUR[0]])
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_progress_is_told_and_whatever_it_raises_leaves_no_file(run, tmp_path):
    said = []
    write_report(run, tmp_path / "whole.html", FOUR[:2], progress=lambda *step: said.append(step))
    assert [done for done, _, _ in said] == sorted(done for done, _, _ in said)
    assert said[-1] == (4, 4, "Done")
    assert any("Drawing MLP1 output" in words for _, _, words in said)

    class Cancelled(Exception):
        pass

    def cancel(done, total, words):
        if done == 1:
            raise Cancelled

    with pytest.raises(Cancelled):
        write_report(run, tmp_path / "cancelled.html", FOUR[:2], progress=cancel)
    assert [path.name for path in tmp_path.iterdir()] == ["whole.html"]


def test_a_hostile_name_stays_text(tmp_path):
    folder = write_run(tmp_path / RUN_ID, steps=3)
    header = json.loads((folder / "run.json").read_text())
    header["run"]["name"] = "</script><script>alert(1)</script>"
    header["versions"]["torch"] = "<img src=x onerror=alert(1)>"
    (folder / "run.json").write_text(json.dumps(header))
    page = write_report(open_run(folder), tmp_path / "report.html", [{"view": "scalars"}])
    text = page.read_text(encoding="utf-8")
    assert text.count("<script") == 2
    assert "<img" not in text
    notebook = nbformat.reads(build_report(open_run(folder), [], format="ipynb").decode(), 4)
    assert "<script>" not in notebook.cells[0].source.replace("\\<script\\>", "")


def test_a_notebook_report_is_valid_and_holds_the_views_own_code(run):
    notebook = nbformat.reads(build_report(run, FOUR, format="ipynb", title="Layer 1").decode("utf-8"), 4)
    nbformat.validate(notebook)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert sources == [
        f'import megalens\n\nrun = megalens.open("megalens-runs/{RUN_ID}")',
        "run.scalars_view(smoothing=5)",
        'run.heatmap("MLP1_mat_mul", layers="all", step=30)',
        'run.trend("MLP1_mat_mul")',
        'run.trend("MLP1_mat_mul", statistic="max", kind="heatmap")',
    ]
    for cell in notebook.cells[2:6]:
        (output,) = cell.outputs
        spec = output.data["application/vnd.vegalite.v5+json"]
        assert spec["$schema"].endswith("/vega-lite/v5.json")
        assert output.data["image/svg+xml"].startswith("<svg")


def test_the_charts_of_a_notebook_report_draw_in_vega_lite_5(run):
    import vl_convert

    notebook = nbformat.reads(build_report(run, FOUR, format="ipynb").decode("utf-8"), 4)
    for cell in notebook.cells[2:6]:
        spec = cell.outputs[0].data["application/vnd.vegalite.v5+json"]
        svg = vl_convert.vegalite_to_svg(dict(spec), vl_version="5.8", allowed_base_urls=[])
        assert "mark-group" in svg


def test_a_notebook_report_names_the_step_that_its_picture_shows(run):
    views = [{"view": "heatmap", "flag": "MLP1_mat_mul", "layers": "1"}]
    notebook = nbformat.reads(build_report(run, views, format="ipynb").decode("utf-8"), 4)
    newest = max(run.tensors("MLP1_mat_mul")["step"].to_pylist())
    assert f"step={newest}" in notebook.cells[2].source
    assert f"step {newest}" in notebook.cells[2].outputs[0]["data"]["text/plain"]


def test_a_notebook_beside_its_run_opens_it_by_its_relative_folder(tmp_path):
    run = open_run(write_run(tmp_path / "runs" / RUN_ID, steps=2))
    notebook = nbformat.read(write_report(run, tmp_path / "report.ipynb", []), 4)
    assert notebook.cells[1].source.endswith(f'megalens.open("runs/{RUN_ID}")')


def to_html(notebook):
    """What ``jupyter nbconvert --to html`` makes of a notebook."""
    from nbconvert.exporters import HTMLExporter

    return HTMLExporter().from_notebook_node(notebook)[0]


@pytest.mark.slow
def test_nbconvert_shows_the_pictures_of_a_notebook_report(run):
    notebook = nbformat.reads(build_report(run, FOUR, format="ipynb").decode("utf-8"), 4)
    text = to_html(notebook)
    assert text.count("data:image/svg+xml;base64") + len(re.findall(r"jp-RenderedSVG", text)) >= 4


@pytest.mark.slow
def test_nbconvert_shows_the_picture_of_a_saved_widget(run):
    from megalens.api.notebook import NotebookRun

    view = NotebookRun(run).heatmap("MLP1_mat_mul", layers="all")
    output = nbformat.v4.new_output("execute_result", data=view._repr_mimebundle_(), execution_count=1)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("run.heatmap(…)", outputs=[output])])
    nbformat.validate(notebook)
    text = to_html(notebook)
    assert text.count('<figure class="jp-MegalensPicture"') == 1
    assert "MLP1 output, mean of 16 tiles, layers 0 to 3, step 40." in text


@pytest.mark.slow
def test_a_notebook_report_runs_again_on_the_same_run(tmp_path):
    from nbclient import NotebookClient

    run = open_run(write_run(tmp_path / "megalens-runs" / RUN_ID, steps=5))
    notebook = nbformat.read(write_report(run, tmp_path / "report.ipynb", FOUR[:3]), 4)
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    client = NotebookClient(
        notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    views = [cell.outputs[0].data for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert len(views) == 3
    assert all(data["application/vnd.megalens.view+json"]["run"]["id"] == RUN_ID for data in views)
    assert all("<svg" in data["text/html"] for data in views)
    # Running a notebook keeps the state of its widgets: a page made of it shows the pictures all the same.
    assert len(notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]) >= 3
    assert to_html(notebook).count('<figure class="jp-MegalensPicture"') == 3


def test_a_folder_whose_name_looks_like_code_stays_a_name_in_a_notebook(tmp_path):
    name = 'a"); import os; ("b'
    run = open_run(write_run(tmp_path / name))
    notebook = nbformat.reads(build_report(run, [{"view": "scalars"}], format="ipynb").decode(), 4)
    opened = ast.parse(notebook.cells[1].source).body
    assert [type(line) for line in opened] == [ast.Import, ast.Assign]
    assert ast.literal_eval(opened[1].value.args[0]) == f"megalens-runs/{name}"


@pytest.mark.parametrize("name", ["constructor", "toString", "__proto__", "a\u2028b"])
def test_a_report_is_drawn_whatever_flags_scalars_units_and_runs_are_called(tmp_path, name):
    folder = write_run(
        tmp_path / "run",
        run={"id": "r1", "name": name, "started": 1.0},
        flags=[flag_info(name, name, [0], [], ["position", "feature"])],
        more=[tensor(step, 0, name, "", "Tile(tiles=16)", values_of(step, 0)) for step in (1, 2)],
        config={"flags": {name: {"compressor": {"name": "NoOp", "params": {}}}}},
    )
    (folder / "scalars.parquet").unlink()
    rows = [
        {"step": step, "time": 0.0, "rank": 0, "name": each, "value": 1.0, "unit": unit}
        for step in (1, 2)
        for each, unit in ((name, name), ("loss", name), (f"{name}_2", ""))
    ]
    write(folder, "scalars", rows)
    views = [
        {"view": "scalars"},
        {"view": "heatmap", "flag": name, "layers": "all"},
        {"view": "trend", "flag": name},
    ]
    run = open_run(folder)
    for chosen in (views, None):
        text = write_report(run, tmp_path / "report.html", chosen).read_text(encoding="utf-8")
        assert "could not be drawn" not in text
        assert text.count("<figure") >= 3


def test_the_distribution_by_its_name_is_of_the_flag_that_is_traced_as_a_histogram(tmp_path):
    counts = np.zeros((1, 1, 257), np.float32)
    counts[..., 100:150] = 7
    name = "HiddenStates"
    folder = write_run(
        tmp_path / "runs" / RUN_ID,
        flags=[
            flag_info("MLP1_mat_mul", "MLP1 output", [0, 1, 2, 3], [""], ["position", "feature"]),
            flag_info(name, "Hidden states", [0], [""], ["position", "feature"]),
        ],
        more=[tensor(step, 0, name, "", str(Histogram(128)), counts) for step in (1, 2)],
    )
    with open_run(folder) as run:
        (options,) = check_views(run, ["distribution"])
        assert (options["flag"], options["replicas"]) == (name, "lowest")
        text = build_report(run, ["distribution"], format="md").decode()
    assert "At step 2 half of the values lie between" in text
