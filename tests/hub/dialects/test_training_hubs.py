"""Foreign training hubs, as they are, become runs of ours."""

import math
from functools import partial

import numpy as np
import pytest
from peers import (
    LAYERS,
    input_tokens,
    nonfinite,
    start,
    t1_layer,
    t1_pass,
    tracer_layer,
    update,
    values,
)
from translation import record, small

import megalens


def test_a_run_of_megatronapp_is_recorded_and_opened(tmp_path):
    sent = [*t1_pass(0, batch=2), *t1_pass(1, batch=2)]
    out = record(tmp_path, "T1", [start(batch=2), *sent])
    assert out.error is None
    rows = out.rows()
    assert [(r["step"], r["layer"], r["flag"]) for r in rows[:4]] == [
        (1, 0, "QKV_mat_mul"),
        (1, 0, "MLP1_mat_mul"),
        (1, 0, "MLP2_mat_mul"),
        (1, 1, "QKV_mat_mul"),
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
        assert run.tensors("MLP1_mat_mul", layers=0).num_rows == 2
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
    assert request["compressor_config"]["QKV"] == {"pixels": 6, "method": "data.mean(dim=-1)"}
    assert request["compressor_config"]["MLP"] == {"pixels": 4, "method": "data.mean(dim=-1)"}
    assert request["disturbance_configs"] == {}


def test_numbers_six_and_seven_mean_what_the_dialect_says(tmp_path):
    messages = [start(layers=1), input_tokens(0), *tracer_layer(0, 1, numbers=(6, 7))]
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
        [start(layers=1, batch=2), update(2, 1, [3, 4, 4], weights)],
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
    assert out.steps("MLP1_mat_mul", 0) == [(1, 0), (2, 0), (3, 0)]
    assert out.steps("MLP1_mat_mul", 2) == [(1, 0), (2, 0), (3, 0)]
    assert "Left out: 12 repeats that a recomputed pass sent." in out.said
    (note,) = [row for row in out.run.read("audit").to_pylist() if row["action"] == "drop"]
    assert "12 repeats" in note["detail"]


def diverged(n, layer, value=math.nan):
    """A layer of which nothing is a number any more: every pass is equal to the one before it."""
    for message in t1_layer(n, layer):
        yield {**message, "result": [value] * len(message["result"])}


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
@pytest.mark.parametrize("blocks", [(), (3, 2, 1), (2, 1), (3, 1)])
@pytest.mark.parametrize("healthy", [0, 2])
def test_equal_rows_of_a_run_that_diverged_are_no_repeats(tmp_path, value, blocks, healthy):
    """Six steps, of which those that matter are the last: each is there once, whether layers are recomputed or not."""
    sent = []
    for n in range(6):
        layer = t1_layer if n < healthy else partial(diverged, value=value)
        sent += [message for at in range(1, LAYERS + 1) for message in layer(n, at)]
        for at, end in zip(blocks, (LAYERS + 1, *blocks), strict=False):
            sent += [message for each in range(at, end) for message in layer(n, each)]
    out = record(tmp_path, "T1", [start(), *sent])
    for layer in range(LAYERS):
        assert out.steps("MLP1_mat_mul", layer) == [(n, 0) for n in range(1, 7)]


def test_a_model_that_is_recomputed_as_one_block_is_known_by_its_healthy_passes(tmp_path):
    """Its repeats begin where a pass does; that they are repeats was proved before nothing was a number any more."""
    sent = []
    for n in range(6):
        layer = t1_layer if n < 2 else diverged
        sent += 2 * [message for at in range(1, LAYERS + 1) for message in layer(n, at)]
    out = record(tmp_path, "T1", [start(), *sent])
    assert out.steps("MLP2_mat_mul", 2) == [(n, 0) for n in range(1, 7)]


def test_a_layer_that_diverges_alone_is_recorded_and_its_repeats_are_not(tmp_path):
    def layer(n, at):
        return diverged(n, at) if at == 2 else t1_layer(n, at)

    sent = [message for n in range(4) for at in (1, 2, 3, 3, 2, 1) for message in layer(n, at)]
    out = record(tmp_path, "T1", [start(), *sent])
    assert [out.steps("QKV_mat_mul", at) for at in range(3)] == [[(n, 0) for n in range(1, 5)]] * 3


@pytest.mark.parametrize("dialect", ["T1", "T2"])
def test_somebody_elses_tiles_are_refused_and_named(tmp_path, dialect):
    """Twice our tiles look like twice the batch, but ``start`` says how large it is."""
    sent = [message for n in range(3) for message in t1_pass(n, qkv=12, mlp=4)]
    out = record(tmp_path, dialect, [start(), *sent])
    assert out.rows("QKV_mat_mul") == []
    # What fits is kept.
    assert out.steps("MLP1_mat_mul", 2) == [(1, 0), (2, 0), (3, 0)]
    assert {tuple(row["shape"]) for row in out.rows("MLP1_mat_mul")} == {(1, 4, 4)}
    refused = "9 updates of QKV_mat_mul with 48 values where 24 were expected at the batch size 1"
    assert refused in "\n".join(out.said)
    assert "Asked for, but nothing of it came: QKV_mat_mul." in out.said


def test_attention_of_another_batch_size_is_refused(tmp_path):
    sent = [update(2, 1, [3, 4, 4], values("a", 2, 3, 4, 4))]
    out = record(tmp_path, "T2", [start(), *sent], config=small("T2", "RawAttentionScore_mat_mul"))
    assert out.rows() == []
    assert "with 96 values where 48 were expected" in "\n".join(out.said)


def test_without_a_start_the_compressor_is_not_known(tmp_path):
    """T1 says it once, to whoever came first: that one's request is in force."""
    out = record(tmp_path, "T1", list(t1_pass(0, qkv=12, mlp=8)))
    assert {row["compressor"] for row in out.rows()} == {"Unknown()"}
    assert any("someone else's request is in force" in sentence for sentence in out.said)


def test_evaluation_passes_count_as_passes_and_micro_batches_make_steps(tmp_path):
    evaluation = list(t1_pass("evaluation", positions=7))
    messages = [start(), *t1_pass(0), *t1_pass(1), *evaluation, *t1_pass(2)]
    out = record(tmp_path, "T1", messages, micro_batches=2)
    assert out.steps("MLP2_mat_mul", 1) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [row["shape"][1] for row in out.rows("MLP2_mat_mul") if row["layer"] == 1] == [4, 4, 7, 4]


def test_stages_of_a_pipeline_keep_their_own_count(tmp_path):
    """The later stage's updates come through the worker, behind and between those of the first."""
    first = [[input_tokens(n), *tracer_layer(n, 1)] for n in range(3)]
    second = [list(tracer_layer(n, 2)) for n in range(3)]
    order = [*first[0], *first[1], *second[0], *first[2][:2], *second[1], *first[2][2:], *second[2]]
    config = small("3606", "InputTokens")
    out = record(tmp_path, "3606", [start(layers=2), *order], config=config)
    for layer in (0, 1):
        assert out.steps("MLP1_mat_mul", layer) == [(1, 0), (2, 0), (3, 0)]
    for row in out.rows("QKV_mat_mul"):
        n = row["step"] - 1
        assert row["values"] == values((n, row["layer"] + 1, 1), 1, 4, 6).ravel().tolist()
    tokens = out.rows("InputTokens")
    assert [(r["part"], r["layer"], r["shape"]) for r in tokens[:2]] == [
        ("ids", -1, [1, 4]),
        ("positions", -1, [1, 4]),
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


def test_what_the_hub_always_sends_is_neither_shown_nor_complained_of(tmp_path):
    out = record(tmp_path, "3606", [start(layers=1), input_tokens(0), *tracer_layer(0, 1)])
    assert "InputTokens" not in {row["flag"] for row in out.rows()}
    assert out.said == ["The peer went away after step 1 and did not come back."]
    assert out.audit("drop") == []


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
def test_steps_end_the_translation(tmp_path):
    async def stay(peer, socket):
        await socket.wait_closed()

    out = record(tmp_path, "T1", [start(), *[m for n in range(5) for m in t1_pass(n)]], stay, most_steps=2)
    assert {row["step"] for row in out.rows()} == {1, 2}
