"""The explorer in a cell: the picture that the notebook keeps, and the same rows as a table."""

import json

import numpy as np
import pytest
from explored_run import BAD, BAD_STEP, SPIKE_STEP, values_of_tensor, write_explored_run
from pandas.testing import assert_frame_equal
from recorded_run import RUN_ID

import megalens
from megalens.pictures.widgets import VIEW_MIME, Statistics, WidgetError
from megalens.runs import ClientError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with megalens.open(write_explored_run(tmp_path_factory.mktemp("runs") / RUN_ID)) as opened:
        yield opened


def test_statistics_have_one_name_and_the_old_one_works_with_a_warning(run):
    with pytest.warns(DeprecationWarning, match=r"run\.statistics"):
        old = run.explore("kurtosis", by="layer")
    assert old.options == run.statistics("kurtosis", by="layer").options
    assert (
        run.view("statistics", statistic="kurtosis").options
        == run.view("moments", statistic="kurtosis").options
    )


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"stat": "grad"}, ("grad", ["layer"], {})),
        ({"stat": "kurtosis", "by": ["layer", "kind"]}, ("grad", ["layer", "kind"], {})),
        ({"stat": "param", "statistic": "max", "by": []}, ("param", [], {})),
        (
            {"stat": "activation", "by": "role", "where": {"layer": range(2)}, "steps": range(10, 21)},
            ("activation", ["role"], {"where": {"layer": "0-1"}, "steps": range(10, 21)}),
        ),
        (
            {"stat": "activation", "mixed": True, "kind": "table"},
            ("activation", ["layer"], {"mixed": True}),
        ),
        (
            {"stat": "grad", "kind": "tensors", "where": {"name": "mlp"}},
            ("grad", ["name"], {"where": {"name": "mlp"}}),
        ),
        ({"stat": "grad", "kind": "item_map"}, ("grad", ["item_type"], {})),
        ({"stat": "param", "kind": "map", "by": ["kind", "layer"]}, ("param", ["kind", "layer"], {})),
        (
            {"stat": "grad", "kind": "map", "by": "name", "columns": "rank", "step": 12},
            ("grad", ["name", "rank"], {"steps": 12}),
        ),
        (
            {"stat": "grad", "kind": "layer_map", "columns": "layer"},
            ("grad", ["layer"], {"steps": 40}),
        ),
        ({"stat": "residual", "kind": "layers", "step": 12}, ("residual", ["layer"], {"steps": 12})),
    ],
)
def test_a_view_and_the_analysis_code_have_the_same_rows(run, options, same):
    stat, group_by, more = same
    widget = run.statistics(**options)
    frame = widget.df
    expected = run.moments(stat, group_by, **more)
    assert_frame_equal(frame.drop(columns="value"), expected)
    assert frame["value"].equals(expected[widget.statistic].rename("value"))


def test_a_ratio_a_pattern_and_what_is_relative_are_columns_too(run):
    ratio = run.statistics(ratio="grad_to_param", statistic="rms").df
    above, below = (run.moments(stat, ["layer"]) for stat in ("grad", "param"))
    np.testing.assert_allclose(ratio["value"], above["rms"] / below["rms"], rtol=1e-12)
    captured = run.statistics("grad", "rms", by="capture", pattern=r"layers\.(\d+)\.mlp").df
    assert sorted(captured["capture"].unique()) == ["0", "1", "2", "3"]
    of_two = captured[captured["capture"] == "2"].set_index("step")["value"]
    name = "decoder.layers.2.mlp.linear_fc1.weight"
    assert of_two[7] == pytest.approx(np.sqrt((values_of_tensor("grad", name, 7) ** 2).mean()), rel=1e-12)
    percent = run.statistics("param", "std", show="percent", steps=range(30, 41)).df
    std = run.moments("param", ["layer"]).set_index(["step", "layer"])["std"]
    assert percent["step"].min() == 30
    first, last = (std[step, 3] for step in (1, 40))
    drawn = percent[(percent["step"] == 40) & (percent["layer"] == 3)]["value"].item()
    assert drawn == pytest.approx(100 * (last - first) / first, rel=1e-12)


def test_ranks_of_a_folder_of_trainermon_are_columns_of_a_map_with_lines_of_its_cells(tmp_path):
    norms = {
        (rank, name, step): 1.0 + rank + 10 * step + 100 * at
        for at, name in enumerate(["attn.wq.weight", "embed.weight", "mlp.fc1.weight"])
        for rank in range(3)
        for step in (4, 5)
        if (rank, name) != (1, "embed.weight")
    }
    for rank in range(3):
        folder = tmp_path / f"Nov21_12-20-04-rank{rank}-82ac1f33"
        folder.mkdir()
        lines = [
            f'0,{name},{step},{norm},0.5,"[3, 4]",torch.float32\n'
            for (of, name, step), norm in norms.items()
            if of == rank
        ]
        (folder / "grad_reduced_4-5.csv").write_text(
            "vpp_stage,name,step,norm,mean,shape,dtype\n" + "".join(lines)
        )
    with megalens.open(tmp_path) as folder_run:
        cells = ['["mlp.fc1.weight",2]', '["attn.wq.weight",0]']
        widget = folder_run.statistics(
            kind="map", by="name", columns="rank", step=4, colors="sigma", cells=cells
        )
        frame = widget.df
        html = widget._repr_mimebundle_()["text/html"]
        of_rank = folder_run.statistics(kind="map", by="name", where={"rank": 2}).df
    drawn = {(row["rank"], row["name"], row["step"]): row["value"] for row in frame.to_dict("records")}
    assert drawn == pytest.approx({key: norm for key, norm in norms.items() if key[2] == 4})
    assert {(row["name"], row["step"]): row["value"] for row in of_rank.to_dict("records")} == pytest.approx(
        {key[1:]: norm for key, norm in norms.items() if key[0] == 2}
    )
    assert html.count("<svg") == 2
    assert "Gradient L2 by tensor and rank, step 4." in html
    assert "mlp.fc1.weight · rank 2" in html
    assert "standard deviations (σ) a cell lies from the mean of all" in html


def test_options_that_change_change_the_rows(run):
    widget = run.statistics("grad", "rms")
    widget.by = ["kind"]
    widget.set_state({"options": {**widget.options, "statistic": "max"}})
    frame = widget.df
    assert list(frame["kind"].unique()) == ["weight"]
    assert frame["value"].equals(frame["max"].rename("value"))
    assert Statistics({"id": "r1"}, {}).options == run.statistics().options
    with pytest.raises(WidgetError, match=r"Make it with run.statistics"):
        _ = Statistics({"id": "r1"}, {}).df


def test_the_notebook_keeps_a_picture_with_the_spike_and_the_first_bad_step(run):
    bundle = run.statistics("grad", "l2")._repr_mimebundle_()
    assert bundle[VIEW_MIME]["options"]["view"] == "statistics"
    assert bundle["text/plain"] == "Statistics(gpt-demo: )"
    html = bundle["text/html"]
    assert html.count("<svg") == 1
    assert "Gradient L2 by layer, steps 1 to 40." in html
    assert f"First non-finite gradients: step {BAD_STEP}, {BAD} (2)." in html
    assert "light-dark" not in html
    two = run.statistics(kind="overview")._repr_mimebundle_()["text/html"]
    assert two.count("<svg") == 2
    assert "Gradient L2 of all tensors" in two
    assert "Gradient L2 by family" in two


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"stat": "dgrad"},
            "Activation gradients were not logged in this run; there are parameters, gradients",
        ),
        ({"stat": "activation"}, "would hold both inputs and outputs of modules"),
        ({"where": {"layer": 77}}, "No tensor of this run matches the filter"),
        ({"kind": "layers", "where": {"name": "embedding"}}, "All tensors here are outside the layers"),
        ({"pattern": "(", "by": "capture"}, "no regular expression"),
        ({"by": "capture"}, "needs a pattern, such as"),
        ({"ratio": "gain"}, "Choose activation or dgrad"),
    ],
)
def test_what_cannot_be_drawn_says_why_and_the_cell_shows_it(run, options, says):
    bundle = run.statistics(**options)._repr_mimebundle_()
    assert "<svg" not in bundle["text/html"]
    assert says in bundle["text/html"].replace("&quot;", '"').replace("&#x27;", "'")


def test_rows_of_what_was_not_logged_are_refused(run):
    with pytest.raises(ClientError, match="no statistics of dgrad"):
        _ = run.statistics("dgrad").df
    spike = run.statistics("grad", "l2", by=[]).df
    assert spike.loc[spike["value"].idxmax(), "step"] == SPIKE_STEP


def test_a_view_of_opened_files_says_where_the_server_finds_them(tmp_path, monkeypatch):
    folder = tmp_path / "runs" / "a" / "training_stats" / "grad_raw_moments_by_param"
    folder.mkdir(parents=True)
    sums = {"count": 4.0, "sum_1": 10.0, "sum_2": 30.0, "sum_3": 100.0, "sum_4": 354.0}
    lines = [
        json.dumps({"iter": step, "stat": folder.name, "values": {"layers.0.weight": sums}})
        for step in (1, 2, 3)
    ]
    (folder / "rank0.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with megalens.open("runs/a") as files:
        widget = files.statistics("kurtosis")
        reference = widget._repr_mimebundle_()[VIEW_MIME]["run"]
        assert reference["kind"] == "statistics"
        assert reference["id"] == files.id
        assert reference["folder"].startswith("runs/a")
        assert widget.df["value"].tolist() == pytest.approx([1.64] * 3)
        assert str(tmp_path) not in str(widget._repr_mimebundle_())
