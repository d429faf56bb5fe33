"""A model that writes: what it costs to watch it, how long a token takes to its pixel, and a long text with its attention."""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any
from unittest import mock

import torch

import megalens
from megalens.demo.model import GPT, ByteTokenizer, GPTConfig
from megalens.instruments.generation import as_language_model
from megalens.instruments.generation.decoding import Decoding, GenerationPass
from megalens.instruments.generation.job import GenerationJob
from megalens.instruments.generation.language_model import Sampler, evaluating

from .common import Measured, Row, benchmark, divided, judged, percentile, ratio, timed
from .live import Lab, fresh, resident_bytes, running_lab
from .recordings import FLAGS
from .tracer import PeerTracer

__all__ = ["generation", "long_text", "token_latency"]

_PROMPT = "The list of arguments "
_FLAGS = (*FLAGS, "HiddenStates")
_CANDIDATES = 20
_LENS = 5
_LEAST_SHARE = 0.8
_USUAL = GPTConfig(layers=12, hidden=768, heads=12)
"""The sizes of the smallest GPT-2, over bytes."""
_MOST_GROWTH = 1.0
"""MiB a generation that are noise of allocators."""


@benchmark(
    "Watching a model write",
    "few short generations",
    rounds=(40, 4, "generations of each way"),
    tokens=(100, 16, "tokens of each"),
    long=(300, 4, "generations of 512 tokens, for memory"),
)
def generation(options: argparse.Namespace) -> Measured:
    """What it costs to watch a model write: tokens a second with all views on over the same loop untraced, beside the peer's way, and memory over many generations."""
    rounds, tokens = options.rounds, options.tokens
    torch.manual_seed(0)
    rows = [
        *_speed(GPTConfig(), rounds, tokens),
        *_speed(_USUAL, max(4, rounds // 4), max(8, tokens // 5), "12 layers, hidden 768: "),
        *_memory(options.long, 64 if options.quick else 512),
    ]
    how = (
        f"The demo model, {rounds} generations of {tokens} tokens each way, the ways in turn, in one process; a kernel reads along. Then the same of a model as large as the smallest that people study, a quarter as many of a fifth as long. "
        f"All views: QKV, MLP1, MLP2, hidden states and attention of every layer, {_CANDIDATES} candidates a position, logit lens of {_LENS}. "
        f"Untraced is the same loop on the same weights without tracer. The peer's way: QKV, MLP1 and MLP2 copied synchronously and sent as JSON, a message a tensor, and {_CANDIDATES} candidates a token."
    )
    return Measured(rows, how)


def _speed(config: GPTConfig, rounds: int, tokens: int, name: str = "") -> list[Row]:
    """Measure tokens a second of every way; ``name`` says which model, where it is not the demo's."""
    model, plain = GPT(config), GPT(config)
    plain.load_state_dict(model.state_dict())
    seconds: dict[str, list[float]] = {"untraced": [], "text": [], "all": [], "peer": []}
    with megalens.serve(model, ByteTokenizer()) as lab:
        for number in range(-2, rounds):
            took = {"untraced": _decoded(plain, tokens), "text": _asked(lab, tokens)}
            lab.configure(_FLAGS)
            took["all"] = _asked(lab, tokens, attention=True, lens=_LENS)
            lab.configure(dict.fromkeys(_FLAGS))
            with closing(PeerTracer(plain, evaluates=True)) as peer:
                took["peer"] = _decoded(plain, tokens, [_PeerCandidates(peer)])
            # The first ones load code and fill caches.
            if number >= 0:
                for way, each in took.items():
                    seconds[way].append(each)
    rows = [Row(f"{name}tokens a second, untraced", tokens / statistics.median(seconds["untraced"]), "1/s")]
    for way, what, target in (
        ("all", "with all views on", f"≥ {_LEAST_SHARE:g}"),
        ("text", "with text, probabilities and candidates alone", ""),
        ("peer", "the peer's way", ""),
    ):
        share = ratio(seconds["untraced"], seconds[way], middle=statistics.median)
        rows.append(divided(f"{name}tokens a second {what}, over untraced", share, target))
    return rows


def _memory(count: int, tokens: int) -> list[Row]:
    """Measure what the process and its hub take after many generations, over what they took after two thirds of them.

    What a kernel keeps is bounded for each stream; all bounds are reached after some 240 generations.
    """
    with megalens.serve(GPT(), ByteTokenizer(), flags=_FLAGS) as lab:
        hub = lab.tracer.hub_pid
        early: list[float] = []
        for number in range(count):
            lab.generate(_PROMPT, tokens, lens=_LENS, seed=number)
            if number == 2 * count // 3:
                early = [resident_bytes(each) / 2**20 for each in (None, hub)]
        late = [resident_bytes(each) / 2**20 for each in (None, hub)]
    rows = []
    for name, before, after in zip(("the process that writes", "its hub"), early, late, strict=True):
        growth = (after - before) / max(1, count - 1 - 2 * count // 3)
        what = f"memory of {name} after {count} generations of {tokens} tokens"
        note = f"{before:.0f} MiB after {2 * count // 3 + 1}"
        rows.append(Row(what, after, "MiB", target="flat", met=growth <= _MOST_GROWTH, note=note))
    return rows


def _asked(lab: Any, tokens: int, **more: Any) -> float:
    written = lab.generate(_PROMPT, tokens, candidates=_CANDIDATES, **more)
    return float(written.seconds)


def _decoded(model: GPT, tokens: int, hooks: Sequence[Any] = ()) -> float:
    """Return the seconds that the product's own loop takes without its tracer."""
    writer = as_language_model(model, ByteTokenizer())
    sampler = Sampler(1.0, 0, 1.0, 0, writer.device)

    def write() -> None:
        for _ in Decoding(writer, [writer.texts.encode(_PROMPT)], sampler, tokens, hooks=hooks):
            pass

    with evaluating(model):
        return timed(write)


class _PeerCandidates:
    """Says the candidates of each token as the peer does."""

    def __init__(self, peer: PeerTracer) -> None:
        self._peer = peer

    def after_pass(self, done: GenerationPass) -> None:
        """Send one message with the candidates of every sequence."""
        chances = done.logits[:, -1].softmax(-1)
        best = chances.topk(_CANDIDATES)
        result = [
            {"id": number, "token": chr(number), "logit": float(done.logits[row, -1, number]), "probability": chance}
            for row in range(len(chances))
            for number, chance in zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True)
        ]  # fmt: skip
        sampled = [] if done.tokens is None else [{"id": token} for token in done.tokens.tolist()]
        self._peer.say(json.dumps({"type": "update", "update_type": 6, "result": result, "sampled": sampled}))


_SHORT = "Go:"
_TOKENS = 60
_PACES = {"as fast as it can": 0.0, "30 tokens a second": 1 / 30}


@benchmark("From a token to its pixel", "one text of each pace", texts=(20, 1, "texts of each pace"))
def token_latency(options: argparse.Namespace) -> Measured:
    """From a token to its pixel: a model writes in one process, and a real JupyterLab in a real Chromium shows the text."""
    rows: list[Row] = []
    with running_lab(options.folder) as lab:
        for what, pause in _PACES.items():
            late = [1000 * each for each in _late(lab, options.texts + 1, pause)]
            title = f"a token, written {what}, to its pixel: p95"
            note = f"median {percentile(late, 50):.0f} ms, {len(late)} tokens"
            rows.append(judged(title, percentile(late, 95), "ms", "≤ 150", note))
    how = (
        f"The demo model, {options.texts} texts of {_TOKENS} tokens, with QKV, MLP1, MLP2 and hidden states traced; the view Tokens, which has shown one text before, in JupyterLab with its own server, in Chromium without a GPU. "
        f"From the moment at which a token has been drawn from the model's logits to the second animation frame after the view has taken it in; one clock."
    )
    return Measured(rows, how)


def _late(lab: Lab, texts: int, pause: float) -> list[float]:
    """Return how late each token was, s."""
    torch.manual_seed(0)
    written: list[list[float]] = []
    passed = GenerationJob.passed

    def noted(job: GenerationJob, *told: Any) -> None:
        passed(job, *told)
        written[-1].append(time.time())

    model = GPT()
    model.register_forward_hook(lambda module, given, output: time.sleep(pause))
    with (
        mock.patch.object(GenerationJob, "passed", noted),
        megalens.serve(model, _Letters(), flags=_FLAGS, linger=0.2) as writing,
    ):
        done = threading.Event()

        def write() -> None:
            while not done.is_set() and writing.run.status.get("viewers", 0) < 2:
                time.sleep(0.2)
            for seed in range(texts):
                if done.wait(1.5):
                    return
                written.append([])
                writing.generate(_SHORT, _TOKENS, seed=seed)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            page = {"texts": texts, "tokens": _TOKENS, "prompt": len(_SHORT), "run": writing.tracer.run_id}
            seen = lab.look("tokens", 60 + 10 * texts, **page)
        finally:
            done.set()
            writer.join()
    late = []
    # With the first text the page loads the code that draws.
    for times, shown in list(zip(written, seen["shown"], strict=True))[1:]:
        # What was drawn first is in the text once it is longer than the prompt.
        for position, at in enumerate(times[:_TOKENS], 1):
            first = min((when for when, tokens in shown if tokens >= position), default=None)
            if first is not None:
                late.append(first / 1000 - at)
    return late


class _Letters:
    """Every token is one letter, so that the length of a text says how many are there."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return "".join(chr(97 + number % 26) for number in ids)


_LONG_TEXT = """
import json, sys
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
import megalens
from megalens.demo.model import ByteTokenizer

positions, way = int(sys.argv[1]), sys.argv[2]
config = LlamaConfig(
    vocab_size=256, hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=positions + 8
)
model = LlamaForCausalLM(config)
model.set_attn_implementation("eager" if way == "eager" else "sdpa")
with megalens.serve(model, ByteTokenizer()) as lab:
    text = lab.generate("a" * positions, 2, attention=way != "plain")
    # What getrusage calls the most is that of the process which started this one, where that is larger.
    most = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps([text.seconds, int(most.split()[1]) / 1024]))
"""


@benchmark(
    "A long text with its attention",
    "512 positions, once",
    rounds=(5, 1, "texts of each way"),
    positions=(8192, 512, "of the text"),
)
def long_text(options: argparse.Namespace) -> Measured:
    """A long text with its attention: what it takes beside the same text without, and beside attention that makes whole matrices."""
    found: dict[str, list[tuple[float, float]]] = {"plain": [], "seen": [], "eager": []}
    for _ in range(options.rounds):
        for way, each in found.items():
            each.append(fresh(_LONG_TEXT, options.positions, way))
    (seconds, memory), plain, eager = (
        [statistics.median(values) for values in zip(*found[way], strict=True)]
        for way in ("seen", "plain", "eager")
    )
    what = f"{options.positions:,} positions read by a Llama of 4 layers of 4 heads, with attention"
    took = f"{plain[0]:.2f} s without, {eager[0]:.2f} s where attention makes whole matrices (eager)"
    held = f"{plain[1]:.0f} MiB without, {eager[1]:.0f} MiB with whole matrices"
    rows = [
        judged(what, seconds, "s", "≤ 3", took),
        judged(f"{what}: memory", memory, "MiB", "≤ 1024", held),
    ]
    how = f"Each way {options.rounds} times in turn, in a process of its own, on all cores; medians. From the request to the text with all its rows."
    return Measured(rows, how)
