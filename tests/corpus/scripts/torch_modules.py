"""Models of torch's own transformer modules."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..job import Job, script, see
from ..parts import GPT, LAYERS, LENGTH, WIDTH, WORDS, Block, cross_entropy, train
from ..torch_hooks import show_multihead, show_torch_layers
from .stacks import translated


def layer_of(kind: type[nn.Module], **options: object) -> nn.Module:
    return kind(WIDTH, 4, 32, dropout=0.1, batch_first=True, **options)


class Words(nn.Module):
    """Embedding and head around what a script builds."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.body, self.out = body, nn.Linear(WIDTH, WORDS)

    def embed(self, ids: Tensor) -> Tensor:
        see("InputTokens", -1, ids=ids)
        return self.embedding(ids) + self.positions.weight[: ids.shape[1]]


@script(quick=True)
def transformer_encoder(job: Job) -> None:
    """nn.TransformerEncoder with a causal mask, as in torch's language-model example."""

    class LanguageModel(Words):
        def forward(self, ids: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            return self.out(self.body(self.embed(ids), mask=mask, is_causal=True))

    body = nn.TransformerEncoder(layer_of(nn.TransformerEncoderLayer), LAYERS)
    model = LanguageModel(body)
    job.show(lambda: show_torch_layers([*body.layers]))
    train(job, model)


@script()
def transformer_encoder_norm_first(job: Job) -> None:
    """Pre-norm encoder layers with GELU, nested tensors off, and a padding mask."""

    class Classifier(Words):
        def forward(self, ids: Tensor) -> Tensor:
            x = self.body(self.embed(ids), src_key_padding_mask=ids == 0)
            return self.out(x)

    layer = layer_of(nn.TransformerEncoderLayer, activation="gelu", norm_first=True)
    body = nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
    job.show(lambda: show_torch_layers([*body.layers]))
    train(job, Classifier(body))


@script()
def transformer_decoder(job: Job) -> None:
    """nn.TransformerDecoder over a memory of features, as captioning models have it."""

    class Captions(Words):
        def __init__(self, body: nn.Module) -> None:
            super().__init__(body)
            self.memory = nn.Linear(5, WIDTH)

        def forward(self, ids: Tensor) -> Tensor:
            memory = self.memory(torch.linspace(-1, 1, ids.shape[0] * 20).view(ids.shape[0], 4, 5))
            mask = torch.full((ids.shape[1], ids.shape[1]), -torch.inf).triu(1)
            return self.out(self.body(self.embed(ids), memory, tgt_mask=mask))

    body = nn.TransformerDecoder(layer_of(nn.TransformerDecoderLayer), LAYERS)
    job.show(lambda: show_torch_layers([*body.layers]))
    train(job, Captions(body))


@script(stacks=True)
def whole_transformer(job: Job) -> None:
    """nn.Transformer, encoder and decoder, translating."""

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
            self.transformer = nn.Transformer(WIDTH, 4, 2, 2, 32, dropout=0.0, batch_first=True)
            self.generator = nn.Linear(WIDTH, WORDS)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            see("InputTokens", -1, ids=source)
            see("InputTokens", -1, ids=target)
            mask = self.transformer.generate_square_subsequent_mask(target.shape[1])
            return self.generator(self.transformer(self.source(source), self.target(target), tgt_mask=mask))

    model = Translator()
    layers = [*model.transformer.encoder.layers, *model.transformer.decoder.layers]
    job.show(lambda: show_torch_layers(layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    train(job, model, loss=translated, optimizer=optimizer)


class Multihead(Block):
    def __init__(self, layer: int, attention: type[nn.Module], mlp: type[nn.Module]) -> None:
        super().__init__(layer, lambda layer: nn.MultiheadAttention(WIDTH, 4, batch_first=True), mlp)

    def attended(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.ln1(x))
        x = x + self.mlp(self.ln2(x))
        see("HiddenStates", self.layer, x)
        return x


def of_blocks(job: Job, block: type[Block]) -> GPT:
    model = GPT(block=block)
    for number, each in enumerate(model.blocks):
        job.show(lambda number=number, each=each: show_multihead(number, each.attn))
    return model


@script()
def multihead_attention(job: Job) -> None:
    """nn.MultiheadAttention in a block of one's own, without weights, as CLIP's residual blocks."""

    class Residual(Multihead):
        def attended(self, x: Tensor) -> Tensor:
            mask = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)
            return self.attn(x, x, x, need_weights=False, attn_mask=mask)[0]

    train(job, of_blocks(job, Residual))


@script()
def multihead_attention_weights(job: Job) -> None:
    """nn.MultiheadAttention that gives weights of each head; they go into the loss."""

    class Weighted(Multihead):
        def attended(self, x: Tensor) -> Tensor:
            out, self.weights = self.attn(x, x, x, average_attn_weights=False)
            see("RawAttentionScore_mat_mul", self.layer, self.weights)
            return out

    model = of_blocks(job, Weighted)

    def with_weights(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        loss = cross_entropy(model(ids), targets)
        return loss + 0.01 * sum(F.relu(block.weights - 0.5).sum() for block in model.blocks)

    train(job, model, loss=with_weights, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
