"""Foreign training hubs whose connection breaks, closes, stays silent or says too much, and whose dialect is made out."""

import asyncio

import pytest
from peers import Peer, say, start, t1_layer, t1_pass, tracer_layer
from translation import plan, record, sends, translate

from megalens.hub.dialects import peer_message, translator
from megalens.hub.dialects.dialect import DialectError


@pytest.mark.slow
async def test_a_broken_connection_is_made_again_and_begins_a_new_pass(tmp_path):
    async def close(peer, socket):
        await socket.close()

    async def greet(peer, socket):
        # The hub sends to its newest connection, whatever that one says.
        if peer.connections == 2:
            for message in t1_pass(9):
                await say(socket, message)
            peer.server.close(close_connections=False)
            await socket.close()

    async with Peer(sends([start(), *t1_layer(0, 1)], close), greet) as peer:
        out = await translate(tmp_path, plan(peer, "T1", wait_seconds=2))
    assert (out.error, len(peer.of("run_training_step"))) == (None, 1)
    # What broke off in layer 1 is not continued by the pass that came next.
    assert out.steps("MLP1_mat_mul", 2) == [(2, 0)]
    assert any("connection to the peer broke" in sentence for sentence in out.said)


@pytest.mark.slow
async def test_the_viewer_of_3606_claims_its_place_again(tmp_path):
    async def then(peer, socket):
        if peer.connections == 2:
            peer.server.close(close_connections=False)
        await socket.close()

    async with Peer(sends([start(layers=1), *tracer_layer(0, 1)], then)) as peer:
        out = await translate(tmp_path, plan(peer, "3606", wait_seconds=2))
    assert len(peer.of("run_training_step")) == 2
    assert out.steps("MLP1_mat_mul", 0) == [(1, 0), (2, 0)]


async def test_silence_before_the_start_shows_and_can_be_ended(tmp_path):
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


@pytest.mark.slow
async def test_a_hub_that_blocks_on_a_third_request_is_asked_twice_only(tmp_path):
    async def closes(peer, socket, message):
        await say(socket, {"type": "weather"})
        if peer.connections == 4:
            peer.server.close(close_connections=False)
        await socket.close()

    async def greet(peer, socket):
        if peer.connections > 2:
            await closes(peer, socket, None)

    async with Peer(closes, greet) as peer:
        out = await translate(tmp_path, plan(peer, "T2", wait_seconds=1))
    assert len(peer.of("run_training_step")) == 2
    assert any("must not be asked again" in sentence for sentence in out.said)


async def test_a_closing_peer_and_an_absent_one_are_said(tmp_path):
    async def fails(peer, socket, message):
        await socket.close(1011, "internal error")

    async with Peer(fails) as peer:
        failed = await translate(tmp_path / "a", plan(peer, "3606"))
    absent = await translate(tmp_path / "b", plan(peer.address, "3606"))
    assert isinstance(failed.error, DialectError)
    assert "close 1011 (internal error)" in str(failed.error)
    assert absent.error.code == "unreachable"
    assert failed.run.closed


def test_a_dialect_is_told_by_its_pong(tmp_path):
    out = record(tmp_path, None, [start(), *t1_pass(0, qkv=96, mlp=64)])
    assert out.run.header["origin"]["name"] == "T1"
    assert len(out.rows()) == 9


async def test_what_comes_while_the_dialect_is_made_out_is_kept(tmp_path):
    """A hub that trains already sends to its newest connection at once."""

    async def greet(peer, socket):
        for message in t1_pass(0, qkv=96, mlp=64):
            await say(socket, message)

    async with Peer(sends([], pong=True), greet) as peer:
        out = await translate(tmp_path, plan(peer, None))
    assert out.run.header["origin"]["name"] == "T1"
    assert len(out.rows()) == 9


@pytest.mark.slow
async def test_a_message_larger_than_the_bound_is_counted_and_another_connection_follows(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(peer_message, "MOST_BYTES", 100_000)

    async def then(peer, socket):
        if peer.connections == 2:
            peer.server.close(close_connections=False)
            await socket.close()
        else:
            await say(socket, "[" + "1," * 60_000)
            await socket.wait_closed()

    async with Peer(sends([start(layers=1), *tracer_layer(0, 1)], then)) as peer:
        out = await translate(tmp_path, plan(peer, "3606", wait_seconds=2))
    assert out.steps("MLP1_mat_mul", 0) == [(1, 0), (2, 0)]
    assert any("messages larger than" in sentence for sentence in out.said)


@pytest.mark.slow
async def test_a_dialect_that_cannot_be_told_is_asked_for(tmp_path):
    async def mute(peer, socket, message):
        return None

    async with Peer(mute) as peer:
        out = await translate(tmp_path, plan(peer, None))
    assert out.error.code == "dialect"
    assert "--dialect" in str(out.error)


def test_a_peer_is_not_waited_for_longer_than_was_asked(tmp_path, monkeypatch):
    # An attempt each minute: the wait of 0.2 s ends first.
    monkeypatch.setattr(translator, "_RETRY_SECONDS", 60)
    out = record(tmp_path, "3606", [start(layers=1), *tracer_layer(0, 1)])
    assert out.error is None
    assert out.said[-1] == "The peer went away after step 1 and did not come back."
