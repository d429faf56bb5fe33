"""Models of one's own that are recognised by how they are built."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from megalens.adapters import StructureAdapter, find_adapter, find_points
from megalens.tracer.perturb.plan import refused_layers
from tests.adapters.watched import traced, watched

IDS = torch.randint(0, 40, (2, 7), generator=torch.Generator().manual_seed(3))


class QuantisedLinear(nn.Module):
    """A linear layer as quantising packages make them: whole numbers and a scale."""

    def __init__(self, infeatures: int, outfeatures: int) -> None:
        super().__init__()
        self.infeatures, self.outfeatures = infeatures, outfeatures
        self.weight = nn.Parameter(torch.randint(-9, 9, (outfeatures, infeatures), dtype=torch.int8), False)

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight.float() / 50).T


class Attention(nn.Module):
    def __init__(self, linear: type) -> None:
        super().__init__()
        self.n_head = 4
        self.c_attn, self.c_proj = linear(16, 48), linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.view(*x.shape[:2], 4, 4).transpose(1, 2) for t in self.c_attn(x).split(16, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """Attention and MLP side by side, as in GPT-J; the MLP lies in the block itself."""

    def __init__(self, linear: type) -> None:
        super().__init__()
        self.attn = Attention(linear)
        self.w1, self.w3, self.w2 = linear(16, 24), linear(16, 24), linear(24, 16)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        mlp = self.w2(functional.silu(self.w1(flat)) * self.w3(flat))
        return x + self.attn(x) + mlp.view_as(x)


class Model(nn.Module):
    def __init__(self, linear: type = nn.Linear) -> None:
        super().__init__()
        parts = {"wpe": nn.Embedding(12, 16), "wte": nn.Embedding(40, 16)}
        self.transformer = nn.ModuleDict(parts | {"h": nn.ModuleList(Block(linear) for _ in range(3))})
        self.head = nn.Linear(16, 40)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.transformer["wte"](ids) + self.transformer["wpe"](torch.arange(ids.shape[1]))
        for block in self.transformer["h"]:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize("linear", [nn.Linear, QuantisedLinear])
def test_a_model_of_ones_own_is_found_and_traced_as_plain_hooks_see_it(linear: type) -> None:
    torch.manual_seed(0)
    model = Model(linear)
    assert isinstance(find_adapter(model), StructureAdapter)
    block = model.transformer["h"][1]
    seen: dict[str, Tensor] = {}
    for name, module in block.named_modules():
        module.register_forward_hook(lambda module, args, output, name=name: seen.update({name: output}))
    values = traced(find_points(model), lambda: model(IDS))
    expected = {
        **{
            ("QKV_mat_mul", part): seen["attn.c_attn"][..., i * 16 : i * 16 + 16]
            for i, part in enumerate("qkv")
        },
        ("AttentionOutput_mat_mul", ""): seen["attn"],
        ("MLP1_mat_mul", "gate"): seen["w1"].view(2, 7, 24),
        ("MLP1_mat_mul", "up"): seen["w3"].view(2, 7, 24),
        ("MLP2_mat_mul", ""): seen["w2"].view(2, 7, 16),
        ("HiddenStates", ""): seen[""],
    }
    for (flag, part), value in expected.items():
        assert torch.equal(values[flag, 1, part], value), (flag, part)
    assert values["InputTokens", -1, "ids"].tolist() == IDS.tolist()
    points = find_adapter(model).points(model)
    assert [points.model[key] for key in ("layers", "hidden", "vocabulary")] == [3, 16, 40]
    fresh = Model(linear)
    assert watched(fresh, lambda: fresh(IDS))[0].model["heads"] == 4
    assert "first forward pass is watched" in (points.flags["RawAttentionScore_mat_mul"].reason or "")


def test_weights_that_are_quantised_are_refused_by_name_where_they_are_to_be_perturbed() -> None:
    model = Model(QuantisedLinear)
    refused = refused_layers(find_adapter(model).points(model), "weight")
    assert sorted(refused) == [0, 1, 2]
    assert "transformer.h.1.attn.c_attn has a weight of torch.int8, which cannot be perturbed" in refused[1]


def test_layers_that_are_wrapped_for_checkpointing_are_found_below() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = Model()
    bare = traced(find_points(model), lambda: model(IDS))
    blocks = model.transformer["h"]
    for number, block in enumerate(blocks):
        blocks[number] = checkpoint_wrapper(block)
    wrapped = traced(find_points(model), lambda: model(IDS))
    assert bare.keys() == wrapped.keys()
    assert all(torch.equal(bare[key], wrapped[key]) for key in bare)
