"""A viewer of a translated run: what it is told, what it may change, and what the peer cannot do."""

from peers import Peer, say, start, t1_pass
from translation import plan, small, translate
from viewer import watch

from megalens.hub.dialects import translator as translator_module
from megalens.protocol import COMPRESSORS


async def test_what_may_still_change_is_what_is_kept(tmp_path):
    sockets = []

    async def script(peer, socket, message):
        if message["type"] == "run_training_step":
            sockets.append(socket)
            await say(socket, start())

    async with Peer(script) as peer:

        async def step(n):
            for message in t1_pass(n):
                await say(sockets[0], message)

        async def during(host, translator):
            await peer.asked("run_training_step")
            viewer = await watch(host.entry)
            hello = viewer.hello
            if not hello["flags"] or not hello["flags"][0]["layers"]:
                hello = await viewer.wait("hello", lambda m: m["flags"] and m["flags"][0]["layers"])
            assert hello["origin"] == {"kind": "foreign", "name": "T2", "steps": "inferred"}
            assert {info["name"] for info in hello["compressors"]} == set(COMPRESSORS)
            await step(0)
            await viewer.wait("status", lambda m: m["step"] == 1)
            tile = small("T2")["flags"]["MLP1_mat_mul"]["compressor"]
            # The peer reads its configuration once: flags, tiles and reductions stay.
            for patch, field in (
                (
                    {"flags": {"RawAttentionScore_mat_mul": {"compressor": {"name": "NoOp"}}}},
                    "flags.RawAttentionScore_mat_mul",
                ),
                (
                    {"flags": {"MLP1_mat_mul": {"compressor": {"name": "Tile", "params": {"tiles": 5}}}}},
                    "flags.MLP1_mat_mul.compressor",
                ),
                (
                    {"flags": {"MLP1_mat_mul": {"compressor": tile, "phases": ["eval"]}}},
                    "flags.MLP1_mat_mul.phases",
                ),
                (
                    {"flags": {"MLP1_mat_mul": {"compressor": tile, "passes": ["backward"]}}},
                    "flags.MLP1_mat_mul.passes",
                ),
                ({"flags": {"HiddenStates": {"compressor": tile}}}, "flags.HiddenStates"),
            ):
                answer = await viewer.configure(**patch)
                assert (answer["type"], answer.get("field")) == ("error", field), answer
            # Layers, samples and flags that nobody looks at are left out from the next step on.
            answer = await viewer.configure(
                flags={
                    "MLP1_mat_mul": {"compressor": tile, "layers": "1-2", "samples": 1},
                    "QKV_mat_mul": None,
                }
            )
            assert (answer["type"], answer["applied"], answer["step"]) == ("configured", False, 2)
            await step(1)
            applied = await viewer.wait("configured", lambda m: m["applied"])
            assert applied["step"] == 2
            assert set(applied["config"]["flags"]) == {"MLP1_mat_mul", "MLP2_mat_mul"}
            await step(2)
            peer.server.close(close_connections=False)
            await sockets[0].close()
            await viewer.socket.close()

        out = await translate(tmp_path, plan(peer, "T2"), during)
    assert out.error is None
    assert out.steps("QKV_mat_mul", 0) == [(1, 0)]
    assert out.steps("MLP1_mat_mul", 0) == [(1, 0)]
    assert out.steps("MLP1_mat_mul", 1) == [(1, 0), (2, 0), (3, 0)]
    assert out.steps("MLP2_mat_mul", 0) == [(1, 0), (2, 0), (3, 0)]
    (change,) = [row for row in out.run.read("audit").to_pylist() if row["action"] == "configure"]
    assert (change["who"], change["step"]) == ("panel", 2)


async def test_what_is_left_out_is_in_the_status(tmp_path):
    async def script(peer, socket, message):
        if message["type"] == "run_training_step":
            await say(socket, start(layers=1))
            await socket.send("out of memory")
            for message in t1_pass(0, layers=1):
                await say(socket, message)

    async with Peer(script) as peer:

        async def during(host, translator):
            viewer = await watch(host.entry)
            status = await viewer.wait("status", lambda m: m["dropped"]["producer"] == 1)
            assert "The peer says: out of memory" in status["warnings"]
            assert "Left out: 1 messages that are not JSON." in status["warnings"]
            await viewer.socket.close()
            peer.server.close()

        out = await translate(tmp_path, plan(peer, "T1"), during)
    assert out.error is None


async def test_a_silent_peer_may_have_another_client(tmp_path, monkeypatch):
    """The hub sends to its newest connection and tells the one before nothing."""
    monkeypatch.setattr(translator_module, "_SILENT_SECONDS", 0.0)

    async def script(peer, socket, message):
        if message["type"] == "run_training_step":
            await say(socket, start(layers=1))
            for message in t1_pass(0, layers=1):
                await say(socket, message)

    async with Peer(script) as peer:

        async def during(host, translator):
            viewer = await watch(host.entry)
            said = "another client may have taken the place"
            await viewer.wait("status", lambda m: any(said in text for text in m.get("warnings", ())))
            await viewer.socket.close()
            peer.server.close()

        out = await translate(tmp_path, plan(peer, "T1"), during)
    assert out.said == ["The peer went away after step 1 and did not come back."]
    # An end in order is no loss: the recording says of none.
    assert out.audit("drop") == []
    assert out.audit("end") == [{"reason": "The peer went away after step 1 and did not come back."}]
