"""One process of the data-parallel training that ``bench.soak`` disturbs. It goes on from its newest checkpoint, and trains the same whoever watches.

What became of the rows and losses of a soak.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import defaultdict
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens import Tile
from megalens.demo import GPT
from megalens.runs.run_folder import RunFolder

from .children import joined
from .recordings import FLAGS

__all__ = ["LAYERS", "Lost", "ROWS_PER_STEP", "losses_of", "lost_rows", "main"]

LAYERS = 4
ROWS_PER_STEP = (3 + 1 + 1) * LAYERS
"""Of one rank: query, key and value, and the two linear layers."""
_SAVE_STEPS = 25
_SAMPLES = 2


def main(rank: int, life: int, folder: str, steps: int | None) -> None:
    """Train until the folder holds a file ``stop``, or for a number of steps, untraced; write every loss, bit for bit.

    ``life`` is how often the job was started before.
    """
    home = Path(folder)
    joined(rank, 2, home / f"store-{life}")
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = _load(home, model, optimizer)
    replica = DistributedDataParallel(model)
    with ExitStack() as stack:
        tracer: Any = None
        if steps is None:
            flags = {flag: {"compressor": Tile(96).to_setting(), "replicas": "all"} for flag in FLAGS}
            tracer = stack.enter_context(
                megalens.trace(
                    replica, name="soak", flags=flags, record=home / "runs", linger=0, first_step=step + 1
                )
            )
            # Every rank has its hub before the first step, so that no row is early.
            if not tracer.connected(60):
                raise TimeoutError("The tracer did not reach its hub within 60 s.")
            name = f"{life}-{rank}"
            threading.Thread(target=_tell, args=(tracer, home, name), daemon=True).start()
            distributed.barrier()
        losses = stack.enter_context(open(home / f"losses-{life}", "a", encoding="utf-8"))
        while not _ends(home, step, steps):
            step += 1
            with tracer.step() if tracer else nullcontext():
                loss = _train(replica, optimizer, step, rank)
            if rank == 0:
                losses.write(f"{step} {loss.hex()}\n")
                losses.flush()
                if step % _SAVE_STEPS == 0:
                    _save(home, model, optimizer, step)
    if tracer:
        _write_status(tracer, home, f"{life}-{rank}", ended=True)
    distributed.barrier()
    distributed.destroy_process_group()


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int) -> float:
    generator = torch.Generator().manual_seed(2 * step + rank)
    tokens = torch.randint(256, (_SAMPLES, 1), generator=generator) + torch.arange(65)
    ids = tokens % 256
    optimizer.zero_grad()
    scores = model(ids[:, :-1])
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _ends(folder: Path, step: int, steps: int | None) -> bool:
    """Agree with the other rank on whether this was the last step."""
    over = step >= steps if steps is not None else (folder / "stop").exists()
    flag = torch.tensor([int(over)])
    distributed.all_reduce(flag, distributed.ReduceOp.MAX)
    return bool(flag)


def _save(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    partial = folder / "checkpoint.partial"
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, partial)
    os.replace(partial, folder / "checkpoint.pt")


def _load(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    path = folder / "checkpoint.pt"
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["step"])


def _tell(tracer: Any, folder: Path, name: str) -> None:
    """Keep on disk what the status says, for whoever looks once this process was killed."""
    while True:
        _write_status(tracer, folder, name, ended=False)
        time.sleep(0.2)


def _write_status(tracer: Any, folder: Path, name: str, *, ended: bool) -> None:
    status = {"run": tracer.run_id, "hub": tracer.hub_pid, "ended": ended, "status": tracer.status()}
    partial = folder / f"status-{name}.{ended}.partial"
    partial.write_text(json.dumps(status), encoding="utf-8")
    target = folder / f"status-{name}.json"
    if ended or not target.exists() or not json.loads(target.read_text(encoding="utf-8"))["ended"]:
        os.replace(partial, target)


_RANKS = 2
_GAP = re.compile(r"[Rr]ows of steps (\d+) to (\d+) may be")


@dataclass(frozen=True)
class Lost:
    """Rows of a soak by what is known of them: recorded, counted as dropped, in the gap of a hub that the status named or in steps that a recording says it lacks, or lost in silence."""

    recorded: int
    counted: int
    named: int
    named_steps: int
    silent: int
    example: str


def losses_of(folder: Path) -> dict[int, str]:
    """Return the loss of each step as written, bit for bit.

    Raises
    ------
    ValueError
        When a step that was trained again after a restart has another loss.
    """
    losses: dict[int, str] = {}
    for path in sorted(folder.glob("losses-*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            step, _, loss = line.partition(" ")
            if not loss:
                continue
            if losses.setdefault(int(step), loss) != loss:
                raise ValueError(
                    f"Step {step} was trained twice and has two losses: {losses[int(step)]} and {loss}."
                )
    return losses


def lost_rows(folder: Path, lives: int) -> Lost:
    """Compare the rows of all recordings with those that every step of the job gives, rank by rank: no status explains what another rank lost."""
    recorded: dict[tuple[int, int], set[tuple[object, ...]]] = defaultdict(set)
    lacking: list[range] = []
    for path in (folder / "runs").iterdir():
        run = RunFolder(path)
        lacking += [range(first, end + 1) for first, end in run.header.get("missing_steps", ())]
        table = run.read("tensors", columns=["rank", "step", "layer", "flag", "part"])
        for rank, step, *row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            # A step that was trained in two lives is in two recordings.
            recorded[rank, step].add(tuple(row))
    last = max(losses_of(folder))
    found = [_of_rank(folder, lives, rank, recorded, last, lacking) for rank in range(_RANKS)]
    examples = [one.example for one in found if one.example]
    return Lost(
        recorded=sum(map(len, recorded.values())),
        counted=sum(one.counted for one in found),
        named=sum(one.named for one in found),
        named_steps=sum(one.named_steps for one in found),
        silent=sum(one.silent for one in found),
        example="; ".join(examples),
    )


def _of_rank(
    folder: Path,
    lives: int,
    rank: int,
    recorded: dict[tuple[int, int], set[tuple[object, ...]]],
    last: int,
    lacking: list[range],
) -> Lost:
    missing = {
        step: lost for step in range(1, last + 1) if (lost := ROWS_PER_STEP - len(recorded[rank, step]))
    }
    counted = 0
    named = [*lacking]
    for life in range(lives):
        path = folder / f"status-{life}-{rank}.json"
        if path.exists():
            status = json.loads(path.read_text(encoding="utf-8"))["status"]
            counted += status["dropped"]["producer"]
            named += [
                range(int(first), int(end) + 1)
                for text in status.get("warnings", ())
                for first, end in _GAP.findall(text)
            ]
    near = {step: rows for step, rows in missing.items() if any(step in steps for steps in named)}
    in_gaps = sum(near.values())
    silent = {step: rows for step, rows in missing.items() if step not in near}
    unexplained = max(sum(silent.values()) - max(counted - in_gaps, 0), 0)
    steps = ", ".join(map(str, list(silent)[:8]))
    return Lost(
        recorded=0,
        counted=counted,
        named=max(in_gaps - counted, 0),
        named_steps=len(near),
        silent=unexplained,
        example=f"rank {rank}: {len(silent)} steps such as {steps}" if unexplained else "",
    )
