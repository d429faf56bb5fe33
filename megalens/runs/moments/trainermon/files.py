"""Finding the CSV files that TrainerMon wrote, in both of its layouts."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
_MOST_BYTES = 2 << 30
_MOST_COLUMNS = 64
_MOST_HEADERS = 1_000
_ROWS = 20_000


def read_csv_table(path: Path) -> tuple[pa.Table, list[str]]:
    """Read the complete lines of a file.

    Returns the table (texts, whole numbers and float64) and sentences about what was left out. A line that
    begins with the header's first word begins with other columns; missing columns are null. Raises
    ``unreadable`` for one too large.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ClientError(
                f"{shown_text(path.name, 200)} has more than {_MOST_BYTES >> 30} GiB.", code="unreadable"
            )
        text = path.read_bytes()
    except OSError as error:
        raise ClientError(
            f"{shown_text(path.name, 200)} cannot be read: {error.strerror}.", code="unreadable"
        ) from error
    # The last line may be incomplete.
    text = text[: text.rfind(b"\n") + 1]
    first = text.partition(b"\n")[0].strip()
    header = first.decode("utf-8", "replace").split(",")
    if not first:
        return pa.table({}), []
    if header == ["module_name", STACKS]:
        return _stacks(path, text)
    if "step" not in header or len(header) > _MOST_COLUMNS or len({*header}) < len(header):
        return pa.table({}), [f"{shown_text(path.name, 200)} begins with no header of TrainerMon's."]
    try:
        return pa.csv.read_csv(
            pa.BufferReader(text),
            # Its bytes may be no UTF-8, which would fail where its names are asked for.
            read_options=pa.csv.ReadOptions(column_names=header, skip_rows=1),
            parse_options=pa.csv.ParseOptions(newlines_in_values=False),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: _type(name) for name in header}, null_values=[]
            ),
        ), []
    except pa.ArrowInvalid:
        return _line_by_line(path, text, header)


def _stacks(path: Path, text: bytes) -> tuple[pa.Table, list[str]]:
    """Read where modules are called from: texts of several lines, in quotes."""
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(text), "utf-8", "replace", newline=""), strict=True)
    header, *rows = _readable(lines)
    good = [cells for cells in rows if cells is not None and len(cells) == 2]
    wrong = len(rows) - len(good)
    problems = [f"{shown_text(path.name, 200)}: {wrong:,} of its entries are damaged and left out."]
    return _table(header or [], good), problems if wrong else []


def _type(name: str) -> pa.DataType:
    return pa.utf8() if name in _TEXTS else pa.int64() if name in _INTEGERS else pa.float64()


def _line_by_line(path: Path, text: bytes, header: list[str]) -> tuple[pa.Table, list[str]]:
    """Read a file in which some lines do not fit its header.

    Few of its rows are Python's at a time. Lines below a header that is one too many do not fit.
    """
    found: list[pa.Table] = []
    rows: list[list[Any]] = []
    columns, headers, fits = {*header}, 0, True
    wrong = first = 0
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(text), "utf-8", "replace", newline=""))
    for number, cells in enumerate(_readable(lines), 1):
        if cells == header:
            fits = True
            continue
        if cells and cells[0] == header[0] and "step" in cells and len({*cells}) == len(cells):
            headers += 1
            fits = headers < _MOST_HEADERS and len(columns | {*cells}) <= _MOST_COLUMNS
            if fits:
                columns |= {*cells}
                found.append(_table(header, rows))
                header, rows = cells, []
                continue
        values = None if not fits or cells is None or len(cells) != len(header) else _values(header, cells)
        if values is not None:
            rows.append(values)
            if len(rows) == _ROWS:
                found.append(_table(header, rows))
                rows = []
        elif cells != []:
            wrong, first = wrong + 1, first or number
    found.append(_table(header, rows))
    table = pa.concat_tables(
        [each for each in found if each.num_rows] or found[:1], promote_options="default"
    )
    several = "1 line does" if wrong == 1 else f"{wrong:,} lines do"
    problems = [
        f"{shown_text(path.name, 200)}: {several} not fit the header and {'is' if wrong == 1 else 'are'} "
        f"left out, the first is line {first}."
    ]
    return table, problems if wrong else []


def _readable(lines: Any) -> Iterator[list[str] | None]:
    while True:
        try:
            yield next(lines)
        except StopIteration:
            return
        except csv.Error:
            yield None


def _values(header: list[str], cells: list[str]) -> list[Any] | None:
    try:
        return [
            cell if name in _TEXTS else int(cell) if name in _INTEGERS else float(cell)
            for name, cell in zip(header, cells, strict=True)
        ]
    except ValueError:
        return None


def _table(header: list[str], rows: list[list[Any]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    try:
        return pa.table(
            {name: pa.array(column, _type(name)) for name, column in zip(header, columns, strict=True)}
        )
    except (OverflowError, pa.ArrowInvalid):
        return _table(
            header, [row for row in rows if all(not isinstance(x, int) or abs(x) < 2**63 for x in row)]
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
