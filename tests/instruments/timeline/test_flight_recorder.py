"""Dumps of PyTorch's flight recorder: of jobs of real processes that are stuck, and as NCCL's ranks write them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest
from processes import run_job

import megalens
from megalens.instruments.timeline import flight_pickle
from megalens.instruments.timeline.analysis import analyse
from megalens.runs import ClientError

START = 1_790_000_000_000_000_000


def found(folder):
    """The alarms of dumps, and what the verdict says."""
    with megalens.open(folder) as run:
        return run.table("alarms").to_pylist(), analyse(run).verdict(), run.warnings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            "hangs",
            "rank 2 has not called it. The last that rank 2 called is all_reduce of 4 × Float, call 3,",
        ),
        ("skips", "ranks 0, 1 call all_reduce of 8 × Float and rank 2 calls barrier."),
        ("sizes", "ranks 0, 1 call all_reduce of 8 × Float and rank 2 calls all_reduce of 2 × Float."),
    ],
)
def test_the_rank_at_fault_is_named_from_the_dumps_of_a_real_job_as_json_and_as_pickles(
    tmp_path, fault, says
):
    run_job(3, "flight_work:stuck", fault, str(tmp_path), gone=True)
    for kind in ("json", "pickle"):
        alarms, verdict, _ = found(tmp_path / kind)
        (alarm,) = alarms
        assert (alarm["rule"], alarm["severity"], alarm["rank"], alarm["value"]) == (
            "stuck",
            "critical",
            2,
            4,
        )
        assert says in alarm["sentence"]
        assert "call 4 of the default group (ranks 0-2)" in alarm["sentence"]
        # Stacks are in pickles alone.
        assert ("at flight_work.py:" in alarm["sentence"]) == (kind == "pickle")
        assert verdict.stuck == (alarm["sentence"],)
        assert str(verdict).startswith(alarm["sentence"])
        assert not verdict.healthy


def call(number, name="all_reduce", group=("0", "default_pg"), done=True, at=None, size=8, **others):
    return {
        "record_id": number, "pg_id": int(group[0]), "process_group": list(group), "collective_seq_id": number,
        "profiling_name": f"nccl:{name}", "time_created_ns": START + 1_000_000 * (number if at is None else at),
        "time_discovered_completed_ns": START + 1_000_000 * number + 500_000 if done else 0,
        "state": "completed" if done else "started", "retired": done, "is_p2p": False,
        "input_sizes": [[size]], "input_dtypes": ["BFloat16"], **others,
    }  # fmt: skip


def write(folder, rank, entries, groups=(("0", "[0, 1, 2, 3]"),), **others):
    folder.mkdir(exist_ok=True)
    configs = {name: {"name": name, "desc": "", "ranks": ranks} for name, ranks in groups}
    dump = {"comm_lib_version": "2.27", "pg_config": configs, "version": "2.10", "entries": entries, **others}
    (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(dump))
    return dump


TENSOR = ("7", "TENSOR_MODEL_PARALLEL_GROUP")
GROUPS = (("0", "[0, 1, 2, 3]"), ("7", "[1, 2]"))


def test_of_a_chain_of_waiting_ranks_the_one_that_waits_for_nobody_is_the_reason(tmp_path):
    """Rank 2 hangs; rank 1 waits for it in a group of both, and ranks 0 and 3 wait for rank 1."""
    for rank in range(4):
        before = [call(1), call(2)]
        mine = {
            0: [call(3, done=False)],
            1: [call(1, group=TENSOR), call(2, group=TENSOR, done=False, at=9)],
            2: [call(1, group=TENSOR)],
            3: [call(3, done=False)],
        }[rank]
        write(tmp_path / "dumps", rank, before + mine, GROUPS)
    alarms, _, _ = found(tmp_path / "dumps")
    assert [(each["rank"], each["severity"]) for each in alarms] == [(2, "critical"), (2, "critical")]
    whole = next(each["sentence"] for each in alarms if "default group" in each["sentence"])
    assert "Ranks 0, 3 wait in all_reduce of 8 × BFloat16, call 3" in whole
    assert "ranks 1, 2 have not called it. Rank 1 waits in all_reduce" in whole
    pair = next(each["sentence"] for each in alarms if "default group" not in each["sentence"])
    assert pair.startswith(
        "Rank 1 waits in all_reduce of 8 × BFloat16, call 2 of TENSOR_MODEL_PARALLEL_GROUP"
    )


def test_ranks_that_wait_for_each_other_in_two_groups_are_both_the_reason(tmp_path):
    write(tmp_path / "dumps", 1, [call(1, done=False)], (("0", "[1, 2]"), ("7", "[1, 2]")))
    write(tmp_path / "dumps", 2, [call(1, group=TENSOR, done=False)], (("0", "[1, 2]"), ("7", "[1, 2]")))
    alarms, _, _ = found(tmp_path / "dumps")
    assert sorted((each["rank"], each["severity"]) for each in alarms) == [(1, "critical"), (2, "critical")]
    assert all("instead." in each["sentence"] for each in alarms)


def test_a_rank_without_a_dump_is_said_to_be_perhaps_the_one_that_is_missing(tmp_path):
    for rank in (0, 1, 3):
        write(tmp_path / "dumps", rank, [call(1), call(2, done=False)])
    alarms, _, warnings = found(tmp_path / "dumps")
    assert alarms[0]["rank"] == 2
    assert alarms[0]["sentence"].endswith("rank 2 may be missing, of which there is no dump.")
    assert "There is no dump of rank 2." in warnings


def test_a_call_that_all_made_and_some_ended_is_not_the_reason_where_a_later_one_is(tmp_path):
    for rank in range(4):
        later = [] if rank == 2 else [call(3, done=False)]
        write(tmp_path / "dumps", rank, [call(1), call(2, done=rank != 1), *later])
        # Without a later call there is no other to name.
        write(tmp_path / "alone", rank, [call(1), call(2, done=rank != 1)])
    (alarm,), _, _ = found(tmp_path / "dumps")
    assert (alarm["rank"], alarm["value"], alarm["severity"]) == (2, 3, "critical")
    assert "rank 2 has not called it" in alarm["sentence"]
    (alarm,), _, _ = found(tmp_path / "alone")
    assert (alarm["rank"], alarm["value"], alarm["severity"]) == (-1, 2, "note")
    assert "all of its ranks have called it" in alarm["sentence"]


def test_what_a_ring_buffer_has_lost_and_unlike_sizes_of_uneven_collectives_are_no_finding(tmp_path):
    for rank in range(4):
        # Rank 3 called more of another group, and holds fewer of this one.
        numbers = range(30, 41) if rank == 3 else range(20, 41)
        write(tmp_path / "dumps", rank, [call(each, "all_to_all", size=rank + 1) for each in numbers])
    alarms, verdict, warnings = found(tmp_path / "dumps")
    assert alarms == []
    assert verdict.stuck == ()
    assert any("nobody is stuck" in each for each in warnings)


def test_calls_become_collectives_of_the_timeline_with_their_ranks_and_times(tmp_path):
    for rank in range(4):
        write(tmp_path / "dumps", rank, [call(1), call(2, done=False, at=9)])
    with megalens.open(tmp_path / "dumps") as run:
        spans = run.table("spans").to_pandas()
        assert run.origin["ranks"] == 4
    assert set(spans.group) == {"0-3"}
    assert set(spans.kind) == {"collective"}
    ended = spans[spans.sequence == 1]
    assert set(ended.start - START) == {1_000_000}
    assert set(ended.end - ended.start) == {500_000}
    assert set(ended.bytes) == {16}


def test_a_pickle_that_names_a_class_is_refused_and_does_nothing(tmp_path):
    class Hostile:
        def __reduce__(self):
            return exec, (f"open({str(tmp_path / 'done')!r}, 'w')",)

    folder = tmp_path / "dumps"
    folder.mkdir()
    plain = {"comm_lib_version": "", "pg_config": {}, "entries": [call(1)]}
    (folder / "fr_0").write_bytes(pickle.dumps({**plain, "x": Hostile()}, protocol=2))
    with pytest.raises(ClientError, match="no pickle of plain values"):
        megalens.open(folder)
    (folder / "fr_1").write_bytes(pickle.dumps(plain, protocol=2))
    _, _, warnings = found(folder)
    assert any(each.startswith("fr_0: it is no pickle") for each in warnings)
    assert not (tmp_path / "done").exists()


def test_a_pickle_that_takes_all_memory_ends_the_child_alone(tmp_path):
    # LONG_BINPUT far beyond what is there, behind a head that fits.
    bomb = b"\x80\x02X\x09\x00\x00\x00pg_config" + b"r\xff\xff\xff\x7f" + b"."
    (tmp_path / "fr_0").write_bytes(bomb)
    with pytest.raises(ClientError, match="no pickle of plain values"):
        megalens.open(tmp_path / "fr_0")


def test_the_child_imports_nothing_of_ours_and_gives_each_part_its_type():
    entry = call(1, frames=[{"filename": "/x/torch/a.py", "line": 1}, {"filename": "/y/train.py", "line": 7}])
    odd = {**call(2), "input_sizes": "no", "collective_seq_id": 2**80, "process_group": ("0",)}
    given = pickle.dumps({"entries": [entry, odd, 3], "pg_config": []}, protocol=2)
    command = [sys.executable, "-I", "-S", flight_pickle.__file__]
    told = json.loads(subprocess.run(command, input=given, capture_output=True, check=True).stdout)
    first, second = told["entries"]
    assert first["where"] == "train.py:7"
    assert (second["input_sizes"], second["collective_seq_id"]) == ([], 0)


def test_files_of_others_in_the_folder_are_left_out_and_a_folder_without_dumps_is_none(tmp_path):
    write(tmp_path / "dumps", 0, [call(1)])
    (tmp_path / "dumps" / "notes.txt").write_text("hello")
    _, _, warnings = found(tmp_path / "dumps")
    assert any(each.startswith("notes.txt: it is no dump") for each in warnings)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.json").write_text('{"entries": [1, 2]}')
    with pytest.raises(ClientError):
        megalens.open(tmp_path / "other")
