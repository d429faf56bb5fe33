"""What is written is what the model's own generate writes with the same seed."""

from __future__ import annotations

import pytest
import torch
from writers import HUGGING_FACE, demo, hugging_face, writer

from megalens.instruments.generation import as_language_model
from megalens.instruments.generation.decoding import Decoding
from megalens.instruments.generation.language_model import Sampler, evaluating

SETTINGS = [
    {"temperature": 0, "top_k": 0, "top_p": 1.0},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0},
    {"temperature": 0.7, "top_k": 20, "top_p": 1.0},
    {"temperature": 1.3, "top_k": 0, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 30, "top_p": 0.6},
    {"temperature": 1.0, "top_k": 5000, "top_p": 0.999},
]
PROMPTS = [[5, 17, 80, 200, 3, 9], [42], [7, 7, 7]]


def written(
    model, prompts, tokens, *, seed=0, samples=1, stop_tokens=(), temperature=1.0, top_k=0, top_p=1.0
):
    """Token ids that each sequence writes, up to its end."""
    sampler = Sampler(temperature, top_k, top_p, seed)
    sequences = [prompt for prompt in prompts for _ in range(samples)]
    rows: list[list[int]] = [[] for _ in sequences]
    with evaluating(model.module):
        for done in Decoding(model, sequences, sampler, tokens, stop_tokens=stop_tokens):
            for row, wrote in enumerate(done.wrote):
                if wrote:
                    rows[row].append(int(done.tokens[row]))
    return rows


# What is drawn of logits does not know of the model that gave them.
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *(("GPT2", setting) for setting in SETTINGS),
        *((name, SETTINGS[at]) for name in sorted(HUGGING_FACE) if name != "GPT2" for at in (0, 4)),
    ],
    ids=str,
)
def test_a_model_of_hugging_face_writes_what_its_own_generate_writes(name, setting) -> None:
    module = hugging_face(name).eval()
    model = as_language_model(module, _NoTokenizer())
    padded = 6
    ids = torch.tensor([[0] * (padded - len(prompt)) + prompt for prompt in PROMPTS])
    mask = torch.tensor([[0] * (padded - len(prompt)) + [1] * len(prompt) for prompt in PROMPTS])
    greedy = setting["temperature"] == 0
    own = {"do_sample": False} if greedy else {"do_sample": True, **setting}
    torch.manual_seed(11)
    expected = module.generate(
        ids, attention_mask=mask, max_new_tokens=12, num_return_sequences=1 if greedy else 3, eos_token_id=[1, 2], pad_token_id=0, **own
    )  # fmt: skip
    state = torch.get_rng_state()
    found = written(model, PROMPTS, 12, seed=11, samples=1 if greedy else 3, stop_tokens=(1, 2), **setting)
    assert torch.equal(torch.get_rng_state(), state)
    for row, wrote in zip(expected[:, padded:].tolist(), found, strict=True):
        ends = [place for place, token in enumerate(row) if token in (1, 2)]
        assert wrote == (row[: ends[0] + 1] if ends else row)


@pytest.mark.parametrize("temperature", [0.8, 1.5])
def test_the_demo_writes_what_its_own_generate_writes_beyond_its_longest_sequence_too(temperature) -> None:
    module = demo()
    prompts = [[5, 17, 80, 200], [42, 1, 2, 3]]
    expected = module.generate(torch.tensor(prompts), 30, temperature, seed=3)
    found = written(as_language_model(module), prompts, 30, seed=3, temperature=temperature)
    assert found == expected[:, 4:].tolist()


@pytest.mark.parametrize("name", ["demo", "plain", "GPT2", "Llama", "Qwen2", "Mixtral", "Bloom"])
def test_prompts_of_different_lengths_write_what_each_writes_alone(name) -> None:
    model = writer(name)
    together = written(model, PROMPTS, 14, temperature=0)
    assert together == [written(model, [prompt], 14, temperature=0)[0] for prompt in PROMPTS]


class _NoTokenizer:
    """For ids as they are."""

    def encode(self, text: str) -> list[int]:
        return [int(each) for each in text.split()]

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))
