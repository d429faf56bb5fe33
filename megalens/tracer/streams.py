"""Schemas of the streams that instruments send: those of ``protocol/streams.json``, and those that an instrument declares itself."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ..protocol import stream_schema
from .instrument import Instrument

__all__ = ["stream_schema_of"]


def stream_schema_of(name: str, instruments: Iterable[Instrument]) -> pa.Schema:
    """Return the schema of a stream."""
    return stream_schema(name)
