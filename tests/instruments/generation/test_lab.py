"""Labs: real models behind a real hub, asked from a kernel."""

import copy
import os
import signal
import threading
import time

import numpy as np
import pytest
import torch
from live_run import eventually
from torch import nn
from writers import demo, writer

import megalens
from megalens.demo.model import ByteTokenizer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("runtime_folder")]
LAYER = {
    "demo": "blocks.1",
    "plain": "inner.blocks.1",
    "GPT2": "transformer.h.1",
    "Llama": "model.layers.1",
    "Mixtral": "model.layers.1",
}


class Gated(nn.Module):
    """The demo's model, whose passes take ``seconds`` more and wait as long as the gate is shut; ``fails`` is raised by the next one."""

    def __init__(self):
        super().__init__()
        self.inner = demo(sequence=64)
        self.gate = threading.Event()
        self.gate.set()
        self.passes = 0
        self.seconds = 0.0
        self.fails = None

    def forward(self, ids):
        self.passes += 1
        time.sleep(self.seconds)
        assert self.gate.wait(20)
        fails, self.fails = self.fails, None
        if fails is not None:
            raise fails
        return self.inner(ids)


@pytest.fixture(scope="module")
def gated(runtime_folder):
    model = Gated()
    with megalens.serve(model, ByteTokenizer(), flags=["HiddenStates"], linger=0.2) as lab:
        yield lab, model


@pytest.fixture
def lab(gated):
    lab, model = gated
    yield lab
    model.gate.set()
    eventually(lambda: all(each.over for each in lab.generations), "all are over")


def hidden_of(module, path, ids):
    """What a layer gives for a whole text, by a plain hook."""
    seen = []

    def look(_, __, output):
        seen.append(output[0] if isinstance(output, tuple) else output)

    handle = module.get_submodule(path).register_forward_hook(look)
    with torch.no_grad():
        output = module.eval()(torch.tensor([ids]))
    handle.remove()
    return seen[0][0].numpy(), getattr(output, "logits", output)[0]


@pytest.mark.parametrize("name", LAYER)
def test_each_position_is_reported_once_with_its_tensors_and_the_distribution_it_came_from(name):
    model = writer(name)
    before = copy.deepcopy(model.module.state_dict())
    flags = {"HiddenStates": megalens.NoOp(), "InputTokens": megalens.NoOp()}
    with megalens.serve(model, flags=flags, linger=0.2) as lab:
        written = lab.generate(["The cat", "x"], 8, samples=2, temperature=0.9, top_k=50, seed=3)
        assert (written.state, written.message) == ("finished", "")
        padded = len(written.tokens(0)) - 8
        for sequence in range(4):
            frame = written.tokens(sequence)
            ids = frame["id"].tolist()
            assert frame["position"].tolist() == [*range(len(ids))]
            hidden, logits = hidden_of(model.module, LAYER[name], ids)
            assert np.allclose(written.array("HiddenStates", 1, sequence)[:-1], hidden[:-1], atol=1e-4)
            chances = logits.softmax(-1)
            expected = [chances[place, token].item() for place, token in enumerate(ids[1:])]
            assert np.allclose(frame["probability"][1:], expected, rtol=1e-3)
            assert np.isnan(frame["probability"][0])
            prompt = len(ids) - 8
            assert frame["kind"].tolist() == ["prompt"] * prompt + ["generated"] * 8
            assert frame["tensor_step"].tolist() == [1] * prompt + [*range(2, 9), -1]
            assert frame["tensor_offset"].tolist() == [*range(padded - prompt, padded)] + [0] * 7 + [-1]
            assert (frame["sampled_probability"][prompt:] >= frame["probability"][prompt:]).all()
        shapes = [list(each) for each in lab.tensors("HiddenStates", layers=1).to_pandas()["shape"]]
        assert shapes == [[4, padded, 32]] + [[4, 1, 32]] * 7
        places = lab.tensors("InputTokens").to_pandas()
        places = places[places["part"] == "positions"].sort_values("step")["values"]
        assert [each[-1] for each in places] == [*range(prompt - 1, prompt + 7)]
    after = model.module.state_dict()
    assert all(torch.equal(before[each], after[each]) for each in before)
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.module.modules())


def test_requests_wait_in_places_and_can_be_cancelled_there(gated, lab):
    _, model = gated
    model.gate.clear()
    first, second, third, fourth = [lab.generate(f"{number}", 3, wait=False) for number in range(4)]
    eventually(lambda: first.state == "running", "the first one runs")
    eventually(lambda: [each.place for each in (second, third, fourth)] == [1, 2, 3], "places")
    third.cancel()
    eventually(lambda: third.state == "cancelled" and fourth.place == 2, "the place is free")
    model.gate.set()
    assert [each.wait(20).state for each in (first, second, fourth)] == ["finished"] * 3
    assert len(third.tokens()) == 0


def test_a_generation_is_cancelled_between_two_tokens_and_the_next_one_goes_on(gated, lab):
    _, model = gated
    # The model writes at most 61 tokens, which could else be there before it is told to stop.
    model.seconds = 0.1
    long = lab.generate("abc", 50_000, wait=False, samples=2)
    eventually(lambda: len(long.tokens(0)) > 6, "tokens stream")
    long.cancel()
    model.seconds = 0.0
    assert long.wait(20).state == "cancelled"
    frame = long.tokens(1)
    assert frame["tensor_step"].tolist()[-1] == -1
    assert (frame["tensor_step"][:-1] > 0).all()
    assert lab.generate("a", 3).state == "finished"
    long.cancel()
    with pytest.raises(megalens.ProtocolError, match="There is no generation 100000"):
        lab.tracer.instrument("generation").cancel(100_000)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (torch.OutOfMemoryError("Tried to allocate 20 GiB."), "not enough memory.*20 GiB.*fewer prompts"),
        (RuntimeError("the weights are gone"), "The model failed: RuntimeError: the weights are gone"),
        (KeyError("\ud800"), "The model failed: KeyError"),
    ],
)
def test_a_model_that_fails_ends_its_generation_with_the_reason_and_the_next_one_goes_on(
    gated, lab, error, sentence
):
    _, model = gated
    model.fails = error
    with pytest.raises(megalens.MegalensError, match=sentence):
        lab.generate("abc", 3)
    assert lab.generation().state == "failed"
    assert lab.generate("abc", 3).state == "finished"


@pytest.mark.parametrize(
    ("asked", "field", "sentence"),
    [
        ({"prompts": ["a"] * 129}, "request.prompts", "1 to 128 texts, got 129"),
        ({"prompts": ["a"] * 43, "samples": 3}, "request.samples", "1 to 128, got 129"),
        ({"prompts": []}, "request.prompts", "1 to 128 texts, got 0"),
        ({"prompts": ["a", ""]}, "request.prompts.1", "Prompt 1 must be a text of 1 character or more"),
        ({"prompts": ["a"], "temperature": -1}, "request.temperature", "must be"),
        ({"prompts": ["a"], "top_p": 0}, "request.top_p", "must be"),
        ({"prompts": ["a"], "top_k": 1.5}, "request.top_k", "must be"),
        ({"prompts": ["a"], "tokens": 2**60}, "request.tokens", "must be"),
        ({"prompts": ["a"], "seed": -1}, "request.seed", "must be"),
        ({"prompts": ["a"], "stop": [""]}, "request.stop.0", "must have 1 to 200 characters"),
        ({"prompts": ["a\ud800"]}, "request.prompts.0", "half a character"),
        ({"prompts": ["a"], "what": 1}, "request", "what"),
        (
            {"prompts": ["a"], "perturb": {"sites": {"nowhere": {"kind": {"name": "noise1"}}}}},
            "request.perturb.sites.nowhere",
            "There is no site",
        ),
    ],
)
def test_absurd_requests_are_refused_with_the_field_at_fault_and_nothing_is_queued(
    lab, asked, field, sentence
):
    instrument = lab.tracer.instrument("generation")
    newest = len(lab.generations)
    with pytest.raises(megalens.ProtocolError, match=sentence) as caught:
        instrument.request(asked, "test")
    assert str(caught.value.field).startswith(field)
    assert len(lab.generations) == newest


def test_what_the_model_cannot_do_is_refused_with_the_field_at_fault():
    with megalens.serve(writer("GPT2"), linger=0.2, perturb=False) as lab:
        info = lab.tracer._coordinator.announcement()["generation"]
        assert info == {"prompts": 128, "tokens": 63, "context": 64}
        for request, sentence in [
            ({"prompts": "a" * 100}, "Prompt 0 must be 1 to 64 tokens, the model's context, got 100"),
            ({"prompts": ["a", "a" * 10], "tokens": 60}, "after prompt 1, which has 10 of the 64"),
            ({"prompts": "a", "stop_tokens": [300]}, "must be 0 to 299, got 300"),
            ({"prompts": "a", "perturb": megalens.Noise1(0.1)}, "does not allow perturbations"),
        ]:
            with pytest.raises(megalens.ProtocolError, match=sentence):
                lab.generate(**{"tokens": 4, **request})
        assert lab.generate("a" * 60, 4).state == "finished"


def test_a_tokenizer_of_another_vocabulary_is_named():
    model = megalens.demo.GPT(megalens.demo.GPTConfig(vocabulary=100, layers=1, hidden=8, heads=1))
    wrong = pytest.raises(megalens.ProtocolError, match=r"0 to 99, got 226: the tokenizer is of another")
    with megalens.serve(model, ByteTokenizer(), linger=0.2) as lab, wrong:
        lab.generate("a€")


def test_no_more_than_64_wait(gated, lab):
    _, model = gated
    instrument = lab.tracer.instrument("generation")
    model.gate.clear()
    first = lab.generate("a", 2, wait=False)
    eventually(lambda: first.state == "running", "the first one runs")
    numbers = [instrument.request({"prompts": ["a"], "tokens": 1}, "test")[0] for _ in range(64)]
    with pytest.raises(megalens.ProtocolError, match="64 generations wait already"):
        instrument.request({"prompts": ["a"]}, "test")
    model.gate.set()
    eventually(
        lambda: [each.number for each in lab.generations][-1:] == numbers[-1:], "the last one is there"
    )
    assert [lab.generation(number).wait(20).state for number in numbers] == ["finished"] * 64


def test_under_a_perturbation_it_is_written_twice_and_the_model_is_as_before():
    model = demo()
    before = copy.deepcopy(model.state_dict())
    with megalens.serve(model, flags={"HiddenStates": megalens.NoOp()}, linger=0.2) as lab:
        clean = lab.generate("The cat", 9, seed=4)
        noisy = lab.generate("The cat", 9, seed=4, perturb=megalens.Noise1(3.0))
        control = noisy.control
        assert (control.number, noisy.number) == (2, 3)
        assert control.tokens()["id"].tolist() == clean.tokens()["id"].tolist()
        assert np.array_equal(control.array("HiddenStates", 1)[:-1], clean.array("HiddenStates", 1)[:-1])
        assert noisy.tokens()["id"].tolist() != clean.tokens()["id"].tolist()
        assert "perturb" not in control.request
        assert noisy.request["perturb"]
        again = lab.generate("The cat", 9, seed=4)
        assert again.tokens()["probability"].tolist()[1:] == clean.tokens()["probability"].tolist()[1:]
        assert "perturb" not in lab.tracer.config
        # A control is clean whatever is armed.
        lab.perturb({"system": megalens.Noise1(5.0)}, phases=["generate"], steps=100_000)
        armed = lab.generate("The cat", 9, seed=4)
        assert armed.tokens()["id"].tolist() != clean.tokens()["id"].tolist()
        pair = lab.generate("The cat", 9, seed=4, perturb=megalens.Noise1(3.0))
        assert pair.control.tokens()["id"].tolist() == clean.tokens()["id"].tolist()
        still = lab.generate("The cat", 9, seed=4)
        assert still.tokens()["id"].tolist() != clean.tokens()["id"].tolist()
    assert all(torch.equal(before[each], after) for each, after in model.state_dict().items())
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())


def test_flags_that_are_switched_on_while_it_writes_do_not_end_its_perturbation():
    model = Gated()
    with megalens.serve(model, ByteTokenizer(), linger=0.2) as lab:
        expected = lab.generate("ab", 6, perturb=megalens.Offset(4.0), temperature=0).tokens()["id"].tolist()
        model.passes = 0
        again = lab.generate("ab", 6, perturb=megalens.Offset(4.0), temperature=0, wait=False)
        eventually(lambda: model.passes > 7, "the perturbed one runs")
        lab.tracer.configure(HiddenStates=True)
        assert again.wait(20).tokens()["id"].tolist() == expected


def test_a_change_is_in_force_at_once_also_while_nothing_is_written(lab):
    step = lab.configure({"MLP1_mat_mul": megalens.NoOp()}, layers="1", timeout=10)
    written = lab.generate("abc", 3)
    assert written.tokens()["tensor_step"][0] > step
    assert written.array("MLP1_mat_mul", 1).shape == (6, 128)
    lab.configure({"MLP1_mat_mul": None}, timeout=10)
    with pytest.raises(megalens.MegalensError, match="Switch it on before"):
        lab.generate("abc", 3).array("MLP1_mat_mul", 1)


def test_a_lab_outlives_its_hub():
    with megalens.serve(demo(), linger=0.2) as lab:
        first = lab.tracer.hub_pid
        running = lab.generate("abc", 100_000, wait=False)
        eventually(lambda: len(running.tokens()) > 5, "tokens stream")
        os.kill(first, signal.SIGKILL)
        eventually(lambda: lab.tracer.hub_pid not in (first, None) and lab.tracer.connected(), "another hub")
        with megalens.connect(lab.tracer.run_id) as run:
            lab.tracer.instrument("generation").cancel(running.number)
            assert run.generate("abc", 3).state == "finished"


def test_a_lab_is_closed_in_the_middle_of_a_text_and_its_recording_says_so(tmp_path):
    with megalens.serve(demo(), record=tmp_path, linger=0.2) as lab:
        run = lab.run
        running, waiting = [lab.generate("abc", 50_000, wait=False) for _ in range(2)]
        eventually(lambda: len(running.tokens()) > 5, "tokens stream")
        folder = lab.tracer.folder
        number = waiting.number
        assert run is lab.run
    lab.close()
    assert "closed" in repr(lab)
    recorded = megalens.open(folder)
    states = {each.number: each.state for each in recorded.generations}
    assert states == {running.number: "cancelled", number: "cancelled"}
    assert recorded.generation(number).message == "The run has ended."


def test_a_lab_needs_a_hub():
    with pytest.raises(megalens.TracerError, match="a lab needs a hub"):
        megalens.serve(demo(), hub=None)
