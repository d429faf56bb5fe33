"""What the pages take for granted in a training script: a small model, an optimizer, batches.

``python setup.py recordings`` makes recordings of the names in the pages, ``python setup.py live`` trains until it is ended.
``python setup.py scripts FOLDER…`` runs ``train.py`` of each folder in a process of its own, which finds torch and Megalens imported; ``log`` beside it has what
it printed, and ``ended``, if it did so without a fault.
"""

from __future__ import annotations

import importlib
import itertools
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import megalens
from megalens.demo import GPT, ByteTokenizer
from megalens.demo.model import GPTConfig

__all__ = [
    "attached",
    "batches",
    "calm",
    "finish",
    "known_model",
    "megalens",
    "np",
    "own_model",
    "prompts",
    "shouted",
    "tokenizer",
    "torch",
]


class _Tokenizer:
    def __call__(self, text: str, **_: Any) -> Any:
        return SimpleNamespace(input_ids=list(text.encode()))

    encode = staticmethod(lambda text, **_: list(text.encode()))
    decode = staticmethod(lambda ids, **_: bytes(ids).decode())


def _with_loss(logits: Tensor, tokens: Tensor) -> SimpleNamespace:
    """What most models return."""
    return SimpleNamespace(
        logits=logits, loss=functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    )


class _Known(GPT):
    def forward(self, tokens: Tensor, cache: Any = None) -> Any:
        logits = super().forward(tokens, cache)
        # With a cache text is written, which has no loss.
        return _with_loss(logits, tokens) if cache is None else logits


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (4, 8)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = _Attention()
        self.mlp = nn.Module()
        self.mlp.up, self.mlp.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        return x + self.mlp.down(functional.gelu(self.mlp.up(x)))


class _Own(nn.Module):
    """A model with names of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Module()
        self.decoder.embed = nn.Embedding(256, 32)
        self.decoder.layers = nn.ModuleList(_Layer() for _ in range(2))
        self.head = nn.Linear(32, 256)

    def forward(self, tokens: Tensor) -> Any:
        x = self.decoder.embed(tokens)
        for layer in self.decoder.layers:
            x = layer(x)
        return _with_loss(self.head(x), tokens)


def known_model() -> nn.Module:
    """Return a model whose trace points Megalens finds, with projection vectors for it."""
    torch.manual_seed(0)
    Path("personas").mkdir(exist_ok=True)
    save_file({"persona": torch.randn(4, 96)}, "personas/persona.safetensors")
    return _Known(GPTConfig(hidden=96, heads=4))


def own_model() -> nn.Module:
    """Return one that needs a table."""
    return _Own()


def attached(tracer: Any, model: nn.Module, batches: list[Tensor]) -> Any:
    """Return the run of a tracer whose training goes on until ``finish``."""
    assert tracer.connected(30)

    def train() -> None:
        for batch in itertools.cycle(batches):
            with tracer.step():
                model(batch).loss.backward()
            # The cores are for those that look at it.
            if _ending.wait(0.05):
                return

    _trainings.append(threading.Thread(target=train))
    _trainings[-1].start()
    return megalens.connect(tracer.run_id)


def finish() -> None:
    """End the training that ``attached`` began, where it did."""
    _ending.set()
    for training in _trainings:
        training.join()


_ending = threading.Event()
_trainings: list[threading.Thread] = []
tokenizer = _Tokenizer()
batches = list(torch.randint(0, 256, (6, 2, 64), generator=torch.Generator().manual_seed(0)))
calm = ["the cat sat on the mat and looked out of the window"] * 2
shouted = [text.upper() for text in calm]
prompts = torch.tensor([tokenizer.encode(text) for text in calm])


def _train(steps: int, pace: float, **options: Any) -> None:
    """Train with all that the notebooks look at."""
    model = known_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    jsonl = options.pop("jsonl", None)
    tracer = megalens.trace(model, flags=["HiddenStates", "MLP1_mat_mul"], linger=0, **options)
    logged = dict.fromkeys(("param", "grad", "activation", "dgrad", "residual"), 1)
    formats = {"activation": "nvfp4", "dgrad": "float8_e5m2"}
    logged |= {"precision": 10, "formats": formats}
    megalens.log_statistics(model, optimizer, tracer=tracer, jsonl=jsonl, **logged)
    for step in range(steps):
        with tracer.step():
            loss = model(batches[step % len(batches)]).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            tracer.log(loss=loss.detach(), held_out_loss=loss.detach())
        # The cores are for those that look at it.
        time.sleep(pace)
    tracer.close()


def _recordings() -> None:
    _train(20, 0, name="gpt", first_step=1231, record="megalens-runs", jsonl="results/big-run")
    (folder,) = Path("megalens-runs").iterdir()
    for name in ("…", "20261120-101500-gpt-demo", "20261120-101500-gpt"):
        (folder.parent / name).symlink_to(folder.name)


def _scripts(folders: list[str]) -> None:
    # Else each of them imports it with its first optimizer.
    importlib.import_module("torch._dynamo")
    for folder in folders:
        process = os.fork()
        if process:
            _, status = os.waitpid(process, 0)
            if status == 0:
                Path(folder, "ended").touch()
            continue
        os.chdir(folder)
        os.environ["MEGALENS_RUNTIME_DIR"] = f"{folder}/runtime"
        log = os.open("log", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(log, stream)
        # Whatever hangs ends.
        signal.alarm(600)
        runpy.run_path("train.py", run_name="__main__")
        return


if __name__ == "__main__":
    if sys.argv[1] == "scripts":
        _scripts(sys.argv[2:])
    elif sys.argv[1] == "recordings":
        _recordings()
    else:
        allow = ["pause", "watched", "perturb", "generate"]
        _train(100_000, 0.1, name="gpt-demo", allow=allow, tokenizer=ByteTokenizer())
