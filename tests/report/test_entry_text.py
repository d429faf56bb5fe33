"""Names in legends and beside maps: short, and still told apart."""

import pytest

from megalens.report.moment_lines import legend_entries
from megalens.report.moment_words import entry_text


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("decoder.layers.0.mlp.weight", "decoder.layers.0.mlp.weight"),
        ("decoder.layers.0.mlp.linear_fc1.weight", "…0.mlp.linear_fc1.weight"),
        ("decoder.layers.11.self_attention.linear_qkv.weight", "…11…linear_qkv.weight"),
        ("decoder.layers.3.mlp.experts.5.linear_fc1.weight", "…3…5.linear_fc1.weight"),
        ("x" * 40, "…" + "x" * 27),
    ],
)
def test_a_name_keeps_its_end_and_its_numbers(name, short):
    assert entry_text(name) == short


def test_every_tensor_has_an_entry_of_its_own():
    names = [f"decoder.layers.{layer}.self_attention.linear_qkv.weight" for layer in range(4)]
    entries = legend_entries(names, ["#1", "#2", "#3", "#4"])
    assert [entry["name"] for entry in entries] == [f"…{layer}…linear_qkv.weight" for layer in range(4)]
