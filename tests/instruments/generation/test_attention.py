"""Attention is switched for as long as its probabilities are looked at, and only then."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from writers import byte_level, demo, hugging_face

import megalens
from megalens.adapters import find_adapter
from megalens.instruments.generation import GenerationError
from megalens.instruments.generation.hidden import (
    ATTENTION,
    AttentionAdapter,
    attention_probabilities,
    no_attention,
)
from megalens.tracer import FlagPoints

IDS = torch.tensor([[0, 0, 7, 11, 5], [4, 9, 2, 8, 6]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
FAMILIES = ["GPT2", "Llama", "Qwen2", "Mixtral"]


def logits(model: nn.Module) -> torch.Tensor:
    """Logits of two prompts, one of them padded on the left; those of padding are left out."""
    with torch.no_grad():
        return model(input_ids=IDS, attention_mask=MASK).logits[MASK.bool()]


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_are_seen_and_logits_differ_by_rounding_only(family: str) -> None:
    model = hugging_face(family).eval()
    assert model.config._attn_implementation == "sdpa"
    clean = logits(model)
    points = AttentionAdapter().points(model)
    assert no_attention(points) is None
    assert sorted(points.flags[ATTENTION].layers) == [0, 1]
    (source,) = points.flags[ATTENTION].layers[1]
    seen: list[torch.Tensor] = []
    handle = source.module.register_forward_hook(lambda m, a, y: seen.append(y[source.item]))
    with attention_probabilities(model) as sentence:
        switched = logits(model)
    handle.remove()
    assert sentence == (
        "Attention was computed with eager instead of sdpa, in every layer, so that its probabilities can be seen; logits differ by rounding."
    )
    torch.testing.assert_close(switched, clean, rtol=1e-4, atol=1e-4)
    (probabilities,) = seen
    assert probabilities.shape == (2, 4, 5, 5)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 4, 5))
    # Nothing attends to what comes later, nor to padding.
    assert not probabilities[1].triu(1).any()
    assert not probabilities[0, :, 2:, :2].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_afterwards_attention_is_computed_as_before_bit_by_bit(family: str) -> None:
    model = hugging_face(family).eval()
    clean, names = logits(model), [name for name, _ in model.named_modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    AttentionAdapter().points(model)
    during = []
    with contextlib.suppress(KeyboardInterrupt), attention_probabilities(model):
        during.append(model.config._attn_implementation)
        raise KeyboardInterrupt
    assert during == ["eager"]
    assert model.config._attn_implementation == "sdpa"
    assert [name for name, _ in model.named_modules()] == names
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(logits(model), clean)


def test_the_parts_of_a_model_that_sees_are_each_as_they_were() -> None:
    eyes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}  # fmt: skip
    words = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **eyes}, text_config=words, image_token_index=1
    )
    config.vision_config._attn_implementation = "eager"
    config.text_config._attn_implementation = "sdpa"
    model = transformers.LlavaForConditionalGeneration(config).eval()
    kinds = [model.config.text_config._attn_implementation, model.config.vision_config._attn_implementation]
    with attention_probabilities(model) as sentence:
        assert "instead of sdpa" in sentence
        assert model.config.text_config._attn_implementation == "eager"
    assert kinds == [
        model.config.text_config._attn_implementation,
        model.config.vision_config._attn_implementation,
    ]


def test_models_that_give_them_are_left_alone_and_nothing_is_said() -> None:
    eager = hugging_face("Llama").eval()
    eager.set_attn_implementation("eager")
    for model in (demo(), eager):
        with attention_probabilities(model) as sentence:
            assert sentence == ""
        assert no_attention(AttentionAdapter().points(model)) is None
    assert eager.config._attn_implementation == "eager"


class Stubborn(transformers.LlamaForCausalLM):
    """Of an older kind, whose layers were chosen when it was made."""

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        return False


def test_a_model_that_cannot_be_switched_says_so() -> None:
    like = hugging_face("Llama")
    model = Stubborn(like.config).eval()
    with pytest.raises(GenerationError, match="gives no probabilities, and cannot be switched"):
        attention_probabilities(model).__enter__()
    assert model.config._attn_implementation == "sdpa"
    reason = no_attention(AttentionAdapter().points(model))
    assert reason is not None
    assert "computes attention with sdpa, which gives no probabilities" in reason


def test_a_given_adapter_finds_the_points_and_their_reason_is_said() -> None:
    class Blind:
        def points(self, model: nn.Module):
            points = find_adapter(model).points(model)
            return replace(points, flags={**points.flags, ATTENTION: FlagPoints(reason="It has none.")})

    assert no_attention(AttentionAdapter(Blind()).points(demo())) == "It has none."


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_folder")
class TestInALab:
    def test_attention_is_traced_for_one_generation_and_what_was_done_for_it_is_said(self) -> None:
        model = hugging_face("Llama")
        with megalens.serve(model, byte_level(), linger=0.2) as lab:
            plain, seen, after = (
                lab.generate(["The cat sat", "on"], 5, seed=2, attention=attention)
                for attention in (False, True, False)
            )
            assert seen.tokens()["id"].tolist() == plain.tokens()["id"].tolist()
            np.testing.assert_allclose(
                seen.tokens()["probability"], plain.tokens()["probability"], rtol=1e-3, atol=1e-6
            )
            assert "computed with eager instead of sdpa" in seen.message
            assert after.message == ""
            assert (
                after.tokens()["probability"].dropna().tolist()
                == plain.tokens()["probability"].dropna().tolist()
            )
            rows = lab.run.tensors(ATTENTION, phase="generate").to_pylist()
            # Two layers in each pass of the one generation; every sequence.
            assert {row["step"] for row in rows} == set(range(6, 11))
            assert {row["layer"] for row in rows} == {0, 1}
            for row in rows:
                values = np.reshape(row["values"], row["shape"])
                assert row["compressor"] == "Peaks(cells=256)"
                assert values.shape[0] == 2
                np.testing.assert_allclose(values.sum(-1), 1, rtol=1e-5)
            assert ATTENTION not in lab.tracer.config["flags"]
        assert model.config._attn_implementation == "sdpa"
        assert not any(each._forward_hooks for each in model.modules())

    def test_a_flag_that_is_set_is_followed_and_switches_attention_too(self) -> None:
        model = hugging_face("GPT2")
        flags = {ATTENTION: {"compressor": megalens.Peaks(2), "layers": "1", "samples": None}}
        with megalens.serve(model, byte_level(), flags=flags, linger=0.2) as lab:
            written = lab.generate("The cat sat on the mat", 3)
            assert "eager instead of sdpa" in written.message
            rows = lab.run.tensors(ATTENTION, phase="generate").to_pylist()
            assert {(row["layer"], row["compressor"]) for row in rows} == {(1, "Peaks(cells=2)")}
            assert max(max(row["shape"][2:]) for row in rows) == 2

    def test_a_model_without_probabilities_refuses_and_says_so_beforehand(self) -> None:
        model = Stubborn(hugging_face("Llama").config)
        with megalens.serve(model, byte_level(), linger=0.2) as lab:
            announced = {}
            lab._instrument.describe(announced)
            assert "computes attention with sdpa" in announced["generation"]["no_attention"]
            assert "no_lens" not in announced["generation"]
            with pytest.raises(megalens.ProtocolError, match="which gives no probabilities") as caught:
                lab.generate("a", 2, attention=True)
            assert caught.value.field == "request.attention"
            assert lab.generate("a", 2).state == "finished"
