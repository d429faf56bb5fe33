"""The content of ``run.json`` of a run folder, checked once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from ..protocol import (
    MOST_RUN_FILE_BYTES,
    STREAMS,
    ProtocolError,
    Stream,
    check_definition,
    parse_json,
    ranges_text,
    read_json_file,
    read_ranges,
    shown_text,
)
from ..protocol.messages_generated import Hello, RunFile
from . import arrow_compute as pc
from .errors import ClientError
from .query import Query

_FORMAT = 2


# Recordings of format 1, whose layers count from 1 with the embedding as 0: what names a layer in them,
# brought to the numbering from 0.
def query_from_one(query: Query) -> Query:
    """Return a query with layers as the old recording counts them."""
    layers, ranks = query.layers, query.ranks
    return replace(
        query,
        layers=layers and tuple((low + 1, high + 1) for low, high in layers),
        ranks=ranks and tuple((rank, of and tuple(layer + 1 for layer in of)) for rank, of in ranks),
    )


def rows_from_zero(stream: Stream, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of an old recording with layers from 0; a producer's stream counts as it declares."""
    names = batch.schema.names
    if stream.name not in STREAMS:
        return batch
    if "layer" in names:
        layers = batch.column("layer")
        # Unchecked: a damaged file may have any number.
        return _with(batch, "layer", pc.subtract(layers, pa.scalar(1, layers.type)))
    if stream.name == "audit" and "detail" in names:
        details = [_detail_from_zero(text) for text in batch.column("detail").to_pylist()]
        return _with(batch, "detail", pa.array(details, batch.schema.field("detail").type))
    return batch


def hello_from_zero(hello: Hello) -> Hello:
    """Return the ``hello`` of an old recording with layers from 0."""
    flags: Any = [{**info, "layers": [layer - 1 for layer in info["layers"]]} for info in hello["flags"]]
    config: Any = _settings_from_zero(hello["config"])
    return {**hello, "flags": flags, "config": config}


def _detail_from_zero(text: str) -> str:
    try:
        detail = parse_json(text)
        return (
            json.dumps(_settings_from_zero(detail), ensure_ascii=False) if isinstance(detail, dict) else text
        )
    except ValueError:
        return text


def _settings_from_zero(value: Any) -> Any:
    """Return a configuration, or a patch of one, in which every ``layers`` is a range text from 0."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: _text_from_zero(setting) if name == "layers" else _settings_from_zero(setting)
        for name, setting in value.items()
    }


def _text_from_zero(text: Any) -> Any:
    try:
        ranges = read_ranges(text, "layers") if isinstance(text, str) else None
    except ProtocolError:
        return text
    return text if ranges is None else ranges_text([(low - 1, high - 1) for low, high in ranges])


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, column)


def read_header(path: Path) -> RunFile:
    """Read ``run.json`` and check all of it, so that nobody has to check one of its values later."""
    try:
        # What reads Arrow files takes paths as text.
        os.fspath(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise unreadable(f"Its path must be UTF-8 text, got {shown_text(str(path), 200)}.") from error
    try:
        header = read_json_file(path / "run.json", MOST_RUN_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "does not exist"
        if path.exists():
            what = "is a file of no kind that is known here" if path.is_file() else "holds no run.json"
        raise ClientError(
            f"{shown_text(path.name or str(path), 200)} {what}. Give the folder of one recorded run, such as "
            "megalens-runs/<run id>."
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise unreadable(f"run.json: {reason}.") from error
    if not isinstance(header, dict):
        raise unreadable("run.json does not hold a JSON object.")
    found = header.get("format")
    if type(found) is int and found > _FORMAT:
        raise ClientError(
            f"This run folder is of format {found}; this version of Megalens reads up to format {_FORMAT}. "
            "Update megalens.",
            code="version-mismatch",
            field="format",
        )
    try:
        check_definition("RunFile", header, "run.json")
    except ProtocolError as error:
        raise unreadable(error.message, error.field) from error
    for first, last in header.get("missing_steps", ()):
        if first > last:
            raise unreadable(
                f"run.json.missing_steps must hold first and last steps, got {first} to {last}.",
                "run.json.missing_steps",
            )
    return cast("RunFile", header)


def unreadable(reason: str, field: str | None = None) -> ClientError:
    return ClientError(f"Could not read the run folder. {reason}", code="unreadable", field=field)
