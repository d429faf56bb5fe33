"""Every traced tensor of a text is one array, however long the text is, or an error says what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import transformers
from writers import byte_level, demo, hugging_face

import megalens
from megalens.instruments.generation.text_array import generation_array
from megalens.runs.errors import ClientError

ATTENTION = "RawAttentionScore_mat_mul"


def blocks_of(exact: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The largest value of each cell, NaN where every key comes after every query."""
    cells = np.full(
        (len(exact), -(-exact.shape[1] // rows), -(-exact.shape[2] // columns)), np.nan, np.float32
    )
    for head, row, column in np.ndindex(cells.shape):
        values = exact[head, row * rows : (row + 1) * rows, column * columns : (column + 1) * columns]
        if not np.isnan(values).all():
            cells[head, row, column] = np.nanmax(values)
    return cells


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_folder")
class TestInALab:
    @pytest.mark.parametrize(("prompt", "sides"), [(300, (2, 4)), (40, (1, 4))], ids=["prompt", "written"])
    def test_attention_of_a_long_text_is_the_largest_of_blocks_of_one_size(self, prompt, sides) -> None:
        texts, tokens = ["a" * prompt, "b" * prompt], 600 - prompt
        with megalens.serve(demo(sequence=600), flags=["HiddenStates"], linger=0.2) as lab:
            kept = lab.generate(texts, tokens, seed=3, attention=True)
            lab.configure({ATTENTION: megalens.NoOp()}, phases="generate")
            exact = lab.generate(texts, tokens, seed=3)
            for sequence in (0, 1):
                every = exact.array(ATTENTION, 1, sequence)
                assert every.shape == (2, 600, 600)
                np.testing.assert_array_equal(kept.array(ATTENTION, 1, sequence), blocks_of(every, *sides))
                assert kept.array("HiddenStates", 1, sequence).shape[0] == 600

    def test_a_block_behind_padding_counts_in_both_cells_that_it_lies_in(self) -> None:
        texts = ["a" * 300, "b" * 281]
        with megalens.serve(demo(sequence=400), linger=0.2) as lab:
            kept = lab.generate(texts, 5, seed=3, attention=True)
            lab.configure({ATTENTION: megalens.NoOp()}, phases="generate")
            every = lab.generate(texts, 5, seed=3).array(ATTENTION, 0, 1)
        found = kept.array(ATTENTION, 0, 1)
        expected = blocks_of(every, 2, 2)
        assert found.shape == expected.shape
        seen = ~np.isnan(expected)
        assert (found[seen] >= expected[seen]).all()
        assert set(np.unique(found[seen])) <= {*np.unique(every[~np.isnan(every)])}

    def test_keys_that_a_sliding_window_dropped_are_missing(self) -> None:
        torch.manual_seed(0)
        config = transformers.MistralConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=300, max_position_embeddings=64, sliding_window=4,
        )  # fmt: skip
        model = transformers.AutoModelForCausalLM.from_config(config)
        flags = {ATTENTION: megalens.NoOp()}
        with megalens.serve(model, byte_level(), flags=flags, linger=0.2) as lab:
            array = lab.generate("abc", 12, seed=1, stop_tokens=[], attention=True).array(ATTENTION, 0)
        rows = array[0, :-1]
        assert np.isnan(array[0, -1]).all()
        np.testing.assert_allclose(np.nansum(rows, -1), 1, rtol=1e-5)
        assert all(not np.nan_to_num(row[: max(0, at - 3)]).any() for at, row in enumerate(rows))

    def test_attention_whose_keys_are_mixed_says_what_to_trace_it_with(self) -> None:
        flags = {ATTENTION: megalens.Tile(4)}
        with megalens.serve(demo(), flags=flags, linger=0.2) as lab:
            written = lab.generate("abcdefgh", 3, attention=True)
            with pytest.raises(
                ClientError, match=r"traced with Tile.*which mixes keys\. Trace it with Peaks"
            ):
                written.array(ATTENTION, 0)

    def test_outputs_of_experts_are_no_array_and_an_error_says_what_to_read(self) -> None:
        with megalens.serve(
            hugging_face("Mixtral"), byte_level(), flags=["ExpertOutputs", "RouterProbabilities"], linger=0.2
        ) as lab:
            written = lab.generate("abc", 4, temperature=0, stop_tokens=[])
            with pytest.raises(ClientError, match=r"no positions\. Read them as they are: run\.tensors\("):
                written.array("ExpertOutputs", 1)
            assert lab.run.tensors("ExpertOutputs", layers=1, phase="generate").num_rows > 0
            assert written.array("RouterProbabilities", 1).shape == (7, 4)

    @pytest.mark.parametrize("name", ["Bloom", "Mpt", "Llama"])
    def test_positions_go_on_from_pass_to_pass_and_padding_counts_as_none(self, name) -> None:
        model = hugging_face(name)
        with megalens.serve(model, byte_level(), flags=["InputTokens"], linger=0.2) as lab:
            written = lab.generate(["abcde", "ab"], 4, temperature=0, stop_tokens=[])
            for sequence in (0, 1):
                tokens = written.tokens(sequence)
                read = [*range(len(tokens) - 1), np.nan]
                np.testing.assert_array_equal(
                    written.array("InputTokens", -1, sequence, part="positions"), read
                )
                ids = written.array("InputTokens", -1, sequence)
                np.testing.assert_array_equal(ids[:-1], tokens["id"][:-1])
            newest = lab.run.array("InputTokens", phase="generate")
            assert newest.tolist() == [[written.tokens(each)["id"].iloc[-2]] for each in (0, 1)]


class Rows:
    """A run of these rows."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self._rows = [
            {"step": step, "micro_batch": 0, "shape": shape, "source_shape": shape, "part": "",
             "compressor": "NoOp()", "values": np.arange(np.prod(shape), dtype=np.float32).tolist()}
            for step, shape in enumerate(shapes, 1)
        ]  # fmt: skip

    def tensors(self, *_: object, **__: object) -> pa.Table:
        return pa.Table.from_pylist(self._rows)


FLAG = {"name": "Flag", "parts": [""], "axes": ["position", "feature"]}


def read(*passes: tuple[int, int, int]) -> pd.DataFrame:
    """Rows of tokens: position, step and offset."""
    columns = pd.DataFrame(passes, columns=["position", "tensor_step", "tensor_offset"])
    return columns.assign(generation=1, tensor_pass=0)


@pytest.mark.parametrize("second", [(1, 1, 3), (1, 2, 1, 3)], ids=["features", "axes"])
def test_passes_that_were_traced_in_several_ways_are_no_array(second) -> None:
    with pytest.raises(ClientError, match="several ways while this text was written"):
        generation_array(Rows((1, 2, 4), second), read((0, 1, 0), (1, 1, 1), (2, 2, 0)), FLAG, 0, 0, None)


def test_positions_without_a_pass_are_missing() -> None:
    found = generation_array(Rows((1, 2, 4)), read((0, 1, 0), (1, 1, 1), (2, 2, 0)), FLAG, 0, 0, None)
    np.testing.assert_array_equal(found, [[0, 1, 2, 3], [4, 5, 6, 7], [np.nan] * 4])
