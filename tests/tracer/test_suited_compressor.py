"""The compressor of a flag for which nobody chose one: tiles that divide its width, and a reduction that says how large its values are."""

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from megalens.adapters import find_adapter
from megalens.demo.model import GPT, GPTConfig
from megalens.protocol import NoOp, Peaks, ProtocolError, Tile
from megalens.tracer import FlagPoints, Source
from megalens.tracer.tensors.compression_error import CompressionError
from megalens.tracer.tensors.compressors import make_kernel, suited_compressor
from megalens.tracer.tensors.plan import CostReduction, apply_cost_reduction


def at(*widths):
    return FlagPoints({0: (Source(nn.Identity(), parts=tuple(map(str, widths)), features=widths),)})


@pytest.mark.parametrize(
    ("widths", "tiles"),
    [
        ((128,), 64),
        ((512,), 64),
        ((768,), 96),
        ((4096,), 64),
        ((5120,), 80),
        # Grouped queries: what divides the parts that are narrower, too.
        ((4096, 1024, 1024), 64),
        # No number from 24 to 96 divides a prime, and nothing is known of a width that no step has shown.
        ((1021,), 96),
        ((None,), 96),
    ],
)
def test_tiles_divide_the_width(widths, tiles):
    chosen = suited_compressor("MLP1_mat_mul", at(*widths))
    assert chosen == Tile(tiles, "rms")
    if widths[0] not in (1021, None):
        kept = make_kernel(chosen)(torch.randn(1, 3, widths[-1]), 0)
        assert kept.shape[-1] == tiles


def test_token_ids_are_kept_and_of_probabilities_the_peaks():
    assert suited_compressor("InputTokens", at(None)) == NoOp()
    assert suited_compressor("RawAttentionScore_mat_mul", at(None)) == Peaks(256)
    assert suited_compressor("elsewhere", None) == Tile(96, "rms")


def test_the_rms_of_a_tile_is_the_root_of_its_mean_square():
    data = np.random.default_rng(0).normal(0, 3, (2, 5, 100)).astype(np.float32)
    kept = make_kernel(Tile(8, "rms"))(torch.from_numpy(data), 0).numpy()
    pieces = [data[..., start : start + 13].astype(np.float64) for start in range(0, 100, 13)]
    expected = np.stack([np.sqrt((piece**2).mean(-1)) for piece in pieces], -1)
    np.testing.assert_allclose(kept, expected, rtol=1e-5)
    # Tiles of one size keep the size of the whole tensor, which the mean of signed values loses.
    whole = make_kernel(Tile(10, "rms"))(torch.from_numpy(data), 0).double()
    assert float(whole.square().mean().sqrt()) == pytest.approx(
        float(np.sqrt((data.astype(float) ** 2).mean()))
    )
    means = make_kernel(Tile(10))(torch.from_numpy(data), 0).double()
    assert float(means.square().mean().sqrt()) < 0.5 * float(whole.square().mean().sqrt())


@pytest.mark.parametrize("features", [1, 32, 64, 96])
def test_where_every_tile_is_one_feature_it_is_the_value_with_its_sign(features):
    chosen = suited_compressor("HiddenStates", at(features))
    for data in (torch.randn(2, 5, features), torch.randn(2, 5, features, dtype=torch.float64)):
        kept = make_kernel(chosen)(data, 0)
        torch.testing.assert_close(kept, data.float(), rtol=0, atol=0)
        assert float(CompressionError(chosen)(data, kept, 0)) < 1e-7
    wider = torch.randn(2, 5, 2 * 96)
    assert (make_kernel(chosen)(wider, 0) >= 0).all()


def test_of_parts_of_other_widths_those_of_single_features_keep_their_values(traced, small_hub):
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, vocab_size=50
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    tracer = traced(model, flags=["QKV_mat_mul", "HiddenStates"], samples=None)
    seen = {}
    attention = model.model.layers[0].self_attn
    for name in ("q_proj", "k_proj", "v_proj"):
        getattr(attention, name).register_forward_hook(
            lambda m, a, y, name=name: seen.update({name[0]: y.detach()})
        )
    with tracer.step():
        model(torch.randint(0, 50, (2, 8)))
    rows = {row["part"]: row for row in small_hub.next_rows(4) if row["flag"] == "QKV_mat_mul"}
    assert rows["q"]["shape"] == [2, 8, 32]
    assert min(rows["q"]["values"]) >= 0
    for part in ("k", "v"):
        np.testing.assert_array_equal(np.reshape(rows[part]["values"], (2, 8, 32)), seen[part].numpy())


def test_peaks_are_of_queries_and_keys_only(traced, small_hub):
    model = GPT(GPTConfig(vocabulary=50, layers=1, hidden=16, heads=2, sequence=12))
    tracer = traced(model, flags={"RawAttentionScore_mat_mul": True}, samples=None)
    with pytest.raises(
        ProtocolError, match="blocks of queries and keys, which HiddenStates has not"
    ) as caught:
        tracer.configure(HiddenStates=Peaks())
    assert (caught.value.code, caught.value.field) == (
        "unknown-compressor",
        "flags.HiddenStates.compressor.name",
    )
    seen = {}
    model.blocks[0].attention.scores.register_forward_hook(
        lambda m, a, y: seen.update(probabilities=y.detach())
    )
    with tracer.step():
        model(torch.randint(0, 50, (2, 9)))
    (row,) = small_hub.next_rows(1)
    # Few positions are kept as they are.
    assert (row["compressor"], row["shape"], row["compression_error"]) == (
        "Peaks(cells=256)",
        [2, 2, 9, 9],
        0,
    )
    np.testing.assert_array_equal(
        np.reshape(row["values"], row["shape"]).astype(np.float32), seen["probabilities"].numpy()
    )


def test_a_budget_takes_cells_as_it_takes_tiles():
    setting = {"compressor": Peaks(256).to_setting()}
    less = apply_cost_reduction({"RawAttentionScore_mat_mul": setting}, CostReduction(tiles_divisor=4))
    assert less["RawAttentionScore_mat_mul"]["compressor"] == Peaks(64).to_setting()
    small = apply_cost_reduction({"x": {"compressor": Peaks(4).to_setting()}}, CostReduction(tiles_divisor=4))
    assert small["x"]["compressor"] == Peaks(4).to_setting()


def test_what_is_announced_is_what_a_flag_without_a_choice_is_traced_with(traced, small_hub):
    model = GPT(GPTConfig(vocabulary=50, layers=1, hidden=128, heads=2, sequence=12))
    tracer = traced(model, flags=["MLP1_mat_mul", "InputTokens"], samples=None)
    infos = {info["name"]: info for info in small_hub.next("announce")["flags"]}
    assert infos["MLP1_mat_mul"]["widths"] == [512]
    assert infos["MLP1_mat_mul"]["compressor"] == Tile(64, "rms").to_setting()
    for name, setting in tracer.config["flags"].items():
        assert setting["compressor"] == infos[name]["compressor"]
    seen = {}
    model.blocks[0].mlp.fc1.register_forward_hook(lambda m, a, output: seen.update(fc1=output.detach()))
    with tracer.step():
        model(torch.randint(0, 50, (2, 8)))
    row = next(row for row in small_hub.next_rows(3) if row["flag"] == "MLP1_mat_mul")
    assert row["shape"] == [2, 8, 64]
    expected = seen["fc1"].double().reshape(2, 8, 64, 8).square().mean(-1).sqrt()
    np.testing.assert_allclose(np.reshape(row["values"], row["shape"]), expected.numpy(), rtol=1e-5)
    assert find_adapter(model).points(model).flags["MLP1_mat_mul"].widths == (512,)
