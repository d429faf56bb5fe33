"""Every flag of plain models, against values computed from the weights."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from megalens.adapters import GPT_TABLE, Adapter, find_adapter, find_points
from megalens.demo.model import GPT
from megalens.tracer import TracerError
from tests.adapters.watched import by_key, captured


def test_every_flag_of_the_demos_gpt_is_what_the_weights_give(gpt: GPT) -> None:
    ids = torch.randint(0, 50, (3, 8))
    with captured(find_points(gpt)) as rows:
        gpt(ids)
    values = by_key(rows)
    with torch.no_grad():
        x = gpt.embedding(ids) + gpt.positions(torch.arange(8))
        for layer, block in enumerate(gpt.blocks):
            normal = block.norm1(x)
            weight, bias = block.attention.qkv.weight, block.attention.qkv.bias
            q, k, v = (normal @ weight[i : i + 16].T + bias[i : i + 16] for i in (0, 16, 32))
            heads = [t.view(3, 8, 2, 8).transpose(1, 2) for t in (q, k, v)]
            scores = heads[0] @ heads[1].transpose(-1, -2) / math.sqrt(8)
            scores += torch.full((8, 8), -math.inf).triu(1)
            probabilities = scores.softmax(-1)
            context = (probabilities @ heads[2]).transpose(1, 2).reshape(3, 8, 16)
            attention = block.attention.projection(context)
            x = x + attention
            fc1 = block.mlp.fc1(block.norm2(x))
            fc2 = block.mlp.fc2(functional.gelu(fc1, approximate="tanh"))
            x = x + fc2
            expected = {
                ("QKV_mat_mul", "q"): q,
                ("QKV_mat_mul", "k"): k,
                ("QKV_mat_mul", "v"): v,
                ("RawAttentionScore_mat_mul", ""): probabilities,
                ("ContextLayer_mat_mul", ""): context,
                ("AttentionOutput_mat_mul", ""): attention,
                ("MLP1_mat_mul", ""): fc1,
                ("MLP2_mat_mul", ""): fc2,
                ("HiddenStates", ""): x,
            }
            for (flag, part), value in expected.items():
                torch.testing.assert_close(values.pop((flag, layer, part)), value, rtol=1e-4, atol=1e-6)
    assert values.pop(("InputTokens", -1, "ids")).tolist() == ids.tolist()
    assert values.pop(("InputTokens", -1, "positions")).tolist() == [list(range(8))] * 3
    assert values == {}
    assert {row.meta.micro_batch for row in rows} == {0}


def test_the_sizes_of_the_demos_gpt_are_known_before_the_first_step(gpt: GPT) -> None:
    points = find_adapter(gpt).points(gpt)
    assert find_adapter(gpt) is GPT_TABLE
    assert points.model == {
        "name": "GPT",
        "adapter": "plain",
        "layers": 2,
        "hidden": 16,
        "heads": 2,
        "kv_heads": 2,
        "vocabulary": 50,
        "parameters": sum(p.numel() for p in gpt.parameters()),
        "dtype": "float32",
        "device": "cpu",
    }
    features = {name: here.features for name, here in points.flags.items()}
    assert features == {
        "QKV_mat_mul": 48,
        "RawAttentionScore_mat_mul": None,
        "ContextLayer_mat_mul": 16,
        "MLP1_mat_mul": 64,
        "MLP2_mat_mul": 16,
        "AttentionOutput_mat_mul": 16,
        "HiddenStates": 16,
        "InputTokens": None,
    }


class SequenceFirstBlock(nn.Module):
    """Works on [S, B, H], with the fused tensor laid out per group and SwiGLU halves side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(12, (4 + 2 * 2) * 3)
        self.fc1 = nn.Linear(12, 20)
        self.fc2 = nn.Linear(10, 12)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        mixed = self.qkv(x)[..., :12]
        gate, up = self.fc1(mixed).chunk(2, -1)
        return x + self.fc2(functional.silu(gate) * up), None


class SequenceFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.layers = nn.ModuleList([SequenceFirstBlock(), SequenceFirstBlock()])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids).transpose(0, 1)
        for layer in self.layers:
            x, _ = layer(x)
        return x


SEQUENCE_FIRST = Adapter(
    layer="layers.{i}",
    qkv="qkv",
    qkv_order="grouped",
    gate_up="fc1",
    fc2="fc2",
    tokens="words",
    layout="SBH",
    heads=4,
    kv_heads=2,
)


def test_a_sequence_first_model_is_reported_batch_first_with_grouped_queries_in_parts() -> None:
    model = SequenceFirst()
    ids = torch.randint(0, 30, (5, 7))
    with captured(SEQUENCE_FIRST.points(model)) as rows:
        model(ids)
    values = by_key(rows)
    with torch.no_grad():
        x = model.words(ids)
        fused = model.layers[0].qkv(x)
        # Two groups, each: two queries of 3, one key of 3, one value of 3.
        groups = [fused[..., :12], fused[..., 12:]]
        q = torch.cat([g[..., :6] for g in groups], -1)
        k = torch.cat([g[..., 6:9] for g in groups], -1)
        v = torch.cat([g[..., 9:] for g in groups], -1)
        fc1 = model.layers[0].fc1(fused[..., :12])
        expected = {"q": q, "k": k, "v": v}
        hidden = x + model.layers[0].fc2(functional.silu(fc1[..., :10]) * fc1[..., 10:])
    for part, value in expected.items():
        torch.testing.assert_close(values["QKV_mat_mul", 0, part], value)
    torch.testing.assert_close(values["MLP1_mat_mul", 0, "gate"], fc1[..., :10])
    torch.testing.assert_close(values["MLP1_mat_mul", 0, "up"], fc1[..., 10:])
    torch.testing.assert_close(values["HiddenStates", 0, ""], hidden)
    shapes = {row.meta.part: row.meta.source_shape for row in rows if row.meta.layer == 0}
    assert shapes == {
        "q": (5, 7, 12),
        "k": (5, 7, 6),
        "v": (5, 7, 6),
        "gate": (5, 7, 10),
        "up": (5, 7, 10),
        "": (5, 7, 12),
    }


def test_nothing_is_supposed_of_a_model_without_layers_but_a_reason() -> None:
    many = nn.Sequential(*[m for _ in range(100) for m in (nn.Linear(2, 2), nn.ReLU())])
    for model in (many, nn.Linear(2, 3)):
        points = find_points(model)
        assert points.layers == 0
        assert all(not here.layers and here.reason for here in points.flags.values())


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"layer": "stack"}, r"layer=….* with \{i\} for its number, such as \"blocks\.\{i\}\"; got 'stack'"),
        ({"layer": "{n}"}, r"layer=….*got '\{n\}'"),
        ({"layer": "a.{i}.b.{i}"}, r"layer=….*got 'a"),
        ({"layer": 3}, r"layer=….*got 3"),
        ({"qkv": "x[x]"}, r"qkv=….*a dotted path of names.*got 'x\[x\]'"),
        ({"qkv": "attn[1]"}, r"qkv=…"),
        ({"fc1": ""}, r"fc1=…"),
        ({"probabilities": "attn[one]"}, r"probabilities=….*second value"),
        ({"layout": "BHS"}, r"layout=….*'BSH' or 'SBH'; got 'BHS'"),
        ({"qkv_order": "mixed"}, r"qkv_order=….*'concatenated' or 'grouped'"),
        ({"heads": 0}, r"heads=….*a whole number from 1; got 0"),
        ({"gate": "mlp.gate"}, r"up=….*gate='mlp\.gate'"),
    ],
)
def test_a_table_that_can_fit_nothing_is_refused_with_a_right_one(entries: dict, expected: str) -> None:
    with pytest.raises(TracerError, match=expected) as caught:
        Adapter(**{"layer": "blocks.{i}", **entries})
    text = str(caught.value)
    exec(text[text.index("Adapter(layer=", 20) :].rstrip("."), {"Adapter": Adapter})


def test_a_model_that_answers_to_every_name_has_as_many_layers_as_it_has() -> None:
    class Answers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.only = nn.Linear(2, 2)

        def __getattr__(self, name: str):
            return super().__getattr__("only" if name.startswith("layer") else name)

    assert Adapter(layer="layer{i}").points(Answers()).layers == 1


def test_a_layer_without_what_the_others_have_is_named(gpt: GPT) -> None:
    del gpt.blocks[1].mlp.fc2
    with pytest.raises(TracerError, match=r"layer 1 has no mlp\.fc2\. It has norm1"):
        Adapter(layer="blocks.{i}", fc2="mlp.fc2").points(gpt)


def test_a_list_of_models_that_are_no_stages_is_refused_by_name(gpt: GPT) -> None:
    with pytest.raises(TracerError, match=r"GPT models of Megatron-Core; this one holds GPT\."):
        find_adapter([gpt, gpt])


def test_a_table_that_does_not_fit_names_the_path_at_fault(gpt: GPT) -> None:
    with pytest.raises(TracerError, match=r"no attention\.fused"):
        Adapter(layer="blocks.{i}", qkv="attention.fused").points(gpt)
    with pytest.raises(TracerError, match=r"expected layers\.\{i\}"):
        Adapter(layer="layers.{i}").points(gpt)
    with pytest.raises(TracerError, match="set heads and kv_heads"):
        Adapter(layer="blocks.{i}", qkv="attention.qkv", heads=5).points(gpt)


def test_a_flag_that_the_table_leaves_out_says_so(gpt: GPT) -> None:
    here = Adapter(layer="blocks.{i}", name="mine").points(gpt).flags["MLP1_mat_mul"]
    assert not here.layers
    assert here.reason == "The adapter 'mine' names no module for MLP1_mat_mul."
