"""``run.moments``: statistics of groups as a table, of recorded and live runs."""

import numpy as np
import pyarrow as pa
import pytest
from recorded_moments import moments_of, row_of
from recorded_run import write, write_run

from megalens.protocol import encode_frame, parse_name, stream_schema
from megalens.runs import ClientError, open_run
from megalens.runs.answers.moment_request import moment_groups
from megalens.runs.moments.grouping.query import MomentQuery

COLUMNS = [
    *(
        "count",
        "mean",
        "variance",
        "std",
        "l2",
        "rms",
        "skewness",
        "kurtosis",
        "excess_kurtosis",
        "nan_count",
        "inf_count",
    ),
    *("min", "max", "near_zero_count", "near_zero_share"),
    *("variance_error", "kurtosis_error", "samples", "scaled", "gradient_stage"),
]
NAMES = [
    "embedding.weight",
    *(
        f"decoder.layers.{layer}.{item}"
        for layer in (0, 2, 10)
        for item in ("mlp.linear_fc1.weight", "mlp.experts.linear_fc1.weight7")
    ),
]


def values_of(name, step, stat):
    values = np.random.default_rng(NAMES.index(name) * 1000 + step * 10 + len(stat)).normal(
        step, 1 + len(stat), 50
    )
    values[: NAMES.index(name)] = 1e-9
    return values


def rows(steps=3, stats=("param", "grad")):
    return [
        row_of(stat, name, step, rank=1, **moments_of(values_of(name, step, stat)))
        for step in range(1, steps + 1)
        for stat in stats
        for name in NAMES
    ]


@pytest.fixture
def run(tmp_path):
    folder = write_run(tmp_path / "run", steps=3)
    write(folder, "moments", rows())
    with open_run(folder) as run:
        yield run


def test_one_row_a_step_and_group_with_the_statistics_of_the_values(run):
    frame = run.moments("grad", ["layer"])
    assert list(frame.columns) == ["stat", "step", "layer", *COLUMNS]
    assert frame["step"].tolist() == [1] * 4 + [2] * 4 + [3] * 4
    assert [
        None if value is None or value != value else int(value)
        for value in frame["layer"].astype(object).where(frame["layer"].notna(), None)
    ][:4] == [0, 2, 10, None]
    for entry in frame.to_dict("records"):
        layer = None if entry["layer"] is None or entry["layer"] != entry["layer"] else entry["layer"]
        layer = None if str(layer) == "<NA>" else layer
        values = np.concatenate(
            [values_of(name, entry["step"], "grad") for name in NAMES if parse_name(name).layer == layer]
        )
        d = values - values.mean()
        assert entry["count"] == len(values)
        assert entry["mean"] == pytest.approx(values.mean())
        assert entry["std"] == pytest.approx(values.std())
        assert entry["l2"] == pytest.approx(np.linalg.norm(values))
        assert entry["kurtosis"] == pytest.approx((d**4).mean() / values.var() ** 2)
        assert entry["skewness"] == pytest.approx((d**3).mean() / values.var() ** 1.5)
        assert (entry["min"], entry["max"]) == (values.min(), values.max())
        assert entry["near_zero_share"] == (values == 1e-9).mean()
        assert entry["samples"] == entry["step"] * 16
        assert entry["scaled"] is False
        assert entry["gradient_stage"] == "pre_clip"


def test_several_stats_regular_expressions_and_functions_of_the_name(run):
    frame = run.moments(["grad", "param"], [], steps=2)
    assert frame[["stat", "step", "count"]].values.tolist() == [["grad", 2, 350.0], ["param", 2, 350.0]]
    frame = run.moments(by=[r"layers\.(?P<depth>\d+)\..*\.(linear_\w+)\."], steps=1)
    assert frame[["depth", "capture_2"]].values.tolist() == [
        ["0", "linear_fc1"],
        ["2", "linear_fc1"],
        ["10", "linear_fc1"],
    ]

    def half(name):
        return "late" if ".10." in name else "early"

    assert run.moments(by=[half, "expert"], steps=1)[["half", "count"]].values.tolist() == [
        ["early", 100.0],
        ["early", 150.0],
        ["late", 50.0],
        ["late", 50.0],
    ]
    assert run.moments(by="name", where={"layer": 2}, steps=slice(3, None))["name"].tolist() == sorted(
        name for name in NAMES if ".2." in name
    )
    assert run.moments(by="name", where={"layer": 77}).empty


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"stat": "weights"}, "param, grad, activation"),
        ({"stat": "dgrad"}, "It has param, grad"),
        ({"by": ["colour"]}, "none of name, layer"),
        ({"where": {"colour": 1}}, "It has name, layer"),
        ({"steps": "x"}, r"must be a step, slice\(10, 20\)"),
        ({"by": 3}, "3 is none of name"),
    ],
)
def test_what_cannot_be_answered_says_what_could(run, arguments, said):
    with pytest.raises(ClientError, match=said):
        run.moments(**arguments)


def test_a_run_without_statistics_says_how_to_log_them(tmp_path):
    with pytest.raises(ClientError, match="log_statistics"):
        open_run(write_run(tmp_path / "run", steps=2)).moments()


@pytest.mark.slow
def test_a_live_run_answers_from_what_arrived_and_from_the_recording(live, attach, tmp_path):
    """The hub records on this machine: what it recorded and what arrived are one, and no row counts twice."""
    hub = live("--record", str(tmp_path / "record"))
    run = attach()
    assert run.moments().empty
    schema = stream_schema("moments")
    for step in range(1, 4):
        table = pa.Table.from_pylist([entry for entry in rows(3) if entry["step"] == step], schema=schema)
        hub.send(encode_frame("moments", table, step=step))
        hub.step()
        run.wait(step, timeout=20)
    frame = run.moments("grad", [])
    assert frame[["step", "count"]].values.tolist() == [[1, 350.0], [2, 350.0], [3, 350.0]]
    assert run.moment_source.index()["stats"][1]["rows"] == 21
    run.close()
    assert len(run.moments("grad", [])) == 3


@pytest.mark.parametrize("packed", [True, False])
def test_the_stage_of_a_group_of_gradients_is_the_weakest_of_its_tensors(tmp_path, packed):
    said = rows(stats=("grad", "param", "dgrad"))
    for row in said:
        if row["stat"] == "dgrad":
            row["gradient_stage"] = "backward_scaled" if row["name"] == NAMES[0] else "backward"
        elif row["stat"] == "grad" and row["step"] == 2 and row["name"] == NAMES[1]:
            row["gradient_stage"] = "pre_step"
        elif row["stat"] == "grad" and row["step"] == 3:
            row["gradient_stage"] = "a word of others"
    folder = write_run(tmp_path / "run", steps=3)
    if packed:
        write(folder, "moments", said)
    else:
        schema = stream_schema("moments")
        with (
            pa.OSFile(str(folder / "moments.arrows"), "wb") as file,
            pa.ipc.new_stream(file, schema) as stream,
        ):
            stream.write_table(pa.Table.from_pylist(said, schema=schema))
    with open_run(folder) as run:
        stages = run.moments("grad", [])["gradient_stage"].tolist()
        assert stages == ["pre_clip", "pre_step", ""]
        each = run.moments("grad", ["name"], steps=2).set_index("name")["gradient_stage"]
        assert {name: stage for name, stage in each.items() if stage != "pre_clip"} == {NAMES[1]: "pre_step"}
        assert set(run.moments("param", [])["gradient_stage"]) == {""}
        assert set(run.moments("dgrad", ["layer"])["gradient_stage"]) == {"backward", "backward_scaled"}
        source = run.moment_source
        assert source.groups(MomentQuery.of("grad", "mean", ratio="grad_to_param")).table[
            "gradient_stage"
        ].to_pylist() == ["pre_clip", "pre_step", ""]
        asked = {"stat": "grad", "statistic": "l2", "by": ["name"]}
        table, _, _ = moment_groups(asked)(source)
        doubts = {
            (table["name"][at].as_py(), int(step)): doubt
            for at, (step, doubt) in enumerate(
                zip(table["step"].to_pylist(), table["scaled"].to_pylist(), strict=True)
            )
            if doubt
        }
        # Clipping may be in it: what a picture says of it.
        assert doubts == {(NAMES[1], 2): 2.0}
