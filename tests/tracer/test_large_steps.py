"""Steps that are larger than what may wait or than a message: they arrive, or what is missing is named."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
import torch

import megalens
from megalens import NoOp, Tile, trace
from megalens.demo.model import GPT, GPTConfig
from megalens.protocol import STREAMS, Losses
from megalens.protocol.arrow_columns import arrow_batch
from megalens.runs import ClientError
from megalens.tracer.sending.peers.channel import Channel, MessageKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SCORES, MLP1 = "RawAttentionScore_mat_mul", "MLP1_mat_mul"
REMEDY = "Trace it with Tile or Peaks, in fewer layers or samples, or every few steps."


@contextlib.contextmanager
def held(tracer) -> Iterator[None]:
    """Let the thread that sends do nothing inside, while something waits."""
    go = threading.Event()
    tracer._coordinator.worker.task(lambda: go.wait(120), 1)
    yield
    go.set()


def caught_up(tracer) -> None:
    """Wait until all is sent that was handed over."""
    done = threading.Event()
    tracer._coordinator.worker.task(done.set)
    assert done.wait(120)


def ended(small_hub, tracer) -> tuple[dict, dict]:
    """Return the last status, and the rows by step, flag and layer."""
    tracer.close()
    status: dict = {}
    while (message := small_hub.messages.get(timeout=60))["type"] != "goodbye":
        status = message if message["type"] == "status" else status
    rows = [small_hub.rows.get() for _ in range(small_hub.rows.qsize())]
    found = {(row["step"], row["flag"], row["layer"]): row for row in rows}
    assert len(found) == len(rows)
    return status, found


def test_attention_of_a_thousand_positions_arrives_whole_and_all_other_rows_do(tmp_path, own_hub) -> None:
    # 100 MB a step, where 67 MB may wait.
    model = GPT(GPTConfig(vocabulary=50, layers=2, hidden=48, heads=12, sequence=1024))
    ids = torch.randint(0, 50, (1, 1024))
    tracer = trace(model, flags={SCORES: NoOp(), MLP1: Tile(4)}, record=tmp_path / "runs")
    own_hub.add(tracer.hub_pid)
    assert tracer.connected(60)
    for _ in range(2):
        with tracer.step():
            model(ids)
        caught_up(tracer)
    tracer.close()
    run = megalens.open(tracer.folder)
    rows = run.tensors().select(["step", "layer", "flag", "compressor"]).to_pylist()
    assert len({tuple(row.values()) for row in rows}) == len(rows) == 8
    assert {row["compressor"] for row in rows if row["flag"] == SCORES} == {"NoOp()"}
    scores = run.array(SCORES, 1, 2)
    assert scores.shape == (1, 12, 1024, 1024)
    np.testing.assert_allclose(scores.sum(-1), 1.0, rtol=1e-4)
    assert run.warnings == []
    assert tracer.status()["dropped"]["producer"] == 0


def test_what_does_not_fit_beside_what_waits_comes_without_values_and_is_named(
    gpt, traced, small_hub, caplog
) -> None:
    tracer = traced(gpt, flags={SCORES: NoOp(), MLP1: NoOp()}, samples="all")
    wide = torch.randint(0, 50, (64, 12))
    # A layer has 74 kB of attention and 197 kB of MLP1.
    tracer._coordinator.worker.queue_bytes = 500_000
    with held(tracer):
        for _ in range(2):
            with tracer.step():
                gpt(wide)
    caught_up(tracer)
    with tracer.step():
        gpt(wide)
    status, rows = ended(small_hub, tracer)
    assert len(rows) == 12
    bare = sorted(key for key, row in rows.items() if not row["values"])
    assert bare == [(1, MLP1, 1), (2, MLP1, 0), (2, MLP1, 1)]
    for key in bare:
        row, whole = rows[key], rows[(3, *key[1:])]
        assert (row["compressor"], row["shape"]) == ("Empty()", [*whole["shape"][:-1], 0])
        # Its statistics are those of the same pass in a step that came whole.
        for name in ("source_shape", "count", "mean", "m2", "min", "max", "nan_count"):
            assert row[name] == whole[name]
    said = [text for text in status["warnings"] if "MLP1" in text]
    assert said == [
        "MLP1 output, layer 1: 1 row of step 1 has no values, because too much waits to be sent already "
        f"(0.197 MB a row; 0.5 MB at most). Its statistics are there. {REMEDY}",
        "MLP1 output, layers 0-1: in all 3 rows of steps 1 to 2 have no values, because too much waits to be "
        "sent already.",
    ]
    assert status["dropped"]["producer"] == 0
    assert all(text in caplog.text for text in said)


def test_rows_that_no_hub_takes_before_the_end_are_said(gpt, ids, traced, small_hub, caplog) -> None:
    tracer = traced(gpt, flags={MLP1: NoOp()})
    with held(tracer):
        with tracer.step():
            gpt(ids)
        tracer._coordinator.worker.close(0.05)
        assert "MB waited to be sent, of which the hub took nothing for 0.05 s" in caplog.text


def test_large_rows_leave_room_for_small_ones(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={MLP1: NoOp()}, samples="all")
    worker = tracer._coordinator.worker
    with held(tracer):
        # Larger than all that may wait, and taken since only a byte of a test waits.
        worker._put_bytes -= 1
        assert worker.task(lambda: None, 1 << 30)
        worker._put_bytes += 1
        assert worker.room(large=True) == 0
        for _ in range(3):
            with tracer.step():
                gpt(ids)
    status, rows = ended(small_hub, tracer)
    assert len(rows) == 6
    assert all(row["values"] for row in rows.values())
    assert not [text for text in status["warnings"] if "MLP1" in text]


def test_a_row_that_is_larger_than_a_message_comes_without_values_and_is_named(
    gpt, ids, tmp_path, own_hub, monkeypatch
) -> None:
    monkeypatch.setattr("megalens.tracer.tensors.sender._MOST_VALUES_BYTES", 2000)
    tracer = trace(gpt, flags={SCORES: NoOp(), MLP1: NoOp()}, layers="1", record=tmp_path / "runs")
    own_hub.add(tracer.hub_pid)
    assert tracer.connected(60)
    for _ in range(2):
        with tracer.step():
            gpt(ids)
    tracer.close()
    run = megalens.open(tracer.folder)
    assert run.array(SCORES, 1, 2).shape == (1, 2, 8, 8)
    with pytest.raises(
        ClientError, match=r"MLP1_mat_mul of layer 1, step 2, has its statistics and no values"
    ):
        run.array(MLP1, 1, 2)
    said = [
        "MLP1 output, layer 1: 1 row of step 1 has no values, because one is larger than one message may be "
        f"(0.00205 MB a row; 0.002 MB at most). Its statistics are there. {REMEDY}",
        "MLP1 output, layer 1: in all 2 rows of steps 1 to 2 have no values, because one is larger than one "
        "message may be.",
    ]
    assert run.warnings == said
    assert tracer.status()["warnings"] == said
    assert run.tensors(MLP1)["count"].to_pylist() == [3 * 8 * 64] * 2


def test_rows_of_any_stream_that_are_more_than_a_message_go_in_several(
    gpt, ids, traced, small_hub, monkeypatch
) -> None:
    monkeypatch.setattr("megalens.tracer.sending.producer._MOST_FRAME_BYTES", 1000)
    tracer = traced(gpt, flags={})
    row = {"step": 1, "time": 1.0, "rank": 0, "name": "loss", "value": 2.0, "unit": ""}
    long = [f"loss {number}" for number in range(50)]
    schema = STREAMS["scalars"].schema
    rows = [{**row, "name": name} for name in [*long, "x" * 1001]]
    batch = arrow_batch({name: [each[name] for each in rows] for name in row}, schema)
    assert isinstance(batch, pa.RecordBatch)
    before = len(small_hub.seqs)
    tracer._coordinator.worker.task(lambda: tracer._coordinator.worker.send("scalars", batch, 1))
    assert [each["name"] for each in small_hub.next_scalars(50)] == long
    assert len(small_hub.seqs) > before + 2
    status, _ = ended(small_hub, tracer)
    (said,) = status["warnings"]
    assert said.startswith("Rows of scalars: 1 row of step 1 was given up, because a row is larger than one")
    assert status["dropped"]["producer"] == 1


def test_pieces_that_are_larger_than_what_may_wait_are_taken_where_no_others_wait() -> None:
    ours, theirs = socket.socketpair()
    channel, other = Channel(ours, queue_bytes=1 << 21), Channel(theirs)
    other.trusted = True
    try:
        assert channel.put(MessageKind.HEARTBEAT, {"step": 1})
        assert channel.put(MessageKind.INSTRUMENT, {"order": 1}, bytes(5 << 20))
        assert not channel.put(MessageKind.INSTRUMENT, {"order": 2}, bytes(1 << 20))
        assert channel.put(MessageKind.HEARTBEAT, {"step": 2})
        came = []
        while len(came) < 3:
            channel.flush()
            came += [(message.meta, len(message.payload)) for message in other.receive()]
        assert came == [({"step": 1}, 0), ({"order": 1}, 5 << 20), ({"step": 2}, 0)]
        assert channel.waiting == 0
    finally:
        channel.close()
        other.close()


def test_losses_are_named_once_and_summed_up_at_the_end() -> None:
    losses = Losses()
    assert losses.add(0, "waiting", "Spans", 1) is None
    first = losses.add(2, "waiting", "Spans", 4, {-1})
    assert first == (
        "Spans: 2 rows of step 4 were given up, because too much waits to be sent already. Trace less, or every "
        "few steps."
    )
    assert losses.add(3, "told", "x", 4) is None
    assert list(losses.totals()) == []
    assert losses.add(2, "waiting", "Spans", 9, {2, 3, 5}) is None
    assert list(losses.totals()) == [
        "Spans, layers 2-3,5: in all 4 rows of steps 4 to 9 were given up, because too much waits to be sent "
        "already."
    ]
    assert losses.rows == 7
