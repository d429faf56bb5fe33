"""What a lab traces of a written text is what plain hooks see of the whole text, whatever a model does to write it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from writers import byte_level

import megalens

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("runtime_folder")]

_SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300, "max_position_embeddings": 64}  # fmt: skip
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
FAMILIES = {
    "GPT2": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 300}, "transformer.h.1"),
    "Llama": (_GROUPED, "model.layers.1"),
    "Mistral": ({**_GROUPED, "sliding_window": 4}, "model.layers.1"),
    "Gemma2": ({**_GROUPED, "sliding_window": 4, "head_dim": 8}, "model.layers.1"),
    "GptOss": ({**_GROUPED, "sliding_window": 4, "head_dim": 8, "num_local_experts": 4}, "model.layers.1"),
    "Mixtral": ({**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}, "model.layers.1"),
    "Bloom": ({"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 300}, "transformer.h.1"),
    "Falcon": ({"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300, "alibi": True}, "transformer.h.1"),
    "OPT": ({"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300, "word_embed_proj_dim": 32, "max_position_embeddings": 64}, "model.decoder.layers.1"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("setting", [{}, {"use_cache": False}, {"cache_implementation": "static"}], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_states_of_texts_behind_padding_are_those_of_each_text_by_itself(name, setting) -> None:
    model = model_of(name)
    model.generation_config.update(**setting)
    flags = {"HiddenStates": megalens.NoOp()}
    with megalens.serve(model, byte_level(), flags=flags, linger=0.2) as lab:
        written = lab.generate(["abcdef", "xyz"], 8, temperature=0, stop_tokens=[])
        arrays = [written.array("HiddenStates", 1, sequence) for sequence in (0, 1)]
        ids = [written.tokens(sequence)["id"].tolist() for sequence in (0, 1)]
    seen = hooked(model, name)
    for array, text in zip(arrays, ids, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([text[:-1]]), use_cache=False).logits[0]
        prompt = len(text) - 8
        assert logits[prompt - 1 :].argmax(-1).tolist() == text[prompt:]
        np.testing.assert_allclose(array[:-1], seen[-1][0].numpy(), rtol=1e-3, atol=1e-4)
        assert np.isnan(array[-1]).all()


def model_of(name: str) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**FAMILIES[name][0])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.generation_config.update(eos_token_id=None, pad_token_id=0)
    return model


def hooked(model: transformers.PreTrainedModel, name: str) -> list[torch.Tensor]:
    """What layer 1 gives, call after call."""
    seen: list[torch.Tensor] = []

    def keep(module, given, output) -> None:
        seen.append((output if isinstance(output, torch.Tensor) else output[0]).detach().clone())

    model.get_submodule(FAMILIES[name][1]).register_forward_hook(keep)
    return seen


IDS = torch.tensor([[5, 17, 80, 5, 17, 80, 5, 17], [0, 0, 0, 42, 30, 42, 30, 42]])
MODES = {
    "padding": {},
    "static": {"cache_implementation": "static"},
    "no cache": {"use_cache": False},
    "beams": {"num_beams": 2},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
    "assisted": {"num_assistant_tokens": 3},
    "chunks": {"prefill_chunk_size": 3},
    "streamed": {},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FAMILIES)
def test_own_generate_writes_the_same_while_it_is_traced_and_every_pass_is_what_plain_hooks_see(
    name, mode, tmp_path
) -> None:
    model, plain = model_of(name), model_of(name)
    seen = hooked(plain, name)
    alone = mode in ("prompt lookup", "assisted", "streamed")
    ids = IDS[:1] if alone else IDS
    asked = {"attention_mask": (ids > 0).long(), "do_sample": False, "max_new_tokens": 6, **MODES[mode]}
    helps = {"assistant_model": model_of(name)} if mode == "assisted" else {}
    if mode == "streamed":
        helps = {"streamer": transformers.TextStreamer(byte_level())}
    if (name, mode) == ("Falcon", "static"):
        with pytest.raises(ValueError, match="too many values to unpack"):
            plain.generate(ids, **asked, **helps)
        # Transformers itself cannot.
        return
    expected = plain.generate(ids, **asked, **helps)
    flags = {"HiddenStates": megalens.NoOp()}
    tracer = megalens.trace(
        model, flags=flags, samples="all", phase="generate", record=tmp_path, layers=[1], linger=0.1
    )
    with tracer.step():
        found = model.generate(ids, **asked, **helps)
    tracer.close()
    assert torch.equal(found, expected)
    with megalens.open(tracer.folder) as run:
        rows = run.tensors("HiddenStates", layers=1, phase="generate").sort_by("micro_batch").to_pylist()
    assert len(rows) == len(seen) > 1
    for row, state in zip(rows, seen, strict=True):
        np.testing.assert_array_equal(np.reshape(row["values"], row["shape"]), state.numpy())
