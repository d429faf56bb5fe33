"""Memory snapshots of torch (``torch.cuda.memory._dump_snapshot``), one file of each rank: pickles or JSON.

A child process, ``flight_pickle.py``, reads each and gives a summary. All rows are of step 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from ...protocol import shown_text, stream_schema
from ...runs.errors import ClientError
from ...runs.foreign_files import ForeignRows, Progress, files_within, foreign_files, head_of
from .flight_recorder import LOOKED_AT, read_each, read_in_child
from .span_columns import SpanColumns

__all__ = ["MEMORY_SNAPSHOTS"]

_NAMES = re.compile(r"^[^.]+$|\.(json|pickle|pkl)$", re.IGNORECASE)
_HEAD = 1 << 12
_JSON = re.compile(rb'\s*\{\s*"(segments|device_traces)"\s*:')
_PICKLE = re.compile(rb"\x80[\x02-\x05].{0,64}(segments|device_traces)", re.DOTALL)
_LAST = 1 << 62
_UNKNOWN = "no stack"
_NAME = "memory was recorded"


class _Device(msgspec.Struct, gc=False):
    device: int
    stretches: list[tuple[int, int, int, int, int, int]]
    held: list[tuple[str, int, int]]


_decode = msgspec.json.Decoder(list[_Device]).decode


def _is_snapshot(file: Path) -> bool:
    head = head_of(file, _HEAD)
    return bool(_JSON.match(head) or _PICKLE.match(head))


def read_snapshots(path: Path, files: Sequence[Path], progress: Progress | None = None) -> ForeignRows:
    """Return the memory of all devices over time, and what each line of code holds.

    Raises ``ClientError`` where none can be read.
    """
    problems: list[str] = []
    rows: list[dict[str, Any]] = []
    spans = SpanColumns()
    named: list[str] = []
    # rank_10 comes behind rank_9.
    ordered = sorted(files, key=lambda file: [(len(part), part) for part in re.split(r"(\d+)", file.name)])
    for shown, devices in read_each(ordered, _read, problems, progress):
        for device in devices:
            rank = len(named)
            named.append(f"rank {rank} is device {device.device} of {shown}")
            rows += _rows(device, rank)
            first, last = device.stretches[0][0] * 1000, device.stretches[-1][1] * 1000
            spans.add("user", rank, first, last, name=_NAME, step=1, blocked=0)
    if not rows:
        reason = f" {problems[0]}" if problems else ""
        raise ClientError(
            f"{shown_text(path.name, 200)} holds no memory of a device.{reason}", code="unreadable"
        )
    if len(named) > 1:
        problems.append(f"In these snapshots {', '.join(named[:8])}{' …' if len(named) > 8 else ''}.")
    table = pa.Table.from_pylist(rows, schema=stream_schema("memory"))
    origin = {"kind": "trace", "name": "PyTorch’s memory snapshot", "steps": "counted", "ranks": len(named)}
    return ForeignRows(origin, {"spans": spans.tables(), "memory": [table]}, problems)


MEMORY_SNAPSHOTS = foreign_files(
    "memory 1", partial(files_within, name=_NAMES), _is_snapshot, read_snapshots, looked_at=LOOKED_AT
)


def _read(file: Path) -> list[_Device]:
    if not _is_snapshot(file):
        raise ClientError("it is no memory snapshot, and left out.", code="unreadable")
    text = read_in_child(file, "memory", "it is no snapshot of plain values, or too large: at most 256 MiB.")
    try:
        devices = _decode(text)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"it cannot be read ({str(error)[:200]}).", code="unreadable") from error
    # A snapshot may say anything.
    fits = [
        device
        for device in devices
        if all(-_LAST < number * 1000 < _LAST for stretch in device.stretches for number in stretch[:2])
        and all(abs(number) < _LAST for stretch in device.stretches for number in stretch[2:])
        and all(abs(number) < _LAST for each in device.held for number in each[1:])
    ]
    found = [device for device in fits if device.held or any(each[5] for each in device.stretches)]
    if not found:
        raise ClientError("it holds no memory of a device.", code="unreadable")
    return found


def _rows(device: _Device, rank: int) -> list[dict[str, Any]]:
    always = {
        "step": 1, "rank": rank, "stage": -1, "chunk": -1, "micro_batch": -1, "limit": 0, "limit_of": "",
        "device": f"cuda:{device.device}", "clock": 0,
    }  # fmt: skip
    reserved, end = device.stretches[-1][4], device.stretches[-1][1] * 1000
    timed = [
        {
            **always, "phase": "trace", "name": "", "start": start * 1000, "end": until * 1000,
            "before": before, "allocated": allocated, "reserved": now, "peak": peak,
        }
        for start, until, before, allocated, now, peak in device.stretches
    ]  # fmt: skip
    held = [
        {
            **always, "phase": "held", "name": place or _UNKNOWN, "start": end, "end": end, "before": 0,
            "allocated": now, "reserved": reserved, "peak": then,
        }
        for place, now, then in device.held
    ]  # fmt: skip
    return timed + held
