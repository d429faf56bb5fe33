"""Steps, micro-batches, phases and probes, seen through a real socket."""

import math
from types import SimpleNamespace

import pytest
import torch
from as_supposed import AsSupposed
from torch.utils.checkpoint import checkpoint
from tracing_fixtures import hooks

from megalens import NoOp, Tile, trace
from megalens.adapters import Adapter
from megalens.protocol import ProtocolError
from megalens.tracer import TracerError
from megalens.tracer.own_hooks import hooked_optimizer


def test_a_training_that_goes_on_counts_on(gpt, ids, traced, small_hub) -> None:
    tracer = traced(
        gpt, flags={"HiddenStates": {"compressor": Tile(2), "every": 10, "layers": "0"}}, first_step=1201
    )
    for _ in range(10):
        with tracer.step():
            gpt(ids)
    assert small_hub.next_rows(1)[0]["step"] == 1210
    tracer.configure({"HiddenStates": {"compressor": Tile(2), "layers": "0", "every": 1}})
    with tracer.step():
        gpt(ids)
    assert small_hub.next_rows(1)[0]["step"] == 1211


@pytest.mark.parametrize("number", [0, -3, "7", 1.5])
def test_a_first_step_that_is_none_is_refused(number, gpt) -> None:
    with pytest.raises(TracerError, match="whole number from 1, got"):
        trace(gpt, hub=None, first_step=number)


def test_a_traced_step_reaches_the_hub_with_every_column(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(4, "max")})
    seen = []
    gpt.blocks[1].mlp.fc1.register_forward_hook(lambda m, a, output: seen.append(output.detach()))
    with tracer.step():
        gpt(ids)
    first, second = small_hub.next_rows(2)
    assert second["layer"] == 1
    expected = seen[0][:1].reshape(1, 8, 4, 16).amax(-1)
    assert second.pop("values") == expected.flatten().tolist()
    assert first["layer"] == 0
    assert math.isnan(second.pop("compression_error"))
    for name in ("count", "mean", "m2", "m3", "m4", "min", "max"):
        second.pop(name)
    assert second == {
        "step": 1,
        "micro_batch": 0,
        "phase": "train",
        "pass": "forward",
        "rank": 0,
        "layer": 1,
        "flag": "MLP1_mat_mul",
        "part": "",
        "compressor": "Tile(tiles=4, reduction='max')",
        "source_shape": [3, 8, 64],
        "shape": [1, 8, 4],
        "labels": [],
        "nan_count": 0,
        "inf_count": 0,
        "call": 0,
    }


def test_micro_batches_are_counted_and_forwards_outside_of_steps_are_not_traced(
    gpt, ids, traced, small_hub
) -> None:
    tracer = traced(gpt, flags={"HiddenStates": {"compressor": Tile(1), "layers": "1", "samples": None}})
    gpt(ids)
    for _ in range(2):
        with tracer.step():
            gpt(ids)
            gpt(ids[:2])
        gpt(ids)
    rows = small_hub.next_rows(4)
    assert [(r["step"], r["micro_batch"], r["shape"]) for r in rows] == [
        (1, 0, [3, 8, 1]),
        (1, 1, [2, 8, 1]),
        (2, 0, [3, 8, 1]),
        (2, 1, [2, 8, 1]),
    ]
    tracer.close()
    assert small_hub.rows.empty()


def test_every_nth_step_is_traced(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"HiddenStates": Tile(1)}, layers="0", every=3)
    for _ in range(7):
        with tracer.step():
            gpt(ids)
    tracer.close()
    assert [row["step"] for row in small_hub.next_rows(2)] == [3, 6]
    assert small_hub.rows.empty()


def test_phases_are_told_apart_and_only_the_chosen_ones_are_traced(gpt, ids, traced, small_hub) -> None:
    flags = {
        "HiddenStates": {"compressor": Tile(1), "layers": "0", "phases": ["eval"], "every": 5},
        "MLP2_mat_mul": {"compressor": Tile(1), "layers": "0", "phases": ["train", "generate"]},
    }
    tracer = traced(gpt, flags=flags)
    with tracer.phase("eval"):
        gpt(ids)
    with tracer.step():
        gpt(ids)
        with tracer.phase("generate"):
            gpt(ids)
        gpt(ids)
    with tracer.phase("eval"):
        gpt(ids)
        gpt(ids)
    tracer.close()
    found = [(r["step"], r["phase"], r["micro_batch"], r["flag"]) for r in small_hub.next_rows(6)]
    assert found == [
        (0, "eval", 0, "HiddenStates"),
        (1, "train", 0, "MLP2_mat_mul"),
        (1, "generate", 0, "MLP2_mat_mul"),
        (1, "train", 1, "MLP2_mat_mul"),
        (1, "eval", 0, "HiddenStates"),
        (1, "eval", 1, "HiddenStates"),
    ]
    with pytest.raises(TracerError, match="train, eval, generate"), tracer.phase("test"):
        pass


def test_wrapping_an_optimizer_ends_a_step_at_each_of_its_own_and_can_be_undone(
    gpt, ids, traced, small_hub
) -> None:
    tracer = traced(gpt, flags={"HiddenStates": Tile(1)}, layers="0")
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    handle = tracer.wrap(optimizer)
    for _ in range(2):
        for _ in range(2):
            gpt.loss(ids).backward()
        optimizer.step()
    handle.remove()
    handle.remove()
    gpt.loss(ids).backward()
    optimizer.step()
    tracer.close()
    assert [(r["step"], r["micro_batch"]) for r in small_hub.next_rows(4)] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert small_hub.rows.empty()
    assert not optimizer._optimizer_step_post_hooks


class _OnlyWraps(torch.optim.Optimizer):
    """An optimizer by its class alone, as torch's PostLocalSGDOptimizer."""

    def __init__(self, optim: torch.optim.Optimizer) -> None:
        self.optim = optim


@pytest.mark.parametrize("wrapped", [lambda inner: SimpleNamespace(optimizer=inner), _OnlyWraps])
def test_of_what_wraps_an_optimizer_the_one_inside_is_hooked(wrapped) -> None:
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    assert hooked_optimizer(wrapped(inner)) is inner
    assert hooked_optimizer(inner) is inner


def test_hooks_exist_only_while_a_flag_needs_them(gpt, ids, traced) -> None:
    tracer = traced(gpt)
    assert hooks(gpt) == 0
    tracer.configure({"HiddenStates": Tile(2), "MLP1_mat_mul": {"compressor": Tile(2), "layers": "1"}})
    assert hooks(gpt) == 0
    with tracer.step():
        gpt(ids)
    # Two layers, one layer, and the beginning and the end of a pass.
    assert hooks(gpt) == 3 + 2
    tracer.configure({"HiddenStates": None, "MLP1_mat_mul": None})
    with tracer.step():
        gpt(ids)
    assert hooks(gpt) == 0
    tracer.configure({"HiddenStates": Tile(2)})
    with tracer.step():
        gpt(ids)
    assert hooks(gpt) > 0
    tracer.close()
    assert hooks(gpt) == 0


def test_recomputation_in_the_backward_pass_is_no_second_forward_pass(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(1)})
    for block in gpt.blocks:
        plain = block.forward
        block.forward = lambda x, plain=plain: checkpoint(plain, x, use_reentrant=False)
    with tracer.step():
        gpt.loss(ids).backward()
    tracer.close()
    assert [(r["layer"], r["micro_batch"]) for r in small_hub.next_rows(2)] == [(0, 0), (1, 0)]
    assert small_hub.rows.empty()


def test_an_error_of_the_tracers_own_never_reaches_the_step(gpt, ids, traced, small_hub) -> None:
    def broken(fused):
        raise RuntimeError("cannot be cut")

    class Broken(Adapter):
        def points(self, model):
            points = super().points(model)
            for source in points.flags["QKV_mat_mul"].layers[0]:
                object.__setattr__(source, "split", broken)
            return points

    adapter = AsSupposed(Broken(layer="blocks.{i}", qkv="attention.qkv", fc1="mlp.fc1", heads=2))
    tracer = traced(gpt, flags={"QKV_mat_mul": Tile(2), "MLP1_mat_mul": Tile(2)}, adapter=adapter)
    for _ in range(3):
        with tracer.step():
            gpt(ids)
    tracer.close()
    status = small_hub.next("status")
    assert status["probes"]["missing"] == ["Queries, keys and values, layer 0"]
    assert status["warnings"] == ["Queries, keys and values, layer 0 could not be traced: cannot be cut"]


def test_non_finite_entries_are_counted_before_compression_and_their_first_place_is_kept(
    gpt, ids, traced, small_hub
) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(1, "median")})
    with tracer.step():
        gpt(ids)
    with torch.no_grad():
        gpt.blocks[1].mlp.fc1.bias[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    with tracer.step():
        gpt(ids)
    tracer.close()
    rows = small_hub.next_rows(4)
    # All three samples of 8 positions are looked at, whatever is kept of them.
    assert [(r["nan_count"], r["inf_count"]) for r in rows] == [(0, 0), (0, 0), (0, 0), (24, 48)]
    status = small_hub.next("status", lambda m: m["step"] >= 2)
    assert status["nonfinite"] == {"count": 72, "first": {"step": 2, "layer": 1, "flag": "MLP1_mat_mul"}}


def test_a_sum_that_overflows_is_not_mistaken_for_a_non_finite_entry(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": NoOp()}, layers="0")
    with torch.no_grad():
        gpt.blocks[0].mlp.fc1.bias.fill_(1e38)
    with tracer.step():
        gpt(ids)
    row = small_hub.next_rows(1)[0]
    assert (row["nan_count"], row["inf_count"]) == (0, 0)
    assert max(row["values"]) > 9e37


def test_token_ids_travel_with_their_text(gpt, ids, traced, small_hub) -> None:
    class Letters:
        def decode(self, numbers):
            return chr(65 + numbers[0])

    tracer = traced(gpt, flags=["InputTokens"], tokenizer=Letters())
    with tracer.step():
        gpt(ids)
    tokens, positions = small_hub.next_rows(2)
    assert tokens["values"] == ids[0].tolist()
    assert tokens["labels"] == [chr(65 + number) for number in ids[0].tolist()]
    assert (positions["part"], positions["values"], positions["labels"]) == ("positions", list(range(8)), [])
    assert tokens["source_shape"] == [3, 8]
    assert tokens["layer"] == -1


def test_logged_numbers_are_read_later_as_they_were_then(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt)
    loss = torch.tensor(2.5)
    with tracer.step():
        tracer.log(loss=loss, perplexity=12, unit="nats/token")
        loss /= 5
    tracer.log(lr=0.1, broken=object(), held_out_loss=float("nan"))
    tracer.close()
    rows = small_hub.next_scalars(4)
    assert [(r["step"], r["name"], r["value"], r["unit"]) for r in rows[:3]] == [
        (1, "loss", 2.5, "nats/token"),
        (1, "perplexity", 12.0, "nats/token"),
        (1, "lr", 0.1, ""),
    ]
    assert rows[3]["value"] != rows[3]["value"]
    assert "broken was logged" in tracer.status()["warnings"][0]


def test_without_a_hub_everything_can_be_called_and_nothing_is_hooked(gpt, ids) -> None:
    with trace(gpt, flags=["MLP1_mat_mul"], hub=None) as tracer:
        with tracer.step():
            gpt(ids)
            tracer.log(loss=1.0)
        with tracer.phase("eval"):
            gpt(ids)
        assert hooks(gpt) == 0
        assert tracer.run_id is None
        assert not tracer.connected()
        assert tracer.status()["step"] == 1
    tracer.close()


@pytest.mark.parametrize(
    ("flags", "code", "field"),
    [
        ({"MLP3": Tile()}, "unknown-flag", "flags.MLP3"),
        (
            {"MLP1_mat_mul": {"compressor": Tile(), "layers": "0-8"}},
            "unknown-layer",
            "flags.MLP1_mat_mul.layers",
        ),
        (
            {"MLP1_mat_mul": Tile(4, "meen")},
            "bad-reduction",
            "flags.MLP1_mat_mul.compressor.params.reduction",
        ),
        (
            {"MLP1_mat_mul": {"compressor": {"name": "Zip"}}},
            "unknown-compressor",
            "flags.MLP1_mat_mul.compressor.name",
        ),
        ({"InputTokens": Tile()}, "unknown-compressor", "flags.InputTokens.compressor.name"),
        ({"MLP1_mat_mul": {"compressor": Tile(), "every": 0}}, "bad-parameter", "flags.MLP1_mat_mul.every"),
        ({"MLP1_mat_mul": 3}, "bad-parameter", "flags.MLP1_mat_mul"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_field_and_changes_nothing(gpt, flags, code, field) -> None:
    tracer = trace(gpt, hub=None)
    with pytest.raises(ProtocolError) as caught:
        tracer.configure({"HiddenStates": Tile(), **flags})
    assert caught.value.code == code
    assert field is None or caught.value.field == field
    assert tracer.config == {"flags": {}}
    with pytest.raises(ProtocolError):
        trace(gpt, flags=flags, hub=None)


def test_a_flag_that_the_model_lacks_is_refused_with_the_reason(gpt) -> None:
    adapter = AsSupposed(Adapter(layer="blocks.{i}", name="mine"))
    with pytest.raises(ProtocolError, match="names no module for MLP1_mat_mul") as caught:
        trace(gpt, flags=["MLP1_mat_mul"], hub=None, adapter=adapter)
    assert caught.value.code == "unavailable-flag"


def test_tracing_a_thousand_steps_keeps_nothing(gpt, ids, traced) -> None:
    tracer = traced(gpt, flags={"HiddenStates": Tile(1)})
    for _ in range(1000):
        with tracer.step():
            gpt.embedding(ids)
            tracer.log(loss=1.0)
    capture = tracer.tensors.capture
    assert len(capture._rows) == 0
    assert len(tracer._steps.scalars) == 0
    assert len(tracer.status()["warnings"]) <= 20


def test_forgetting_the_step_is_said_after_the_tenth_forward_pass_and_once(gpt, ids, traced) -> None:
    tracer = traced(gpt, flags={"HiddenStates": Tile(1)})
    with torch.no_grad():
        # Of an evaluation before the training nobody expects a step.
        for _ in range(20):
            gpt(ids)
    for _ in range(9):
        gpt(ids)
    assert tracer.status()["warnings"] == []
    for _ in range(5):
        gpt(ids)
    (said,) = tracer.status()["warnings"]
    assert "tracer.step()" in said
    assert "tracer.wrap(optimizer)" in said
    tracer.close()
    assert not gpt._forward_pre_hooks


def test_who_begins_a_step_or_says_a_phase_has_forgotten_nothing(gpt, ids, traced) -> None:
    flags = {"HiddenStates": {"compressor": Tile(1), "every": 100}}
    first, second = traced(gpt, flags=flags), traced(gpt, flags=flags)
    before = len(gpt._forward_pre_hooks)
    with first.step():
        gpt(ids)
    with second.phase("eval"):
        gpt(ids)
    assert len(gpt._forward_pre_hooks) == before - 2
    for _ in range(11):
        gpt(ids)
    assert [each.status()["warnings"] for each in (first, second)] == [[], []]
