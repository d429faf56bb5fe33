"""What became of the rows and losses of a soak."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from bench.soak_rank import ROWS_PER_STEP
from megalens.runs.run_folder import RunFolder

__all__ = ["Lost", "losses_of", "lost_rows"]

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
