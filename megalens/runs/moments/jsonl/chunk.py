"""Raw-moment JSONL text to columns: complete lines in, rows of the stream ``moments`` out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from ....protocol import MOMENT_STATS, RAW_SUMS, SCALED_STATS, moments_from_raw_sums

_fetch = itemgetter(*RAW_SUMS)
_STAT = re.compile(r"(residual_dgrad|residual|activation|dgrad|wgrad|grad|param)(?:_|$)")
_BARE = re.compile(rb"(?<=[:,\[])(\s*)(NaN|-?Infinity)(?=\s*[,}\]])")
_ROUNDING = 2.0**-24
_MOST_PROBLEMS = 50
_MOST_STEP = 1 << 62
# Each sign becomes up to 100 bytes when parsed; 300,000 tensors have so many.
_MOST_SIGNS = 4_000_000

CHUNK_COLUMNS = pa.schema(
    [
        ("step", pa.int64()),
        ("samples", pa.int64()),
        ("stat", pa.dictionary(pa.int8(), pa.utf8())),
        ("name", pa.dictionary(pa.int32(), pa.utf8())),
        ("rank", pa.int32()),
        ("count", pa.float64()),
        ("mean", pa.float64()),
        ("m2", pa.float64()),
        ("m3", pa.float64()),
        ("m4", pa.float64()),
        ("unknown", pa.float64()),
        ("rounding", pa.float64()),
        ("gradient_stage", pa.dictionary(pa.int8(), pa.utf8())),
        ("loss_scale", pa.float64()),
        ("line_start", pa.int64()),
    ]
)
"""Cached columns: those of raw sums, ``unknown`` for both non-finite counts, and the offset of the line."""

_STAGES = ("", "pre_clip", "backward", "backward_scaled", "pre_step")


@dataclass(frozen=True)
class Problem:
    """A line that is left out in full or in part: its number, counted from 1 in the chunk, and a sentence."""

    line: int
    what: str


@dataclass
class JsonlChunk:
    """What was read.

    Attributes
    ----------
    table : pyarrow.Table
        :data:`CHUNK_COLUMNS`.
    records : ndarray
        One row a record, int64: where its line begins, index of its stat in ``MOMENT_STATS``, step, rows,
        index of its names in ``layouts``.
    layouts : list of list of str
        The different lists of names that records have.
    lines : int
        Ends of lines.
    problems : list of Problem
        The first of them; ``left_out`` counts all.
    """

    table: pa.Table
    records: NDArray[np.int64]
    layouts: list[list[str]]
    lines: int
    problems: list[Problem] = field(default_factory=list)
    left_out: int = 0


class _Skip(Exception):
    """The reason why a line is no record."""


class _Builder:
    def __init__(self, kind: str, rank: int) -> None:
        self._kind, self._rank = kind, rank
        self.numbers: list[NDArray[np.float64]] = []
        self.ids: list[NDArray[np.int32]] = []
        self.records: list[tuple[int, int, int, int, int]] = []
        self.facts: list[tuple[int, float, int, float]] = []
        self.layouts: list[list[str]] = []
        self._layout_indices: dict[tuple[str, ...], int] = {}
        self._layout_ids: list[NDArray[np.int32]] = []
        self._names: dict[str, int] = {}
        self._last: tuple[str, ...] = ()
        self._last_layout = -1

    def add(self, record: Mapping[str, Any], at: int, line: Callable[[], int]) -> str | None:
        """Take a record; return what was wrong with a part of it."""
        values = record.get("values")
        if not isinstance(values, dict):
            raise _Skip("it has no object 'values'")
        stat = self._stat(record)
        step = _step(record, line)
        rounding, problem = _ROUNDING, None
        try:
            flat = np.fromiter(chain.from_iterable(map(_fetch, values.values())), np.float64, 5 * len(values))
            if not np.isfinite(flat[::5]).all():
                raise ValueError
            names = tuple(values)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            names, flat, rounding, problem = _one_by_one(values)
        if record.get("twice"):
            problem = f"the name {record['twice']!r:.80} comes twice, and the last one counts"
        if not names:
            return problem
        layout = self._layout(names)
        scale, stage = _scale(record, stat)
        samples = record.get("consumed_train_samples", -1)
        samples = samples if type(samples) is int and 0 <= samples < _MOST_STEP else -1
        self.numbers.append(flat)
        self.ids.append(self._layout_ids[layout])
        self.records.append((at, MOMENT_STATS.index(stat), step, len(names), layout))
        self.facts.append((samples, rounding, stage, scale))
        return problem

    def table(self) -> tuple[pa.Table, NDArray[np.int64]]:
        records = np.array(self.records, np.int64).reshape(-1, 5)
        if not len(records):
            return CHUNK_COLUMNS.empty_table(), records
        sums = np.concatenate(self.numbers).reshape(-1, 5)
        samples, rounding, stage, scale = (np.array(column) for column in zip(*self.facts, strict=True))
        repeat = records[:, 3]
        moments = moments_from_raw_sums(*(np.ascontiguousarray(sums[:, power]) for power in range(5)))
        if (scale[~np.isnan(scale)] != 1).any():
            by = np.repeat(np.where(np.isnan(scale), 1.0, scale), repeat)
            with np.errstate(all="ignore"):
                for power, name in enumerate(("mean", "m2", "m3", "m4"), 1):
                    moments[name] = moments[name] / by**power
        columns: dict[str, Any] = {
            "step": np.repeat(records[:, 2], repeat),
            "samples": np.repeat(samples.astype(np.int64), repeat),
            "stat": _words(np.repeat(records[:, 1].astype(np.int8), repeat), MOMENT_STATS),
            "name": _words(np.concatenate(self.ids), list(self._names)),
            "rank": np.full(len(sums), self._rank, np.int32),
            **{name: moments[name] for name in ("count", "mean", "m2", "m3", "m4")},
            "unknown": moments["nan_count"],
            "rounding": np.repeat(rounding, repeat),
            "gradient_stage": _words(np.repeat(stage.astype(np.int8), repeat), _STAGES),
            "loss_scale": np.repeat(scale, repeat),
            "line_start": np.repeat(records[:, 0], repeat),
        }
        return pa.table(columns, schema=CHUNK_COLUMNS), records

    def _stat(self, record: Mapping[str, Any]) -> str:
        for text in (record.get("stat"), self._kind):
            match = _STAT.match(text) if isinstance(text, str) else None
            if match:
                return "grad" if match[1] == "wgrad" else match[1]
        raise _Skip(
            f"its statistic {record.get('stat') or self._kind!r:.60} is none of {', '.join(MOMENT_STATS)}"
        )

    def _layout(self, names: tuple[str, ...]) -> int:
        if names == self._last:
            return self._last_layout
        index = self._layout_indices.get(names)
        if index is None:
            known = self._names
            ids = np.fromiter((known.setdefault(name, len(known)) for name in names), np.int32, len(names))
            index = self._layout_indices[names] = len(self.layouts)
            self.layouts.append(list(names))
            self._layout_ids.append(ids)
        self._last, self._last_layout = names, index
        return index


def read_chunk(
    data: bytes, begin: int, kind: str, rank: int, before: Callable[[], int] = lambda: 0
) -> JsonlChunk:
    """Read complete lines. What cannot be read is left out and reported, and nothing else with it.

    Parameters
    ----------
    data : bytes
        The lines.
    begin : int
        Their offset in the file.
    kind : str
        Name of the file's folder: what was measured where a record does not say.
    rank : int
        Rank that wrote the file.
    before : callable
        Returns the number of lines before these: a record without a step is at the step of its line's number.
    """
    builder = _Builder(kind, rank)
    problems: list[Problem] = []
    left_out = 0
    lines = data.count(b"\n")
    for number, (at, text) in enumerate(_lines(data), 1):
        if not text or text.isspace():
            continue
        try:
            problem = builder.add(_parse(text), begin + at, partial(_number_of_line, before, number))
        except _Skip as skip:
            problem = str(skip)
        except (ValueError, RecursionError, OverflowError) as error:
            problem = f"it is no JSON ({str(error)[:80]})"
        if problem:
            left_out += 1
            if len(problems) < _MOST_PROBLEMS:
                problems.append(Problem(number, problem))
    table, records = builder.table()
    return JsonlChunk(table, records, builder.layouts, lines, problems, left_out)


def _number_of_line(before: Callable[[], int], number: int) -> int:
    return before() + number


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    at, end = 0, len(data)
    while at < end:
        to = data.find(b"\n", at)
        to = end if to < 0 else to
        yield at, data[at:to]
        at = to + 1


def _parse(text: bytes) -> dict[str, Any]:
    if len(text) > _MOST_SIGNS and _signs(text) > _MOST_SIGNS:
        raise _Skip(f"it holds more than {_MOST_SIGNS:,} commas, colons and brackets")
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        if b"NaN" not in text and b"Infinity" not in text:
            # Too large numbers, or no JSON: Python's own parser explains which.
            record = json.loads(text)
        else:
            try:
                # As texts they go through the fast parser; float() reads them afterwards.
                record = orjson.loads(_BARE.sub(rb'\1"\2"', text))
            except orjson.JSONDecodeError:
                record = json.loads(text)
    if not isinstance(record, dict):
        raise _Skip("it is no JSON object")
    if b"\\u" in text and not _no_half_characters(record):
        raise _Skip("its text holds half a surrogate pair")
    values = record.get("values")
    # A name that comes twice would vanish silently; telling it costs one look at the text.
    if isinstance(values, dict) and text.count(b'"sum_1"') > len(values):
        twice = _twice(text)
        if twice:
            record["twice"] = twice
    return record


def _signs(text: bytes) -> int:
    """Return how many members and lists a text may have, unparsed: each takes much memory once parsed."""
    signs = np.frombuffer(text, np.uint8)
    return sum(int(np.count_nonzero(signs == sign)) for sign in b",:[")


def _no_half_characters(record: dict[str, Any]) -> bool:
    try:
        json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _twice(text: bytes) -> str | None:
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) < len(items):
            names = [name for name, _ in items]
            found.extend(name for at, name in enumerate(names) if name in names[:at])
        return made

    json.loads(text, object_pairs_hook=pairs)
    return found[0] if found else None


def _step(record: Mapping[str, Any], line: Callable[[], int]) -> int:
    for key in ("iter", "step", "global_step"):
        value = record.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if isinstance(value, float) and not math.isfinite(value):
            continue
        if abs(value) >= _MOST_STEP:
            raise _Skip(f"its step {value!r:.40} is too large")
        return int(value)
    return line()


def _scale(record: Mapping[str, Any], stat: str) -> tuple[float, int]:
    """Return the loss scale to divide by (NaN: may be in the values, unknown) and the stage's index."""
    if stat not in SCALED_STATS:
        stage = "pre_step" if record.get("gradient_stage") == "pre_step" else "pre_clip"
        return 1.0, _STAGES.index(stage) if stat == "grad" else 0
    scale = _number(record.get("loss_scale"))
    if scale is not None and math.isfinite(scale) and scale > 0:
        return scale, _STAGES.index("backward")
    return math.nan, _STAGES.index("backward_scaled")


def _one_by_one(values: Mapping[str, Any]) -> tuple[tuple[str, ...], NDArray[np.float64], float, str | None]:
    """Read values of unusual kinds: ``sum_0`` for the count, missing sums, plain numbers of old files."""
    names: list[str] = []
    flat: list[float] = []
    plain = 0
    wrong: list[str] = []
    for name, entry in values.items():
        number = _number(entry)
        if number is not None:
            with np.errstate(all="ignore"):
                flat += [1.0, *(float(np.float64(number) ** power) for power in (1, 2, 3, 4))]
            plain += 1
            names.append(name)
            continue
        count = _number(entry.get("count", entry.get("sum_0"))) if isinstance(entry, dict) else None
        sums = [_number(entry.get(key, 0.0)) for key in RAW_SUMS[1:]] if count is not None else []
        if count is None or not math.isfinite(count) or None in sums:
            wrong.append(name)
            continue
        names.append(name)
        flat += [count, *(total for total in sums if total is not None)]
    return (
        tuple(names),
        np.array(flat, np.float64),
        0.0 if plain == len(names) else _ROUNDING,
        _sentence_about(wrong),
    )


def _sentence_about(wrong: Sequence[str]) -> str | None:
    if not wrong:
        return None
    which = f"{wrong[0]!r:.80}" + (f" and {len(wrong) - 1} more have" if len(wrong) > 1 else " has")
    return f"{which} no numbers count and sum_1 to sum_4, and {'are' if len(wrong) > 1 else 'is'} left out"


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return (
            float(value)
            if isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity")
            else None
        )
    except (OverflowError, TypeError):
        return math.inf if isinstance(value, int) else None


def _words(codes: NDArray[Any], words: Any) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(words), pa.utf8()))
