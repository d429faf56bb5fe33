"""Recordings of format 1, whose layers count from 1 with the embedding as 0: what names a layer in them, brought to the numbering from 0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol import STREAMS, ProtocolError, Stream, parse_json, ranges_text, read_ranges
from ..protocol.messages_generated import Hello
from .query import Query

__all__ = ["hello_from_zero", "query_from_one", "rows_from_zero"]


def query_from_one(query: Query) -> Query:
    """Return a query as the old recording numbers layers."""
    layers, ranks = query.layers, query.ranks
    return replace(
        query,
        layers=layers and tuple((low + 1, high + 1) for low, high in layers),
        ranks=ranks and tuple((rank, of and tuple(layer + 1 for layer in of)) for rank, of in ranks),
    )


def rows_from_zero(stream: Stream, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of an old recording with layers from 0. A stream that a producer declared counts as that says."""
    names = batch.schema.names
    if stream.name not in STREAMS:
        return batch
    if "layer" in names:
        layers = batch.column("layer")
        # Without a check: a damaged file may say any number.
        return _with(batch, "layer", pc.subtract(layers, pa.scalar(1, layers.type)))
    if stream.name == "audit" and "detail" in names:
        said = [_detail_from_zero(text) for text in batch.column("detail").to_pylist()]
        return _with(batch, "detail", pa.array(said, batch.schema.field("detail").type))
    return batch


def hello_from_zero(hello: Hello) -> Hello:
    """Return what an old recording says of its run with layers from 0."""
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
    """Return a configuration, or a patch of one, in which every ``layers`` is a text of ranges from 0."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: _text_from_zero(said) if name == "layers" else _settings_from_zero(said)
        for name, said in value.items()
    }


def _text_from_zero(text: Any) -> Any:
    try:
        ranges = read_ranges(text, "layers") if isinstance(text, str) else None
    except ProtocolError:
        return text
    return text if ranges is None else ranges_text([(low - 1, high - 1) for low, high in ranges])


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, column)
