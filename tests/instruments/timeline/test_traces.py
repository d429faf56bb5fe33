"""Traces that other tools wrote: PyTorch's profiler, MegatronApp's tracer, Chrome's format."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from span_rows import opened

import megalens
from megalens.instruments.timeline.analysis import analyse
from megalens.instruments.timeline.chrome import write_chrome_trace
from megalens.instruments.timeline.chrome_spans import kind_of
from megalens.runs import ClientError

FIXTURES = Path(__file__).parents[4] / "shared" / "fixtures" / "scan"
needs_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason="MegatronApp's own traces are not there")


def kineto(rank=0, events=(), world=2, **facts):
    return {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": world,
            "pg_config": [{"pg_name": "0", "ranks": list(range(world))}],
        },
        "baseTimeNanoseconds": 1_790_857_026_000_000_000,
        **facts,
        "traceEvents": list(events),
        "traceName": "x",
    }


def event(name, begin, end, category="cpu_op", tid=1, **arguments):
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, "ts": float(begin), "dur": float(end - begin), "args": arguments}  # fmt: skip


def flow(at):
    return {"ph": "s", "id": at, "cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "tid": 1, "ts": float(at)}


def gpu_step(number, at, slow=1.0):
    """One step of 1,000 µs: the host launches, the device works 100 µs later, and a collective is half hidden by the backward pass."""
    work = round(300 * slow)
    return [
        event(f"ProfilerStep#{number}", at, at + 1000, "user_annotation"),
        event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 20, "user_annotation"),
        event("aten::linear", at + 30, at + 40),
        flow(at + 30),
        event("cudaLaunchKernel", at + 35, at + 36, "cuda_runtime", correlation=10 * number),
        event("gemm", at + 130, at + 130 + work // 2, "kernel", 9, correlation=10 * number, device=3, stream=7),
        event("autograd::engine::evaluate_function: AddmmBackward0", at + 60, at + 80, tid=2),
        event("cudaLaunchKernel", at + 70, at + 71, "cuda_runtime", 2, correlation=10 * number + 1),
        event("gemm_b", at + 300, at + 300 + work, "kernel", 9, correlation=10 * number + 1, device=3, stream=7),
        event(
            "ncclDevKernel_AllReduce_Sum_f32", at + 500, at + 700, "kernel", 20, device=3, stream=20, correlation=1,
            **{"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float", "Process Group Ranks": "[0, 1]", "Seq": number},
        ),
        event("Optimizer.step#AdamW.step", at + 750, at + 800, "user_annotation"),
        event("cudaLaunchKernel", at + 760, at + 761, "cuda_runtime", correlation=10 * number + 2),
        event("adam", at + 810, at + 900, "kernel", 9, correlation=10 * number + 2, device=3, stream=7),
    ]  # fmt: skip


def write_gpu(folder, steps=3, ranks=2, packed=False):
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        trace = json.dumps(kineto(rank, [each for n in range(steps) for each in gpu_step(n, 10_000 + 1000 * n)], ranks), indent=2)  # fmt: skip
        if packed:
            (folder / f"host.{rank}.pt.trace.json.gz").write_bytes(gzip.compress(trace.encode()))
        else:
            (folder / f"host.{rank}.pt.trace.json").write_text(trace)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_a_profilers_device_times_become_passes_on_the_device(tmp_path, packed):
    rows, _ = opened(write_gpu(tmp_path / "traces", packed=packed))
    assert sorted(set(rows["rank"])) == [0, 1]
    mine = rows[(rows["rank"] == 1) & (rows["step"] == 2)].set_index("kind")
    base = 1_790_857_026_000_000_000 + 12_000_000
    times = {kind: ((row["start"] - base) // 1000, (row["end"] - base) // 1000, row["device"]) for kind, row in mine.iterrows()}  # fmt: skip
    assert times == {
        "step": (0, 1000, ""),
        "data": (0, 20, "cpu"),
        "forward": (130, 280, "cuda:3"),
        "backward": (300, 600, "cuda:3"),
        "collective": (500, 700, "cuda:3"),
        "optimizer": (810, 900, "cuda:3"),
    }
    collective = mine.loc["collective"]
    assert (collective["name"], collective["group"], collective["bytes"]) == ("all_reduce", "0-1", 4000)
    assert collective["sequence"] == 2
    # 100 µs of it the backward pass still works.
    assert collective["blocked"] == 100_000


@needs_fixtures
def test_megatronapps_files_and_its_aggregate_open_as_runs(tmp_path):
    aggregate, _ = opened(FIXTURES / "app-agg.json")
    assert (aggregate["kind"].value_counts()[["forward", "backward"]] == 2560).all()
    assert sorted(set(aggregate["rank"])) == [0, 1, 2, 3]
    assert aggregate["step"].nunique() == 20
    assert set(aggregate[aggregate["kind"] == "forward"]["chunk"]) == {0, 1, 2, 3}
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(4):
        source = (FIXTURES / f"app-{rank}.json").read_text()
        (folder / f"app-{rank}.json").write_text(source)
    assert len(opened(folder)[0]) == len(aggregate)


def test_our_own_export_comes_back_as_it_was(tmp_path):
    from tests.kit.simulated_jobs import Job, simulate

    before = analyse(simulate(Job(2, 2, 2, steps=4, seed=3))[0])
    path = tmp_path / "trace.json.gz"
    write_chrome_trace(before, path)
    after, _ = opened(path)
    assert len(after) == len(before.spans)
    columns = ["rank", "step", "kind", "micro_batch", "peer", "sequence", "group", "bytes"]
    spans = before.spans
    whole = sorted(
        zip(
            spans.rank.tolist(), spans.step.tolist(), (kind_names()[kind] for kind in spans.kind), spans.micro_batch.tolist(),
            spans.peer.tolist(), spans.sequence.tolist(), (spans.groups[group] for group in spans.group), spans.bytes.tolist(), strict=True,
        )
    )  # fmt: skip
    assert sorted(after[columns].itertuples(index=False, name=None)) == whole
    assert set(after[after["stage"] == 1]["rank"]) == {4, 5, 6, 7}


def kind_names():
    from megalens.instruments.timeline.spans import KINDS

    return KINDS


def test_beginnings_and_ends_are_put_together_and_what_has_no_other_half_is_said(tmp_path):
    def mark(ph, name, ts, **more):
        return {"ph": ph, "name": name, "ts": ts, "pid": 0, "tid": 0, **more}

    events = [
        mark("B", "train step", 0),
        mark("B", "forward", 1),
        mark("E", "forward", 5, args={"micro_batch_index": 3}),
        mark("E", "train step", 9),
        mark("E", "nobody", 10),
        {"ph": "X", "name": "odd", "ts": "soon", "pid": 0},
        "no event at all",
    ]
    path = tmp_path / "trace.json"
    # An open end is how Chrome writes what was stopped.
    path.write_text(json.dumps([*events[:6]])[:-1])
    rows, warnings = opened(path)
    assert rows[["kind", "start", "end", "micro_batch"]].values.tolist() == [
        ["forward", 1000, 5000, 3],
        ["step", 0, 9000, -1],
    ]
    assert any("events 5, 6 (counted from 1) are damaged" in text for text in warnings)
    path.write_text(json.dumps(events))
    rows, warnings = opened(path)
    assert len(rows) == 2
    assert any("events 7, 5, 6 (counted from 1)" in text for text in warnings)


def test_asynchronous_events_are_put_together_by_name_and_number_as_ncclprofiler_writes_them(tmp_path):
    events = """[
{"name": "Group API", "cat": "GROUP_API", "ph": "b", "id": 0, "pid": 39, "tid": 1, "ts": 14.5, "args": {"groupDepth": 2}},
{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 39, "tid": 1, "ts": 18.0, "args": {"Datatype": "ncclFloat32"}},
{"name": "AllReduce", "cat": "COLL_API", "ph": "b", "id": 0, "pid": 39, "tid": 1, "ts": 15.0, "args": {"datatype": ncclFloat32}},
{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 1, "pid": 39, "tid": 1, "ts": 19.0},
{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": 0, "pid": 39, "tid": 2, "ts": 28.0},
{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": 1, "pid": 39, "tid": 1, "ts": 33.0},
{"name": "Group API", "cat": "GROUP_API", "ph": "e", "id": 0, "pid": 39, "tid": 1, "ts": 40.0},
{}]"""
    path = tmp_path / "nccl.json"
    path.write_text(events)
    rows, _ = opened(path)
    own = rows[rows["kind"] != "step"].sort_values("start")
    assert own[["kind", "start", "end"]].values.tolist() == [
        ["user", 14500, 40000],
        ["collective", 18000, 28000],
        ["collective", 19000, 33000],
    ]


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_gives_its_whole_events(tmp_path, keep):
    folder = write_gpu(tmp_path / "traces", steps=40)
    path = folder / "host.1.pt.trace.json"
    text = path.read_text()
    path.write_text(text[: int(len(text) * keep)])
    rows, warnings = opened(folder)
    assert any("host.1.pt.trace.json is cut off" in each for each in warnings)
    cut = rows[rows["rank"] == 1]["step"].nunique()
    assert 40 * keep - 2 <= cut <= 40 * keep + 1
    assert rows[rows["rank"] == 0]["step"].nunique() == 40


def test_files_of_two_jobs_missing_ranks_and_strangers_are_said_by_name(tmp_path):
    folder = write_gpu(tmp_path / "traces", ranks=4)
    (folder / "host.2.pt.trace.json").unlink()
    (folder / "notes.json").write_text('{"a": 1}')
    (folder / "broken.json").write_text("not JSON")
    _, warnings = opened(folder)
    assert any("Ranks 2 have no file" in each for each in warnings)
    (folder / "other.json").write_text(json.dumps(kineto(0, gpu_step(0, 10_000), 8)))
    with pytest.raises(ClientError, match="jobs of 4 and 8 ranks"):
        megalens.open(folder)
    (folder / "other.json").write_text(json.dumps(kineto(0, gpu_step(0, 10_000), 4)))
    with pytest.raises(ClientError, match="both of rank 0 at the same time"):
        megalens.open(folder)


def test_windows_of_one_rank_follow_each_other(tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for number in range(2):
        steps = [event for n in range(3) for event in gpu_step(n, 10_000 + 50_000 * number + 1000 * n)]
        (folder / f"a{number}.json").write_text(json.dumps(kineto(0, steps, 1)))
    rows, _ = opened(folder)
    assert sorted(set(rows["step"])) == [0, 1, 2, 3, 4, 5]


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(tmp_path, monkeypatch):
    folder = write_gpu(tmp_path / "traces")
    assert len(opened(folder)[0]) == 36
    from megalens.instruments.timeline import trace_folder

    def refuse(*_):
        raise AssertionError("read again")

    with monkeypatch.context() as patched:
        patched.setattr(trace_folder, "kineto_trace", refuse)
        assert len(opened(folder)[0]) == 36
    write_gpu(folder, steps=5)
    assert len(opened(folder)[0]) == 60


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32", "collective"),
        ("_reduce_scatter_along_last_dim", "collective"),
        ("exchange-next", "collective"),
        ("recv-warmup", "receive"),
        ("send-cooldown", "send"),
        ("forward-warmup", "forward"),
        ("backward-cooldown", "backward"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("ProfilerStep#4", "step"),
        ("iteration", "step"),
        ("transformer_layer", "user"),
    ],
)
def test_names_say_what_kind_of_span_it_is(name, kind):
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[1, 2, 3]", '{"traceEvents": []}', '{"traceEvents": 5}', '[{"ph": "X"}]', '{"traceEvents": [{"ph": "X", "args": 7, "ts": 1, "dur": 1}]}', "[" * 100_000, "[" + '{"a":' * 50_000],
)  # fmt: skip
def test_what_is_no_trace_is_refused_with_a_sentence(tmp_path, text):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(ClientError):
        megalens.open(path)


@pytest.mark.parametrize("name", ["a" * 195 + ".json", os.fsdecode(b"tr\xffce.json")])
def test_a_file_of_any_name_is_opened(tmp_path, name):
    path = tmp_path / name
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "mm", "ts": 1, "dur": 5, "pid": 0}]}))
    with megalens.open(path) as run:
        run.name.encode("utf-8")
        assert "mm" in run.table("spans")["name"].to_pylist()
