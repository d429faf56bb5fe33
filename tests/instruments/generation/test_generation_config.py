"""Every field of a model's generation_config is followed as by its own generate, or a sentence names it."""

from __future__ import annotations

import warnings

import pytest
import torch
import transformers
from writers import byte_level, hugging_face

from megalens.instruments.generation import GenerationError, as_language_model
from megalens.instruments.generation.job import GenerationJob
from megalens.instruments.generation.language_model import evaluating
from megalens.protocol.requests import GenerationRequest

TOKENS = 14
PROMPTS = [[5, 17, 80, 200, 3, 9], [42, 80, 3], [7, 7, 7]]

# A value of each field that is not its default.
VALUES = {
    "assistant_confidence_threshold": 0.1,
    "assistant_early_exit": 1,
    "assistant_ensemble_weight": 0.5,
    "assistant_lookbehind": 3,
    "bad_words_ids": [[259], [5, 17], [3]],
    "begin_suppress_tokens": list(range(0, 300, 2)),
    "bos_token_id": 5,
    "cache_config": {"nbits": 4},
    "cache_implementation": "static",
    "compile_config": transformers.CompileConfig(),
    "constraints": [[5]],
    "continuous_batching_config": {},
    "decoder_start_token_id": 7,
    "disable_compile": True,
    "diversity_penalty": 0.5,
    "do_sample": True,
    "dola_layers": "low",
    "early_stopping": True,
    "encoder_no_repeat_ngram_size": 1,
    "encoder_repetition_penalty": 3.0,
    "eos_token_id": list(range(0, 300, 7)),
    "epsilon_cutoff": 0.05,
    "eta_cutoff": 0.3,
    "exponential_decay_length_penalty": (2, 3.0),
    "force_words_ids": [[5]],
    "forced_bos_token_id": 9,
    "forced_eos_token_id": 11,
    "guidance_scale": 1.5,
    "is_assistant": True,
    "length_penalty": 2.0,
    "low_memory": True,
    "max_cache_len": 64,
    "max_length": 40,
    "max_matching_ngram_size": 3,
    "max_new_tokens": 5,
    "max_time": 100.0,
    "min_length": 18,
    "min_new_tokens": 12,
    "min_p": 0.3,
    "no_repeat_ngram_size": 1,
    "num_assistant_tokens": 3,
    "num_assistant_tokens_schedule": "heuristic",
    "num_beam_groups": 2,
    "num_beams": 3,
    "num_return_sequences": 2,
    "output_attentions": True,
    "output_hidden_states": True,
    "output_logits": True,
    "output_scores": True,
    "pad_token_id": 3,
    "penalty_alpha": 0.6,
    "prefill_chunk_size": 2,
    "prompt_lookup_num_tokens": 2,
    "remove_invalid_values": True,
    "renormalize_logits": True,
    "repetition_penalty": 4.0,
    "return_dict_in_generate": True,
    "sequence_bias": {(5,): 9.0, (17, 80): 4.0},
    "speculation_type": "dflash",
    "stop_strings": ["a", "e", "o"],
    "suppress_tokens": list(range(0, 300, 3)),
    "target_lookbehind": 3,
    "temperature": 3.0,
    "token_healing": True,
    "top_h": 0.4,
    "top_k": 2,
    "top_p": 0.2,
    "transformers_version": "4.0.0",
    "typical_p": 0.2,
    "use_cache": False,
    "use_mtp": True,
    "watermarking_config": transformers.WatermarkingConfig(bias=6.0, greenlist_ratio=0.3),
}  # fmt: skip


# A sentence of the generation names them, and a mode that writes no token after another is refused.
NAMED = {
    "assistant_early_exit",
    "cache_implementation",
    "guidance_scale",
    "is_assistant",
    "max_time",
    "prompt_lookup_num_tokens",
    "token_healing",
    "use_mtp",
}
IN_PLACE = {"temperature", "top_k", "top_p"}
REFUSED = {"constraints", "dola_layers", "force_words_ids", "num_beams", "penalty_alpha"}


def fields() -> list[str]:
    """Every field that this version of transformers has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [name for name in vars(transformers.GenerationConfig()) if not name.startswith("_")]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("temperature", "prompts"), [(0.8, PROMPTS), (0, [[42]])], ids=["drawn", "largest"])
def test_every_field_is_followed_as_by_generate_or_named_or_refused(temperature, prompts) -> None:
    plain, _ = ours(model_of(), temperature, prompts)
    named, replaced, refused, changed = set(), set(), set(), set()
    for name in fields():
        model = model_of()
        setattr(model.generation_config, name, VALUES[name])
        try:
            found, said = ours(model, temperature, prompts)
        except GenerationError as error:
            assert "generation_config" in str(error)  # noqa: PT017
            refused.add(name)
            continue
        if f"{name}=" in said:
            (named if "not followed" in said else replaced).add(name)
        else:
            assert said == ""
            assert found == generated(model, temperature, prompts), name
            if found != plain:
                changed.add(name)
    assert named == NAMED
    assert replaced == (IN_PLACE if temperature else set())
    # Transformers itself refuses several texts of a prompt where the config draws none.
    assert refused | {"penalty_alpha"} == REFUSED | {"num_return_sequences"}
    assert ("penalty_alpha" in refused) == (temperature == 0)
    if temperature:
        assert changed >= {
            "bad_words_ids", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "eos_token_id",
            "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty", "forced_eos_token_id", "min_p",
            "no_repeat_ngram_size", "repetition_penalty", "sequence_bias", "stop_strings", "suppress_tokens",
            "top_h", "typical_p", "watermarking_config",
        }  # fmt: skip
    else:
        assert "forced_bos_token_id" in changed


def test_logits_that_are_no_numbers_are_removed_where_the_config_says_so() -> None:
    model = model_of()
    with torch.no_grad():
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        model.lm_head.weight[33] = float("nan")
    with pytest.raises(GenerationError, match="NaN or infinite"):
        ours(model, 0.8)
    model.generation_config.remove_invalid_values = True
    assert ours(model, 0.8)[0] == generated(model, 0.8)


def test_a_config_that_leaves_no_token_to_draw_is_named() -> None:
    model = model_of()
    model.generation_config.suppress_tokens = list(range(300))
    with pytest.raises(GenerationError, match="leaves no token to draw"):
        ours(model, 0.8)


def test_beam_search_is_refused_in_a_sentence_with_the_way_out() -> None:
    model = model_of()
    model.generation_config.num_beams = 4
    with pytest.raises(GenerationError, match=r"asks for beam search\..*Set num_beams=1 there"):
        ours(model, 0)


def test_the_class_prepares_where_a_models_own_generate_is_compiled() -> None:
    model = model_of()
    expected = generated(model, 0.8)
    model.generate = None
    assert ours(model, 0.8) == (expected, "")


_LOCAL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 64}  # fmt: skip
FAMILIES = {
    "Mistral": {**_LOCAL, "sliding_window": 4},
    "Gemma2": {**_LOCAL, "sliding_window": 4, "head_dim": 8},
    "GptOss": {**_LOCAL, "sliding_window": 4, "head_dim": 8, "num_local_experts": 4},
    "Mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 300, "state_size": 4},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("setting", [{}, {"cache_implementation": "static"}, {"use_cache": False}], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_sliding_windows_states_and_every_kind_of_cache_write_the_same(name, setting) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**FAMILIES[name])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.generation_config.update(eos_token_id=[1, 2], pad_token_id=0, **setting)
    found, said = ours(model, 0.8)
    assert found == generated(model, 0.8)
    assert ("cache_implementation='static'" in said) == ("cache_implementation" in setting)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["Bert", "Roberta", "BertGeneration"])
def test_a_model_that_keeps_nothing_is_refused_with_a_way_out_that_is_true(name) -> None:
    torch.manual_seed(0)
    sizes = {each: size for each, size in _LOCAL.items() if each != "num_key_value_heads"}
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.generation_config.update(eos_token_id=[1, 2], pad_token_id=0)
    with pytest.raises(GenerationError, match=r"model\.generation_config\.use_cache = False"):
        ours(model, 0.8)
    model.generation_config.use_cache = False
    assert ours(model, 0.8)[0] == generated(model, 0.8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_that_takes_no_mask_writes_behind_padding_what_it_writes_of_each_prompt_alone() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 300}
    model = transformers.AutoModelForCausalLM.from_config(transformers.RwkvConfig(**sizes)).eval()
    model.generation_config.update(eos_token_id=[1, 2], pad_token_id=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.ndim > 1 else 1)
    alone = [generated(model, 0, [prompt])[0] for prompt in PROMPTS]
    assert ours(model, 0)[0] == alone
    assert generated(model, 0) != alone


@pytest.mark.parametrize("name", ["XLNet", "XLM"])
def test_a_model_that_is_given_a_token_more_is_refused(name) -> None:
    sizes = {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 16}
    if name == "XLM":
        sizes = {"emb_dim": 16, "n_layers": 1, "n_heads": 2}
    config = getattr(transformers, f"{name}Config")(vocab_size=300, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(GenerationError, match=rf"{name}.*one token more.*Write with model\.generate"):
        as_language_model(model, byte_level())


def test_an_encoder_and_decoder_is_refused() -> None:
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 300}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    with pytest.raises(GenerationError, match="an encoder and a decoder"):
        as_language_model(model, byte_level())


def model_of():
    model = hugging_face("GPT2").eval()
    model.generation_config.update(eos_token_id=[1, 2], pad_token_id=0)
    return model


def ours(model, temperature, prompts=PROMPTS):
    """What a lab writes, and says."""
    request = GenerationRequest(
        ("a",) * len(prompts), TOKENS, temperature=temperature, top_k=40, top_p=0.95, seed=11
    )
    job = GenerationJob(1, request, prompts, "")
    job.begin(0)
    with evaluating(model):
        for done in job.decoding(as_language_model(model, byte_level())):
            job.passed(done, 0)
    return [text[len(prompt) :] for text, prompt in zip(job.texts, prompts, strict=True)], job.message


def generated(model, temperature, prompts=PROMPTS):
    """What generate writes with the same seed, each text up to its end."""
    padded = max(map(len, prompts))
    pad = model.generation_config.pad_token_id
    ids = torch.tensor([[pad] * (padded - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (padded - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    own = {"do_sample": False}
    if temperature:
        own = {"do_sample": True, "temperature": temperature, "top_k": 40, "top_p": 0.95}
    tokenizer = byte_level()
    torch.manual_seed(11)
    output = model.generate(ids, attention_mask=mask, max_new_tokens=TOKENS, tokenizer=tokenizer, **own)
    rows = getattr(output, "sequences", output)[:, padded:].tolist()
    return [row[: _end(row, model.generation_config, tokenizer)] for row in rows]


def _end(row, config, tokenizer):
    for place, token in enumerate(row):
        text = tokenizer.decode([token])
        if token in config.eos_token_id or any(each in text for each in config.stop_strings or ()):
            return place + 1
    return len(row)
