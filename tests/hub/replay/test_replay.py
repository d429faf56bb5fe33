"""A recorded run is served as if it were live."""

import asyncio
import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from recorded_run import write_run
from viewer import watch

import megalens
from megalens.hub.dialects.hosted_run import HostedRun
from megalens.hub.discovery import find_hub, live_hubs
from megalens.hub.options import HubOptions
from megalens.hub.replay import Replayer, serve
from megalens.hub.replay.replayer import RecordedOrder, read_speed
from megalens.protocol import stream_schema
from megalens.runs import ClientError, RunFolder

ROOT = Path(__file__).parents[3]
WAIT = 60


def rerecord(tmp_path, folder, **options):
    """Replay a folder as fast as possible into a recording, and open that."""

    async def run():
        replayer = Replayer(RunFolder(folder), None, **options)
        hub = HubOptions(record=tmp_path / "again", linger=0)
        async with HostedRun(hub, "replay", replayer.configure) as host:
            await asyncio.wait_for(replayer.run(host), WAIT)
            await host.finish()
            return host.entry.record

    return RunFolder(asyncio.run(run()))


def test_the_same_rows_come_in_the_same_order_with_the_same_steps(tmp_path):
    folder = write_run(tmp_path / "run", steps=12, layers=2, nonfinite_at=5)
    before = RunFolder(folder)
    after = rerecord(tmp_path, folder)
    for stream in ("tensors", "scalars"):
        was, now = before.read(stream), after.read(stream)
        assert now.num_rows == was.num_rows > 0
        # As text: not-a-number equals itself then. A segment has its rows in the order of their steps.
        assert str(now.to_pylist()) == str(sorted(was.to_pylist(), key=lambda row: row["step"]))
    audit = after.read("audit").to_pylist()
    own = [row for row in audit if row["who"] == "replay"]
    # What it warns of is recorded too.
    assert {row["action"] for row in own} - {"warning"} == {"connect", "disconnect"}
    assert [row for row in audit if row["who"] != "replay"] == before.read("audit").to_pylist()
    assert after.header["origin"] == {"kind": "replay", "name": "gpt-demo", "steps": "counted"}
    assert after.name == "gpt-demo (replay)"
    assert after.id != before.id
    assert after.header["model"] == before.header["model"]
    assert [flag["name"] for flag in after.header["flags"]] == [
        flag["name"] for flag in before.header["flags"]
    ]


def test_statistics_come_again_before_the_scalars_of_their_step(tmp_path):
    folder = write_run(tmp_path / "run", steps=6, layers=1, nonfinite_at=None, statistics={"param": 2})
    row = {field.name: 1.5 if field.type == pa.float64() else 0 for field in stream_schema("moments")}
    row = {**row, "stat": "param", "gradient_stage": "", "nan_count": math.nan, "samples": -1}
    rows = [{**row, "step": step, "name": f"layers.{n}.weight"} for step in (2, 4, 6) for n in range(3)]
    table = pa.Table.from_pylist(rows, stream_schema("moments"))
    pq.write_table(table, folder / "moments.parquet")
    order = [(chunk.step, chunk.stream) for chunk in RecordedOrder(RunFolder(folder)).chunks()]
    assert order.index((4, "tensors")) < order.index((4, "moments")) < order.index((4, "scalars"))
    assert order.count((4, "moments")) == 1
    after = rerecord(tmp_path, folder)
    assert str(after.read("moments").to_pylist()) == str(table.to_pylist())
    assert after.hello()["statistics"] == {"param": 2}


def test_streams_are_in_step_with_each_other(tmp_path):
    folder = write_run(tmp_path / "run", steps=6, layers=1, nonfinite_at=None)
    steps = [chunk.step for chunk in RecordedOrder(RunFolder(folder)).chunks()]
    assert steps == sorted(steps)


def test_a_replay_may_begin_in_the_middle(tmp_path):
    folder = write_run(tmp_path / "run", steps=10, layers=1)
    after = rerecord(tmp_path, folder, first=7)
    assert set(after.read("tensors")["step"].to_pylist()) == {7, 8, 9, 10}
    assert min(after.read("scalars")["step"].to_pylist()) == 7


def test_a_speed_of_0_is_as_fast_as_possible_as_on_the_command_line(tmp_path):
    folder = write_run(tmp_path / "run", steps=3, layers=1)
    with serve(folder, speed=0) as replay, megalens.connect(replay.id) as run:
        replay.wait(30)
        assert "speed" not in run.origin
    assert [read_speed(each) for each in (None, 0, 0.0, 2, np.float32(0.5))] == [None, None, None, 2.0, 0.5]


def test_a_recording_that_was_cut_short_is_replayed_up_to_the_cut(tmp_path):
    folder = write_run(tmp_path / "run", steps=8, layers=1, nonfinite_at=None)
    table = RunFolder(folder).read("tensors")
    (folder / "tensors.parquet").unlink()
    with (
        pa.OSFile(str(folder / "tensors.arrows"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as writer,
    ):
        for step in range(1, 9):
            writer.write_table(table.filter(pc.equal(table["step"], step)).combine_chunks())
    data = (folder / "tensors.arrows").read_bytes()
    (folder / "tensors.arrows").write_bytes(data[: int(len(data) * 0.6)])
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, "ended": None, "state": "training"}))
    kept = RunFolder(folder).read("tensors")
    after = rerecord(tmp_path, folder)
    assert 0 < after.read("tensors").num_rows == kept.num_rows < table.num_rows

    async def warned(entry):
        viewer = await watch(entry)
        await viewer.wait("status", lambda m: any("cut short" in text for text in m.get("warnings", ())))
        await viewer.socket.close()

    with serve(folder) as replay:
        asyncio.run(warned(replay.entry))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(1, 10.0), (2, 11.0), (4, 15.0)], [(1, 0.0), (2, 1.0), (3, 3.0), (4, 5.0), (9, 5.0)]),
        # Set back, then a day ahead: it stands still, and the pause is a short one.
        ([(1, 100.0), (2, 50.0), (3, 51.0), (4, 90_000.0)], [(2, 0.0), (3, 1.0), (4, 61.0)]),
        ([(1, 10.0), (2, float("nan")), (3, 12.0)], [(2, 1.0), (3, 2.0)]),
        ([(7, 10.0)], [(7, 0.7), (17, 1.7)]),
        ([], [(0, 0.0), (20, 2.0)]),
    ],
)
def test_steps_are_due_when_their_numbers_were_reported(tmp_path, times, expected):
    folder = write_run(tmp_path / "run", steps=2, layers=1, nonfinite_at=None)
    rows = [{"step": s, "time": t, "rank": 0, "name": "loss", "value": 1.0, "unit": ""} for s, t in times]
    pa.parquet.write_table(pa.Table.from_pylist(rows, stream_schema("scalars")), folder / "scalars.parquet")
    timeline = RecordedOrder(RunFolder(folder))
    assert [(step, pytest.approx(timeline.seconds(step))) for step, _ in expected] == expected


def test_a_kernel_sees_a_live_run_and_says_that_it_is_a_replay(tmp_path):
    folder = write_run(tmp_path / "run", steps=6, layers=2)
    with serve(folder, wait_for_viewer=True) as replay:
        with megalens.connect(replay.id) as run:
            replay.wait(WAIT)
            run.wait(6, timeout=WAIT)
            assert run.name == "gpt-demo (replay)"
            table = run.tensors("MLP1_mat_mul", layers=1)
            assert table["step"].to_pylist() == [1, 2, 3, 4, 5, 6]
            was = RunFolder(folder).read("tensors")
            mask = pc.and_(pc.equal(was["flag"], "MLP1_mat_mul"), pc.equal(was["layer"], 1))
            assert np.array_equal(
                np.stack(table["values"].to_numpy()), np.stack(was.filter(mask)["values"].to_numpy())
            )
            assert run.scalars("loss").num_rows == 6
        assert find_hub(replay.id) is not None
    assert live_hubs() == []


def test_a_replay_goes_round_with_steps_that_go_on(tmp_path):
    folder = write_run(tmp_path / "run", steps=8, layers=1)
    with serve(folder, loop=True, wait_for_viewer=True) as replay, megalens.connect(replay.id) as run:
        while run.scalars("loss").num_rows < 12:
            run.wait(timeout=WAIT)
        steps = run.scalars("loss")["step"].to_pylist()
    assert steps[:12] == list(range(1, 13))


async def test_a_replay_is_paused_stepped_and_let_go(tmp_path):
    folder = write_run(tmp_path / "run", steps=30, layers=1, nonfinite_at=None)
    # An hour a step: only what is asked for moves it.
    with serve(folder, 1 / 3600) as replay:
        viewer = await watch(replay.entry)
        await viewer.wait("status", lambda m: m["step"] == 1)
        refused = await viewer.configure(flags={"MLP1_mat_mul": None})
        assert (refused["code"], refused["field"]) == ("refused", "flags")
        await viewer.configure(mode={"paused": True})
        applied = await viewer.wait("configured", lambda m: m["applied"])
        assert applied["config"]["mode"] == {"paused": True}
        await viewer.wait("status", lambda m: m["state"] == "paused")
        await viewer.configure(mode={"steps": 4})
        await viewer.wait("status", lambda m: m["step"] == 5 and m["state"] == "paused")
        await viewer.socket.close()


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ClientError, match="does not exist"), serve(tmp_path / "nothing"):
        pass


@pytest.mark.slow
def test_the_command_replays_and_is_ended_by_ctrl_c(tmp_path):
    folder = write_run(tmp_path / "run", steps=8, layers=1)
    code = [sys.executable, "-m", "megalens", "replay"]
    with subprocess.Popen(
        [*code, str(folder), "--speed", "max", "--linger", "1000"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        run_id = re.fullmatch(r"run (\S+)\n", process.stdout.readline())[1]
        with megalens.connect(run_id) as run:
            run.wait(8, timeout=WAIT)
            assert run.tensors("MLP1_mat_mul").num_rows == 8
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (0, "")
    assert re.search(r"step 8 of 8 · \d+ rows", out)
    none = subprocess.run([*code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=WAIT)
    assert none.returncode == 2
    assert "holds no run.json" in none.stderr
