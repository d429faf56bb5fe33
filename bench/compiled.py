"""What probes in compiled code cost: steps of the compiled demo model without a tracer, with probes that nobody asks for, and traced; and the other way to put probes into a graph.

Run ``python -m bench.compiled`` (``--quick``: few rounds, which prove only that it works). The first call of each way compiles, which takes a minute or more.
"""

from __future__ import annotations

import importlib.util
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import megalens
from megalens import Tile
from megalens.demo import model as demo_model

from .common import Row, asked, cost, ratio, report

__all__ = ["main"]

_FLAGS = {"QKV_mat_mul": Tile(96), "MLP1_mat_mul": Tile(96), "MLP2_mat_mul": Tile(96)}
_BATCH = 16
_TARGET = 1.0
TITLES = {
    "again": "A/A: the same without a tracer, compiled once more",
    "armed": "probes in the graph, forward and backward, nothing chosen",
    "state": "the other way: an operator that writes to a state tensor, nothing chosen",
    "traced": "QKV, MLP1, MLP2 of all layers, Tile(96), recorded",
}


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/compiled.json``; return the page of all results."""
    options = asked(
        __doc__, arguments, "6 rounds", rounds=(100, "blocks of each way"), steps=(4, "steps a block")
    )
    rounds = 6 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "runtime")
        blocks, facts = _measure(rounds, options.steps, Path(folder))
    base = blocks["without"]
    rows = [Row("step of the compiled model without a tracer", statistics.median(base) * 1e3, "ms")]
    for way, title in TITLES.items():
        found = ratio(blocks[way], base, middle=statistics.median)
        rows.append(cost(title, found, _TARGET if way == "armed" else None, unit="%"))
    rows += [
        Row(what, value, "", target="0" if "recompiled" in what else "") for what, value in facts.items()
    ]
    return report(
        "compiled",
        "Probes in compiled code",
        rows,
        how=f"The demo model under torch.compile(fullgraph=True), batches of {_BATCH}, {rounds} blocks of {options.steps} steps each way, in random order, in one process; medians of blocks measured beside one another.",
        quick=options.quick,
    )


def _measure(rounds: int, steps: int, folder: Path) -> tuple[dict[str, list[float]], dict[str, float]]:
    ways = {name: _Way(name, folder) for name in ("without", *TITLES)}
    for way in ways.values():
        for _ in range(3):
            way.step()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    blocks: dict[str, list[float]] = {name: [] for name in ways}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(ways), len(ways)):
            ways[name].step()
            began = time.perf_counter()
            for _ in range(steps):
                ways[name].step()
            blocks[name].append((time.perf_counter() - began) / steps)
    facts = {
        "graphs that were recompiled meanwhile": float(
            torch._dynamo.utils.counters["stats"]["unique_graphs"] - graphs
        )
    }
    for way in ways.values():
        facts |= way.close()
    return blocks, facts


class _Way:
    """One copy of the demo model, and of its code: graphs are kept by code, and one model's would serve another."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        code = _copied(demo_model, name)
        torch.manual_seed(0)
        self.model: nn.Module = code.GPT()
        self._ids = torch.randint(0, 256, (_BATCH, 128))
        self._run: Callable[[Tensor], Tensor] = torch.compile(self.model, fullgraph=True)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        self._tracer: Any = None
        if name in ("armed", "traced"):
            flags = _FLAGS if name == "traced" else None
            self._tracer = megalens.trace(
                self._run, flags=flags, record=folder if flags else None, linger=0.1
            )  # type: ignore[arg-type]
        elif name == "state":
            _hook_states(self.model)

    def step(self) -> None:
        """Take one step."""
        if self._tracer is None:
            self._train()
        else:
            with self._tracer.step():
                self._train()

    def _train(self) -> None:
        logits = self._run(self._ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), self._ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()

    def close(self) -> dict[str, float]:
        """End it; return how many of its probes fired."""
        if self._tracer is None:
            return {}
        time.sleep(1.5)
        probes = self._tracer.status().get("probes")
        self._tracer.close()
        if probes is None:
            return {}
        return {"probes that fired in the last traced step": probes["fired"], "of": probes["expected"]}


def _copied(module: ModuleType, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{module.__package__}._{name}", str(module.__file__))
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[spec.name] = copy
    spec.loader.exec_module(copy)
    return copy


def _hook_states(model: nn.Module) -> None:
    """Place probes at the modules where the tracer has them, forward only, as an operator that changes a state."""
    library: Any = torch.library.Library("megalens_bench", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("seen(Tensor tensor, Tensor(a!) state, int number) -> ()")
    library.impl("seen", lambda tensor, state, number: None, "CompositeExplicitAutograd")
    torch.library.register_fake("megalens_bench::seen", lambda tensor, state, number: None, lib=library)
    state = torch.zeros(1)
    points = megalens.api.trace.model_points(model, None)
    number = 0
    for flag in points.flags.values():
        for sources in flag.layers.values():
            for source in sources:
                if source.computed is None and source.side == "output":
                    number += 1

                    def seen(module: nn.Module, given: Any, output: Any, number: int = number) -> None:
                        torch.ops.megalens_bench.seen(output, state, number)

                    source.module.register_forward_hook(seen)
    model.library = library  # type: ignore[assignment]


if __name__ == "__main__":
    main()
