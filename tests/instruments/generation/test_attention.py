"""Attention is switched for as long as its probabilities are looked at, and only then."""

import contextlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from writers import byte_level, demo, hugging_face

import megalens
from megalens.adapters import find_adapter
from megalens.adapters.find import find_points
from megalens.instruments.generation import GenerationError, fused_attention
from megalens.instruments.generation.hidden import (
    ATTENTION,
    AttentionAdapter,
    attention_probabilities,
    no_attention,
)
from megalens.tracer import FlagPoints, ModelPoints
from megalens.tracer.tensors import by_rows
from megalens.tracer.tensors.compressors import make_kernel

IDS = torch.tensor([[0, 0, 7, 11, 5], [4, 9, 2, 8, 6]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
FAMILIES = ["GPT2", "Llama", "Qwen2", "Mixtral"]


def logits(model: nn.Module) -> torch.Tensor:
    """Logits of two prompts, one of them padded on the left; those of padding are left out."""
    with torch.no_grad():
        return model(input_ids=IDS, attention_mask=MASK).logits[MASK.bool()]


def seen_in(model: nn.Module, points: ModelPoints) -> tuple[torch.Tensor, torch.Tensor, str]:
    """The probabilities of layer 1, and logits, while they are seen, and what is said of it."""
    (source,) = points.flags[ATTENTION].layers[1]
    seen: list[torch.Tensor] = []

    def see(module: nn.Module, given: Any, output: Any) -> None:
        seen.append(source.computed(output) if source.computed else output[source.item])

    with attention_probabilities(model, points) as sentence:
        handle = source.module.register_forward_hook(see)
        found = logits(model)
        handle.remove()
    (probabilities,) = seen
    return probabilities, found, sentence


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_of_fused_attention_are_seen_beside_it_and_no_logit_changes(family: str) -> None:
    model = hugging_face(family).eval()
    assert model.config._attn_implementation == "sdpa"
    clean = logits(model)
    points = AttentionAdapter().points(model)
    assert no_attention(points) is None
    assert sorted(points.flags[ATTENTION].layers) == [0, 1]
    probabilities, beside, sentence = seen_in(model, points)
    assert sentence == ""
    assert torch.equal(beside, clean)
    model.set_attn_implementation("eager")
    eager, _, _ = seen_in(model, AttentionAdapter().points(model))
    # A query that is padding sees what an implementation makes of it.
    torch.testing.assert_close(probabilities[1], eager[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(probabilities[0, :, 2:], eager[0, :, 2:], rtol=1e-5, atol=1e-6)


def unseen(model: nn.Module) -> nn.Module:
    """Have a model call its attention in a way that does not show what it is given."""
    for layer in model.model.layers:

        def forward(*args: Any, given: Any = layer.self_attn.forward, **kwargs: Any) -> Any:
            with torch._C.DisableTorchFunction():
                return given(*args, **kwargs)

        layer.self_attn.forward = forward
    return model


def test_where_they_are_not_seen_so_attention_is_switched_and_logits_differ_by_rounding_only() -> None:
    model = unseen(hugging_face("Llama")).eval()
    clean, points = logits(model), AttentionAdapter().points(model)
    probabilities, switched, sentence = seen_in(model, points)
    assert sentence == (
        "Attention was computed with eager instead of sdpa, in every layer, so that its probabilities can be seen; logits differ by rounding."
    )
    torch.testing.assert_close(switched, clean, rtol=1e-4, atol=1e-4)
    assert probabilities.shape == (2, 4, 5, 5)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 4, 5))
    # Nothing attends to what comes later, nor to padding.
    assert not probabilities[1].triu(1).any()
    assert not probabilities[0, :, 2:, :2].any()


@pytest.mark.parametrize("is_seen", [True, False])
def test_afterwards_attention_is_computed_as_before_bit_by_bit(is_seen: bool) -> None:
    model = hugging_face("Llama").eval()
    model = model if is_seen else unseen(model)
    clean, names = logits(model), [name for name, _ in model.named_modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    points = AttentionAdapter().points(model)
    during = []
    with contextlib.suppress(KeyboardInterrupt), attention_probabilities(model, points):
        during.append(model.config._attn_implementation)
        raise KeyboardInterrupt
    assert during == ["sdpa" if is_seen else "eager"]
    assert model.config._attn_implementation == "sdpa"
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    assert [name for name, _ in model.named_modules()] == names
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(logits(model), clean)


def test_an_interrupt_within_the_attention_leaves_nothing_behind() -> None:
    model = Own().eval()
    points = AttentionAdapter().points(model)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = model.blocks[1].attention.out.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt), attention_probabilities(model, points):
        model(torch.arange(6)[None])
    handle.remove()
    assert torch._C._len_torch_function_stack() == 0
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())


def test_half_precision_is_computed_in_single() -> None:
    query, key = torch.randn(1, 4, 5, 16).bfloat16(), torch.randn(1, 2, 5, 16).bfloat16()
    found = fused_attention._probabilities(
        query, key, key, enable_gqa=True, model_heads=4, scratch=fused_attention._Scratch()
    ).whole()
    wide = key.double().repeat_interleave(2, 1)
    torch.testing.assert_close(
        found.double(), (query.double() @ wide.mT / 4).softmax(-1), rtol=1e-5, atol=1e-6
    )


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(3)) > 0.4},
    "bias": {"attn_mask": torch.randn(1, 8, 6, 6, generator=torch.Generator().manual_seed(4))},
    "scale": {"scale": 0.3, "is_causal": True},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shared", [1, 4])
def test_they_are_those_that_the_attention_itself_took(mask: str, shared: int) -> None:
    """With values that are a unit matrix an attention returns its probabilities."""
    random = torch.Generator().manual_seed(0)
    query = torch.randn(2, 8, 6, 16, generator=random)
    key = torch.randn(2, 8 // shared, 6, 16, generator=random)
    values = torch.eye(6).expand(2, 8 // shared, 6, 6)
    how = {**MASKS[mask], "enable_gqa": shared > 1}
    taken = torch.nn.functional.scaled_dot_product_attention(query, key, values, **how)
    computed = partial(fused_attention._probabilities, scratch=fused_attention._Scratch(), model_heads=8)
    found = computed(query, key, values, **how)
    torch.testing.assert_close(found.whole(), taken, rtol=1e-5, atol=1e-6)
    if shared > 1 and not how.get("is_causal") and mask != "bool":
        # Of one token the heads that share keys come as queries of those.
        one = query[:, :, :1].reshape(2, 2, 4, 16)
        bias = how.get("attn_mask")
        more = {} if bias is None else {"attn_mask": bias[:, :, :1].reshape(1, 2, 4, 6)}
        packed = computed(one, key, values, **more)
        torch.testing.assert_close(packed.whole(), found.whole()[:, :, :1], rtol=1e-5, atol=1e-6)


COMPRESSORS = [
    megalens.Peaks(8),
    megalens.Peaks(64),
    megalens.Tile(5),
    megalens.NoOp(),
    megalens.Histogram(16),
]


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
@pytest.mark.parametrize("most", [1, 4096, 1 << 20])
def test_in_pieces_they_are_compressed_and_measured_as_the_whole(
    compressor: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torch.rand(2, 3, 37, 41, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(by_rows, "PIECE_BYTES", most)
    read: list[torch.Tensor] = []

    def compute(heads: slice, queries: slice) -> torch.Tensor:
        read.append(whole[:, heads, queries])
        return read[-1]

    data = by_rows.TensorByRows((2, 3, 37, 41), torch.float32, whole.device, compute)
    kernel = make_kernel(compressor)
    stored, moments, _ = by_rows.read_by_rows(data, compressor, kernel, 0, 1)
    torch.testing.assert_close(stored, kernel(whole[:1], 0), rtol=0, atol=1e-7)
    values = whole.double().numpy()
    expected = [values.size, values.mean(), *(((values - values.mean()) ** p).sum() for p in (2, 3, 4))]
    np.testing.assert_allclose(moments[0, :5], expected, rtol=1e-5, atol=1e-6)
    assert sum(each.numel() for each in read) == whole.numel()
    assert most > 4096 or max(each.numel() for each in read) < whole.numel()


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
    # Where nothing is known to be seen, it is switched.
    with attention_probabilities(model, find_points(model)) as sentence:
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
        with attention_probabilities(model, AttentionAdapter().points(model)) as sentence:
            assert sentence == ""
        assert no_attention(AttentionAdapter().points(model)) is None
    assert eager.config._attn_implementation == "eager"


class Stubborn(transformers.LlamaForCausalLM):
    """Of an older kind, whose layers were chosen when it was made."""

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        return False


def test_a_model_that_cannot_be_switched_either_says_so() -> None:
    like = hugging_face("Llama")
    model = unseen(Stubborn(like.config)).eval()
    with pytest.raises(GenerationError, match="gives no probabilities, and cannot be switched"):
        attention_probabilities(model, find_points(model)).__enter__()
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


class OwnAttention(nn.Module):
    """As small scripts have it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def parts(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.qkv(x).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.scaled_dot_product_attention(*self.parts(x), is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class OwnBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = (
            OwnAttention(),
            nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(280, 32), nn.Linear(32, 280)
        self.blocks = nn.ModuleList(OwnBlock() for _ in range(2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


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
            assert seen.message == after.message == ""
            for each in (seen, after):
                assert (
                    each.tokens()["probability"].dropna().tolist()
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
                # A query that is padding attends to nothing.
                padding = values.sum(-1) == 0
                np.testing.assert_allclose(values.sum(-1)[~padding], 1, rtol=1e-5)
                assert not padding[0].any()
                assert row["shape"][2] == 1 or padding[1].any(-2).any()
            assert ATTENTION not in lab.tracer.config["flags"]
        assert model.config._attn_implementation == "sdpa"
        assert not any(each._forward_hooks for each in model.modules())

    def test_a_flag_that_is_set_is_followed_without_being_asked_for(self) -> None:
        model = hugging_face("GPT2")
        flags = {ATTENTION: {"compressor": megalens.Peaks(2), "layers": "1", "samples": None}}
        with megalens.serve(model, byte_level(), flags=flags, linger=0.2) as lab:
            written = lab.generate("The cat sat on the mat", 3)
            assert written.message == ""
            rows = lab.run.tensors(ATTENTION, phase="generate").to_pylist()
            assert {(row["layer"], row["compressor"]) for row in rows} == {(1, "Peaks(cells=2)")}
            assert max(max(row["shape"][2:]) for row in rows) == 2

    def test_of_a_long_text_no_matrix_is_made_and_the_rows_are_those_of_eager_attention(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Here a text is long from a thousand bytes of probabilities on."""
        monkeypatch.setattr(by_rows, "PIECE_BYTES", 1000)
        made, whole = [], by_rows.TensorByRows.whole
        monkeypatch.setattr(
            by_rows.TensorByRows, "whole", lambda self: (made.append(self.nbytes), whole(self))[1]
        )
        rows: dict[str, list[dict[str, Any]]] = {}
        for how in ("sdpa", "eager"):
            torch.manual_seed(0)
            model = hugging_face("Llama")
            model.set_attn_implementation(how)
            flags = {ATTENTION: {"compressor": megalens.Peaks(8), "samples": None}}
            with megalens.serve(model, byte_level(), flags=flags, linger=0.2) as lab:
                lab.generate("The cat sat on the mat, and the dog sat beside it.", 3, seed=0)
                rows[how] = lab.run.tensors(ATTENTION, phase="generate").to_pylist()
        assert len(rows["sdpa"]) == len(rows["eager"]) == 2 * 3
        for mine, eager in zip(rows["sdpa"], rows["eager"], strict=True):
            assert mine["shape"] == eager["shape"]
            assert mine["source_shape"] == eager["source_shape"]
            for name in ("values", "mean", "m2", "m4", "min", "max"):
                np.testing.assert_allclose(mine[name], eager[name], rtol=1e-4, atol=1e-7)
            assert mine["nan_count"] == mine["inf_count"] == 0
        assert max(made) <= 1000
        assert max(np.prod(row["source_shape"]) for row in rows["sdpa"]) * 4 > 1000

    @pytest.mark.parametrize("most", [1 << 20, 1])
    def test_a_model_of_ones_own_that_calls_fused_attention_shows_its_probabilities(
        self, most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has no cache: each pass reads the text anew, and only what is new is looked at."""
        monkeypatch.setattr(by_rows, "PIECE_BYTES", most)
        torch.manual_seed(0)
        model = Own()
        prompts = ["The cat sat", "on"]
        with megalens.serve(model, byte_level(), linger=0.2) as lab:
            plain, seen = (
                lab.generate(prompts, 3, temperature=0, attention=attention) for attention in (False, True)
            )
            assert seen.message == plain.message
            assert seen.tokens()["id"].tolist() == plain.tokens()["id"].tolist()
            rows = lab.run.tensors(ATTENTION, phase="generate").to_pylist()
        ids = [
            each["id"]
            for each in seen.tokens().sort_values("position").to_dict("records")
            if each["sequence"] == 0
        ]
        with torch.no_grad():
            x = model.table(torch.tensor([ids]))
            expected = []
            for block in model.blocks:
                query, key, _ = block.attention.parts(x)
                causal = torch.full((len(ids), len(ids)), -torch.inf).triu(1)
                expected.append((query @ key.mT / 4 + causal).softmax(-1))
                x = block(x)
        first = {row["layer"]: row for row in rows if row["step"] == min(row["step"] for row in rows)}
        assert sorted(first) == [0, 1]
        for layer, row in first.items():
            values = np.reshape(row["values"], row["shape"])[0]
            count = values.shape[-1]
            np.testing.assert_allclose(values, expected[layer][0, :, :count, :count], rtol=1e-4, atol=1e-6)
        for row in rows:
            if row["step"] > min(each["step"] for each in rows):
                values = np.reshape(row["values"], row["shape"])[0]
                count = values.shape[-1]
                np.testing.assert_allclose(
                    values[:, -1], expected[row["layer"]][0, :, count - 1, :count], rtol=1e-4, atol=1e-6
                )

    def test_a_model_without_probabilities_refuses_and_says_so_beforehand(self) -> None:
        model = unseen(Stubborn(hugging_face("Llama").config))
        with megalens.serve(model, byte_level(), linger=0.2) as lab:
            announced = {}
            lab._instrument.describe(announced)
            assert "computes attention with sdpa" in announced["generation"]["no_attention"]
            assert "no_lens" not in announced["generation"]
            with pytest.raises(megalens.ProtocolError, match="which gives no probabilities") as caught:
                lab.generate("a", 2, attention=True)
            assert caught.value.field == "request.attention"
            assert lab.generate("a", 2).state == "finished"
