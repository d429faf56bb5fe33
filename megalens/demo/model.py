"""A small GPT over bytes, in plain PyTorch, written to be read from top to bottom.

Every tensor that Megalens can trace has a module of its own here, so that a forward hook sees it:

======================  =====================================================================
``blocks[i]``           hidden states ``[B, S, H]``
``attention.qkv``       queries, keys and values side by side, ``[B, S, 3H]``
``attention.scores``    attention probabilities ``[B, heads, S, S]``
``attention.projection``  its input is the context ``[B, S, H]``, its output the attention output
``mlp.fc1, mlp.fc2``    ``[B, S, 4H]`` and ``[B, S, H]``
======================  =====================================================================

With a :class:`Cache` a pass reads S new positions, and sees those that were read before.

The model in a folder: its weights, and its sizes as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional

from ..protocol import MegalensError, is_whole, read_json_file
from ..protocol.outside import replace_file


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of the model."""

    vocabulary: int = 256
    """Number of token ids; 256 is one per byte."""
    layers: int = 4
    hidden: int = 128
    """Width of the residual stream; a multiple of ``heads``."""
    heads: int = 4
    sequence: int = 128
    """Longest sequence, in tokens."""
    expansion: int = 4
    """Width of the MLP over ``hidden``."""


class LayerCache:
    """Keys and values of one layer.

    Attributes
    ----------
    hidden : torch.Tensor
        Keys that the positions of this pass do not see, bool ``[B, 1, S, keys]``.
    """

    hidden: Tensor

    def __init__(self) -> None:
        self._read: tuple[Tensor, Tensor] | None = None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of ``[B, heads, S, H / heads]`` and return all of them."""
        if self._read is not None:
            key = torch.cat([self._read[0], key], dim=2)
            value = torch.cat([self._read[1], value], dim=2)
        self._read = key, value
        return key, value


class Cache:
    """Keys and values of a batch, whose rows may begin with padding.

    Parameters
    ----------
    layers : int
        Layers of the model.
    pads : torch.Tensor
        int64 ``[B]``: positions of padding before each row's first token.
    """

    def __init__(self, layers: int, pads: Tensor) -> None:
        self.layers = [LayerCache() for _ in range(layers)]
        self._pads = pads[:, None]
        self._length = 0

    def advance(self, count: int) -> Tensor:
        """Begin a pass that reads ``count`` more tokens, and return their positions ``[B, count]``.

        The first token of a row has position 0, and so has its padding.
        """
        keys = torch.arange(self._length + count, device=self._pads.device)
        queries = keys[self._length :, None]
        self._length += count
        # Padding sees itself: a row of probabilities of nothing would be NaN, in whatever it is multiplied
        # with.
        padding = (keys < self._pads)[:, None, :] & (keys != queries)
        hidden = ((keys > queries) | padding)[:, None]
        for layer in self.layers:
            layer.hidden = hidden
        return (queries.T - self._pads).clamp(min=0)


class AttentionScores(nn.Module):
    """Causal attention probabilities, in a module of their own so that they can be traced."""

    future: Tensor

    def __init__(self, sequence: int) -> None:
        super().__init__()
        future = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, query: Tensor, key: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Return probabilities ``[B, heads, S, S]`` from ``query`` and ``key`` of
        ``[B, heads, S, H / heads]``; ``hidden`` says what is not seen, the future when absent.
        """
        length = query.shape[-2]
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        hidden = self.future[:length, :length] if hidden is None else hidden
        probabilities: Tensor = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        return probabilities


class SelfAttention(nn.Module):
    """Causal self-attention with fused queries, keys and values."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden)
        self.scores = AttentionScores(config.sequence)
        self.projection = nn.Linear(config.hidden, config.hidden)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """Return the attention output ``[B, S, H]`` of ``x``, ``[B, S, H]``."""
        batch, length, hidden = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, hidden // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if cache is None:
            context = self.scores(query, key) @ value
        else:
            key, value = cache.extend(key, value)
            context = self.scores(query, key, cache.hidden) @ value
        output: Tensor = self.projection(context.transpose(1, 2).reshape(batch, length, hidden))
        return output


class MLP(nn.Module):
    """Two linear layers around a GELU."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden, config.expansion * config.hidden)
        self.fc2 = nn.Linear(config.expansion * config.hidden, config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, S, H]`` to ``[B, S, H]``."""
        output: Tensor = self.fc2(functional.gelu(self.fc1(x), approximate="tanh"))
        return output


class Block(nn.Module):
    """One transformer layer: attention, then the MLP, each on a normalised copy of the residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden)
        self.attention = SelfAttention(config)
        self.norm2 = nn.LayerNorm(config.hidden)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """Return the hidden states ``[B, S, H]`` after this layer."""
        x = x + self.attention(self.norm1(x), cache)
        x = x + self.mlp(self.norm2(x))
        return x


class GPT(nn.Module):
    """A decoder-only transformer with learned positions.

    Parameters
    ----------
    config : GPTConfig, optional
        Sizes; the demo's own when absent.
    """

    def __init__(self, config: GPTConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or GPTConfig()
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.positions = nn.Embedding(config.sequence, config.hidden)
        blocks = [Block(config) for _ in range(config.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(config.hidden)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)
        self._initialise(blocks)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Return logits ``[B, S, vocabulary]`` for token ids ``[B, S]``, which follow those that are in the
        cache.
        """
        if cache is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        else:
            positions = cache.advance(tokens.shape[1])
        x = self.embedding(tokens) + self.positions(positions)
        for number, block in enumerate(self.blocks):
            x = block(x) if cache is None else block(x, cache.layers[number])
        logits: Tensor = self.head(self.norm(x))
        return logits

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats per token of predicting ``tokens[:, 1:]`` from
        ``tokens[:, :-1]``.
        """
        return functional.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int, temperature: float = 0.8, seed: int = 0) -> Tensor:
        """Append ``count`` sampled tokens to each row of ``tokens`` (``[B, S]``, at least one token a
        row).
        """
        generator = torch.Generator(device=tokens.device).manual_seed(seed)
        for _ in range(count):
            logits = self(tokens[:, -self.config.sequence :])[:, -1]
            chances = (logits / temperature).softmax(dim=-1)
            tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=generator)], dim=1)
        return tokens

    def _initialise(self, blocks: list[Block]) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        # Two additions a layer go into the residual stream: this keeps its variance near one at the start.
        for block in blocks:
            for linear in (block.attention.projection, block.mlp.fc2):
                nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * self.config.layers))


class GPTPart(nn.Module):
    """Part of the model, for trainings that cut it into stages: an equal share of the layers, with the
    embedding on the first part and the head on the last.

    Parameters
    ----------
    model : GPT
        Whose layers are taken, not copied.
    number, of : int
        Which part, counted from 0, of how many; the number of layers has to divide.
    """

    def __init__(self, model: GPT, number: int, of: int) -> None:
        super().__init__()
        each = len(model.blocks) // of
        self.blocks = nn.ModuleList(model.blocks[number * each : (number + 1) * each])
        self.first = nn.ModuleList([model.embedding, model.positions]) if number == 0 else None
        self.last = nn.Sequential(model.norm, model.head) if number == of - 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """Return hidden states ``[batch, sequence, hidden]``, of the last part logits; ``x`` are tokens
        ``[batch, sequence]`` for the first.
        """
        if self.first is not None:
            embedding, positions = self.first
            x = embedding(x) + positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return x if self.last is None else self.last(x)


class ByteTokenizer:
    """Text to byte ids and back. It has the ``decode`` that the tracer asks a tokenizer for."""

    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        """Return the ids of the UTF-8 bytes of ``text``."""
        return list(text.encode("utf-8"))

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Return the text of some ids; bytes that are no UTF-8 by themselves become U+FFFD."""
        numbers = ids.tolist() if isinstance(ids, Tensor) else [int(i) for i in ids]
        return bytes(numbers).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Return the byte that an id stands for."""
        return bytes([token])

    def tensor(self, text: str) -> Tensor:
        """Return the ids of ``text`` as ``[1, S]`` int64."""
        return torch.tensor([self.encode(text)], dtype=torch.long)


CONFIG = "megalens-demo.json"
"""What makes a folder one of these."""
_WEIGHTS = "model.safetensors"
_MOST = 1 << 20
_MOST_VALUES = 1 << 30


class CheckpointError(MegalensError):
    """A folder that holds no model of the demo."""


def save_checkpoint(model: GPT, folder: str | Path) -> None:
    """Write a model into a folder, which is made where it is missing. Whoever reads meanwhile has the old one
    or the new one of each file.

    Raises
    ------
    OSError
        When the folder cannot be written.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    replace_file(
        path / _WEIGHTS, save({name: each.contiguous() for name, each in model.state_dict().items()})
    )
    replace_file(path / CONFIG, json.dumps(dataclasses.asdict(model.config), indent=2).encode())


def load_checkpoint(folder: str | Path, device: torch.device | str = "cpu") -> GPT:
    """Return the model of a folder, in evaluation mode.

    Raises
    ------
    CheckpointError
        Saying what is wrong with the folder.
    """
    path = Path(folder)
    try:
        sizes = read_json_file(path / CONFIG, 64 << 10)
        model = GPT(_config(sizes))
        model.load_state_dict(load((path / _WEIGHTS).read_bytes()))
    except CheckpointError:
        raise
    except Exception as error:
        # torch lists every tensor that does not fit.
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise CheckpointError(
            f"{path.name} holds no checkpoint of the demo that can be read: {reason}"
        ) from error
    return model.to(device).eval()


def _config(sizes: object) -> GPTConfig:
    names = [each.name for each in dataclasses.fields(GPTConfig)]
    if not isinstance(sizes, dict) or sorted(sizes) != sorted(names):
        raise CheckpointError(f"{CONFIG} must have {', '.join(names)}, got {sizes!r:.200}.")
    for name, size in sizes.items():
        if not is_whole(size, 1) or size > _MOST:
            raise CheckpointError(f"{name} in {CONFIG} must be 1 to {_MOST}, got {size!r:.50}.")
    config = GPTConfig(**sizes)
    if config.hidden % config.heads:
        raise CheckpointError(
            f"hidden in {CONFIG} must be a multiple of heads, {config.heads}, got {config.hidden}."
        )
    largest = config.hidden * max(config.hidden * config.expansion, config.vocabulary, config.sequence)
    if largest * config.layers > _MOST_VALUES or config.sequence**2 * config.layers > _MOST_VALUES:
        raise CheckpointError(f"The sizes in {CONFIG} are those of a model that is too large for the demo.")
    return config
