"""Traced tensors against what was seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from .traced import Recording
from .verdict import ABSENT, FIRST, RIGHT, SILENT, WATCHED, WRONG, Verdict, once, reason, same
from .witness import END, Watched


def compare_tensors(verdict: Verdict, watched: Watched, recording: Recording, stacks: bool) -> None:
    once(verdict, recording.rows, "flag")
    rows = [row for row in recording.rows if row["phase"] == "train"]
    layers = _layers(watched, rows) if stacks else {}
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        layer = layers.get(row["layer"], row["layer"])
        found[row["step"], row["micro_batch"], row["pass"], row["flag"], layer, row["part"]].append(row)
    for number, step in watched.steps.items():
        for micro_batch, here in enumerate(step.micro_batches):
            for way, seen in (("forward", here.values), ("backward", here.gradients)):
                for (flag, layer, part), entries in seen.items():
                    if flag == END or (flag == "InputTokens" and way == "backward"):
                        continue
                    expected = list(enumerate(entries))
                    if way == "backward":
                        expected = _numbered(entries, len(here.values[flag, layer, part]))
                    got = found.pop((number, micro_batch, way, flag, layer, part), [])
                    where = f"step {number}, micro-batch {micro_batch}, {way}, layer {layer} {part}".rstrip()
                    first = number == min(watched.steps)
                    if got or (flag, layer, part) not in here.optional:
                        _compare(verdict, flag, where, expected, got, recording, first)
    for (number, micro_batch, way, flag, layer, part), got in found.items():
        if part != "positions" or not _are_positions(got):
            where = f"step {number}, micro-batch {micro_batch}, {way}, layer {layer} {part}".rstrip()
            verdict.say(flag, WRONG, f"recorded although the script has no such tensor: {where}", len(got))


def _compare(
    verdict: Verdict,
    flag: str,
    where: str,
    expected: Sequence[tuple[int, Tensor]],
    got: Sequence[dict[str, Any]],
    recording: Recording,
    first: bool,
) -> None:
    left = list(expected)
    for row in got:
        call = row.get("call")
        fitting = [
            at
            for at, (number, tensor) in enumerate(left)
            if (call in (None, number) or len(got) == 1) and _fits(row, tensor)
        ]
        if fitting:
            del left[fitting[0]]
            verdict.say(flag, RIGHT)
        else:
            verdict.say(
                flag,
                WRONG,
                f"other values: {where}{'' if call is None else f', call {call}'}; "
                f"{_difference(row, expected)}",
            )
    missing = len(expected) - len(got)
    # A pair of models has ids of both; those of one will do.
    if missing > 0 and not (got and flag == "InputTokens"):
        sentence = reason(flag, recording)
        kind = (WATCHED if first else ABSENT) if sentence else FIRST if first else SILENT
        verdict.say(flag, kind, sentence or f"{missing} of {len(expected)}: {where}", missing)


def _numbered(entries: Sequence[tuple[int, Tensor]], calls: int) -> list[tuple[int, Tensor]]:
    """Return gradients with the number of their call; those of another backward pass go on behind all calls."""
    passes: dict[int, int] = defaultdict(int)
    numbered = []
    for call, tensor in entries:
        numbered.append((call + passes[call] * calls, tensor))
        passes[call] += 1
    return numbered


def _fits(row: Mapping[str, Any], tensor: Tensor) -> bool:
    # A stage may have positions in two axes, as pictures have.
    return same(row["values"], tensor) and (not row["shape"] or row["shape"][-1] == tensor.shape[-1])


def _difference(row: Mapping[str, Any], expected: Sequence[tuple[int, Tensor]]) -> str:
    if not expected:
        return "there is none"
    tensor = expected[0][1]
    if np.prod(row["shape"]) != tensor.numel():
        return f"shape {row['shape']}, and {list(tensor.shape)} was seen"
    off = np.abs(np.asarray(row["values"], np.float32) - tensor.float().reshape(-1).numpy()).max()
    return f"off by up to {off:.3g} of {tensor.float().abs().max():.3g}"


def _are_positions(rows: Iterable[Mapping[str, Any]]) -> bool:
    return all(
        list(row["values"]) == list(range(row["shape"][-1])) * (len(row["values"]) // row["shape"][-1])
        for row in rows
    )


def _layers(watched: Watched, rows: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return by recorded number the script's number of the layer whose values it has, each once and in
    order of the number.
    """
    first = next((step.micro_batches[0].values for step in watched.steps.values() if step.micro_batches), {})
    step = min((number for number, each in watched.steps.items() if each.micro_batches), default=0)
    layers: dict[int, int] = {}
    at_hand = [
        row for row in rows if row["step"] == step and row["micro_batch"] == 0 and row["pass"] == "forward"
    ]
    for number in sorted({row["layer"] for row in rows} - {-1}):
        own = [row for row in at_hand if row["layer"] == number]
        scores = {
            layer: sum(
                any(_fits(row, each) for each in first.get((row["flag"], layer, row["part"]), ()))
                for row in own
            )
            for layer in sorted({layer for _, layer, _ in first} - {-1} - set(layers.values()))
        }
        best = max(scores, key=lambda layer: scores[layer], default=None)
        layers[number] = best if best is not None and scores[best] else 1000 + number
    return layers
