"""Forward passes in a step that are no training: they are no micro-batches, and are counted and named."""

import copy

import pytest
import torch
import transformers
from seen_statistics import same
from tracing_fixtures import hooks

import megalens
from megalens import Tile, trace
from megalens.tracer.instrument import Instrument

BOTH = {"HiddenStates": {"compressor": Tile(1), "passes": ["forward", "backward"]}}


def rms(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())


def truth(model, layer: torch.nn.Module, found: list) -> None:
    """Have a plain hook write down what a layer gives and the gradient that comes back, wherever it is called."""

    def hook(module, args, output) -> None:
        output = output[0] if isinstance(output, tuple) else output
        found.append(("forward", rms(output.detach())))
        if output.requires_grad:
            output.register_hook(lambda g: found.append(("backward", rms(g))))

    layer.register_forward_hook(hook)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_only_what_is_trained_is_a_micro_batch(gpt, ids, small_hub, without) -> None:
    found: list = []
    twin = copy.deepcopy(gpt)
    truth(twin, twin.blocks[1], found)
    with trace(gpt, hub=small_hub.address, flags=BOTH, layers="1") as tracer:
        for _ in range(2):
            with tracer.step():
                with without():
                    gpt(ids.flip(0))
                for part in (ids[:2], ids[2:]):
                    gpt(part).square().mean().backward()
                    with without():
                        gpt(ids.flip(1))
            for part in (ids[:2], ids[2:]):
                twin(part).square().mean().backward()
        assert tracer.status()["left_out_passes"] == 6
        (said,) = [text for text in tracer.status()["warnings"] if "without gradients" in text]
        assert said.startswith("Step 1 had forward passes")
        assert ": 3. " in said
    rows = small_hub.next_rows(8)
    assert small_hub.rows.empty()
    order = [(row["step"], row["micro_batch"], row["pass"], row["phase"]) for row in rows]
    assert sorted(order) == sorted(
        (step, part, side, "train") for step in (1, 2) for part in (0, 1) for side in ("forward", "backward")
    )
    rows.sort(key=lambda row: (row["step"], row["micro_batch"], row["pass"] == "backward"))
    assert [(row["pass"], (row["m2"] / row["count"] + row["mean"] ** 2) ** 0.5) for row in rows] == [
        (side, pytest.approx(expected, rel=1e-5)) for side, expected in found
    ]


def test_a_pass_in_evaluation_mode_is_a_micro_batch_once_its_loss_is_backpropagated(
    gpt, ids, small_hub
) -> None:
    found: list = []
    twin = copy.deepcopy(gpt)
    truth(twin, twin.blocks[1], found)
    with trace(gpt, hub=small_hub.address, flags=BOTH, layers="1") as tracer:
        for _ in range(2):
            with tracer.step():
                gpt.eval()
                gpt(ids.flip(0))
                first, second = gpt(ids[:2]), gpt(ids[2:])
                gpt.train()
                gpt(ids[1:]).square().mean().backward()
                gpt.eval()
                with torch.no_grad():
                    gpt(ids)
                # The other way round than they were computed: each is known by its own gradient.
                second.square().mean().backward()
                first.square().mean().backward()
                gpt(ids)
        assert tracer.status()["left_out_passes"] == 6
        (said,) = tracer.status()["warnings"]
        assert "evaluation mode" in said
        assert ": 3. " in said
    for part in (ids[1:], ids[2:], ids[:2]):
        twin(part).square().mean().backward()
    rows = small_hub.next_rows(12)
    assert small_hub.rows.empty()
    for step in (1, 2):
        here = sorted(
            (row["micro_batch"], row["pass"] == "backward", row["m2"] / row["count"] + row["mean"] ** 2)
            for row in rows
            if row["step"] == step
        )
        assert [part for part, *_ in here] == [0, 0, 1, 1, 2, 2]
        assert [square**0.5 for *_, square in here] == [pytest.approx(value, rel=1e-5) for _, value in found]


def test_statistics_are_of_passes_that_train_and_of_no_others(gpt, ids, logged) -> None:
    logger = logged(gpt, torch.optim.SGD(gpt.parameters(), 0.1), residual=1, dgrad=1)
    seen: list = []
    hook = gpt.blocks[1].register_forward_hook(lambda module, args, output: seen.append(output.detach()))
    for evaluates in (True, False):
        with logger.step():
            gpt.train(not evaluates)
            gpt(ids[:2]).square().mean().backward()
            gpt.eval()
            gpt(ids.flip(0) * 0)
            with torch.no_grad():
                gpt(ids.flip(0) * 0)
            with logger.tracer.phase("eval"):
                gpt(ids)
            gpt.train()
            gpt(ids[2:]).square().mean().backward()
    hook.remove()
    assert logger.tracer.status()["left_out_passes"] == 4
    (said,) = logger.tracer.status()["warnings"]
    assert ": 2. " in said
    rows = logged.rows()
    for step in (1, 2):
        outputs = seen[5 * step - 5 : 5 * step]
        same(rows["residual", "blocks.1/output0", step], outputs[0], outputs[4])
        assert rows["dgrad", "head/input0", step]["count"] == ids.numel() * 16


def test_a_model_that_is_trained_in_evaluation_mode_is_traced_from_its_first_step(
    gpt, ids, small_hub
) -> None:
    gpt.eval()
    with trace(gpt, hub=small_hub.address, flags={"HiddenStates": Tile(1)}, layers="1") as tracer:
        with tracer.step():
            for _ in range(2):
                gpt(ids).square().mean().backward()
        assert "left_out_passes" not in tracer.status()
    assert [row["micro_batch"] for row in small_hub.next_rows(2)] == [0, 1]


def test_copies_of_the_model_are_no_passes_of_it(gpt, ids, small_hub) -> None:
    with trace(gpt, hub=small_hub.address, flags=BOTH, layers="1") as tracer:
        average = torch.optim.swa_utils.AveragedModel(gpt)
        reference = copy.deepcopy(gpt).eval().requires_grad_(False)
        with tracer.step():
            gpt(ids).square().mean().backward()
            average.update_parameters(gpt)
            for other in (average, reference):
                other(ids)
        assert "left_out_passes" not in tracer.status()
    assert [(row["micro_batch"], row["pass"]) for row in small_hub.next_rows(2)] == [
        (0, "forward"),
        (0, "backward"),
    ]
    assert small_hub.rows.empty()


def test_a_pass_whose_phase_was_said_is_traced_without_gradients(gpt, ids, small_hub) -> None:
    flags = {"HiddenStates": {"compressor": Tile(1), "phases": ["train", "eval"]}}
    with trace(gpt, hub=small_hub.address, flags=flags, layers="1") as tracer:
        with tracer.step():
            gpt(ids)
            with tracer.phase("eval"), torch.no_grad():
                gpt(ids)
            with torch.no_grad():
                gpt(ids)
            gpt(ids)
        assert tracer.status()["left_out_passes"] == 1
    rows = [(row["phase"], row["micro_batch"]) for row in small_hub.next_rows(3)]
    assert rows == [("train", 0), ("eval", 0), ("train", 1)]
    assert small_hub.rows.empty()


def test_a_pass_that_fails_leaves_the_next_one_as_it_is(gpt, ids, small_hub) -> None:
    with trace(gpt, hub=small_hub.address, flags={"HiddenStates": Tile(1)}, layers="1") as tracer:
        with tracer.step():
            with pytest.raises(IndexError), torch.no_grad():
                gpt(ids + 1000)
            gpt(ids)
        with tracer.step(), pytest.raises(IndexError), torch.no_grad():
            gpt(ids + 1000)
        with tracer.step():
            gpt(ids)
    rows = small_hub.next_rows(2)
    assert [(row["step"], row["micro_batch"], row["phase"]) for row in rows] == [
        (1, 0, "train"),
        (3, 0, "train"),
    ]


def test_a_pass_without_gradients_is_not_perturbed_as_training(gpt, ids, small_hub) -> None:
    plain = gpt(ids)
    arm = {"flags": {}, "perturb": {"sites": {"system": {"kind": {"name": "noise1"}}}}}
    with trace(gpt, hub=small_hub.address, allow=["perturb"]) as tracer:
        tracer.configure(arm)
        with tracer.step():
            with torch.no_grad():
                assert torch.equal(gpt(ids), plain)
            assert not torch.equal(gpt(ids), plain)


def test_instruments_hear_of_no_pass_that_is_no_training(gpt, ids, small_hub) -> None:
    class Counting(Instrument):
        name = "counting"
        passes = True
        heard: list = []

        def forward_begins(self, chunk: int) -> None:
            self.heard.append("begins")

        def forward_ends(self, output) -> None:
            self.heard.append("ends")

        def pause(self, phase: str) -> None:
            self.heard.append(phase)

    counting = Counting()
    with trace(gpt, hub=small_hub.address, instruments=[counting]) as tracer, tracer.step():
        with torch.no_grad():
            gpt(ids)
        gpt(ids)
        with tracer.phase("eval"), torch.no_grad():
            gpt(ids)
    assert counting.heard == ["begins", "ends", "eval", "begins", "ends"]


@pytest.mark.slow
def test_text_that_is_generated_in_the_middle_of_a_step_is_no_training(small_hub) -> None:
    config = transformers.GPT2Config(
        vocab_size=60, n_positions=16, n_embd=24, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    ids = torch.randint(1, 60, (2, 6))
    found: list = []
    twin = copy.deepcopy(model)
    truth(twin, twin.transformer.h[1], found)
    with megalens.trace(model, hub=small_hub.address, flags=BOTH, layers="1") as tracer:
        with tracer.step():
            model(ids, labels=ids).loss.backward()
            model.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0)
            model.train()
            model(ids, labels=ids).loss.backward()
        assert tracer.status()["left_out_passes"] == 3
    rows = small_hub.next_rows(4)
    assert small_hub.rows.empty()
    assert sorted((row["micro_batch"], row["pass"]) for row in rows) == [
        (part, side) for part in (0, 1) for side in ("backward", "forward")
    ]


def test_a_step_is_looked_at_for_sizes_before_anything_is_traced(gpt, ids, small_hub) -> None:
    twin = copy.deepcopy(gpt)
    with trace(gpt, hub=small_hub.address) as tracer:
        for step in range(1, 4):
            with tracer.step():
                for part in (ids[:2], ids[2:]):
                    gpt(part).square().mean().backward()
                    with torch.no_grad():
                        gpt(part)
            assert hooks(gpt) == 0
            assert tracer.status().get("micro_batches") == (None if step < 2 else 2)
    message = small_hub.next("announce", lambda m: m["flags"][0]["bytes_per_layer"] is not None)
    flags = {each["name"]: each for each in message["flags"]}
    seen: list = []
    twin.blocks[0].mlp.fc1.register_forward_hook(lambda module, args, output: seen.append(output))
    twin(ids)
    assert flags["MLP1_mat_mul"]["bytes_per_layer"] == seen[0][0].nbytes
    assert small_hub.rows.empty()


def test_a_step_with_a_phase_inside_is_not_the_one_that_is_looked_at(gpt, ids, small_hub) -> None:
    with trace(gpt, hub=small_hub.address) as tracer:
        for step in range(1, 5):
            with tracer.step():
                gpt(ids).square().mean().backward()
                if step < 3:
                    with tracer.phase("eval"):
                        gpt(ids)
            assert tracer.status().get("micro_batches") == (None if step < 3 else 1)


def test_nothing_is_looked_at_where_something_is_compiled(gpt, ids, small_hub) -> None:
    graphs = []
    compiled = torch.compile(gpt, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    with trace(compiled, hub=small_hub.address) as tracer:
        for _ in range(4):
            with tracer.step():
                compiled(ids).square().mean().backward()
        before = len(graphs)
        assert "micro_batches" not in tracer.status()
        with tracer.step():
            compiled(ids).square().mean().backward()
    assert len(graphs) == before
