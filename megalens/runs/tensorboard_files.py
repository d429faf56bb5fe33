"""Event files of TensorBoard by any writer (torch, Lightning, Megatron-LM, …): their numbers over steps."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..protocol import shown_text
from .errors import ClientError
from .exports.event_files import needed_module
from .foreign_files import (
    ForeignFiles,
    ForeignRows,
    Progress,
    cached_recording,
    files_within,
    head_of,
)
from .foreign_numbers import Numbers
from .moments import find_trees
from .run_folder import RunFolder

__all__ = ["EVENT_FILES"]

_VERSION = "tensorboard 3"
_ENDING = re.compile(r"tfevents")
_RANK = re.compile(r"rank[-_]?(\d{1,6})", re.IGNORECASE)
_MOST_FOLDERS, _MOST_NAMED = 1_000, 5
_MOST_RECORD = 1 << 16
"""Bytes; what is larger is a picture or a graph, and its checksum would take long."""
_HEAD, _TAIL = struct.Struct("<QI"), struct.Struct("<I")
_TOLD_EVERY = 1 << 12
_FLOAT, _DOUBLE = 1, 2
"""Of TensorFlow's types of tensors."""


def holds_events(path: Path, within: Path | None = None) -> bool:
    """Return whether a file or folder holds event files, and no statistics, which say more."""
    folders = _folders(path, within)
    if not any(_is_events(file) for files in folders.values() for file in files[:_MOST_NAMED]):
        return False
    try:
        find_trees(path)
    except ClientError:
        return True
    return False


def event_recording(path: Path, progress: Progress | None = None, within: Path | None = None) -> RunFolder:
    """Return the recording of one run's event files; changed files are read anew.

    A folder's own files are the run, and those of its subfolders have the folder's name before their names.
    Raises ``ClientError`` for folders of several runs, and where a package is missing.
    """
    chosen = _one_run(path, _folders(path, within))
    files = [file for files in chosen.values() for file in files]
    return cached_recording(path, files, _VERSION, lambda: read_numbers(chosen, progress))


EVENT_FILES = ForeignFiles(holds_events, event_recording)


def _is_events(file: Path) -> bool:
    return _length(head_of(file, _HEAD.size)) is not None


def _folders(path: Path, within: Path | None) -> dict[str, list[Path]]:
    """Return event files by their folder below the path: itself (``""``), or one or two levels deeper."""
    found = {"": files_within(path, _ENDING, within)}
    levels = [[path]]
    for _ in range(2):
        levels.append([folder for above in levels[-1] for folder in _inside(above)])
        for folder in levels[-1][:_MOST_FOLDERS]:
            found[folder.relative_to(path).as_posix()] = files_within(folder, _ENDING, within)
    return {name: files for name, files in found.items() if files}


def _inside(folder: Path) -> list[Path]:
    """Return the folders in one; none of what may not be looked at."""
    found: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            found = [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(found)[:_MOST_FOLDERS]


def _one_run(path: Path, folders: dict[str, list[Path]]) -> dict[str, list[Path]]:
    """Return the files of the one run that is there, by what their names begin with."""
    if "" in folders:
        return folders
    if len(folders) == 1:
        return {"": next(iter(folders.values()))}
    if all(_RANK.fullmatch(name.rpartition("/")[2]) for name in folders):
        parents = {name.rpartition("/")[0] for name in folders}
        if len(parents) == 1:
            return {name.rpartition("/")[2]: files for name, files in folders.items()}
    # One folder may hold the others: what add_scalars writes lies beside the run's own file.
    top = [name for name in folders if all(each == name or each.startswith(f"{name}/") for each in folders)]
    if top:
        return {name[len(top[0]) :].lstrip("/"): files for name, files in folders.items()}
    names = [shown_text(name, 100) for name in folders]
    named = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    raise ClientError(
        f"{shown_text(path.name, 200)} holds TensorBoard files of {len(names)} runs: open one of {named}.",
        code="several-runs",
    )


def read_numbers(folders: dict[str, list[Path]], progress: Progress | None = None) -> ForeignRows:
    """Return the numbers of files, by what goes before their names.

    Raises ``ClientError`` where there are none.
    """
    event = needed_module("tensorboardX.proto.event_pb2").Event
    numbers, problems = Numbers(), list[str]()
    total = sum(file.stat().st_size for files in folders.values() for file in files)
    done = 0
    for name, files in folders.items():
        named = _RANK.fullmatch(name)
        rank, before = (int(named[1]), "") if named else (0, f"{name}/" if name else "")
        for file in files:
            shown = shown_text(file.name, 200)
            with file.open("rb") as data:
                for count, record in enumerate(_records(data, shown, numbers, problems)):
                    if progress is not None and count % _TOLD_EVERY == 0:
                        progress(done + data.tell(), total, f"reading {shown}")
                    _take(event, record, rank, before, numbers)
            done += file.stat().st_size
    if not len(numbers):
        raise ClientError("The TensorBoard files hold no numbers over steps.", code="unreadable")
    problems += numbers.problems()
    origin = {"kind": "trace", "name": "TensorBoard", "steps": "counted"}
    return ForeignRows(origin, numbers.streams(), problems)


def _length(head: bytes) -> int | None:
    """Return how long a record is, by its checked head; None for what is none."""
    if len(head) < _HEAD.size:
        return None
    length, checksum = _HEAD.unpack(head)
    return length if _checksum(head[:8]) == checksum else None


def _checksum(data: bytes) -> int:
    masked: int = needed_module("tensorboardX.record_writer").masked_crc32c(data)
    return masked


def _records(data: BinaryIO, shown: str, numbers: Numbers, problems: list[str]) -> Iterator[bytes]:
    """Yield what may hold numbers. A file that is cut off, or damaged, gives what comes before that."""
    size = data.seek(0, 2)
    data.seek(0)
    while (at := data.tell()) < size:
        length = _length(data.read(_HEAD.size))
        if length is None or at + _HEAD.size + length + _TAIL.size > size:
            problems.append(f"{shown} is cut off or damaged after {at} bytes: what comes before is read.")
            return
        if length > _MOST_RECORD:
            numbers.left_out["large records (pictures, graphs)"] += 1
            data.seek(length + _TAIL.size, 1)
            continue
        record = data.read(length)
        if data.read(_TAIL.size) == _TAIL.pack(_checksum(record)):
            yield record
        else:
            numbers.left_out["damaged records"] += 1


def _take(event: Any, record: bytes, rank: int, before: str, numbers: Numbers) -> None:
    try:
        found = event.FromString(record)
    except Exception:
        # Protobuf's error class differs by its implementation.
        numbers.left_out["damaged records"] += 1
        return
    for each in found.summary.value:
        kind = each.WhichOneof("value")
        value = (
            each.simple_value if kind == "simple_value" else _of_tensor(each) if kind == "tensor" else None
        )
        if value is None:
            numbers.left_out["histograms, pictures and texts"] += 1
        else:
            numbers.add(found.step, found.wall_time, rank, before + each.tag, value)


def _of_tensor(value: Any) -> float | None:
    """Return the number that a newer writer keeps as a tensor without axes."""
    tensor = value.tensor
    if tensor.tensor_shape.dim or tensor.dtype not in (_FLOAT, _DOUBLE):
        return None
    form, values = ("<f", tensor.float_val) if tensor.dtype == _FLOAT else ("<d", tensor.double_val)
    content = tensor.tensor_content
    if len(content) == struct.calcsize(form):
        return float(struct.unpack(form, content)[0])
    return float(values[0]) if len(values) == 1 else None
