"""A live run in the kernel, against a real hub and a producer thread."""

import gc
import threading
import tracemalloc

import pytest
from live_run import NO_OP, WAIT, eventually, scalars_frame
from recorded_run import write_run
from websockets.sync.server import serve

from megalens.protocol import STREAMS, CheckedBody, FrameChecker, ProtocolError, Tile, decode_frame
from megalens.runs import ClientError, Run, connect
from megalens.runs.arrivals import StreamMemory

pytestmark = pytest.mark.slow


def test_the_newest_live_run_is_found_and_what_it_did_before_is_there(live, attach):
    live(name="older")
    newer = live(name="newer")
    newer.step(5)
    run = attach()
    assert isinstance(run, Run)
    assert (run.id, run.name, run.live, run.step) == (newer.id, "newer", True, 5)
    assert run.scalars("loss")["value"].to_pylist() == [4 / step for step in range(1, 6)]
    assert run.tensors("HiddenStates", layers="2-3", steps=slice(4, None))["step"].to_pylist() == [4, 4, 5, 5]


def test_a_run_is_found_by_name_id_and_address(live, attach):
    first, second = live(name="first"), live(name="second")
    assert attach("first").id == first.id
    assert attach(second.id).id == second.id
    assert attach(first.address, token=first.token).id == first.id
    assert attach(second.address).id == second.id


def test_what_the_run_is_comes_from_hello(live, attach):
    live()
    run = attach()
    assert run.model["hidden"] == 32
    assert run.layout == {"world_size": 1, "tp": 1, "pp": 1, "dp": 1}
    assert run.flags["QKV_mat_mul"]["parts"] == ["q", "k", "v"]
    assert "reduction" in run.compressors["Tile"]["schema"]["properties"]
    assert run.config == {"HiddenStates": NO_OP}
    assert run.versions["torch"] == "2.9"
    assert run.folder is None


def test_rows_arrive_while_training_goes_on(live, attach):
    training = live()
    run = attach()
    training.step(3)
    assert run.wait(3, timeout=WAIT) >= 3
    assert run.tensors(steps=3)["values"].to_pylist() == [[3.0] * 8] * 4
    table = run.tensors("HiddenStates").to_pandas()
    assert list(table["step"].unique()) == [1, 2, 3]


def test_a_step_without_tensors_counts_once_the_next_one_begins(live, attach):
    training = live()
    run = attach()
    run.configure(HiddenStates=True, every=10, timeout=WAIT)
    training.send(scalars_frame(1))
    with pytest.raises(ClientError, match="did not come"):
        run.wait(1, timeout=0.2)
    training.send(scalars_frame(2))
    assert run.wait(1, timeout=WAIT) == 2


def test_waiting_without_a_step_means_the_next_one(live, attach):
    training = live()
    training.step(4)
    run = attach()
    waiting = threading.Timer(0.2, training.step)
    waiting.start()
    assert run.wait(timeout=WAIT) == 5
    waiting.join()


def test_a_step_that_does_not_come_in_time_is_said(live, attach):
    live().step(2)
    with pytest.raises(
        ClientError, match=r"Step 9 did not come within 0\.1 s; the run is at step 2"
    ) as caught:
        attach().wait(9, timeout=0.1)
    assert caught.value.code == "timeout"


def test_configure_returns_the_step_and_changes_the_config(live, attach):
    training = live()
    training.step(6)
    run = attach()
    assert run.configure(HiddenStates=Tile(4), layers=range(1, 4), every=2, timeout=WAIT) == 7
    setting = run.config["HiddenStates"]
    assert setting["layers"] == "1-3"
    assert setting["every"] == 2
    assert setting["compressor"] == {"name": "Tile", "params": {"tiles": 4, "reduction": "mean"}}
    assert run.configure(HiddenStates=True, samples="all", timeout=WAIT) == 7
    assert run.config["HiddenStates"] == {**setting, "samples": None}
    assert run.configure(HiddenStates=False, timeout=WAIT) == 7
    assert run.config == {}
    eventually(lambda: run.audit()["action"].to_pylist().count("configure") == 3, "the audit rows")


def test_a_change_by_another_viewer_is_seen(live, attach):
    live()
    mine, other = attach(), attach()
    other.configure(QKV_mat_mul=Tile(8), timeout=WAIT)
    eventually(lambda: "QKV_mat_mul" in mine.config, "the other viewer's change")


def test_refusals_pass_through_typed_and_change_nothing(live, attach):
    live()
    run = attach()
    with pytest.raises(ProtocolError) as caught:
        run.configure(HiddenStates=Tile(4, "meen"), timeout=WAIT)
    assert (caught.value.code, caught.value.column) == ("bad-reduction", 1)
    assert caught.value.field == "flags.HiddenStates.compressor.params.reduction"
    with pytest.raises(ProtocolError) as caught:
        run.configure(Hidden=Tile(4), timeout=WAIT)
    assert caught.value.code == "unknown-flag"
    with pytest.raises(ProtocolError) as caught:
        run.configure(HiddenStates=Tile(4), layers="2-8", timeout=WAIT)
    assert caught.value.code == "unknown-layer"
    assert run.config == {"HiddenStates": NO_OP}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, None),
        ({"HiddenStates": "Tile"}, "HiddenStates"),
        ({"HiddenStates": True, "every": 0}, "every"),
        ({"HiddenStates": True, "samples": -1}, "samples"),
        ({"HiddenStates": True, "phases": "sleep"}, "phases"),
        ({"HiddenStates": True, "layers": "x"}, "layers"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_sent(live, attach, arguments, field):
    live()
    with pytest.raises(ClientError) as caught:
        attach().configure(**arguments)
    assert (caught.value.code, caught.value.field) == ("bad-parameter", field)


def test_a_killed_hub_leaves_the_rows_and_says_so(live, attach):
    training = live()
    training.step(3)
    run = attach()
    training.kill_hub()
    eventually(lambda: not run.connected, "the broken connection")
    assert any("broken" in warning for warning in run.warnings)
    assert run.tensors()["step"].to_pylist() == [1] * 4 + [2] * 4 + [3] * 4
    with pytest.raises(ClientError) as caught:
        run.configure(HiddenStates=True, timeout=1)
    assert caught.value.code == "disconnected"


def test_a_hub_that_takes_its_place_is_followed(live, attach):
    first = live(name="same")
    first.step(3)
    run = attach("same")
    first.kill_hub()
    eventually(lambda: not run.connected, "the broken connection")
    second = live(name="same")
    second.current = 3
    second.step(2)
    assert run.wait(5, timeout=WAIT) == 5
    assert run.id == second.id
    assert run.scalars()["step"].to_pylist() == [1, 2, 3, 4, 5]
    assert any("restarted after step 3" in warning for warning in run.warnings)


@pytest.mark.slow
def test_a_hub_that_stays_away_ends_the_run_as_lost(live, attach):
    training = live()
    training.step(1)
    run = attach()
    training.kill_hub()
    with pytest.raises(ClientError, match="ended at step 1"):
        run.wait(2, timeout=WAIT)
    assert (run.live, run.state) == (False, "lost")
    assert any("stopped unexpectedly" in warning for warning in run.warnings)


def test_a_broken_connection_is_resumed_without_gap_or_double(live, attach):
    training = live()
    run = attach()
    training.step(3)
    run.wait(3, timeout=WAIT)
    run._link._connection.socket.shutdown(2)
    training.step(4)
    assert run.wait(7, timeout=WAIT) == 7
    assert run.scalars()["step"].to_pylist() == list(range(1, 8))
    assert run.tensors()["step"].to_pylist() == [step for step in range(1, 8) for _ in range(4)]
    assert run.missed_frames == 0


def test_a_finished_run_is_not_live_and_stays_readable(live, attach):
    training = live("--linger", "0.2")
    training.step(2)
    run = attach()
    training.finish()
    with pytest.raises(ClientError, match="ended at step 2"):
        run.wait(3, timeout=WAIT)
    assert (run.state, run.live) == ("finished", False)
    with pytest.raises(ClientError, match="has ended"):
        run.configure(HiddenStates=True)
    assert run.scalars().num_rows == 2


def test_closing_twice_ends_the_thread_and_the_hub_sees_it_leave(live, attach):
    live()
    run, watcher = attach(), attach()
    eventually(lambda: watcher.status.get("viewers") == 2, "two viewers")
    run.close()
    run.close()
    assert not run._link._thread.is_alive()
    assert run.live is False
    eventually(lambda: watcher.status.get("viewers") == 1, "one viewer")
    with connect() as again:
        assert again.live
    assert not again.live


def test_no_run_says_how_to_start_one_and_what_is_recorded(runtime, tmp_path):
    with pytest.raises(ClientError, match=r"megalens\.trace") as caught:
        connect()
    assert caught.value.code == "not-found"
    (tmp_path / "megalens-runs" / "run-7").mkdir(parents=True)
    (tmp_path / "megalens-runs" / "run-7" / "run.json").write_text("{}")
    with pytest.raises(ClientError, match=r"megalens\.open\('megalens-runs/run-7'\)"):
        connect()


def test_the_newest_recording_of_a_name_is_told_and_not_taken_for_a_live_run(runtime, tmp_path, monkeypatch):
    runs = tmp_path / "megalens-runs"
    for at, name in enumerate(("gpt", "gpt", "llama")):
        info = {"id": f"run-{at}", "name": name, "started": 1000.0 + at}
        write_run(runs / f"run-{at}", steps=2, layers=1, run=info)
    (runs / "broken").mkdir()
    (runs / "broken" / "run.json").write_text("{")
    deeper = tmp_path / "notebooks"
    deeper.mkdir()
    monkeypatch.chdir(deeper)
    assert connect("run-0").id == "run-0"
    with pytest.raises(ClientError, match=r"none is live\. .*megalens\.open\('\.\./megalens-runs/run-1'\)"):
        connect("gpt")
    with pytest.raises(ClientError, match="No live run is called 'gp': none is live"):
        connect("gp")


def test_an_unknown_name_lists_what_is_live(live):
    run = live(name="gpt-a")
    with pytest.raises(ClientError, match=rf"'gpt-b'.*gpt-a \({run.id}\)"):
        connect("gpt-b")


def test_wrong_and_missing_tokens_are_said(live, monkeypatch, tmp_path):
    run = live()
    with pytest.raises(ClientError, match="refused the token") as caught:
        connect(run.address, token="wrong")
    assert (caught.value.code, caught.value.field) == ("unauthorized", "token")
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "other"))
    with pytest.raises(ClientError, match="A token is needed"):
        connect(run.address)


@pytest.mark.parametrize("address", ["ws://127.0.0.1:1", "ws://", "ws://127.0.0.1:x"])
def test_an_address_where_nothing_answers_is_said_at_once(runtime, address):
    with pytest.raises(ClientError) as caught:
        connect(address, token="t", timeout=WAIT)
    assert caught.value.code != "timeout"


def test_a_hub_that_never_says_hello_is_a_timeout(runtime):
    with serve(lambda socket: [None for _ in socket], "127.0.0.1", 0, subprotocols=["megalens.v2"]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.socket.getsockname()[1]
        with pytest.raises(ClientError) as caught:
            connect(f"ws://127.0.0.1:{port}", token="t", timeout=0.5)
        assert caught.value.code == "timeout"
        server.shutdown()


def test_another_version_is_a_version_mismatch(runtime):
    def newer(socket):
        socket.recv()
        socket.send('{"type":"hello","protocol":"megalens.v3"}')
        for _ in socket:
            pass

    with serve(newer, "127.0.0.1", 0, subprotocols=["megalens.v2"]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.socket.getsockname()[1]
        with pytest.raises(ProtocolError) as caught:
            connect(f"ws://127.0.0.1:{port}", token="t", timeout=WAIT)
        assert caught.value.code == "version-mismatch"
        server.shutdown()


def test_the_token_is_in_no_repr(live, attach):
    training = live()
    run = attach(training.address, token=training.token)
    assert training.token not in repr(run)
    assert training.token not in repr(vars(run))
    assert training.token not in repr(vars(run._link))
    assert repr(run).splitlines()[0] == f"gpt-test · live · {run.state} · step 0"


def test_memory_is_bounded_and_counts_what_it_gave_up():
    from live_run import tensors_frame

    memory = StreamMemory(STREAMS["tensors"], 200_000)
    checker = FrameChecker()
    for step in range(1, 501):
        data = tensors_frame(step, (1, 2), size=64)
        memory.append(checker.check(decode_frame(data), data), len(data))
        assert memory.bytes <= 200_000 + len(data)
    table = memory.table()
    assert table["step"].to_pylist()[-1] == 500
    assert memory.evicted_rows > 0
    assert memory.rows + memory.evicted_rows == 1000
    assert table.num_rows == memory.rows
    steps = table["step"].to_pylist()
    assert steps == sorted(steps)
    assert steps[0] == 1 + memory.evicted_rows // 2
    gc.collect()


def test_frames_of_any_layout_take_hardly_more_memory_than_is_counted():
    from live_run import tensors_frame

    memory = StreamMemory(STREAMS["tensors"], 100_000_000)
    checker = FrameChecker()
    # No two of them alike, as where each has texts of its own.
    frames = [
        tensors_frame(step, range(1 + step % 8), size=8, part=f"part {step:04}") for step in range(1, 1001)
    ]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for frame in frames:
        data = bytes(bytearray(frame))
        memory.append(checker.check(decode_frame(data), data), len(data))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 0.8 * taken < memory.bytes < 1.2 * taken
    assert memory.table().num_rows == memory.rows
    assert memory.table()["part"].to_pylist()[-1] == "part 1000"


def test_frames_are_read_only_when_somebody_asks_for_their_rows(monkeypatch):
    from live_run import tensors_frame

    read = []
    whole = CheckedBody.table
    monkeypatch.setattr(CheckedBody, "table", lambda body: read.append(body) or whole(body))
    memory = StreamMemory(STREAMS["tensors"], 10_000_000)
    checker = FrameChecker()
    for step in range(1, 201):
        data = tensors_frame(step, (1, 2), size=64)
        memory.append(checker.check(decode_frame(data), data), len(data))
    assert memory.rows == 400
    assert not read
    assert memory.table()["step"].to_pylist() == [step for step in range(1, 201) for _ in (1, 2)]
    # Small frames lie together from then on.
    assert memory.table()["step"].num_chunks < 20
    assert memory.rows == 400
