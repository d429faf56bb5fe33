"""Traces as versions of PyTorch's profiler, other devices and other tools write them."""

from __future__ import annotations

import gzip
import json
import threading

import pytest
from span_rows import opened

import megalens
from megalens.__main__ import main
from megalens.instruments.timeline import analyse
from megalens.instruments.timeline.timeline_answer import read_timeline
from megalens.runs.run_folder import RunFolder

NOW = 1_693_000_000_000_000


def event(name, begin, end, category, **arguments):
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 1, "ts": NOW + begin, "dur": end - begin, "args": arguments}  # fmt: skip


def written(path, events, **facts):
    path.write_text(json.dumps({"schemaVersion": 1, **facts, "traceEvents": events}))
    return path


def step(runtime="cuda_runtime", kernel="ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", call="nccl:all_reduce"):  # fmt: skip
    return [
        event("ProfilerStep#3", 0, 1000, "user_annotation"),
        event(call, 100, 140, "user_annotation", **{"Input Dims": [[8, 4]]}),
        event("launch", 120, 130, runtime, correlation=5),
        event(kernel, 300, 500, "kernel", correlation=5, device=1),
        event("autograd::engine::evaluate_function: X", 600, 700, "cpu_op"),
    ]


@pytest.mark.parametrize(
    ("runtime", "kernel", "call", "name"),
    [
        ("cuda_runtime", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "nccl:all_reduce", "all_reduce"),
        ("cuda_runtime", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "nccl:all_to_all", "all_to_all"),
        ("cuda_runtime", "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "nccl:broadcast", "broadcast"),
        ("xpu_runtime", "oneccl_reduce_scatter_kernel", "xccl:_reduce_scatter_base", "reduce_scatter"),
    ],
)  # fmt: skip
def test_a_call_on_the_host_and_its_kernel_are_one_collective(tmp_path, runtime, kernel, call, name):
    rows, _ = opened(written(tmp_path / "a.json", step(runtime, kernel, call)))
    (one,) = rows[rows["kind"].isin(["collective", "send", "receive"])].itertuples()
    assert (one.kind, one.name, one.bytes) == ("collective", name, 128)
    assert (one.start, one.end) == ((NOW + 300) * 1000, (NOW + 500) * 1000)


def test_a_call_whose_kernel_is_not_there_is_no_collective(tmp_path):
    rows, warnings = opened(written(tmp_path / "a.json", [each for each in step() if each["cat"] != "kernel"]))  # fmt: skip
    assert not (rows["kind"] == "collective").any()
    assert any("1 collectives were queued for a device" in each for each in warnings)


def test_a_trace_without_steps_is_one_step_and_says_so(tmp_path):
    path = written(tmp_path / "a.json", [each for each in step() if not each["name"].startswith("Prof")])
    rows, warnings = opened(path)
    assert rows[rows["kind"] == "step"][["start", "end"]].values.tolist() == [[(NOW + 300) * 1000, (NOW + 700) * 1000]]  # fmt: skip
    assert any("says no steps: all of it is taken for one" in each for each in warnings)


def test_the_first_profilers_categories_are_read(tmp_path):
    names = {
        "user_annotation": "Operator",
        "cpu_op": "Operator",
        "cuda_runtime": "Runtime",
        "kernel": "Kernel",
    }
    events = [{**each, "cat": names[each["cat"]]} for each in step()]
    rows, _ = opened(written(tmp_path / "a.json", events))
    assert sorted(rows["kind"]) == ["backward", "collective", "step"]


def test_a_bare_list_of_a_profilers_events_is_one_rank(tmp_path):
    path = tmp_path / "whatever"
    path.write_bytes(gzip.compress(json.dumps(step()).encode()))
    rows, _ = opened(path)
    assert set(rows["rank"]) == {0}
    assert sorted(rows["kind"]) == ["backward", "collective", "step"]


def test_ranks_are_taken_from_names_that_differ_in_a_number(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in (0, 1, 10):
        written(folder / f"1700-TP-{rank}-x2.trace.json", step())
    rows, warnings = opened(folder)
    assert sorted(set(rows["rank"])) == [0, 1, 10]
    assert any("taken for rank 10" in each for each in warnings)


def test_one_rank_of_128_is_not_called_healthy(tmp_path):
    events = [{**each, "ts": each["ts"] + 1000 * n, "name": each["name"].replace("#3", f"#{n}")} for n in range(8) for each in step()]  # fmt: skip
    path = written(tmp_path / "a.json", events, distributedInfo={"rank": 5, "world_size": 128})
    with megalens.open(path) as run:
        assert any("and 122 more have no file" in each for each in run.warnings)
        verdict = analyse(run).verdict()
    assert not verdict.healthy
    assert "Only rank 5 is there" in str(verdict)
    assert "Healthy" not in str(verdict)


def test_one_file_of_128_ranks_opens(tmp_path):
    events = [
        {"ph": "X", "name": name, "pid": rank, "tid": 0, "ts": NOW + at, "dur": 5, "args": {"step": 1}}
        for rank in range(128)
        for name, at in (("forward", 0), ("backward", 10))
    ]
    path = tmp_path / "all.json"
    path.write_text(json.dumps(events))
    rows, warnings = opened(path)
    assert sorted(set(rows["rank"])) == list(range(128))
    assert warnings == []


@pytest.mark.parametrize("named", [True, False])
def test_rows_of_megatronapp_without_a_rank_take_their_place_from_the_name(tmp_path, named, capsys):
    folder = tmp_path / "job"
    folder.mkdir()
    for stage in (0, 1):
        rows = [
            {"name": "iteration", "ph": "B", "pad_before": 0},
            {"name": "forward", "ph": "B", "rel_ts": 1000},
            {
                "microbatch": 0,
                "model_chunk": 0,
                "pp_rank": stage,
                "name": "forward",
                "ph": "E",
                "rel_ts": 5000,
            },
            {"name": "iteration", "ph": "E", "rel_ts": 9000, "duration_wall": 9000},
        ]
        name = f"benchmark-data-0-pipeline-{stage}-tensor-0.json" if named else f"{'ab'[stage]}.json"
        (folder / name).write_text(json.dumps(rows))
    rows, _ = opened(folder)
    passes = rows[rows["kind"] == "forward"]
    assert passes[["rank", "stage"]].values.tolist() == [[0, 0], [1, 1]]
    out = tmp_path / "out.json"
    assert main(["timeline", "aggregate", str(folder), "-o", str(out)]) == 0
    assert {each["pid"] for each in json.loads(out.read_text())} == {0, 1}


def test_the_file_of_one_rank_of_many_is_neither_healthy_nor_slow(tmp_path):
    facts = {"distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 128}}
    with megalens.open(written(tmp_path / "rank3.json", step(), **facts)) as run:
        assert run.origin["ranks"] == 128
        verdict = analyse(run).verdict()
        answer = read_timeline(RunFolder(run.folder), {}, "one of 128", threading.Event())["verdict"]
    assert not verdict.healthy
    assert verdict.culprits == ()
    assert verdict.lacking[0].startswith("The job has 128 ranks, of which 127 have no spans")
    assert answer["lacking"] == list(verdict.lacking)
