"""The loop over passes."""

import copy

import pytest
import torch
from torch import nn
from writers import HUGGING_FACE, demo, writer

from megalens.demo.model import ByteTokenizer, Cache
from megalens.instruments.generation import GenerationError, as_language_model
from megalens.instruments.generation.decoding import Decoding, candidates_of
from megalens.instruments.generation.language_model import Sampler, evaluating

PROMPTS = [[84, 104, 101], [42, 7, 99, 12, 80]]


def greedy():
    return Sampler(0, 0, 1.0, 0)


def shapes_of(model, prompts, tokens):
    """Shape of the ids of every call of the model."""
    shapes = []

    def look(module, args, kwargs):
        ids = args[0] if args else kwargs["input_ids"]
        shapes.append(tuple(ids.shape))

    handle = model.module.register_forward_pre_hook(look, with_kwargs=True)
    list(Decoding(model, prompts, greedy(), tokens))
    handle.remove()
    return shapes


@pytest.mark.parametrize("name", ["demo", *HUGGING_FACE])
def test_the_prompts_are_read_in_one_pass_and_then_one_position_a_pass(name):
    model = writer(name)
    with evaluating(model.module):
        assert shapes_of(model, PROMPTS, 6) == [(2, 5)] + [(2, 1)] * 5


def test_beyond_its_longest_sequence_the_demo_reads_its_newest_positions():
    model = writer("demo")
    assert shapes_of(model, PROMPTS, 15) == [(2, 5)] + [(2, 1)] * 11 + [(2, 16)] * 3


def test_a_model_without_a_cache_reads_everything_each_time():
    assert shapes_of(writer("plain"), PROMPTS, 4) == [(2, 5), (2, 6), (2, 7), (2, 8)]


@pytest.mark.parametrize("name", ["demo", "plain", *HUGGING_FACE])
def test_the_logits_of_every_position_are_those_of_the_whole_text_read_at_once(name):
    model = writer(name)
    tokens = 10
    with evaluating(model.module):
        passes = list(Decoding(model, PROMPTS, greedy(), tokens))
        logits = torch.cat([done.logits for done in passes], dim=1)
        ids = torch.cat([done.ids for done in passes], dim=1)
        assert [done.offset for done in passes] == [0, *range(5, 5 + tokens - 1)]
        for row, pad in enumerate(passes[0].pads.tolist()):
            with torch.no_grad():
                output = model.module(ids[row : row + 1, pad:])
            expected = getattr(output, "logits", output)
            assert torch.allclose(logits[row, pad:], expected[0], atol=1e-4)


def test_a_sequence_ends_with_its_stop_token_and_the_others_go_on():
    model = writer("demo")
    with evaluating(model.module):
        free = [done.tokens.tolist() for done in Decoding(model, PROMPTS, greedy(), 8)]
        stop = free[2][0]
        assert stop not in [each[0] for each in free[:2]] + [each[1] for each in free]
        passes = list(Decoding(model, PROMPTS, greedy(), 8, stop_tokens=[stop]))
    assert [done.wrote for done in passes] == [(True, True)] * 3 + [(False, True)] * 5
    assert [done.goes_on[0] for done in passes] == [True] * 2 + [False] * 6
    assert [done.tokens[1].item() for done in passes] == [each[1] for each in free]


def test_a_stop_text_may_lie_across_tokens_and_does_not_count_in_the_prompt():
    class Says(nn.Module):
        """Goes on with the next letter of the alphabet."""

        def forward(self, ids):
            return nn.functional.one_hot((ids + 1).clamp(max=255), 256).float()

    model = as_language_model(Says(), ByteTokenizer())
    prompts = [list(b"cde"), list(b"x")]
    passes = list(Decoding(model, prompts, greedy(), 9, stop=["de", "gh", "{|"]))
    texts = ["".join(chr(done.tokens[row]) for done in passes if done.wrote[row]) for row in (0, 1)]
    assert texts == ["fgh", "yz{|"]


def test_nothing_is_written_where_nothing_is_asked_for():
    passes = list(Decoding(writer("demo"), PROMPTS, greedy(), 0))
    assert len(passes) == 1
    assert (passes[0].tokens, passes[0].wrote, passes[0].goes_on) == (None, (False, False), (False, False))


def test_it_can_be_ended_between_two_tokens():
    ended = []
    seen = 0
    for done in Decoding(writer("demo"), PROMPTS, greedy(), 50, ends=lambda: bool(ended)):
        seen += 1
        if done.number == 3:
            ended.append(True)
    # The pass after it still ends what it drew.
    assert seen == 5


def test_between_passes_gradients_are_on_as_before_and_afterwards_every_module_is_in_its_mode():
    model = writer("GPT2")
    odd = model.module.transformer.h[0].mlp
    odd.eval()
    before = [(name, each.training) for name, each in model.module.named_modules()]
    weights = copy.deepcopy(model.module.state_dict())
    state = torch.get_rng_state()
    with evaluating(model.module):
        for _ in Decoding(model, PROMPTS, Sampler(1.0, 0, 1.0, 5), 4):
            assert torch.is_grad_enabled()
            assert not any(each.training for each in model.module.modules())
    assert [(name, each.training) for name, each in model.module.named_modules()] == before
    assert torch.equal(torch.get_rng_state(), state)
    after = model.module.state_dict()
    assert weights.keys() == after.keys()
    assert all(torch.equal(weights[name], after[name]) for name in weights)
    assert all(parameter.grad is None for parameter in model.module.parameters())


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_named(value, temperature):
    logits = torch.zeros(2, 5)
    logits[1, 3] = value
    with pytest.raises(GenerationError, match="NaN or infinite"):
        Sampler(temperature, 0, 1.0, 0).filtered(logits)


def test_a_module_that_gives_no_logits_is_named():
    model = as_language_model(nn.Embedding(256, 4).requires_grad_(False), ByteTokenizer())
    assert list(Decoding(model, PROMPTS, greedy(), 1))
    broken = as_language_model(nn.Flatten(), ByteTokenizer())
    with pytest.raises(GenerationError, match=r"shape \[2, 5, vocabulary\].*got of shape \[2, 5\]"):
        list(Decoding(broken, PROMPTS, greedy(), 1))


def test_candidates_are_those_before_and_after_the_filters():
    logits = torch.tensor([[2.0, 1.0, 3.0, -1.0, 0.0]])
    sampler = Sampler(0.5, 3, 1.0, 0)
    found = candidates_of(logits, torch.tensor([1]), 4, sampler.filtered(logits))
    chances = logits[0].softmax(-1)
    kept = (logits[0, [2, 0, 1]] / 0.5).softmax(-1)
    assert found.ids.tolist() == [[2, 0, 1, 4]]
    assert torch.allclose(found.probabilities[0], chances[[2, 0, 1, 4]])
    assert torch.allclose(found.candidates_sampled[0], torch.cat([kept, torch.zeros(1)]))
    assert (found.logit.item(), found.rank.item()) == (1.0, 2)
    assert torch.allclose(found.probability, chances[1])
    assert torch.allclose(found.sampled, kept[2])
    assert torch.allclose(found.entropy, torch.distributions.Categorical(probs=chances).entropy())


def test_a_token_that_a_model_never_gives_adds_nothing_to_the_entropy():
    logits = torch.tensor([[0.0, 0.0, float("-inf")]])
    assert candidates_of(logits, torch.tensor([0]), 5).entropy.item() == pytest.approx(
        torch.tensor(2.0).log()
    )


def test_a_cache_changes_no_bit_of_the_demos_first_pass_and_no_module_of_it():
    model, ids = demo(), torch.randint(256, (3, 12), generator=torch.Generator().manual_seed(0))
    called = []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: called.append(name))
    plain = model(ids)
    without = called[:]
    called.clear()
    cached = model(ids, Cache(2, torch.zeros(3, dtype=torch.int64)))
    assert torch.equal(plain, cached)
    assert called == without
