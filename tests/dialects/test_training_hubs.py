"""Foreign training hubs, as they are, become runs of ours."""

import asyncio

import numpy as np
import pytest
from peers import (
    LAYERS,
    Peer,
    input_tokens,
    nonfinite,
    say,
    start,
    t1_layer,
    t1_pass,
    tracer_layer,
    update,
    values,
)
from translation import plan, small, translate

import megalens
from megalens.dialects import DialectError, peer_link


def sends(messages, then=None, pong=False):
    """A script that answers run_training_step with ``start`` and ``messages``, and then closes for good."""

    async def script(peer, socket, message):
        if message["type"] == "ping" and pong:
            await say(socket, {"type": "pong"})
        if message["type"] != "run_training_step":
            return
        for each in messages:
            await say(socket, each)
        if then:
            await then(peer, socket)
        else:
            peer.server.close(close_connections=False)
            await socket.close()

    return script


def record(tmp_path, dialect, messages, then=None, during=None, **changes):
    async def run():
        async with Peer(sends(messages, then, pong=dialect in ("T1", None))) as peer:
            outcome = await translate(tmp_path, plan(peer, dialect, **changes), during)
            outcome.peer = peer
            return outcome

    return asyncio.run(run())


def test_a_run_of_megatronapp_is_recorded_and_opened(tmp_path):
    sent = [*t1_pass(0, batch=2), *t1_pass(1, batch=2)]
    out = record(tmp_path, "T1", [start(batch=2), *sent])
    assert out.error is None
    rows = out.rows()
    assert [(r["step"], r["layer"], r["flag"]) for r in rows[:4]] == [
        (1, 1, "QKV_mat_mul"),
        (1, 1, "MLP1_mat_mul"),
        (1, 1, "MLP2_mat_mul"),
        (1, 2, "QKV_mat_mul"),
    ]
    assert [row["values"] for row in rows] == [message["result"] for message in sent]
    # The batch size, which is not sent, is told from the length.
    assert {tuple(r["shape"]) for r in rows if r["flag"] == "QKV_mat_mul"} == {(2, 4, 6)}
    # Thirds of the fused layout are not q, k and v, and are not called so.
    assert {r["part"] for r in rows} == {""}
    assert {r["compressor"] for r in rows if r["flag"] == "MLP1_mat_mul"} == {
        "Tile(tiles=4, reduction='mean')"
    }
    assert {r["phase"] for r in rows} == {"train"}
    assert max(r["step"] for r in rows) == 2
    # It ended in order, and nothing was left out.
    assert out.said == ["The peer went away after step 2 and did not come back."]
    with megalens.open(out.run.path) as run:
        assert run.step == 2
        assert run.tensors("MLP1_mat_mul", layer=1).num_rows == 2
    hello = out.run.header
    assert hello["origin"] == {"kind": "foreign", "name": "T1", "steps": "inferred"}
    assert hello["model"]["layers"] == LAYERS
    titles = {flag["name"]: flag for flag in hello["flags"]}
    assert titles["QKV_mat_mul"]["parts"] == [""]
    assert "no code that sends it" in titles["ContextLayer_mat_mul"]["reason"]
    request = out.peer.of("run_training_step")[0]
    assert request["visualization_flags"] == {
        "QKV_mat_mul": "True",
        "RawAttentionScore_mat_mul": "False",
        "ContextLayer_mat_mul": "False",
        "MLP1_mat_mul": "True",
        "MLP2_mat_mul": "True",
    }
    assert request["compressor_config"] == {
        "QKV": {"pixels": 6, "method": "data.mean(dim=-1)"},
        "MLP": {"pixels": 4, "method": "data.mean(dim=-1)"},
    }
    assert request["disturbance_configs"] == {}


def test_numbers_six_and_seven_mean_what_the_dialect_says(tmp_path):
    messages = [start(layers=1), *tracer_layer(0, 1, numbers=(6, 7))]
    config = small("3606")
    for name in ("AttentionOutput_mat_mul", "HiddenStates"):
        config["flags"][name] = config["flags"]["MLP1_mat_mul"]
    out = record(tmp_path / "a", "3606", messages, config=config)
    assert [row["flag"] for row in out.rows()] == ["AttentionOutput_mat_mul", "HiddenStates"]
    out = record(tmp_path / "b", "T1", messages)
    assert out.rows() == []
    assert "Left out: 1 updates with update_type 6, which T1 does not have." in out.said


def test_not_a_number_and_infinity_are_data(tmp_path):
    messages = [start(layers=1), nonfinite(update(4, 1, [4], values("x", 1, 4, 4)))]
    out = record(tmp_path, "T1", messages)
    (row,) = out.rows()
    assert np.isnan(row["values"][0])
    assert row["values"][1:3] == [np.inf, -np.inf]
    assert (row["nan_count"], row["inf_count"]) == (1, 2)


def test_attention_keeps_heads_and_finds_the_batch(tmp_path):
    weights = values("attention", 2, 3, 4, 4)
    out = record(
        tmp_path,
        "T1",
        [start(layers=1), update(2, 1, [3, 4, 4], weights)],
        config=small("T1", "RawAttentionScore_mat_mul"),
    )
    (row,) = out.rows()
    assert row["shape"] == [2, 3, 4, 4]
    assert row["compressor"] == "NoOp()"
    assert row["values"] == weights.ravel().tolist()


def test_recomputed_passes_are_left_out_and_counted(tmp_path):
    recomputed = [m for layer in (3, 2, 1) for m in t1_layer(0, layer)]
    messages = [start(), *t1_pass(0), *recomputed, *t1_pass(1), *list(t1_layer(1, 3)), *t1_pass(2)]
    out = record(tmp_path, "T1", messages)
    assert out.steps("MLP1_mat_mul", 1) == [(1, 0), (2, 0), (3, 0)]
    assert out.steps("MLP1_mat_mul", 3) == [(1, 0), (2, 0), (3, 0)]
    assert "Left out: 12 repeats that a recomputed pass sent." in out.said
    (note,) = [row for row in out.run.read("audit").to_pylist() if row["action"] == "drop"]
    assert "12 repeats" in note["detail"]


def test_evaluation_passes_count_as_passes_and_micro_batches_make_steps(tmp_path):
    evaluation = list(t1_pass("evaluation", positions=7))
    messages = [start(), *t1_pass(0), *t1_pass(1), *evaluation, *t1_pass(2)]
    out = record(tmp_path, "T1", messages, micro_batches=2)
    assert out.steps("MLP2_mat_mul", 2) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [row["shape"][1] for row in out.rows("MLP2_mat_mul") if row["layer"] == 2] == [4, 4, 7, 4]


def test_stages_of_a_pipeline_keep_their_own_count(tmp_path):
    """The later stage's updates come through the worker, behind and between those of the first."""
    first = [[input_tokens(n), *tracer_layer(n, 1)] for n in range(3)]
    second = [list(tracer_layer(n, 2)) for n in range(3)]
    order = [*first[0], *first[1], *second[0], *first[2][:2], *second[1], *first[2][2:], *second[2]]
    config = small("3606", "InputTokens")
    out = record(tmp_path, "3606", [start(layers=2), *order], config=config)
    for layer in (1, 2):
        assert out.steps("MLP1_mat_mul", layer) == [(1, 0), (2, 0), (3, 0)]
    for row in out.rows("QKV_mat_mul"):
        n = row["step"] - 1
        assert row["values"] == values((n, row["layer"], 1), 1, 4, 6).ravel().tolist()
    tokens = out.rows("InputTokens")
    assert [(r["part"], r["layer"], r["shape"]) for r in tokens[:2]] == [
        ("ids", 0, [1, 4]),
        ("positions", 0, [1, 4]),
    ]
    assert [r["values"] for r in tokens if r["part"] == "ids"][2] == [20.0, 21.0, 22.0, 23.0]
    request = out.peer.of("run_training_step")[0]
    assert request["compressor_config"]["InputTokens"] == {
        "compressor_type": "NoOpCompressor",
        "compressor_configs": {},
    }
    assert request["compressor_config"]["MLP1_mat_mul"]["compressor_configs"] == {
        "tiles": 6,
        "method": "data.mean(dim=-1)",
        "tiles_one_rank": 6,
        "method_one_rank": "data.mean(dim=-1)",
    }


def test_a_worker_that_lost_an_update_is_told_of(tmp_path):
    order = [
        *tracer_layer(0, 1),
        *tracer_layer(0, 2),
        *tracer_layer(1, 2),
        *tracer_layer(2, 2),
        *tracer_layer(1, 1),
    ]
    out = record(tmp_path, "3606", [start(layers=2), *order])
    assert any("lost updates or sends late" in sentence for sentence in out.said)


def test_garbage_is_counted_and_stops_nothing(tmp_path):
    good = list(t1_pass(0))
    garbage = [
        "{half",
        "[1, 2]",
        "Something went wrong",
        b"\x00\x01",
        "[" * 5000,
        {"type": "update"},
        {"type": "update", "update_type": 4, "layer_id": 1, "args": [4], "result": ["a"] * 16},
        {"type": "update", "update_type": 4, "layer_id": 1, "args": [4], "result": [True] * 16},
        {"type": "update", "update_type": 4, "layer_id": 1, "args": [4], "result": [0.5] * 17},
        {"type": "update", "update_type": 4, "layer_id": -1, "args": [4], "result": [0.5] * 16},
        {"type": "update", "update_type": 4, "layer_id": 1, "args": [1, 4, 4], "result": [0.5] * 16},
        {"type": "update", "update_type": True, "layer_id": 1, "args": [4], "result": []},
        {"type": "start", "num_layers": "three"},
        {"type": "weather"},
    ]
    out = record(tmp_path, "T1", [start(), *good[:3], *garbage, *good[3:]])
    assert [row["values"] for row in out.rows()] == [message["result"] for message in good]
    assert {row["step"] for row in out.rows()} == {1}
    said = "\n".join(out.said)
    for reason in (
        "3 messages that are not JSON",
        "1 messages that are no JSON object",
        "1 binary messages",
        "2 updates whose results are not numbers",
        "1 updates whose length fits no batch size",
        "1 updates whose args are not [S], as if from another dialect",
        "1 updates without a layer_id",
        "1 start messages without a number of layers",
        "1 messages of the type 'weather'",
        "The peer says: Something went wrong",
    ):
        assert reason in said, reason


def test_updates_without_a_start_are_taken(tmp_path):
    out = record(tmp_path, "T1", list(t1_pass(0)))
    assert out.run.header["model"]["layers"] == LAYERS
    assert len(out.rows()) == 9


@pytest.mark.slow
def test_a_broken_connection_is_made_again_and_begins_a_new_pass(tmp_path):
    async def break_once(peer, socket):
        if peer.connections == 1:
            await socket.close()
            return
        for message in t1_pass(9):
            await say(socket, message)
        peer.server.close(close_connections=False)
        await socket.close()

    async def greet(peer, socket):
        # The hub sends to its newest connection, whatever that one says.
        if peer.connections == 2:
            await break_once(peer, socket)

    async def run(dialect, messages):
        script = sends(messages, break_once)
        async with Peer(script, greet if dialect == "T1" else None) as peer:
            outcome = await translate(tmp_path / dialect, plan(peer, dialect, wait_seconds=2))
            return outcome, len(peer.of("run_training_step"))

    out, asked = asyncio.run(run("T1", [start(), *t1_layer(0, 1)]))
    assert (out.error, asked) == (None, 1)
    # What broke off in layer 1 is not continued by the pass that came next.
    assert out.steps("MLP1_mat_mul", 2) == [(2, 0)]
    assert any("connection to the peer broke" in sentence for sentence in out.said)


@pytest.mark.slow
def test_the_viewer_of_3606_claims_its_place_again(tmp_path):
    async def then(peer, socket):
        if peer.connections == 2:
            peer.server.close(close_connections=False)
        await socket.close()

    async def run():
        async with Peer(sends([start(layers=1), *tracer_layer(0, 1)], then)) as peer:
            outcome = await translate(tmp_path, plan(peer, "3606", wait_seconds=2))
            return outcome, len(peer.of("run_training_step"))

    out, asked = asyncio.run(run())
    assert asked == 2
    assert out.steps("MLP1_mat_mul", 1) == [(1, 0), (2, 0)]


def test_silence_before_the_start_shows_and_can_be_ended(tmp_path):
    async def run():
        async def silent(peer, socket, message):
            return None

        async with Peer(silent) as peer:

            async def watch(host, translator):
                await peer.asked("run_training_step")
                hello = host.hub.state.hello()
                assert hello["origin"]["steps"] == "inferred"
                assert hello["flags"][0]["reason"].startswith("The peer has not said yet")
                assert "for the peer to start" in translator.line()
                following.cancel()

            following = asyncio.create_task(translate(tmp_path, plan(peer, "T2"), watch))
            with pytest.raises(asyncio.CancelledError):
                await following

    asyncio.run(run())


@pytest.mark.slow
def test_a_hub_that_blocks_on_a_third_request_is_asked_twice_only(tmp_path):
    async def run():
        async def closes(peer, socket, message):
            await say(socket, {"type": "weather"})
            if peer.connections == 4:
                peer.server.close(close_connections=False)
            await socket.close()

        async def greet(peer, socket):
            if peer.connections > 2:
                await closes(peer, socket, None)

        async with Peer(closes, greet) as peer:
            outcome = await translate(tmp_path, plan(peer, "T2", wait_seconds=1))
            return outcome, len(peer.of("run_training_step"))

    out, asked = asyncio.run(run())
    assert asked == 2
    assert any("must not be asked again" in sentence for sentence in out.said)


def test_a_closing_peer_and_an_absent_one_are_said(tmp_path):
    async def run():
        async def fails(peer, socket, message):
            await socket.close(1011, "internal error")

        async with Peer(fails) as peer:
            failed = await translate(tmp_path / "a", plan(peer, "3606"))
        absent = await translate(tmp_path / "b", plan(peer.address, "3606"))
        return failed, absent

    failed, absent = asyncio.run(run())
    assert isinstance(failed.error, DialectError)
    assert "close 1011 (internal error)" in str(failed.error)
    assert absent.error.code == "unreachable"
    assert failed.run.closed


def test_a_dialect_is_told_by_its_pong(tmp_path):
    out = record(tmp_path, None, [start(), *t1_pass(0, qkv=96, mlp=64)])
    assert out.run.header["origin"]["name"] == "T1"
    assert len(out.rows()) == 9


def test_what_comes_while_the_dialect_is_made_out_is_kept(tmp_path):
    """A hub that trains already sends to its newest connection at once."""

    async def greet(peer, socket):
        for message in t1_pass(0, qkv=96, mlp=64):
            await say(socket, message)

    async def run():
        async with Peer(sends([], pong=True), greet) as peer:
            return await translate(tmp_path, plan(peer, None))

    out = asyncio.run(run())
    assert out.run.header["origin"]["name"] == "T1"
    assert len(out.rows()) == 9


@pytest.mark.slow
def test_a_message_larger_than_the_bound_is_counted_and_followed_by_another_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_link, "MOST_BYTES", 100_000)

    async def then(peer, socket):
        if peer.connections == 2:
            peer.server.close(close_connections=False)
            await socket.close()
        else:
            await say(socket, "[" + "1," * 60_000)
            await socket.wait_closed()

    async def run():
        async with Peer(sends([start(layers=1), *tracer_layer(0, 1)], then)) as peer:
            return await translate(tmp_path, plan(peer, "3606", wait_seconds=2))

    out = asyncio.run(run())
    assert out.steps("MLP1_mat_mul", 1) == [(1, 0), (2, 0)]
    assert any("messages larger than" in sentence for sentence in out.said)


@pytest.mark.slow
def test_a_dialect_that_cannot_be_told_is_asked_for(tmp_path):
    async def run():
        async def mute(peer, socket, message):
            return None

        async with Peer(mute) as peer:
            return await translate(tmp_path, plan(peer, None))

    out = asyncio.run(run())
    assert out.error.code == "dialect"
    assert "--dialect" in str(out.error)


def test_steps_end_the_translation(tmp_path):
    async def stay(peer, socket):
        await socket.wait_closed()

    out = record(tmp_path, "T1", [start(), *[m for n in range(5) for m in t1_pass(n)]], stay, most_steps=2)
    assert {row["step"] for row in out.rows()} == {1, 2}
