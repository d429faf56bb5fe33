"""A model in training that writes text between two steps, asked from a kernel over a real hub."""

import numpy as np
import pytest
import torch

import megalens
from megalens.demo.model import GPT, ByteTokenizer, GPTConfig
from megalens.tracer import Place

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("runtime_folder")]
SMALL = GPTConfig(layers=2, hidden=32, heads=2, sequence=48)


class Training:
    """A small training; ``steps(n)`` takes n steps and returns their losses."""

    def __init__(self, tracer=None, dropout=False):
        torch.manual_seed(5)
        self.model = GPT(SMALL)
        if dropout:
            # Its random numbers tell whether somebody else drew some.
            self.model.norm = torch.nn.Sequential(self.model.norm, torch.nn.Dropout(0.2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.tracer = tracer

    def trace(self, **options):
        self.tracer = megalens.trace(
            self.model,
            flags=["HiddenStates"],
            phases=["train", "generate"],
            samples="all",
            tokenizer=ByteTokenizer(),
            linger=0.2,
            **options,
        )
        # Who asks for text finds the training there.
        assert self.tracer.connected(30)
        return self.tracer

    def steps(self, count):
        losses = []
        for _ in range(count):
            with self.tracer.step():
                loss = self.model.loss(torch.randint(256, (2, 24)))
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                losses.append(loss.item())
        return losses


def written_at_one_step(training, run, *arguments, **options):
    """Ask for text, take a step, and return the generation with a copy of the model as it was when it wrote."""
    waiting = run.generate(*arguments, **options, wait=False)
    own = GPT(SMALL)
    own.load_state_dict(training.model.state_dict())
    training.steps(1)
    return waiting.wait(30), own.eval()


def test_text_is_written_between_two_steps_by_the_weights_of_that_step():
    training = Training()
    with training.trace(allow=["generate"]) as tracer, megalens.connect(tracer.run_id) as run:
        training.steps(2)
        written, own = written_at_one_step(training, run, "A list", 10, seed=4)
        frame = written.tokens()
        ids = own.generate(ByteTokenizer().tensor("A list"), 10, temperature=1.0, seed=4)
        assert frame["id"].tolist() == ids[0].tolist()
        chances = own(ids)[0].softmax(-1).detach()
        expected = [float(chances[at, ids[0, at + 1]]) for at in range(len(frame) - 1)]
        assert np.allclose(frame["probability"][1:], expected, rtol=1e-4)
        assert frame["step"].tolist() == [2] * len(frame)
        assert frame["tensor_pass"].tolist() == [0] * 6 + [*range(1, 10), -1]


def test_its_tensors_are_those_of_plain_hooks_on_the_same_weights():
    training = Training()
    with training.trace(allow=["generate"]) as tracer, megalens.connect(tracer.run_id) as run:
        tracer.configure({"HiddenStates": megalens.NoOp()}, samples="all", phases=["generate"])
        training.steps(1)
        written, own = written_at_one_step(training, run, ["The list", "A"], 6, temperature=0)
        for sequence in (0, 1):
            ids = torch.tensor([written.tokens(sequence)["id"].tolist()])
            seen = []
            with own.blocks[1].register_forward_hook(lambda _, __, output, seen=seen: seen.append(output)):
                own(ids)
            array = written.array("HiddenStates", 1, sequence)
            assert np.allclose(array[:-1], seen[0][0, :-1].detach(), atol=1e-5)
            # Nothing has read the last token.
            assert np.isnan(array[-1]).all()


def test_losses_are_bit_for_bit_those_of_a_training_without_it():
    plain = Training(dropout=True)
    with plain.trace():
        torch.manual_seed(9)
        expected = plain.steps(4)
    asked = Training(dropout=True)
    with asked.trace(allow=["generate", "perturb"]) as tracer, megalens.connect(tracer.run_id) as run:
        torch.manual_seed(9)
        losses = asked.steps(2)
        waiting = [
            run.generate(["The", "x"], 5, wait=False),
            run.generate(
                ["The", "x"],
                5,
                attention=True,
                lens=2,
                perturb=megalens.Noise1(0.5),
                sweep={"coefficient": [0.1, 1.0]},
                wait=False,
            ),
        ]
        losses += asked.steps(2)
        for each in waiting:
            assert each.wait(30).state == "finished"
        assert set(waiting[1].effects()["point"]) == {-1, 0, 1}
    assert losses == expected
    assert all(module.training for module in asked.model.modules())


def test_without_leave_the_answer_says_what_the_script_has_to_say():
    training = Training()
    with (
        training.trace() as tracer,
        megalens.connect(tracer.run_id) as run,
        pytest.raises(megalens.ProtocolError, match="'generate' in allow="),
    ):
        run.generate("x")


def test_a_model_that_is_split_over_processes_is_refused_at_the_start():
    with pytest.raises(megalens.TracerError, match="this job has 4"):
        megalens.trace(
            GPT(SMALL), allow=["generate"], tokenizer=ByteTokenizer(), place=Place(rank=1, world_size=4)
        )


def test_a_tokenizer_is_needed():
    with pytest.raises(megalens.MegalensError, match="tokenizer"):
        megalens.trace(GPT(GPTConfig(vocabulary=50, layers=1, hidden=8, heads=1)), allow=["generate"])
