"""Finding the CSV files that TrainerMon wrote, in both of its layouts."""

from __future__ import annotations

import csv
import io
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ....protocol import shown_text
from ...errors import ClientError

KINDS = {
    "actv": "activation",
    "actv_grad": "dgrad",
    "grad_unreduced": "grad_unreduced",
    "grad_reduced": "grad",
    "exp_avg": "exp_avg",
    "exp_avg_sq": "exp_avg_sq",
    "param_origin": "param_origin",
    "param_updated": "param",
}
"""What each kind of file measures, in words of the stream ``moments``."""

STACKS = "stack_info"
"""From where each module was called first: no statistics."""

_TEXTS = ("name", "module_name", "scope", "shape", "dtype", STACKS)
_INTEGERS = ("vpp_stage", "step", "micro_step")
_MOST_COLUMNS = 64
_MOST_HEADERS = 1_000
_MOST_HEADER_BYTES = 1 << 16
_BLOCK, _MOST_BLOCK = 4 << 20, 16 << 20
"""Bytes that are read at a time, and at most so that no step is cut."""
_ROWS = 20_000
_MOST_STACKS = 16 << 20
_TAIL = 256


@dataclass(frozen=True)
class CsvPlace:
    """How far a file was read: to the end of a line, as a rule the last one of a step.

    ``columns`` are those of all headers so far, ``fits`` says whether lines may fit the one that came last.
    ``wrong`` lines were left out, the first of them ``first_wrong``. ``tail`` tells whether it is the same
    file.
    """

    end: int = 0
    line: int = 0
    tail: int = 0
    header: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    headers: int = 0
    fits: bool = True
    wrong: int = 0
    first_wrong: int = 0
    last_step: int = -1
    disorder: bool = False

    @classmethod
    def of_json(cls, members: dict[str, Any]) -> CsvPlace:
        """Return a place of its members as JSON has them; else raises ``TypeError`` or ``KeyError``."""
        return cls(**{**members, "header": tuple(members["header"]), "columns": tuple(members["columns"])})

    def problems(self, name: str) -> list[str]:
        """Return sentences about what was left out."""
        shown, found = shown_text(name, 200), []
        if self.end and not self.header:
            found.append(f"{shown} begins with no header of TrainerMon's.")
        if self.wrong:
            lines, are = ("1 line does", "is") if self.wrong == 1 else (f"{self.wrong:,} lines do", "are")
            found.append(
                f"{shown}: {lines} not fit the header and {are} left out, the first is line "
                f"{self.first_wrong}."
            )
        if self.disorder:
            found.append(
                f"{shown}: its steps are not in order; lines of one step that are far apart count each."
            )
        return found

    def is_of(self, path: Path) -> bool:
        """Whether a file begins with what was read of this one, as far as its size and a few bytes tell."""
        try:
            with path.open("rb") as file:
                return os.fstat(file.fileno()).st_size >= self.end and _tail(file, self.end) == self.tail
        except OSError:
            return False


def csv_blocks(path: Path, place: CsvPlace | None = None) -> Iterator[tuple[pa.Table, CsvPlace]]:
    """Yield complete lines some at a time, with how far that is; all lines of a step together, if they may.

    Tables are of texts, whole numbers and float64. A line that begins with the header's first word begins
    with other columns. The last line may be incomplete, and is left for later. Raises ``unreadable`` where
    the file cannot be read.
    """
    place = place or CsvPlace()
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not place.end:
                place = _first_line(file)
            most = _BLOCK
            while place.header and place.end < size:
                file.seek(place.end)
                text = file.read(min(most, size - place.end))
                last = place.end + len(text) >= size
                text = text[: text.rfind(b"\n") + 1]
                if not text:
                    if last or (place := _past_line(file, place, size)) is None:
                        return
                    continue
                table, upto = _parsed(text, place, last)
                if upto.end == place.end:
                    # All of one step.
                    if most < _MOST_BLOCK:
                        most *= 2
                        continue
                    table, upto = _parsed(text, place, True)
                most, place = _BLOCK, replace(upto, tail=_tail(file, upto.end))
                yield table, place
            if not place.header and place.end:
                yield pa.table({}), place
    except OSError as error:
        raise ClientError(
            f"{shown_text(path.name, 200)} cannot be read: {error.strerror}.", code="unreadable"
        ) from error


def read_csv_table(path: Path) -> tuple[pa.Table, list[str]]:
    """Read all complete lines of a file, and return sentences about what was left out of it."""
    if csv_kind(path.name) == STACKS:
        return _stacks(path)
    blocks = list(csv_blocks(path))
    tables = [table for table, _ in blocks]
    some = [table for table in tables if table.num_rows] or tables[:1]
    whole = pa.concat_tables(some, promote_options="default") if some else pa.table({})
    return whole, blocks[-1][1].problems(path.name) if blocks else []


def _first_line(file: BinaryIO) -> CsvPlace:
    line = file.readline(_MOST_HEADER_BYTES)
    # Its bytes may be no UTF-8, which costs no more than a column.
    header = tuple(line.strip().decode("utf-8", "replace").split(","))
    if not line.strip():
        return CsvPlace()
    if not line.endswith(b"\n"):
        return CsvPlace(end=len(line)) if len(line) == _MOST_HEADER_BYTES else CsvPlace()
    fine = "step" in header and len(header) <= _MOST_COLUMNS and len({*header}) == len(header)
    place = CsvPlace(end=len(line), line=1, tail=_tail(file, len(line)))
    return replace(place, header=header, columns=header) if fine else place


def _past_line(file: BinaryIO, place: CsvPlace, size: int) -> CsvPlace | None:
    """Return the place behind a line that is longer than a block; None where it has no end yet."""
    at = place.end + _BLOCK
    file.seek(at)
    while at < size and (text := file.read(_BLOCK)):
        found = text.find(b"\n")
        if found >= 0:
            line = place.line + 1
            wrong, first = place.wrong + 1, place.first_wrong or line
            return replace(place, end=at + found + 1, line=line, wrong=wrong, first_wrong=first)
        at += len(text)
    return None


def _tail(file: BinaryIO, end: int) -> int:
    file.seek(max(0, end - _TAIL))
    return zlib.crc32(file.read(min(_TAIL, end)))


def _parsed(text: bytes, place: CsvPlace, last: bool) -> tuple[pa.Table, CsvPlace]:
    """Read whole lines; where they are not the ``last`` ones, those of the step that may go on are left."""
    found = _all_fit(text, place)
    table, upto, cut = found or _line_by_line(text, place)
    if not last and cut is not None:
        table, upto = table.slice(0, table.num_rows - cut[0]), cut[1]
    if table.num_rows and "step" in table.column_names:
        steps = table["step"].drop_null().to_numpy()
        if len(steps):
            disorder = place.disorder or bool(steps.min() <= place.last_step and not place.wrong)
            upto = replace(upto, last_step=max(place.last_step, int(steps.max())), disorder=disorder)
    return table, upto


_Cut = tuple[int, CsvPlace] | None
"""How many rows come from the last change of the step on, and the place before these."""


def _all_fit(text: bytes, place: CsvPlace) -> tuple[pa.Table, CsvPlace, _Cut] | None:
    """Return what Arrow reads of lines that all fit; None where some do not."""
    if not place.fits:
        return None
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(column_names=place.header),
            parse_options=pa.csv.ParseOptions(newlines_in_values=False),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: _type(name) for name in place.header}, null_values=[]
            ),
        )
    except pa.ArrowInvalid:
        return None
    lines = text.count(b"\n")
    if table.num_rows != lines:
        return None
    steps = table["step"].to_numpy()
    changes = np.flatnonzero(steps[1:] != steps[:-1])
    several = lines - 1 - int(changes[-1]) if len(changes) else lines
    at = len(text) - 1
    for _ in range(several):
        at = text.rfind(b"\n", 0, at)
    upto = replace(place, end=place.end + len(text), line=place.line + lines)
    return table, upto, (several, replace(place, end=place.end + at + 1, line=upto.line - several))


def _stacks(path: Path) -> tuple[pa.Table, list[str]]:
    """Read where modules are called from: texts of several lines, in quotes."""
    good: list[list[Any]] = []
    damaged = 0
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > _MOST_STACKS:
            raise ClientError(
                f"{shown_text(path.name, 200)} has more than {_MOST_STACKS >> 20} MiB.", code="unreadable"
            )
        lines = csv.reader(io.TextIOWrapper(file, "utf-8", "replace", newline=""), strict=True)
        header: list[str] | None = None
        while True:
            try:
                cells = next(lines)
            except StopIteration:
                break
            except csv.Error:
                cells = []
            if header is None:
                if cells != ["module_name", STACKS]:
                    return pa.table({}), [
                        f"{shown_text(path.name, 200)} begins with no header of TrainerMon's."
                    ]
                header = cells
            elif len(cells) == len(header):
                good.append(cells)
            else:
                damaged += 1
    problems = [f"{shown_text(path.name, 200)}: {damaged:,} of its entries are damaged and left out."]
    return _table(("module_name", STACKS), good), problems if damaged else []


def _type(name: str) -> pa.DataType:
    return pa.utf8() if name in _TEXTS else pa.int64() if name in _INTEGERS else pa.float64()


def _line_by_line(text: bytes, place: CsvPlace) -> tuple[pa.Table, CsvPlace, _Cut]:
    """Read lines of which some do not fit their header.

    Few of their rows are Python's at a time. Lines below a header that is one too many do not fit.
    """
    found: list[pa.Table] = []
    rows: list[list[Any]] = []
    known, wrong, first = place, place.wrong, place.first_wrong
    count, line, begin, step = 0, place.line, 0, None
    # Rows, offset and line before those of the last step, and what was known and wrong there.
    cut = (0, 0, line, known, wrong, first)
    while begin < len(text):
        at, begin, line = begin, text.index(b"\n", begin) + 1, line + 1
        cells, values = _cells(text[at:begin]), None
        if cells == []:
            continue
        if cells is not None and len(cells) == len(known.header):
            if cells == [*known.header]:
                known = known if known.fits else replace(known, fits=True)
                continue
            values = _values(known.header, cells) if known.fits else None
        if values is not None:
            now = values[known.header.index("step")]
            if now != step:
                step, cut = now, (count, at, line - 1, known, wrong, first)
            rows.append(values)
            count += 1
            if len(rows) == _ROWS:
                found.append(_table(known.header, rows))
                rows = []
            continue
        if cells and cells[0] == known.header[0] and "step" in cells and len({*cells}) == len(cells):
            other = _with_header(known, tuple(cells))
            if other.fits:
                found.append(_table(known.header, rows))
                known, rows = other, []
                continue
            known = other
        wrong, first = wrong + 1, first or line
    found.append(_table(known.header, rows))
    table = pa.concat_tables(
        [each for each in found if each.num_rows] or found[:1], promote_options="default"
    )

    def behind(offset: int, line: int, known: CsvPlace, wrong: int, first: int) -> CsvPlace:
        return replace(known, end=place.end + offset, line=line, wrong=wrong, first_wrong=first)

    return (
        table,
        behind(len(text), line, known, wrong, first),
        (count - cut[0], behind(*cut[1:])) if count else None,
    )


def _with_header(place: CsvPlace, header: tuple[str, ...]) -> CsvPlace:
    """Return a place below another header; as one whose lines do not fit where there are too many."""
    columns = dict.fromkeys((*place.columns, *header)) if place.headers < _MOST_HEADERS else {}
    place = replace(place, headers=min(place.headers + 1, _MOST_HEADERS))
    if place.headers >= _MOST_HEADERS or len(columns) > _MOST_COLUMNS:
        return replace(place, fits=False)
    return replace(place, header=header, columns=tuple(columns), fits=True)


def _cells(line: bytes) -> list[str] | None:
    """Return the cells of a line, nothing of an empty one, None where it is no CSV."""
    if line in (b"\n", b"\r\n"):
        return []
    try:
        return next(csv.reader([line.decode("utf-8", "replace").rstrip("\r\n")], strict=True), [])
    except csv.Error:
        return None


def _values(header: tuple[str, ...], cells: list[str]) -> list[Any] | None:
    """Return the values of a line; None where one is of another kind than its column."""
    try:
        values = [
            cell if name in _TEXTS else int(cell) if name in _INTEGERS else float(cell)
            for name, cell in zip(header, cells, strict=True)
        ]
    except ValueError:
        return None
    return None if any(isinstance(each, int) and abs(each) >= 2**63 for each in values) else values


def _table(header: tuple[str, ...], rows: list[list[Any]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    return pa.table(
        {name: pa.array(column, _type(name)) for name, column in zip(header, columns, strict=True)}
    )


_FEATURES = ("attention_hook", "linear_hook", "moe_router_weight_hook", "moe_router_logit_hook", "other")
OTHER_KINDS = (*_FEATURES, STACKS)

_FIRST = re.compile(rf"({'|'.join((*KINDS, *_FEATURES))})_(\d{{1,15}})-(\d{{1,15}})(_part_\d{{1,9}})?\.csv")
# Monitor V2.
_SECOND = re.compile(r"(module|weight_grad|optimizer|param|cc)_step(\d{1,15})-(\d{1,15})\.csv")
_FOLDER = re.compile(r"[\w-]{0,20}-rank(\d{1,5})-[\w-]{0,20}|rank_(\d{1,5})")


def csv_kind(name: str) -> str | None:
    """Return what a file is of by its name, such as ``grad_reduced``; None where it is not TrainerMon's."""
    if name == f"{STACKS}.csv":
        return STACKS
    found = _FIRST.fullmatch(name) or _SECOND.fullmatch(name)
    return None if found is None else found[1]


def rank_of_folder(folder: str | os.PathLike[str]) -> int | None:
    """Return the rank of a folder such as ``Nov21_12-20-04-rank0-82ac1f33`` or ``rank_0``, or None."""
    found = _FOLDER.fullmatch(Path(folder).name)
    return None if found is None else int(found[1] or found[2])
