"""Dumps of PyTorch's flight recorder, one of each rank: its last collectives, and which did not end.

As JSON they are decoded here. A pickle is read by a child process, ``flight_pickle.py``, which gives the same
JSON. Steps are not in them: all is of step 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import nan, prod
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from ...protocol import join_numbers, ranges_text, shown_text, stream_schema
from ...runs.errors import ClientError
from ...runs.foreign_files import ForeignRows, Progress, files_within, foreign_files, head_of
from . import flight_pickle
from .span_columns import SpanColumns, near
from .spans import ranks_text
from .stuck import RULE, Group, Hang, RankCalls, RecordedCall, find_stuck, members_of

__all__ = ["FLIGHT_DUMPS"]

_Found = TypeVar("_Found")
_NAMES = re.compile(r"^[^.]+$|\.(json|pickle|pkl|txt)$", re.IGNORECASE)
_RANK = re.compile(r"(\d{1,7})(?:\.[a-z]+)?$", re.IGNORECASE)
_HEAD, _MOST_JSON = 1 << 12, 1 << 24
_JSON = re.compile(
    rb'\s*\{\s*"(?:comm_lib_version|nccl_version|nccl_comm_state|pg_config|pg_status)"\s*:'
    rb'|\s*\{\s*"entries"\s*:\s*\[\s*\{(?=.*"collective_seq_id")',
    re.DOTALL,
)
_PICKLE = re.compile(
    rb"\x80[\x02-\x05].*(?:comm_lib_version|nccl_version|pg_config|collective_seq_id)", re.DOTALL
)
LOOKED_AT = 20
"""Files whose beginnings are asked what they are."""
_CHILD_SECONDS = 60
_REFUSED = (
    "it is no pickle of plain values, or too large. Dump it as JSON, by "
    "torch._C._distributed_c10d._dump_fr_trace_json()."
)
_MOST_CALLS, _LEAST_CALLS = 500_000, 64
_MOST_SIZES, _MOST_VALUES, _MOST_RANK = 4_096, 1 << 50, 1 << 20
_LAST_NS = 1 << 62
_BYTES = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2,
}  # fmt: skip


class _Config(msgspec.Struct, gc=False):
    ranks: str = ""


class _Status(msgspec.Struct, gc=False):
    last_enqueued_collective: int | str = 0


class _DumpedCall(msgspec.Struct, gc=False):
    """The members of a call that are used."""

    collective_seq_id: int
    profiling_name: str
    process_group: tuple[str, str]
    time_created_ns: int
    pg_id: int = 0
    time_discovered_completed_ns: int | None = 0
    state: str = ""
    retired: bool = False
    is_p2p: bool = False
    input_sizes: msgspec.Raw = msgspec.Raw(b"[]")
    input_dtypes: msgspec.Raw = msgspec.Raw(b"[]")
    where: str = ""


class _Dump(msgspec.Struct, gc=False):
    entries: list[_DumpedCall] = []
    pg_config: dict[str, _Config] = {}
    pg_status: dict[str, _Status] = {}


_decode = msgspec.json.Decoder(_Dump).decode
_sizes = msgspec.json.Decoder(list[list[int]]).decode
_texts = msgspec.json.Decoder(list[str]).decode
_numbers = msgspec.json.Decoder(list[int]).decode


def _kind(file: Path) -> str:
    head = head_of(file, _HEAD)
    return "json" if _JSON.match(head) else "pickle" if _PICKLE.match(head) else ""


def read_dumps(path: Path, files: Sequence[Path], progress: Progress | None = None) -> ForeignRows:
    """Return the collectives of all ranks, and in what they are stuck.

    Raises ``ClientError`` where none can be read, or none holds a call.
    """
    problems: list[str] = []
    kept: dict[int, RankCalls] = {}
    most = max(_LEAST_CALLS, _MOST_CALLS // max(1, len(files)))

    def read(file: Path) -> RankCalls:
        return _read(file, _rank(file, kept, problems), most)

    for _, found in read_each(files, read, problems, progress):
        before = kept.get(found.rank)
        if before is not None:
            problems.append(f"Rank {found.rank} has several dumps: the one with the latest call counts.")
        if before is None or _latest(found) > _latest(before):
            kept[found.rank] = found
    dumps = [kept[rank] for rank in sorted(kept)]
    if not any(dump.calls or dump.messages for dump in dumps):
        reason = f" {problems[0]}" if problems else ""
        raise ClientError(
            f"{shown_text(path.name, 200)} holds no collective of the flight recorder.{reason}",
            code="unreadable",
        )
    members = members_of(dumps)
    world = max(1 + max(kept), *(1 + max(ranks) for ranks in members.values()), 1)
    missing = [rank for rank in range(min(world, _MOST_RANK)) if rank not in kept]
    if missing:
        problems.append(f"There is no dump of {ranks_text(missing)}.")
    found_stuck = find_stuck(dumps)
    if not found_stuck:
        problems.append(
            "Every collective in these dumps ended, and all ranks called the same: nobody is stuck."
        )
    spans = _spans(dumps, members)
    if spans.full:
        problems.append(f"The dumps hold more than {len(spans)} calls: the rest is left out.")
    origin = {"kind": "trace", "name": "PyTorch’s flight recorder", "steps": "counted", "ranks": world}
    return ForeignRows(origin, {"spans": spans.tables(), "alarms": [_alarms(found_stuck)]}, problems)


FLIGHT_DUMPS = foreign_files(
    "flight 1", partial(files_within, name=_NAMES), _kind, read_dumps, looked_at=LOOKED_AT
)


def read_each(
    files: Sequence[Path], read: Callable[[Path], _Found], problems: list[str], progress: Progress | None
) -> Iterator[tuple[str, _Found]]:
    """Yield the printable name of each file with what it holds; what is refused becomes a problem."""
    for number, file in enumerate(files):
        shown = shown_text(file.name, 200)
        if progress is not None:
            progress(number, len(files), f"reading {shown}")
        try:
            found = read(file)
        except ClientError as error:
            problems.append(f"{shown}: {error}")
        else:
            yield shown, found


def _rank(file: Path, kept: dict[int, RankCalls], problems: list[str]) -> int:
    """Return the number at the end of a file's name, else the first that is free."""
    said = _RANK.search(file.name)
    if said and int(said[1]) < _MOST_RANK:
        return int(said[1])
    rank = next(rank for rank in range(len(kept) + 1) if rank not in kept)
    problems.append(f"{shown_text(file.name, 200)} does not say its rank; it is taken for rank {rank}.")
    return rank


def _read(file: Path, rank: int, most: int) -> RankCalls:
    kind = _kind(file)
    if not kind:
        raise ClientError("it is no dump of the flight recorder, and left out.", code="unreadable")
    text = read_in_child(file, "flight", _REFUSED) if kind == "pickle" else _bytes(file)
    try:
        return _calls(_decode(text), rank, most)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"it cannot be read ({str(error)[:200]}).", code="unreadable") from error


def _bytes(file: Path) -> bytes:
    with file.open("rb") as opened:
        text = opened.read(_MOST_JSON + 1)
    if len(text) > _MOST_JSON:
        raise ClientError(f"it must have at most {_MOST_JSON >> 20} MiB.", code="too-large")
    return text


def read_in_child(file: Path, what: str, refused: str) -> bytes:
    """Return as JSON what a child process reads of a pickle: ``flight`` or ``memory``.

    Raises ``ClientError``, which is ``refused`` where the child reads none.
    """
    command = [sys.executable, "-I", "-S", flight_pickle.__file__, what]
    with (
        file.open("rb") as opened,
        subprocess.Popen(
            command, stdin=opened, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        ) as child,
    ):
        try:
            text, _ = child.communicate(timeout=_CHILD_SECONDS)
        except BaseException as error:
            child.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise ClientError(f"reading it takes more than {_CHILD_SECONDS} s.", code="unreadable") from error
    if child.returncode:
        raise ClientError(refused, code="unreadable")
    return text


def _calls(dump: _Dump, rank: int, most: int) -> RankCalls:
    found = RankCalls(rank)
    numbers: dict[int, Group] = {}
    for entry in dump.entries[-most:]:
        fits = 0 <= entry.collective_seq_id < _LAST_NS and 0 < entry.time_created_ns < _LAST_NS
        if not fits or not entry.profiling_name:
            continue
        group = (entry.process_group[0][:200], entry.process_group[1][:200])
        numbers[entry.pg_id] = group
        call = _call(entry)
        if entry.is_p2p:
            if not call.done:
                found.messages.append(call)
        else:
            # Of what was called as one, the last entry says how it ended.
            found.calls.setdefault(group, {})[call.number] = call
    for pg, status in dump.pg_status.items():
        group_of = numbers.get(int(pg) if pg.isdecimal() and len(pg) < 10 else -1)
        last = str(status.last_enqueued_collective)
        if group_of is not None and last.isdecimal() and len(last) < 19:
            found.last[group_of] = int(last)
    for group in found.calls:
        if (config := dump.pg_config.get(group[0])) is not None:
            found.members[group] = _ranks(config.ranks)
    return found


def _call(entry: _DumpedCall) -> RecordedCall:
    ended = entry.time_discovered_completed_ns or 0
    sizes: tuple[tuple[int, ...], ...] = ()
    types: list[str] = []
    if len(entry.input_sizes) <= _MOST_SIZES and len(entry.input_dtypes) <= _MOST_SIZES:
        sizes, types = tuple(map(tuple, _sizes(entry.input_sizes))), _texts(entry.input_dtypes)
    if (
        not all(0 <= axis < _MOST_VALUES for size in sizes for axis in size)
        or sum(map(prod, sizes)) > _MOST_VALUES
    ):
        sizes = ()
    return RecordedCall(
        name=entry.profiling_name.partition(":")[2][:100] or entry.profiling_name[:100],
        number=entry.collective_seq_id,
        created=entry.time_created_ns,
        ended=ended if entry.time_created_ns <= ended < _LAST_NS else 0,
        done=entry.retired or entry.state == "completed" or ended > 0,
        sizes=sizes,
        dtype=types[0][:50] if types else "",
        where=entry.where[:200],
    )


def _ranks(text: str) -> tuple[int, ...]:
    """Return the ranks of a text such as ``[0, 1, 2]``; none where it says something else."""
    try:
        ranks = _numbers(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(ranks) if all(0 <= rank < _MOST_RANK for rank in ranks) else ()


def _latest(dump: RankCalls) -> int:
    return max((call.created for calls in dump.calls.values() for call in calls.values()), default=0)


def _spans(dumps: Sequence[RankCalls], members: dict[Group, tuple[int, ...]]) -> SpanColumns:
    """Return a span for each call; one that did not end lasts to the last time that any dump knows."""
    spans = SpanColumns()
    until = max(
        (
            max(call.created, call.ended)
            for dump in dumps
            for of in dump.calls.values()
            for call in of.values()
        ),
        default=0,
    )
    names = {group: ranges_text(join_numbers(ranks)) for group, ranks in members.items()}
    for dump in dumps:
        for group, calls in dump.calls.items():
            for call in calls.values():
                end = call.ended or (call.created if call.done else until)
                spans.add(
                    "collective", dump.rank, call.created, end, name=call.name, step=1, group=names[group],
                    sequence=call.number, bytes=min(call.elements * _BYTES.get(call.dtype, 1), _LAST_NS),
                )  # fmt: skip
    spans.keep(near(spans["start"], spans["end"]))
    return spans


def _alarms(found: Sequence[Hang]) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {
            "step": 1, "time": each.time, "rank": each.ranks[0] if len(each.ranks) == 1 else -1, "stage": -1,
            "micro_batch": -1, "rule": RULE, "severity": "critical" if each.critical else "note",
            "direction": "communication", "stat": "span", "name": each.name, "statistic": "call",
            "value": float(each.number), "expected": nan, "sentence": each.sentence, "place": place,
            "samples": "", "cause": 0,
        }
        for place, each in enumerate(found)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=stream_schema("alarms"))
