"""Summaries of sealed segments give what the rows give, and the rows are read where a summary does not fit."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from recorded_moments import moments_of, row_of
from test_recorded_moments import in_memory, opened, same, tail

from megalens.hub.segment_file import clear_leftovers, remove_segment, seal_tail, sealed_bytes
from megalens.protocol import (
    LAST_STEP,
    STREAMS,
    SUMMARY_LEVELS,
    is_stream_file,
    layers_path,
    merged_name,
    parse_name,
    segment_name,
    stream_schema,
)
from megalens.runs.moments import MomentQuery
from megalens.runs.moments.rows import recorded_rows
from megalens.runs.moments.rows.pieces import Wanted

MOMENTS = STREAMS["moments"]
SUMMARIZED = [
    {"by": ["layer"], "steps": None},
    {"by": ["layer"], "statistic": "kurtosis", "points": 8, "series": 2},
    {"by": [], "statistic": "max"},
    {"by": ["role", "layer"], "stat": "activation"},
    {"by": ["layer"], "stat": "activation", "where": {"role": "output", "layer": "1-2"}},
    {"by": [], "stat": "activation", "mixed": True, "statistic": "nonfinite"},
    {"by": ["layer"], "show": "percent", "smoothing": 4, "steps": [9, LAST_STEP]},
    {"by": ["layer"], "steps": [5, 23], "statistic": "near_zero_share"},
    {"by": ["stage", "layer"], "statistic": "min"},
    {"by": ["layer"], "where": {"stage": "1", "layer": "0-1"}},
    {"by": ["family"], "points": 8},
    {"by": ["family", "stage"], "where": {"family": ["mlp", "embedding"]}, "statistic": "rms"},
]
OTHERS = [
    {"by": ["name"]},
    {"by": ["layer", "item_type"]},
    {"by": ["layer", "rank"]},
    {"by": ["layer"], "where": {"rank": "0"}},
    {"by": ["layer"], "where": {"name": "fc1"}},
    {"by": ["layer", "family"]},
    {"by": ["layer"], "where": {"family": "mlp"}},
    {"by": ["layer"], "ratio": "grad_to_param"},
]


def rows_of_a_run(steps=30, **more):
    """Rows of gradients, parameters and activations, with everything in them that merging has rules for."""
    rng, rows = np.random.default_rng(5), []
    names = [f"decoder.layers.{layer}.mlp.linear_fc{at}" for layer in range(3) for at in (1, 2, 3, 4)]
    for step in range(1, steps + 1):
        for stat in ("grad", "param", "activation"):
            ends = ["/input0", "/output0"] if stat == "activation" else [".weight"]
            for name in [f"{name}{end}" for name in (*names, "embedding.a", "embedding.b") for end in ends]:
                count = float(rng.integers(0, 5))
                rows.append(
                    row_of(stat, name, step)
                    | {"rank": int(rng.integers(0, 2)), "stage": len(rows) % 2 * 3, "count": count}
                    | {"mean": rng.normal(), "m2": count * rng.uniform(), "m3": rng.normal()}
                    | {"m4": count * rng.uniform(1, 2), "min": -rng.uniform(), "max": rng.uniform()}
                    | {"nan_count": float(rng.random() < 0.1), "near_zero_count": float(rng.integers(0, 3))}
                    | {"gradient_stage": rng.choice(["pre_clip", "pre_step"]) if stat == "grad" else ""}
                    | {"loss_scale": np.nan if rng.random() < 0.02 else 1.0, **more}
                )
                if rng.random() < 0.02:
                    rows[-1] |= {"min": np.nan, "nan_count": np.nan}
    return pa.Table.from_pylist(rows, schema=stream_schema("moments"))


def recording(home, table, files=3):
    """Seal a run's rows in that many segments, of which neighbours share a step; return their paths."""
    size, paths = -(-table.num_rows // files), []
    for at in range(files):
        path = home / "moments" / segment_name(at, 0, ".arrows")
        tail(path, table.slice(at * size, size))
        paths.append(seal_tail(path, MOMENTS))
    return paths


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home, table = tmp_path_factory.mktemp("run"), rows_of_a_run()
    return home, table, recording(home, table)


def answers(home, table, queries):
    """Compare the answers of a folder with those of the rows in memory."""
    ours, theirs = opened(home), in_memory(table)
    for members in queries:
        query = MomentQuery.of_request(**{"stat": "grad", **members})
        same(ours.groups(query), theirs.groups(query))
    assert ours.index()["stats"] == theirs.index()["stats"]
    assert sorted(ours.index()["names"]) == sorted(theirs.index()["names"])
    return ours


@pytest.mark.parametrize("query", SUMMARIZED, ids=str)
def test_questions_by_layer_are_answered_without_a_row(query, run, monkeypatch):
    home, table, paths = run
    assert all(layers_path(path).stat().st_size for path in paths)
    monkeypatch.setattr(recorded_rows, "_row_groups", lambda *_: pytest.fail("rows were read"))
    answers(home, table, [query])


def test_the_answers_are_what_numpy_says_of_all_values(tmp_path):
    rng, rows, known = np.random.default_rng(1), [], {}
    for step in range(1, 9):
        for layer in range(2):
            for at in range(6):
                values = rng.normal(size=10) * 10.0**at
                known.setdefault((layer, step), []).append(values)
                rows.append(row_of("grad", f"layers.{layer}.w{at}", step, **moments_of(values)))
    recording(tmp_path, pa.Table.from_pylist(rows, schema=stream_schema("moments")))
    found = opened(tmp_path).groups(MomentQuery.of_request("grad", by=["layer"])).table.to_pylist()
    assert len(found) == 16
    for row in found:
        values = np.concatenate(known[row["layer"], row["step"]])
        expected = {"value": np.sqrt((values**2).sum()), **moments_of(values)}
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-12, abs=1e-12), name


def test_questions_of_more_than_layers_read_the_rows(run):
    home, table, _ = run
    source = answers(home, table, OTHERS)
    assert source.rows(["grad"]).num_rows == sum(each == "grad" for each in table["stat"].to_pylist())


def damages(path):
    """Yield what may have become of a file: gone, cut, or with one byte that is another one."""
    whole = path.read_bytes()
    yield None
    for at in (0, 1, len(whole) // 2, len(whole) - 1):
        yield whole[:at]
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        yield whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]


def test_a_missing_or_damaged_summary_falls_back_to_the_rows(run, tmp_path):
    home, table, paths = run
    folder = tmp_path / "run"
    shutil.copytree(home, folder)
    path = layers_path(folder / "moments" / paths[1].name)
    for text in damages(layers_path(paths[1])):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_bytes(text)
        answers(folder, table, SUMMARIZED[:1])


def test_a_summary_that_is_damaged_after_it_was_listed_falls_back_to_the_rows(run, tmp_path):
    home, table, paths = run
    folder = tmp_path / "run"
    shutil.copytree(home, folder)
    source, query = opened(folder), MomentQuery.of_request("grad", by=["layer"])
    for path in paths:
        copy = layers_path(folder / "moments" / path.name)
        copy.write_bytes(copy.read_bytes()[:-9] + bytes(9))
    for _ in range(2):
        same(source.groups(query), in_memory(table).groups(query))


def test_a_summary_of_another_segment_is_not_believed(run, tmp_path):
    paths = run[2]
    other = rows_of_a_run(20)
    for at, path in enumerate(recording(tmp_path, other, 1)):
        shutil.copy(layers_path(paths[at]), layers_path(path))
    answers(tmp_path, other, SUMMARIZED[:1])


@pytest.mark.parametrize("why", ["rounded sums", "a tensor"])
def test_rows_that_cannot_be_merged_or_hardly_get_fewer_have_no_summary(why, tmp_path):
    table = rows_of_a_run(rounding=2.0**-24) if why == "rounded sums" else rows_of_a_run()
    if why != "rounded sums":
        few = [each.endswith("1.mlp.linear_fc1.weight") for each in table["name"].to_pylist()]
        table = table.filter(pa.array(few))
    (segment,) = recording(tmp_path, table, 1)
    assert not layers_path(segment).exists()
    answers(tmp_path, table, SUMMARIZED[:1])


def test_of_a_tensor_a_layer_families_alone_are_summarized(tmp_path):
    table = rows_of_a_run(stage=-1, gradient_stage="")
    table = table.filter(pa.array([each.endswith("fc1.weight") for each in table["name"].to_pylist()]))
    (segment,) = recording(tmp_path, table, 1)
    (piece,) = recorded_rows.SealedFile(segment, segment.stat()).pieces
    for level, alone in (("family", True), ("layer", False)):
        wanted = Wanted({"grad": ["x"]}, (), levels=(level,))
        assert (list(piece.parts(wanted)) == [piece]) is alone
    answers(tmp_path, table, SUMMARIZED)


PICTURES = [
    {"by": ["layer"]},
    {"by": ["layer"], "statistic": "kurtosis", "series": 2},
    {"by": ["family"], "statistic": "mean"},
    {"by": [], "statistic": "nonfinite"},
    {"by": ["layer"], "statistic": "max", "where": {"layer": "1"}},
    {"by": [], "statistic": "near_zero_share", "lean": True},
    {"by": ["layer"], "statistic": "std", "steps": [700, 3900]},
    {"by": ["layer"], "statistic": "excess_kurtosis", "points": 4},
]


def long_run(rng, steps=4200, layers=2, first=5, every=1):
    """Rows of two tensors of each layer at many steps, some of them not finite, many of them equal."""
    names = [f"layers.{layer}.mlp.linear_fc{at}.weight" for layer in range(layers) for at in (1, 2)]
    rows = steps * len(names)
    count, nan = rng.integers(1, 4, rows) * 8.0, rng.random(rows) < 2e-4
    columns = {
        **dict.fromkeys(stream_schema("moments").names, np.zeros(rows)),
        "step": np.repeat(first + np.arange(steps) * every, len(names)),
        "samples": np.full(rows, -1),
        "stat": ["grad"] * rows,
        "name": names * steps,
        "stage": np.full(rows, -1),
        **{"count": count, "mean": rng.integers(-20, 20, rows) / 8, "m2": count * rng.uniform(1, 2, rows)},
        **{"m3": rng.normal(size=rows), "m4": count * rng.uniform(4, 9, rows), "nan_count": nan * 2.0},
        **{"min": -rng.uniform(3, 4, rows), "max": rng.uniform(3, 4, rows)},
        "near_zero_count": rng.integers(0, 3, rows) * 1.0,
        "gradient_stage": ["pre_clip"] * rows,
        "loss_scale": np.ones(rows),
    }
    schema = stream_schema("moments")
    return pa.table({each.name: pa.array(columns[each.name], each.type) for each in schema}, schema=schema)


@pytest.mark.parametrize("every", [1, 7])
def test_a_picture_of_many_steps_is_drawn_of_few_rows_and_is_that_of_all(every, tmp_path, monkeypatch):
    table = long_run(np.random.default_rng(3), every=every)
    recording(tmp_path, table)
    read, merged = [], recorded_rows._SummarizedPiece._merged
    monkeypatch.setattr(recorded_rows, "_row_groups", lambda *_: pytest.fail("rows were read"))
    monkeypatch.setattr(
        recorded_rows._SummarizedPiece,
        "_merged",
        lambda piece, stat, level, names: (
            read.append((level, merged(piece, stat, level, names).num_rows))
            or merged(piece, stat, level, names)
        ),
    )
    answers(tmp_path, table, [{"points": 16, **query} for query in PICTURES])
    whole = [rows for level, rows in read if "/" not in level]
    # Only segments of which a part is asked for are read step by step.
    assert len(whole) <= 2
    # Of two series, in segments of 1400 steps.
    assert max(rows for level, rows in read if level.startswith("layer/")) < 2 * 1400 / 8


@pytest.mark.parametrize(
    "statistic", ["l2", "mean", "std", "skewness", "kurtosis", "min", "max", "nonfinite"]
)
def test_a_spike_of_one_step_is_in_every_level(statistic, tmp_path):
    rng = np.random.default_rng(9)
    changed = {"l2": "mean", "std": "m2", "skewness": "m3", "kurtosis": "m4", "nonfinite": "inf_count"}
    table, column = long_run(rng, layers=1), changed.get(statistic, statistic)
    at = int(rng.integers(2, 4198))
    values = table[column].to_numpy().copy()
    values[2 * at : 2 * at + 2] = {"nonfinite": 1, "min": -1e9}.get(statistic, 1e9)
    table = table.set_column(
        table.schema.get_field_index(column), table.schema.field(column), pa.array(values)
    )
    recording(tmp_path, table, 1)
    for points in (4, 16, 64, 256):
        for by in (["layer"], ["family"], []):
            query = MomentQuery.of_request("grad", statistic, by, points=points)
            found = opened(tmp_path).groups(query)
            assert at + 5 in found.table["step"].to_pylist()
            assert found.steps_total == 4200


@pytest.mark.parametrize("why", ["ranks send late", "two stages", "a step is missing", "it begins later"])
def test_where_blocks_do_not_show_what_steps_do_steps_are_read(why, tmp_path):
    table = long_run(np.random.default_rng(4))
    step = table["step"].to_numpy()
    if why == "ranks send late":
        at = np.random.default_rng(1).permutation(len(step))
        table = table.take(np.concatenate([np.sort(at[: len(at) // 2]), np.sort(at[len(at) // 2 :])]))
    elif why == "two stages":
        stages = pa.array(np.arange(len(step)) % 2, pa.int32())
        table = table.set_column(table.schema.get_field_index("stage"), "stage", stages)
    else:
        other = np.array([name.startswith("layers.1") for name in table["name"].to_pylist()])
        table = table.filter(pa.array(other | (step != 2000 if why == "a step is missing" else step > 2000)))
    recording(tmp_path, table, 2)
    answers(tmp_path, table, [{"points": 16, **query} for query in PICTURES])


def test_rows_of_an_earlier_attempt_that_do_not_count_are_in_no_answer(run, tmp_path):
    paths = run[2]
    found = recorded_rows.SealedFile(paths[0], paths[0].stat(), 7)
    assert found.pieces
    assert max(int(of.steps[-1]) for piece in found.pieces for of in piece.listed.values()) == 6


def test_no_reader_of_parquet_sees_a_summary_and_it_goes_with_its_segment(run, tmp_path):
    home, table, paths = run
    folder = tmp_path / "run"
    shutil.copytree(home, folder)
    assert sorted((folder / "moments").glob("*.parquet")) == [
        folder / "moments" / path.name for path in paths
    ]
    # pyarrow, pandas and Spark pass over names that begin with _, also where they are given a folder.
    assert ds.dataset(folder / "moments").count_rows() == table.num_rows
    first, second, third = (folder / "moments" / path.name for path in paths)
    assert sealed_bytes(first) == first.stat().st_size + layers_path(first).stat().st_size
    assert is_stream_file(layers_path(first).name)
    remove_segment(first)
    second.unlink()
    clear_leftovers(folder, "moments")
    assert sorted(path.name for path in (folder / "moments").iterdir()) == sorted(
        [third.name, layers_path(third).name]
    )


@pytest.mark.parametrize("level", SUMMARY_LEVELS)
@pytest.mark.parametrize("name", ["a.layers.3.mlp.w", "h.0/input0", "lm_head.weight", "norm/output0", "h.3"])
def test_a_merged_name_says_what_its_level_says_and_no_more(name, level):
    merged = merged_name(name, level)
    for field in SUMMARY_LEVELS[level]:
        assert getattr(parse_name(merged), field) == getattr(parse_name(name), field)
    assert merged_name(merged, level) == merged


def test_what_no_name_says_together_has_no_summary_of_that_level(tmp_path):
    # Alone the family would be read as the role.
    assert merged_name("layers.3.output.weight", "family") is None
    table = rows_of_a_run()
    names = pa.array([name.replace("mlp", "output") for name in table["name"].to_pylist()])
    table = table.set_column(table.schema.get_field_index("name"), "name", names)
    recording(tmp_path, table, 2)
    answers(tmp_path, table, SUMMARIZED)
