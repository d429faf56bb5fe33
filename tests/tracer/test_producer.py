"""The producer thread against a real WebSocket server: handshake, order, configuration, back-pressure, loss."""

import socket
import time

import numpy as np
import pytest
import torch
from waiting import until

from megalens import NoOp, Projection, Tile, trace
from megalens.tracer import TracerError


def test_the_producer_joins_with_its_token_and_announces_what_can_be_traced(gpt, traced, small_hub) -> None:
    tracer = traced(gpt, name="mine", flags={"MLP1_mat_mul": Tile(4)})
    join = small_hub.next("join")
    assert join["role"] == "producer"
    assert join["peer"]["name"] == "tracer"
    assert small_hub.headers[0]["Authorization"] == "Bearer let-me-in"
    announce = small_hub.next("announce")
    assert announce["run_name"] == "mine"
    assert announce["model"]["layers"] == 2
    flags = {flag["name"]: flag for flag in announce["flags"]}
    assert flags["MLP1_mat_mul"] == {
        "name": "MLP1_mat_mul",
        "title": "MLP1 output",
        "layers": [0, 1],
        "parts": [""],
        "axes": ["position", "feature"],
        "features": 64,
        "widths": [64],
        "compressor": {"name": "Tile", "params": {"tiles": 64, "reduction": "rms"}},
        "bytes_per_layer": None,
    }
    offered = ["Tile", "NoOp", "Empty", "Projection", "Peaks", "Histogram"]
    assert [c["name"] for c in announce["compressors"]] == offered
    assert announce["config"] == tracer.config
    assert tracer.config["flags"]["MLP1_mat_mul"] == {
        "layers": "all",
        "every": 1,
        "phases": ["train"],
        "samples": 1,
        "compressor": {"name": "Tile", "params": {"tiles": 4, "reduction": "mean"}},
    }
    assert tracer.connected(10)
    assert tracer.run_id == "small-1"


def test_sizes_are_announced_again_once_the_first_traced_pass_has_shown_them(
    gpt, ids, traced, small_hub
) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(4)})
    with tracer.step():
        gpt(ids)
    sizes: dict = {"InputTokens": None}
    while sizes["InputTokens"] is None:
        sizes = {flag["name"]: flag["bytes_per_layer"] for flag in small_hub.next("announce")["flags"]}
    assert sizes["MLP1_mat_mul"] == 4 * 8 * 64
    assert sizes["QKV_mat_mul"] == 4 * 8 * 48
    assert sizes["RawAttentionScore_mat_mul"] == 4 * 2 * 8 * 8
    assert sizes["InputTokens"] == 4 * 8 * 2


def test_a_viewers_change_is_accepted_then_applied_at_the_next_step(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt)
    small_hub.next("announce")
    with tracer.step():
        gpt(ids)
        patch = {
            "flags": {"MLP2_mat_mul": {"compressor": {"name": "Tile", "params": {"tiles": 2}}, "layers": "1"}}
        }
        small_hub.send({"type": "configure", "id": "viewer-1:a", "patch": patch})
        accepted = small_hub.next("configured")
        gpt(ids)
    assert accepted["id"] == "viewer-1:a"
    assert (accepted["applied"], accepted["step"]) == (False, 2)
    assert accepted["config"]["flags"]["MLP2_mat_mul"]["layers"] == "1"
    with tracer.step():
        gpt(ids)
    applied = small_hub.next("configured")
    assert (applied["id"], applied["applied"], applied["step"]) == ("viewer-1:a", True, 2)
    row = small_hub.next_rows(1)[0]
    assert (row["step"], row["micro_batch"], row["layer"], row["shape"]) == (2, 0, 1, [1, 8, 2])
    assert small_hub.rows.empty()


def test_two_changes_between_two_steps_are_both_applied(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt)
    small_hub.next("announce")
    for who, flag in (("a", "MLP1_mat_mul"), ("b", "MLP2_mat_mul")):
        setting = {"compressor": {"name": "Tile"}, "layers": "0"}
        small_hub.send({"type": "configure", "id": who, "patch": {"flags": {flag: setting}}})
        assert not small_hub.next("configured")["applied"]
    with tracer.step():
        gpt(ids)
    assert [small_hub.next("configured")["id"] for _ in range(2)] == ["a", "b"]
    assert {row["flag"] for row in small_hub.next_rows(2)} == {"MLP1_mat_mul", "MLP2_mat_mul"}


@pytest.mark.parametrize(
    ("setting", "code", "field"),
    [
        (
            {"compressor": {"name": "Tile", "params": {"reduction": "mean("}}},
            "bad-reduction",
            "flags.MLP1_mat_mul.compressor.params.reduction",
        ),
        (
            {"compressor": {"name": "Projection", "params": {"vectors": "none.npy"}}},
            "bad-vectors",
            "flags.MLP1_mat_mul.compressor.params.vectors",
        ),
        ({"compressor": {"name": "Tile"}, "layers": "2"}, "unknown-layer", "flags.MLP1_mat_mul.layers"),
    ],
)
def test_a_wrong_change_is_answered_and_tracing_goes_on_as_before(
    gpt, ids, traced, small_hub, tmp_path, setting, code, field
) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(2)}, layers="0", vectors_folders=[tmp_path])
    small_hub.next("announce")
    patch = {"flags": {"MLP1_mat_mul": setting, "MLP2_mat_mul": {"compressor": {"name": "Tile"}}}}
    small_hub.send({"type": "configure", "id": "x", "patch": patch})
    error = small_hub.next("error")
    assert (error["code"], error["field"], error["reply_to"]) == (code, field, "x")
    with tracer.step():
        gpt(ids)
    row = small_hub.next_rows(1)[0]
    assert (row["flag"], row["shape"]) == ("MLP1_mat_mul", [1, 8, 2])
    tracer.close()
    assert small_hub.rows.empty()


def test_a_projection_is_loaded_from_an_allowed_folder(gpt, ids, traced, small_hub, tmp_path) -> None:
    vectors = np.random.default_rng(0).normal(size=(2, 3, 16)).astype(np.float32)
    np.save(tmp_path / "directions.npy", vectors)
    tracer = traced(gpt, flags={"HiddenStates": Projection("directions.npy")}, vectors_folders=[tmp_path])
    seen = []
    gpt.blocks[1].register_forward_hook(lambda m, a, output: seen.append(output.detach()[0]))
    with tracer.step():
        gpt(ids)
    row = small_hub.next_rows(2)[1]
    unit = vectors[1] / np.linalg.norm(vectors[1], axis=-1, keepdims=True)
    assert row["shape"] == [1, 8, 3]
    np.testing.assert_allclose(row["values"], (seen[0].numpy() @ unit.T).reshape(-1), rtol=1e-4, atol=1e-5)


def test_a_stalled_hub_costs_bounded_memory_and_counted_rows_and_no_waiting(
    gpt, ids, traced, small_hub
) -> None:
    tracer = traced(gpt, flags={"RawAttentionScore_mat_mul": NoOp(), "MLP1_mat_mul": NoOp()}, samples=None)
    producer = tracer._coordinator.worker
    small_hub.next("announce")
    small_hub.reading.clear()
    producer.queue_bytes = 1 << 20
    wide = torch.randint(0, 50, (64, 12))
    gpt.requires_grad_(False)
    slowest = 0.0
    # Rows without values wait longer than those with.
    for _ in range(200):
        with tracer.step():
            gpt(wide)
            began = time.perf_counter()
        slowest = max(slowest, time.perf_counter() - began)
        assert producer._put_bytes - producer._taken_bytes <= 1 << 20
    # The hub takes nothing for 20 s.
    assert slowest < 10
    assert producer.health.dropped > 0
    small_hub.reading.set()
    tracer.close()
    status = small_hub.next("status", lambda m: m["step"] >= 200)
    assert status["dropped"]["producer"] + small_hub.rows.qsize() == 200 * 4
    assert small_hub.next("goodbye")["reason"] == "finished"


def test_a_broken_connection_is_opened_again_and_the_numbers_wait_for_it(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(2)})
    small_hub.next("announce")
    assert tracer.connected(20)
    small_hub.connections[0].socket.shutdown(socket.SHUT_RDWR)
    until(lambda: not tracer.connected() or len(small_hub.connections) == 2)
    with tracer.step():
        gpt(ids)
        tracer.log(loss=1.5)
    small_hub.next("join")
    small_hub.next("announce")
    assert small_hub.next_scalars(1)[0]["value"] == 1.5
    with tracer.step():
        gpt(ids)
    tracer.close()
    rows = [small_hub.rows.get(timeout=20)]
    while not small_hub.rows.empty():
        rows.append(small_hub.rows.get())
    assert rows[-1]["step"] == 2
    assert len(rows) + tracer.status()["dropped"]["producer"] == 4


def test_frames_are_numbered_without_a_gap_and_a_goodbye_ends_them(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(2)})
    for _ in range(5):
        with tracer.step():
            gpt(ids)
            tracer.log(loss=1.0)
    tracer.close()
    tracer.close()
    small_hub.next("goodbye")
    assert small_hub.seqs == list(range(1, len(small_hub.seqs) + 1))
    assert len(small_hub.next_rows(10)) == 10


def test_the_tracer_reports_what_it_costs(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(2)})

    def cost() -> dict | None:
        with tracer.step():
            gpt(ids)
        return tracer.status().get("overhead")

    until(cost)
    overhead = cost()
    assert 0 <= overhead["low"] <= overhead["percent"] <= overhead["high"]
    assert overhead["percent"] == pytest.approx(overhead["training"] + overhead["producer"])
    assert min(overhead["training"], overhead["producer"]) > 0

    def reported() -> bool:
        cost()
        return any(
            row["name"] == "megalens_overhead" and row["unit"] == "%" for row in list(small_hub.scalars.queue)
        )

    until(reported)


def test_a_hub_that_refuses_is_said_and_training_goes_on(gpt, ids, small_hub, caplog) -> None:
    url, _ = small_hub.address
    small_hub.close()
    with trace(gpt, flags=["MLP1_mat_mul"], hub=(url, "token-of-no-use")) as tracer:
        until(lambda: tracer.status()["warnings"])
        with tracer.step():
            gpt(ids)
        assert "cannot be reached" in tracer.status()["warnings"][0]
        assert "token-of-no-use" not in repr(tracer) + caplog.text + str(tracer.status())


def test_a_hub_that_is_none_is_refused(gpt, tmp_path) -> None:
    with pytest.raises(TracerError, match="hub=… must be"):
        trace(gpt, hub=5)
    with pytest.raises(
        TracerError, match=r"hub-x\.json' is neither 'spawn' nor the runtime file of a running hub"
    ):
        trace(gpt, hub=tmp_path / "hub-x.json")
    with pytest.raises(TracerError, match="record="):
        trace(gpt, hub=None, record=tmp_path)
    with pytest.raises(TracerError, match=r"must be a torch\.nn\.Module"):
        trace("model")
