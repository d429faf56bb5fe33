"""Raw-moment JSONL text to rows of the stream ``moments``: complete lines in, a table out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ....protocol import (
    LAST_STEP,
    MOMENT_COLUMNS,
    MOMENT_STATS,
    RAW_SUMS,
    SCALED_STATS,
    moments_from_raw_sums,
)
from ..rows.import_folder import ROWS
from .imported_file import MOST_PROBLEMS, Course, Problem, Stretch

_fetch = itemgetter(*RAW_SUMS)
_STAT = re.compile(r"(residual_dgrad|residual|activation|dgrad|wgrad|grad|param)(?:_|$)")
_BARE = re.compile(rb"(?<=[:,\[])(\s*)(NaN|-?Infinity)(?=\s*[,}\]])")
_ROUNDING = 2.0**-24
# Each sign becomes up to 100 bytes when parsed; 300,000 tensors have so many.
_MOST_SIGNS = 4_000_000
# Of a line, and then of what is read together.
_MOST_NAMES = 300_000
# Python's own parser, and looking for half characters after it, take ten times the text.
_MOST_EXPLAINED = 8 << 20

_STAGES = ("", "pre_clip", "backward", "backward_scaled", "pre_step")


class _Skip(Exception):
    """The reason why a line is no record."""


class _Builder:
    def __init__(self, kind: str, rank: int) -> None:
        self._kind, self._rank = kind, rank
        self._numbers: list[NDArray[np.float64]] = []
        self._ids: list[NDArray[np.int32]] = []
        # Of each record: index of its stat, step, samples, rounding, index of its stage, loss scale.
        self._facts: list[tuple[int, int, int, float, int, float]] = []
        self._known: dict[tuple[str, ...], NDArray[np.int32]] = {}
        self._names: dict[str, int] = {}
        self._last: tuple[str, ...] = ()
        self._last_ids = np.zeros(0, np.int32)

    def add(self, record: Mapping[str, Any], before: Callable[[], int], number: int) -> str | None:
        """Take a record; return what was wrong with a part of it."""
        values = record.get("values")
        if not isinstance(values, dict):
            raise _Skip("it has no object 'values'")
        if len(values) > _MOST_NAMES or (len(self._names) >= _MOST_NAMES and tuple(values) != self._last):
            raise _Skip(f"it, and the lines before it, name more than {_MOST_NAMES:,} tensors")
        stat = self._stat(record)
        step = _step(record, before, number)
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
        scale, stage = _scale(record, stat)
        samples = record.get("consumed_train_samples", -1)
        samples = samples if type(samples) is int and 0 <= samples <= LAST_STEP else -1
        self._numbers.append(flat)
        self._ids.append(self._ids_of(names))
        self._facts.append((MOMENT_STATS.index(stat), step, samples, rounding, stage, scale))
        return problem

    def courses(self) -> dict[str, Course]:
        found = {}
        for stat, _, steps in self._by_stat():
            back = np.flatnonzero(steps[1:] <= steps[:-1])
            at = int(back[-1]) if len(back) else 0
            seam = (int(steps[at]), int(steps[at + 1])) if len(back) else (0, 0)
            found[stat] = Course(int(steps[0]), int(steps[-1]), len(back), *seam)
        return found

    def _by_stat(self) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield each stat with its records and their steps."""
        facts = np.array([fact[:2] for fact in self._facts], np.int64).reshape(-1, 2)
        for code in np.unique(facts[:, 0]):
            records = np.flatnonzero(facts[:, 0] == code)
            yield MOMENT_STATS[code], records, facts[records, 1]

    def table(self) -> pa.Table:
        """Return the rows by step, without those of records that later ones supersede."""
        counting = self._counting()
        if not len(counting):
            return ROWS.empty_table()
        facts = zip(*(self._facts[at] for at in counting), strict=True)
        stat, step, samples, rounding, stage, scale = (np.array(column) for column in facts)
        sums = np.concatenate([self._numbers[at] for at in counting]).reshape(-1, 5)
        ids = np.concatenate([self._ids[at] for at in counting])
        repeat = [len(self._ids[at]) for at in counting]
        moments = moments_from_raw_sums(*(np.ascontiguousarray(sums[:, power]) for power in range(5)))
        if (scale[~np.isnan(scale)] != 1).any():
            by = np.repeat(np.where(np.isnan(scale), 1.0, scale), repeat)
            with np.errstate(all="ignore"):
                for power, name in enumerate(("mean", "m2", "m3", "m4"), 1):
                    moments[name] = moments[name] / by**power
        codes, stat = np.unique(stat, return_inverse=True)
        columns: dict[str, Any] = {
            **{name: moments[name] for name in MOMENT_COLUMNS},
            "step": np.repeat(step, repeat),
            "samples": np.repeat(samples, repeat),
            "stat": _words(np.repeat(stat.astype(np.int32), repeat), [MOMENT_STATS[code] for code in codes]),
            "name": _words(ids, self._names),
            "rank": np.full(len(ids), self._rank, np.int32),
            "stage": np.full(len(ids), -1, np.int32),
            "rounding": np.repeat(rounding, repeat),
            "gradient_stage": _words(np.repeat(stage.astype(np.int32), repeat), _STAGES),
            "loss_scale": np.repeat(scale, repeat),
        }
        return pa.table([columns[name] for name in ROWS.names], schema=ROWS)

    def _counting(self) -> NDArray[np.int64]:
        """Return the records that count, by step.

        A record whose step is not after that of the one before, of the same stat, shows that the run went
        back: every older one at or after that step is superseded.
        """
        alive, taken = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for _, records, steps in self._by_stat():
            later = np.minimum.accumulate(steps[:0:-1])[::-1]
            counts = np.append(steps[:-1] < later, True)
            alive.append(records[counts])
            taken.append(steps[counts])
        records = np.concatenate(alive)
        # Those of one step in the order of their lines.
        return records[np.lexsort((records, np.concatenate(taken)))]

    def _stat(self, record: Mapping[str, Any]) -> str:
        for text in (record.get("stat"), self._kind):
            match = _STAT.match(text) if isinstance(text, str) else None
            if match:
                return "grad" if match[1] == "wgrad" else match[1]
        raise _Skip(
            f"its statistic {record.get('stat') or self._kind!r:.60} is none of {', '.join(MOMENT_STATS)}"
        )

    def _ids_of(self, names: tuple[str, ...]) -> NDArray[np.int32]:
        if names != self._last:
            known = self._names
            if names not in self._known:
                ids = (known.setdefault(name, len(known)) for name in names)
                self._known[names] = np.fromiter(ids, np.int32, len(names))
            self._last, self._last_ids = names, self._known[names]
        return self._last_ids


def read_chunk(
    data: bytes, begin: int, kind: str, rank: int, before: Callable[[], int] = lambda: 0
) -> tuple[pa.Table, Stretch]:
    """Read complete lines. What cannot be read is left out and told, and nothing else with it.

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

    Returns
    -------
    table : pyarrow.Table
        :data:`ROWS`, by step, without records that later ones supersede.
    stretch : Stretch
        What the lines say, without what only their file tells.
    """
    builder = _Builder(kind, rank)
    problems: list[Problem] = []
    left_out = 0
    for number, text in enumerate(data.split(b"\n"), 1):
        if not text or text.isspace():
            continue
        try:
            problem = builder.add(_parse(text), before, number)
        except _Skip as skip:
            problem = str(skip)
        except (ValueError, RecursionError, OverflowError) as error:
            problem = f"it is no JSON ({str(error)[:80]})"
        if problem:
            left_out += 1
            if len(problems) < MOST_PROBLEMS:
                problems.append((number, problem))
    table = builder.table()
    unscaled = table.filter(pc.is_nan(table["loss_scale"]))["stat"].unique().to_pylist()
    return table, Stretch(
        begin=begin,
        end=begin + len(data),
        lines=data.count(b"\n"),
        problems=tuple(problems),
        left_out=left_out,
        courses=builder.courses(),
        unscaled=tuple(unscaled),
    )


def _parse(text: bytes) -> dict[str, Any]:
    if len(text) > _MOST_SIGNS and _signs(text) > _MOST_SIGNS:
        raise _Skip(f"it holds more than {_MOST_SIGNS:,} commas, colons and brackets")
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        if b"NaN" not in text and b"Infinity" not in text:
            record = _explained(text)
        else:
            try:
                # As texts they go through the fast parser; float() reads them afterwards.
                record = orjson.loads(_BARE.sub(rb'\1"\2"', text))
            except orjson.JSONDecodeError:
                record = _explained(text)
    if not isinstance(record, dict):
        raise _Skip("it is no JSON object")
    values = record.get("values")
    # A name that comes twice would vanish silently; telling it costs one look at the text.
    if isinstance(values, dict) and text.count(b'"sum_1"') > len(values):
        twice = _twice(text)
        if twice:
            record["twice"] = twice
    return record


def _explained(text: bytes) -> Any:
    """Return what Python's own parser reads, which takes too large numbers, or says why it is no JSON."""
    if len(text) > _MOST_EXPLAINED:
        raise _Skip("it is no JSON")
    record = json.loads(text)
    try:
        json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise _Skip("its text holds half a surrogate pair") from None
    return record


def _signs(text: bytes) -> int:
    """Return how many members and lists a text may have, unparsed: each takes much memory once parsed."""
    signs = np.frombuffer(text, np.uint8)
    return sum(int(np.count_nonzero(signs == sign)) for sign in b",:[")


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


def _step(record: Mapping[str, Any], before: Callable[[], int], number: int) -> int:
    for key in ("iter", "step", "global_step"):
        value = record.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if isinstance(value, float) and not math.isfinite(value):
            continue
        if not 0 <= value <= LAST_STEP:
            raise _Skip(f"its step {value!r:.40} is {'negative' if value < 0 else 'too large'}")
        return int(value)
    return before() + number


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
