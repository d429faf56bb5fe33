"""From a token to its pixel: a model writes in one process, and a real JupyterLab in a real Chromium shows the text.

Run ``python -m bench.token_latency`` (``--quick`` for one text).
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import megalens
from megalens.demo.model import GPT
from megalens.instruments.generation.job import GenerationJob

from .common import Row, asked, judged, percentile, report
from .lab import environment_of, in_page, running_lab

__all__ = ["main"]

_PROMPT = "Go:"
_TOKENS = 60
_MOST = 0.150
_PACES = {"as fast as it can": 0.0, "30 tokens a second": 1 / 30}


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/token_latency.json``; return the page of all results."""
    options = asked(__doc__, arguments, "one text of each pace", texts=(20, "texts of each pace"))
    texts = 1 if options.quick else options.texts
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        environment = environment_of(Path(folder))
        os.environ["MEGALENS_RUNTIME_DIR"] = environment["MEGALENS_RUNTIME_DIR"]
        with running_lab(Path(folder), environment) as (url, token):
            for what, pause in _PACES.items():
                page = {"url": url, "texts": texts + 1, "tokens": _TOKENS, "prompt": len(_PROMPT)}
                late = _late(page, environment | {"BENCH_TOKEN": token}, texts + 1, pause)
                worst = percentile(late, 95)
                rows.append(
                    judged(
                        f"a token, written {what}, to its pixel: p95",
                        worst * 1000,
                        "ms",
                        f"≤ {_MOST * 1000:g}",
                        f"median {percentile(late, 50) * 1000:.0f} ms, {len(late)} tokens",
                    )
                )
    how = (
        f"The demo model, {texts} texts of {_TOKENS} tokens, with QKV, MLP1, MLP2 and hidden states traced; the view Tokens, which has shown one text before, in JupyterLab with its own server, in Chromium without a GPU. "
        f"From the moment at which a token has been drawn from the model's logits to the second animation frame after the view has taken it in; one clock."
    )
    return report("token_latency", "From a token to its pixel", rows, how=how, quick=options.quick)


def _late(page: dict[str, Any], environment: dict[str, str], texts: int, pause: float) -> list[float]:
    """Return how late each token was, s."""
    torch.manual_seed(0)
    written: list[list[float]] = []
    passed = GenerationJob.passed

    def noted(job: GenerationJob, *told: Any) -> None:
        passed(job, *told)
        written[-1].append(time.time())

    model = GPT()
    model.register_forward_hook(lambda module, given, output: time.sleep(pause))
    flags = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul", "HiddenStates")
    with (
        mock.patch.object(GenerationJob, "passed", noted),
        megalens.serve(model, _Letters(), flags=flags, linger=0.2) as lab,
    ):
        done = threading.Event()

        def write() -> None:
            while not done.is_set() and lab.run.status.get("viewers", 0) < 2:
                time.sleep(0.2)
            for seed in range(texts):
                if done.wait(1.5):
                    return
                written.append([])
                lab.generate(_PROMPT, _TOKENS, seed=seed)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen = in_page("tokens", {**page, "run": lab.tracer.run_id}, environment, 60 + 10 * texts)
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


if __name__ == "__main__":
    main()
