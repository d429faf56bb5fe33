"""The demo's model and its loop, without the tracer."""

from __future__ import annotations

import math

import pytest
import torch

from megalens.demo import GPT, Corpus, GPTConfig, TrainConfig, Trainer
from megalens.demo.train import Windows

SMALL = GPTConfig(layers=2, hidden=32, heads=2, sequence=16)
TEXT = b"the quick brown fox jumps over the lazy dog. " * 40


def test_the_forward_pass_equals_torchs_own_attention() -> None:
    torch.manual_seed(0)
    attention = GPT(SMALL).blocks[0].attention
    x = torch.randn(3, 16, 32)
    query, key, value = (
        part.view(3, 16, 2, 16).transpose(1, 2) for part in attention.qkv(x).split(32, dim=-1)
    )
    context = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    expected = attention.projection(context.transpose(1, 2).reshape(3, 16, 32))
    torch.testing.assert_close(attention(x), expected)


def test_attention_scores_are_causal_probabilities_in_a_module_that_hooks_see() -> None:
    model = GPT(SMALL)
    seen: list[torch.Tensor] = []
    model.blocks[1].attention.scores.register_forward_hook(lambda *call: seen.append(call[2]))
    model(torch.randint(256, (2, 16)))
    assert seen[0].shape == (2, 2, 16, 16)
    torch.testing.assert_close(seen[0].sum(-1), torch.ones(2, 2, 16))
    assert seen[0].triu(1).count_nonzero() == 0


def test_the_demo_model_has_the_names_that_the_adapter_table_lists() -> None:
    model = GPT()
    names = dict(model.named_modules())
    assert len(model.blocks) == 4
    for i in range(4):
        for name in (
            "norm1",
            "attention.qkv",
            "attention.scores",
            "attention.projection",
            "norm2",
            "mlp.fc1",
        ):
            assert f"blocks.{i}.{name}" in names
    assert {"embedding", "positions", "norm", "head"} <= names.keys()
    assert model(torch.zeros(1, 128, dtype=torch.long)).shape == (1, 128, 256)


@pytest.mark.slow
def test_training_lowers_the_loss_and_measures_the_held_out_text() -> None:
    torch.manual_seed(0)
    config = TrainConfig(steps=60, batch=8, warmup=5, held_out_every=20, held_out_windows=8)
    trainer = Trainer(GPT(SMALL), Corpus(TEXT, TEXT[:400], 2), config=config)
    seen = [(p.step, p.held_out_loss) for p in trainer.run()]
    assert [step for step, _ in seen] == list(range(1, 61))
    assert math.isnan(seen[18][1])
    assert trainer.progress.first_loss == pytest.approx(math.log(256), abs=0.2)
    assert trainer.progress.loss < 3.2
    assert seen[59][1] < seen[19][1] < 5.5


def test_training_twice_from_one_seed_gives_the_same_losses() -> None:
    def losses() -> list[float]:
        torch.manual_seed(0)
        trainer = Trainer(GPT(SMALL), Corpus(TEXT, TEXT, 2), config=TrainConfig(steps=20, batch=4))
        return [p.loss for p in trainer.run()][9::10]

    assert losses() == losses()


def test_training_stops_when_asked() -> None:
    trainer = Trainer(GPT(SMALL), Corpus(TEXT, TEXT, 2), config=TrainConfig(steps=1000, batch=2))
    for _ in trainer.run(lambda: trainer.progress.step >= 3):
        pass
    assert trainer.progress.step == 3


def test_generation_continues_the_prompt_with_the_asked_number_of_tokens() -> None:
    model = GPT(SMALL)
    prompt = torch.tensor([[1, 2, 3]])
    out = model.generate(prompt, 20, seed=1)
    assert out.shape == (1, 23)
    assert out[0, :3].tolist() == [1, 2, 3]
    assert torch.equal(out, model.generate(prompt, 20, seed=1))


def test_spaced_windows_do_not_overlap_and_cover_the_text() -> None:
    windows = Windows(bytes(range(101)), sequence=10)
    taken = windows.spaced(1000)
    assert taken.shape == (10, 11)
    assert taken[:, 0].tolist() == list(range(0, 100, 10))
    assert windows.random(5).shape == (5, 11)
    with pytest.raises(ValueError, match="more than 200 bytes, got 101"):
        Windows(bytes(101), sequence=200)
