"""``python -m megalens.demo``: train the demo model with the tracer on.

Exit codes: 0 trained, or ended cleanly by SIGINT or SIGTERM; 1 the training failed; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

# The demo shares its cores with JupyterLab, the hub and a browser. Threads of torch that spin while they wait
# make a step several times longer there, and this must be said before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    import torch
except ImportError as error:
    raise SystemExit(
        'The demo trains with PyTorch, which is not installed. pip install "megalens[tracer]"'
    ) from error

import contextlib

import megalens

from ..api.trace import trace
from ..hub.terminal import StateLine
from ..protocol import ProtocolError, shown_text
from ..protocol.messages_generated import GenerateRequest
from ..protocol.version import own_version
from ..slices import find_slices
from ..tracer import Tracer
from ..tracer.tensors.plan import CONTROLS
from .model import GPT, ByteTokenizer, save_checkpoint
from .train import Progress, TrainConfig, Trainer, load_corpus

FLAGS: dict[str, Any] = {
    "MLP1_mat_mul": True,
    "MLP2_mat_mul": True,
    # Of what it writes, too: the views of generated text have vectors then.
    "HiddenStates": {"phases": ["train", "generate"]},
}
STATISTICS: dict[str, Any] = {
    "param": 10,
    "grad": 1,
    "activation": 50,
    "dgrad": 50,
    "residual": 10,
    "residual_dgrad": 50,
}
"""Every how many steps each is logged."""

PROMPT = "The "
TEXT_EVERY = 100
"""Steps from one text to the next. It is the same request each time, so that step 100 and step 900 can be
laid side by side.
"""
_TEXT: GenerateRequest = {
    "prompts": [PROMPT],
    "tokens": 48,
    "temperature": 0.8,
    "attention": True,
    "lens": 5,
}
_PERTURBED: GenerateRequest = {
    **_TEXT,
    "perturb": {"sites": {"system": {"kind": {"name": "noise1", "params": {"coefficient": 0.3}}}}},
}
_PERTURBED_AT = 100
"""Once is enough: each perturbed text has a clean one beside it, which would stand twice in the list of
all.
"""


# What the demo has its model write by itself, so that every view of generated text has something to show.
def ask_for_text(tracer: Tracer, step: int) -> None:
    """Queue the text of a step, as a viewer would; it is written before the next step. Nothing where that is
    not allowed.
    """
    writer = tracer.instrument("generation")
    if writer is None:
        return
    # The plain one comes last: views that follow the newest show it.
    for request in (_PERTURBED, _TEXT) if step == _PERTURBED_AT else (_TEXT,):
        # Viewers may have filled the queue.
        with contextlib.suppress(ProtocolError):
            writer.asked(
                {
                    "type": "generate",
                    "id": "demo",
                    "request": request,
                    "by": {"name": "demo", "version": own_version()},
                }
            )


BROKEN_BATCH = 150
"""Reached within a minute on two cores."""


def main(arguments: list[str] | None = None) -> int:
    """Train, say how it went, and return the exit code."""
    options = _parser().parse_args(arguments)
    stopped: list[int] = []
    tracer: Tracer | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        if tracer is not None:
            # One that viewers have paused would not end.
            tracer.go_on()
        # A second signal means it: the default action ends the process at once.
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    if options.until_stdin_closes:
        # The pipe closes with the process that holds its other end, also when that is killed.
        threading.Thread(target=_stop_with, args=(sys.stdin.fileno(),), daemon=True).start()
    line = StateLine(sys.stdout)
    line.say("reading the text")
    config = TrainConfig(
        steps=options.steps,
        batch=options.batch,
        seed=options.seed,
        broken_batch=options.broken_batch,
        compile=options.compile,
    )
    torch.manual_seed(config.seed)
    model = GPT()
    corpus = load_corpus()
    tracer = None if options.no_trace else _trace(model, options)
    if tracer is not None and options.until_stdin_closes:
        print(f"run {tracer.run_id}", flush=True)
    trainer = Trainer(model, corpus, tracer, config)
    if tracer is not None:
        _watch(model, trainer, tracer, config.batch)
    began = time.monotonic()
    sample = ""
    try:
        if tracer is not None:
            ask_for_text(tracer, 0)
        for progress in trainer.run(lambda: bool(stopped)):
            line.say(_state(progress, config.steps, time.monotonic() - began))
            if progress.step % TEXT_EVERY == 0 and progress.step < config.steps:
                if tracer is not None:
                    ask_for_text(tracer, progress.step)
                if options.save is not None:
                    save_checkpoint(model, options.save)
        seconds = time.monotonic() - began
        # Whoever asked it to stop wants it to stop: the held-out loss is then the last one measured, and
        # there is no sample.
        if not stopped:
            line.say("measuring the held-out loss")
            trainer.measure_held_out(1 << 20)
        if options.save is not None:
            save_checkpoint(model, options.save)
    finally:
        line.end()
        if tracer is not None:
            tracer.close()
    if not stopped:
        sample = _sample(model)
    progress = trainer.progress
    print(
        f"loss {progress.first_loss:.3f} → {progress.loss:.3f} · held-out {progress.held_out_loss:.3f} "
        "nats/byte · "
        f"{_number(progress.step)} steps in {seconds:.0f} s"
    )
    if sample:
        print(shown_text(sample))
    return 0


def _stop_with(stdin: int) -> None:
    # Not through sys.stdin: a thread that waits in there keeps Python from ending.
    while os.read(stdin, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _watch(model: GPT, trainer: Trainer, tracer: Tracer, samples: int) -> None:
    """Have the monitor judge the training; statistics alone where this installation lacks it."""
    watch = (
        megalens.monitor if "monitor" in {each.name for each in find_slices()} else megalens.log_statistics
    )
    watch(model, trainer.optimizer, tracer=tracer, samples=samples, **STATISTICS)


def _trace(model: GPT, options: argparse.Namespace) -> Tracer:
    return trace(
        model,
        name=options.name,
        flags=FLAGS,
        record=options.record,
        record_bytes=options.record_bytes,
        # Everything that a viewer can do to a training can be tried on this one.
        allow=CONTROLS,
        tokenizer=ByteTokenizer(),
        linger=options.linger,
        timeline={"granularity": "phases", "memory": True},
    )


def _sample(model: GPT, count: int = 240) -> str:
    tokenizer = ByteTokenizer()
    tokens = model.eval().generate(tokenizer.tensor(PROMPT), count)
    # An untrained model makes up control characters, and a terminal would obey them.
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in tokenizer.decode(tokens[0]))


def _state(progress: Progress, steps: int, seconds: float) -> str:
    done = progress.step / steps
    left = seconds * (1 - done) / done
    bar = "█" * round(20 * done) + "░" * (20 - round(20 * done))
    return (
        f"{bar} step {_number(progress.step)} of {_number(steps)} · loss {progress.loss:.3f} · "
        f"held-out {progress.held_out_loss:.3f} · {_number(progress.tokens_per_second)} bytes/s · "
        f"{left:.0f} s left"
    )


def _number(value: float) -> str:
    # Thousands are set apart by a thin space, as everywhere in Megalens.
    return "–" if value != value else f"{value:,.0f}".replace(",", "\u202f")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m megalens.demo",
        description="Train a small GPT on text that comes with Python, traced by Megalens.",
    )
    default = TrainConfig()
    parser.add_argument(
        "--steps", type=_positive, default=default.steps, help="optimizer steps (%(default)s)"
    )
    parser.add_argument("--batch", type=_positive, default=default.batch, help="windows a step (%(default)s)")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument(
        "--broken-batch",
        type=int,
        default=BROKEN_BATCH,
        metavar="STEP",
        help="step whose batch is of random bytes on purpose, so that the view Health has something to "
        "show; 0 is none (%(default)s)",
    )
    parser.add_argument("--name", default="gpt-demo", help="name of the run (%(default)s)")
    parser.add_argument("--record", metavar="DIR", help="folder that the run's own folder is written into")
    parser.add_argument(
        "--record-bytes",
        type=_positive,
        default=500_000_000,
        metavar="N",
        help="what the recording may take while it is written: its oldest steps are given up for newer ones "
        "(%(default)s)",
    )
    parser.add_argument(
        "--save",
        metavar="DIR",
        help=f"folder that the model is saved in for megalens serve: every {TEXT_EVERY} steps, and at the "
        "end",
    )
    parser.add_argument(
        "--linger",
        type=float,
        default=10.0,
        help="seconds the hub stays for viewers that come back (%(default)s)",
    )
    parser.add_argument("--compile", action="store_true", help="train through torch.compile")
    parser.add_argument(
        "--until-stdin-closes",
        action="store_true",
        help="for a parent process: print the run's id first, and end cleanly when standard input ends",
    )
    parser.add_argument("--no-trace", action="store_true", help="train without the tracer")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
