"""What it costs to watch a model write: tokens a second with all views on over the same loop untraced, beside the peer's way, and memory over many generations.

Run ``python -m bench.generation`` (``--quick`` for few tokens, which proves only that it works).
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import megalens
from megalens.demo.model import GPT, ByteTokenizer, GPTConfig
from megalens.instruments.generation import as_language_model
from megalens.instruments.generation.decoding import Decoding, GenerationPass
from megalens.instruments.generation.language_model import Sampler, evaluating

from .common import Row, asked, ratio, report
from .peer import PeerTracer

__all__ = ["main"]

_PROMPT = "The list of arguments "
_FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul", "HiddenStates")
_CANDIDATES = 20
_LENS = 5
_LEAST_SHARE = 0.8
_USUAL = GPTConfig(layers=12, hidden=768, heads=12)
"""The sizes of the smallest GPT-2, over bytes."""
_MOST_GROWTH = 1.0
"""MiB a generation that are noise of allocators."""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/generation.json``; return the page of all results."""
    options = asked(
        __doc__,
        arguments,
        "few short generations",
        rounds=(40, "generations of each way"),
        tokens=(100, "tokens of each"),
        long=(300, "generations of 512 tokens, for memory"),
    )
    rounds, tokens, long = (4, 16, 4) if options.quick else (options.rounds, options.tokens, options.long)
    torch.manual_seed(0)
    rows = [
        *_speed(GPTConfig(), rounds, tokens),
        *_speed(_USUAL, max(4, rounds // 4), max(8, tokens // 5), "12 layers, hidden 768: "),
        *_memory(long, 64 if options.quick else 512),
    ]
    return report(
        "generation",
        "Watching a model write",
        rows,
        how=f"The demo model, {rounds} generations of {tokens} tokens each way, the ways in turn, in one process; a kernel reads along. Then the same of a model as large as the smallest that people study, a quarter as many of a fifth as long. "
        f"All views: QKV, MLP1, MLP2, hidden states and attention of every layer, {_CANDIDATES} candidates a position, logit lens of {_LENS}. "
        f"Untraced is the same loop on the same weights without tracer. The peer's way: QKV, MLP1 and MLP2 copied synchronously and sent as JSON, a message a tensor, and {_CANDIDATES} candidates a token.",
        quick=options.quick,
    )


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
            with _peer(plain) as hooks:
                took["peer"] = _decoded(plain, tokens, hooks)
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
        met = share.value >= _LEAST_SHARE if target else None
        title = f"{name}tokens a second {what}, over untraced"
        rows.append(Row(title, share.value, "×", share.low, share.high, target, met))
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
                early = [_resident(None), _resident(hub)]
        late = [_resident(None), _resident(hub)]
    rows = []
    for name, before, after in zip(("the process that writes", "its hub"), early, late, strict=True):
        growth = (after - before) / max(1, count - 1 - 2 * count // 3)
        rows.append(
            Row(
                f"memory of {name} after {count} generations of {tokens} tokens",
                after,
                "MiB",
                target="flat",
                met=growth <= _MOST_GROWTH,
                note=f"{before:.0f} MiB after {2 * count // 3 + 1}",
            )
        )
    return rows


def _asked(lab: Any, tokens: int, **more: Any) -> float:
    written = lab.generate(_PROMPT, tokens, candidates=_CANDIDATES, **more)
    return float(written.seconds)


def _decoded(model: GPT, tokens: int, hooks: Sequence[Any] = ()) -> float:
    """Return the seconds that the product's own loop takes without its tracer."""
    writer = as_language_model(model, ByteTokenizer())
    sampler = Sampler(1.0, 0, 1.0, 0, writer.device)
    began = time.perf_counter()
    with evaluating(model):
        for _ in Decoding(writer, [writer.texts.encode(_PROMPT)], sampler, tokens, hooks=hooks):
            pass
    return time.perf_counter() - began


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


@contextmanager
def _peer(model: GPT) -> Iterator[list[_PeerCandidates]]:
    peer = PeerTracer(model, evaluates=True)
    try:
        yield [_PeerCandidates(peer)]
    finally:
        peer.close()


def _resident(pid: int | None) -> float:
    """Return what a process has in memory, MiB; this one when absent."""
    status = Path(f"/proc/{'self' if pid is None else pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
