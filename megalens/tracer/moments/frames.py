"""Merged statistics as frames of the stream ``moments``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol import MOMENT_COLUMNS, FrameTemplate, stream_schema
from ...protocol.arrow_columns import arrow_column
from .joining.gathering import Merged, WholeStep

__all__ = ["STREAM", "MomentFrames"]

STREAM = "moments"
_FRAME_ROWS = 100_000
_MOST_KNOWN = 8
_Kind = tuple[tuple[object, ...], ...]


@dataclass(frozen=True)
class _PreparedRows:
    """One frame of steps of a kind.

    Attributes
    ----------
    template : FrameTemplate
        With all that stays.
    figures : ndarray
        Its columns of moments, ``[k, rows]``.
    parts : list of tuple
        What its rows are, one after the other: of which statistic, and from and to which of its rows.
    """

    template: FrameTemplate
    figures: NDArray[np.float64]
    parts: list[tuple[int, int, int]]


class MomentFrames:
    """Makes frames of step after step. Names and all else that is the same in every step is encoded once: it takes longer than all figures.

    Parameters
    ----------
    rank : int
        Who writes the rows.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        # Several, since statistics have intervals of their own.
        self._known: dict[_Kind, list[_PreparedRows]] = {}

    def of(self, whole: WholeStep) -> Iterator[FrameTemplate]:
        """Give the frames of a step, each as it is until the next is asked for."""
        stats = whole.stats
        kind = tuple((each.tensors, each.stat, each.gradient_stage) for each in stats)
        # Two steps are alike when the same tensors were measured for the same statistics: by identity, so that asking costs nothing.
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            known = self._known[kind] = [self._prepared(stats, parts) for parts in _cut(stats)]
        for prepared in known:
            numbers = prepared.template.numbers
            numbers["step"].fill(whole.step)
            numbers["samples"].fill(whole.samples)
            # Written where they lie in the encoded frame: the last frame must be on its way before this one is made.
            at = 0
            for number, first, end in prepared.parts:
                here = slice(at, at := at + end - first)
                prepared.figures[:, here] = stats[number].rows[first:end].T
                numbers["loss_scale"][here] = stats[number].loss_scale
            yield prepared.template

    def _prepared(self, stats: Sequence[Merged], parts: list[tuple[int, int, int]]) -> _PreparedRows:
        sizes = [end - first for _, first, end in parts]
        n = sum(sizes)
        zeros = np.zeros(n)
        here = [stats[number] for number, _, _ in parts]
        names = [each.tensors.names[first:end] for each, (_, first, end) in zip(here, parts, strict=True)]
        stages = [each.tensors.stages[first:end] for each, (_, first, end) in zip(here, parts, strict=True)]
        columns: dict[str, pa.Array] = {
            **{name: arrow_column(zeros) for name in (*MOMENT_COLUMNS, "rounding", "loss_scale")},
            "step": arrow_column(np.zeros(n, np.int64)),
            "samples": arrow_column(np.zeros(n, np.int64)),
            "stat": arrow_column(_each([each.stat for each in here], sizes), pa.utf8()),
            "name": arrow_column(list(chain.from_iterable(names)), pa.utf8()),
            "rank": arrow_column(np.full(n, self._rank, np.int32)),
            "stage": arrow_column(np.concatenate(stages)),
            "gradient_stage": arrow_column(_each([each.gradient_stage for each in here], sizes), pa.utf8()),
        }
        schema = stream_schema(STREAM)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        template = FrameTemplate(STREAM, batch)
        return _PreparedRows(template, template.block(MOMENT_COLUMNS), parts)


def _cut(stats: Sequence[Merged]) -> list[list[tuple[int, int, int]]]:
    """Return the parts that go into each frame."""
    frames: list[list[tuple[int, int, int]]] = []
    room = 0
    for number, each in enumerate(stats):
        first, left = 0, len(each.rows)
        while left:
            if not room:
                frames.append([])
                room = _FRAME_ROWS
            end = first + min(left, room)
            frames[-1].append((number, first, end))
            room -= end - first
            first, left = end, len(each.rows) - end
    return frames


def _each(texts: Sequence[str], sizes: Sequence[int]) -> list[str]:
    return list(chain.from_iterable(map(repeat, texts, sizes)))
