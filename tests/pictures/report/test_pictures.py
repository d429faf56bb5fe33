"""What the static pictures of a recorded run are made of: read and drawn by the views themselves, in the engine."""

import re
from xml.etree import ElementTree

import numpy as np
import pyarrow.compute as pc
import pytest
from recorded_run import RUN_ID, tensor, values_of, write_run

from megalens.pictures.report import build_report
from megalens.pictures.widgets.picture import draw_picture
from megalens.runs import open_run
from megalens.runs.moments.grouping.answer import trailing_mean


@pytest.fixture
def picture(draw):
    return lambda run, **options: draw(run, **options)[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return open_run(write_run(tmp_path_factory.mktemp("runs") / RUN_ID))


def largest(values):
    """Where the largest magnitude of one layer's [1, positions, tiles] is."""
    return np.unravel_index(int(np.abs(values[0]).argmax()), values[0].shape)


def test_a_heatmap_has_positions_across_and_tiles_down(picture, run):
    shown = picture(run, view="heatmap", flag="MLP1_mat_mul", layers="1", step=7)
    (cells,) = shown.datasets["pictures"]
    assert (cells["layer"], cells["x2"], cells["y2"]) == (1, 23.5, 15.5)
    position, tile = largest(values_of(7, 1))
    assert re.search(rf"is in layer 1 at position {position} “.”, tile {tile}\.", shown.summary)
    assert shown.texts["xTitle"] == "position"
    assert shown.texts["yTitle"] == "tile"
    assert shown.title == "MLP1 output, mean of 16 tiles, layer 1, step 7"
    assert shown.params["tokens"][:6] == ["␣", "i", "j", "k", "l", "␣"]


def test_the_first_part_is_drawn_unless_one_is_named(picture, run):
    assert "part q" in picture(run, view="heatmap", flag="QKV_mat_mul").title
    assert "part v" in picture(run, view="heatmap", flag="QKV_mat_mul", part="v").title


STATISTICS = {
    **{"mean": np.mean, "std": np.std, "min": np.min, "max": np.max},
    **{"rms": lambda values: np.sqrt((values**2).mean()), "abs_mean": lambda values: np.abs(values).mean()},
}


@pytest.mark.parametrize("statistic", [*STATISTICS, "nonfinite"])
def test_a_trend_draws_the_numbers_of_the_client(picture, run, statistic):
    shown = picture(run, view="trend", flag="MLP1_mat_mul", layers="1-2", statistic=statistic)
    drawn = {(row["x"], row["name"]): row["value"] for row in shown.datasets["rows"]}
    numbers = {}
    for row in run.tensors("MLP1_mat_mul", "1-2").to_pylist():
        values = np.array(row["values"], float)
        finite = values[np.isfinite(values)]
        number = len(values) - len(finite) if statistic == "nonfinite" else STATISTICS[statistic](finite)
        numbers[row["step"], f"layer {row['layer']}"] = number
    assert drawn == pytest.approx(numbers, rel=1e-12, nan_ok=True)
    assert [(row["x"], row["x2"], row["count"]) for row in shown.datasets["nonfinite"]] == [(30, 30, 3)]
    assert "Values that were not finite: 3; marks along the top show where." in shown.caption


def test_a_trend_keeps_to_the_steps_that_are_asked_for(picture, run):
    shown = picture(run, view="trend", flag="MLP1_mat_mul", steps=[5, 9])
    assert {row["x"] for row in shown.datasets["rows"]} == {5, 6, 7, 8, 9}
    assert (shown.params["x0"], shown.params["x1"]) == (5, 9)


def test_a_trailing_mean_passes_over_what_is_not_finite():
    values = np.array([1.0, np.nan, 3.0, np.inf, 5.0])
    assert trailing_mean(values, 2).tolist()[:1] == [1.0]
    assert trailing_mean(values, 3).tolist() == [1.0, 1.0, 2.0, 3.0, 4.0]
    assert np.isnan(trailing_mean(np.array([np.nan, np.nan]), 2)).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"view": "heatmap", "flag": "HiddenStates"}, "This run holds no train step of Layer output."),
        (
            {"view": "heatmap", "flag": "MLP1_mat_mul", "phase": "eval"},
            "This run holds no eval step of MLP1 output.",
        ),
        (
            {"view": "heatmap", "flag": "MLP2_mat_mul"},
            "This model has no MLP2 output: no second matrix was found",
        ),
        (
            {"view": "heatmap", "flag": "MLP1_mat_mul", "layers": "8"},
            "Layers 8 are not traced; there are rows of layers 0 to 3.",
        ),
        ({"view": "trend", "flag": "HiddenStates"}, "This run holds no train step of Layer output."),
        (
            {"view": "trend", "flag": "MLP1_mat_mul", "steps": [900, 950]},
            "Nothing was traced of steps 900 to 950",
        ),
        ({"view": "scalars", "names": ["speed"]}, "This run has no scalar named speed."),
    ],
)
def test_a_view_with_nothing_to_show_says_why(picture, run, options, says):
    shown = picture(run, **options)
    assert shown.empty
    assert says in " ".join(shown.caption)
    assert draw_picture(run, options)[0] == ""
    assert says in draw_picture(run, options)[1]


def test_pictures_of_cells_stay_sharp_and_load_nothing(run):
    svg, caption = draw_picture(run, {"view": "heatmap", "flag": "MLP1_mat_mul", "layers": "all"})
    assert svg.count("image-rendering: pixelated") == 4
    # A saved picture is shown as an image of its own, which is read as XML and forgives nothing.
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert svg.count('href="data:image/png;base64,') == svg.count("<image")
    assert caption.startswith("MLP1 output, mean of 16 tiles, layers 0 to 3, step 40.")


def test_every_layer_at_a_step_is_the_first_micro_batch_of_the_lowest_rank(picture, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from recorded_run import tensor

    from megalens.protocol import stream_schema

    folder = write_run(tmp_path / RUN_ID, steps=2)
    rows = [
        {
            **tensor(1, 0, "HiddenStates", "", "NoOp()", np.full((1, 2, 3), 10 * rank + batch, np.float32)),
            "micro_batch": batch,
            "rank": rank,
        }
        for rank in (1, 0)
        for batch in (1, 0)
    ]
    table = pa.Table.from_pylist(rows, schema=stream_schema("tensors"))
    old = pq.read_table(folder / "tensors.parquet").cast(stream_schema("tensors"))
    pq.write_table(pa.concat_tables([old, table]), folder / "tensors.parquet")
    shown = picture(open_run(folder), view="heatmap", flag="HiddenStates")
    assert "values run from 0 to 0." in shown.summary
    summed = picture(open_run(folder), view="trend", flag="HiddenStates", statistic="mean")
    assert [(row["x"], row["name"], row["value"]) for row in summed.datasets["rows"]] == [(1, "layer 0", 0.5)]
    assert pc.sum(table["nan_count"]).as_py() == 0


def cube(rank=0, pass_="forward", step=1, layer=0, value=0.0, **more):
    """A row of 4 positions and 3 vectors or tiles: value + position + 10 times the vector."""
    values = value + np.arange(4, dtype=np.float32)[:, None] + 10 * np.arange(3, dtype=np.float32)
    compressor = more.pop("compressor", "Projection(vectors='persona.safetensors')")
    more = {"rank": rank, "pass": pass_, **more}
    return tensor(step, layer, "HiddenStates", "", compressor, values[None], **more)


def test_a_heatmap_says_what_the_compressor_lost_and_since_when_that_is_known(picture, tmp_path):
    tile = "Tile(tiles=3, reduction='mean')"
    rows = [
        cube(compressor=tile, step=2, layer=0, compression_error=0.62),
        cube(compressor=tile, step=4, layer=0),
        cube(compressor=tile, step=4, layer=1),
    ]
    run = open_run(write_run(tmp_path / RUN_ID, steps=1, more=rows))
    options = {"view": "heatmap", "flag": "HiddenStates", "layers": "0"}
    now = picture(run, **options, step=2).caption
    assert "Lost to the compressor: 62 % of the tensor’s rms." in now
    older = picture(run, **options).caption
    assert "Lost to the compressor: 62 % of the tensor’s rms, as measured at step 2." in older
    both = picture(run, **{**options, "layers": "all"}).caption
    assert "Lost to the compressor: 62 % of the tensor’s rms, in layer 0, as measured at step 2." in both
    assert not any("Lost" in line for line in picture(run, **{**options, "layers": "1"}).caption)


def test_a_history_is_a_map_and_the_tensor_of_a_cell_that_can_be_scrubbed(draw, run):
    options = {"view": "history", "flag": "MLP1_mat_mul", "layers": "1-2", "step": 7}
    above, tensor = draw(run, **options)
    assert (above.template, tensor.template) == ("trend-heatmap", "heatmap")
    (cells,) = above.datasets["pictures"]
    assert (cells["y"], cells["y2"]) == (0.5, 2.5)
    assert [cells["layer"] for cells in tensor.datasets["pictures"]] == [1]
    assert tensor.title == "MLP1 output, mean of 16 tiles, layer 1, step 7"
    page = build_report(run, [options]).decode()
    assert page.count("<figure") == 1
    assert page.count('<div class="picture"') == 2
    assert page.count("run.history(&quot;MLP1_mat_mul&quot;, layers=&quot;1-2&quot;, step=7)") == 1
    assert "24 of 40 traced steps" in page
    (empty,) = draw(run, view="history", flag="HiddenStates")
    assert empty.empty
