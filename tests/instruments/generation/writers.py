"""Real models with random weights, and their tokenizers, made on the spot."""

from __future__ import annotations

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

from megalens.demo.model import GPT, ByteTokenizer, GPTConfig
from megalens.instruments.generation import LanguageModel, as_language_model

TEXTS = [
    "The cat sat on the mat.",
    "A dog is here, and the cat sat.",
    "Zwölf Boxkämpfer jagen Viktor €",
    "🙂 ok",
]
END = "<|end|>"


def byte_level() -> transformers.PreTrainedTokenizerFast:
    """A tokenizer as GPT-2, Llama 3 and Qwen have: of bytes, written as characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=280, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[END], show_progress=False
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)


def byte_fallback() -> transformers.LlamaTokenizer:
    """A tokenizer as Llama 2 and Mixtral have: of sentencepiece, with bytes for what it has no token for."""
    names = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *"the",
        "▁t",
        "▁th",
        "▁the",
    ]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e")]
    return transformers.LlamaTokenizer(
        vocab={name: number for number, name in enumerate(names)}, merges=merges
    )


def words() -> Tokenizer:
    """A tokenizer of the library itself, of words."""
    names = ["[UNK]", "the", "cat", "sat", "##s", "mat", "on"]
    tokenizer = Tokenizer(
        models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


_SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64, "vocab_size": 300, "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
HUGGING_FACE = {
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 300, "bos_token_id": 0, "eos_token_id": 0},
    "Llama": dict(**_SIZES, num_key_value_heads=2),
    "Qwen2": dict(**_SIZES, num_key_value_heads=2),
    "Mixtral": dict(**_SIZES, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2),
    "Mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 300, "max_seq_len": 64, "use_cache": True},
    "Bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 300, "bos_token_id": 0, "eos_token_id": 0},
}  # fmt: skip


def loud(model: nn.Module, factor: float = 6) -> nn.Module:
    """Have a model's logits differ enough for text that says something."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(factor)
    return model


def hugging_face(name: str, **sizes: int) -> transformers.PreTrainedModel:
    """A causal model of a family."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**HUGGING_FACE[name] | sizes)
    return loud(transformers.AutoModelForCausalLM.from_config(config)).train()


def demo(**sizes: int) -> GPT:
    """The demo's model, small."""
    torch.manual_seed(0)
    return loud(GPT(GPTConfig(**{"layers": 2, "hidden": 32, "heads": 2, "sequence": 16, **sizes})))


class Plain(nn.Module):
    """A causal model that knows nothing of caches: the demo's, behind a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = demo(sequence=64)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits."""
        return self.inner(ids)


def writer(name: str) -> LanguageModel:
    """A language model by name."""
    if name == "demo":
        return as_language_model(demo())
    if name == "plain":
        return as_language_model(Plain(), ByteTokenizer())
    return as_language_model(hugging_face(name), byte_level())
