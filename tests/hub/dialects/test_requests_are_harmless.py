"""A person may name the wrong dialect: what is sent then ends no training. The peers read it as the real ones do, and fail as they do."""

import pytest
from peers import Peer, say, start, t1_pass, tracer_layer
from translation import plan, record, small, translate

from megalens.hub.dialects.dialect import DIALECTS


def train_megatronapp(message):
    """One tensor of each kind: MegatronApp looks up both entries, and lowers every flag that it knows."""
    flags, compressors = message.get("visualization_flags", {}), message.get("compressor_config", {})
    for name, usual in (
        *((f"{each}_mat_mul", "False") for each in ("QKV", "RawAttentionScore", "ContextLayer")),
        *((f"{each}_mat_mul", "True") for each in ("MLP1", "MLP2")),
    ):
        flags.get(name, usual).lower()
    for entry in ("QKV", "MLP"):
        pixels, method = compressors[entry]["pixels"], compressors[entry]["method"]
        assert pixels % 1 == 0
        assert "data" in method
    for kind in ("weight", "calculation", "system"):
        if message.get("disturbance_configs", {}).get(f"{kind}_perturbation"):
            raise KeyError(kind)


def train_tracer(message):
    """Pull request 3606 looks for the names that it has; an early one fails on a flag that is on without a compressor."""
    flags, compressors = message.get("visualization_flags", {}), message.get("compressor_config", {})
    for name in DIALECTS["3606"].numbers.values():
        if str(flags.get(name, "False")).lower() == "true":
            kind = compressors[name]
            assert kind["compressor_type"].endswith("Compressor")
            assert isinstance(kind["compressor_configs"], dict)


@pytest.mark.parametrize("train", [train_megatronapp, train_tracer])
@pytest.mark.parametrize("named", ["T1", "T2", "3606", "inference"])
async def test_the_training_goes_on(tmp_path, named, train):
    async def script(peer, socket, message):
        if message["type"] in ("run_training_step", "generate"):
            try:
                train(message)
            except Exception as error:
                peer.failed = error
            await say(socket, start(layers=1))
            peer.server.close(close_connections=False)
            await socket.close()

    async with Peer(script) as peer:
        peer.failed = None
        config = None if named == "inference" else small(named)
        await translate(tmp_path, plan(peer, named, config=config, prompts=("a",)))
    assert peer.failed is None, repr(peer.failed)
    assert len(peer.received) == 1


def test_a_wrong_dialect_is_said(tmp_path):
    """Rows of another shape are no rows of this one, and the person is told which way to look."""
    out = record(tmp_path / "a", "3606", [start(), *t1_pass(0)])
    assert "as if from another dialect" in " ".join(out.said)
    out = record(tmp_path / "b", "T2", [start(layers=1), *tracer_layer(0, 1)])
    assert "as if from another dialect" in " ".join(out.said)
