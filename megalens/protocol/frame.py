"""Data frames: a 64-byte header and one Arrow IPC stream."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from .arrow_columns import CONTINUATION, MESSAGE_PREFIX, message_header, table_field, u32
from .errors import ProtocolError
from .ranges import LAST_STEP
from .streams import STREAMS, Stream, Streams

__all__ = [
    "BIT_CAUGHT_UP",
    "BIT_MERGED",
    "HEADER_BYTES",
    "Frame",
    "decode_frame",
    "encode_frame",
    "frame_pieces",
    "renew_header",
    "restamp_frame",
    "restamp_header",
]

HEADER_BYTES = 64
BIT_CAUGHT_UP = 1
BIT_MERGED = 2
_MAGIC = b"MLNS"
_VERSION = 1
_HEADER = struct.Struct("<4sHHQqqII24s")
_MAX_CELL_BYTES = 1 << 20
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
# What the hub rewrites: bits at 6, sequence number at 8.
_STAMP = struct.Struct("<HQ")
# What a sender writes anew from frame to frame: sequence number at 8, step, time.
_NEWEST = struct.Struct("<Qqq")

_NO_NULLS = bytes(8)
_SCHEMA, _RECORD_BATCH = 1, 3
_MAX_BATCHES = 4096


# What a frame's Arrow body must look like before Arrow's own reader is let at it.
def check_arrow_stream(body: memoryview, stream: str, schema_bytes: int = 0) -> list[int]:
    """Walk the messages of an Arrow IPC stream: one schema, record batches without compression, the end
    marker at the very end. Returns the offset of each record batch.

    Arrow's reader alone would also take compressed buffers, of which a few bytes can say that they unfold to
    any size, dictionaries, which no stream has, nulls, which a reader that views the buffers would see as
    numbers, and bytes after the end.

    Parameters
    ----------
    schema_bytes : int
        Length of the schema's message, where the caller has compared it with its own; 0 reads it too.

    Raises
    ------
    ProtocolError
        ``bad-frame``.
    """
    at = schema_bytes
    starts = [0] if schema_bytes else []
    try:
        while True:
            marker, length = MESSAGE_PREFIX.unpack_from(body, at)
            if marker != CONTINUATION or length < 0 or length % 8:
                raise _bad_arrow_stream(stream, "has a message without its length")
            begin, at = at, at + 8
            if length == 0:
                break
            kind, header, size = message_header(body[at : at + length])
            if kind != (_RECORD_BATCH if starts else _SCHEMA):
                raise _bad_arrow_stream(stream, "holds something else than a schema and its record batches")
            if kind == _RECORD_BATCH:
                _check_batch(body[at : at + length], header, stream)
            at += length + size
            starts.append(begin)
            if size % 8 or size < 0 or at > len(body) or len(starts) > _MAX_BATCHES + 1:
                raise _bad_arrow_stream(stream, "has a message of an impossible size")
    except struct.error:
        raise _bad_arrow_stream(stream, "is cut short") from None
    if at != len(body):
        raise _bad_arrow_stream(stream, "has bytes after its end")
    if not starts:
        raise _bad_arrow_stream(stream, "has no schema")
    return starts[1:]


def _check_batch(metadata: memoryview, batch: int, stream: str) -> None:
    if not batch:
        raise struct.error
    if table_field(metadata, batch, 3):
        raise _bad_arrow_stream(stream, "is compressed")
    nodes = table_field(metadata, batch, 1)
    if not nodes:
        raise struct.error
    nodes += u32(metadata, nodes)
    count = u32(metadata, nodes)
    if nodes + 4 + 16 * count > len(metadata):
        raise struct.error
    # A node is a length and a number of nulls, 8 bytes each.
    for at in range(nodes + 12, nodes + 4 + 16 * count, 16):
        if metadata[at : at + 8] != _NO_NULLS:
            raise _bad_arrow_stream(
                stream, "holds nulls: rows that are missing are left out, and not-a-number is NaN"
            )


def _bad_arrow_stream(stream: str, what: str) -> ProtocolError:
    return ProtocolError(
        "bad-frame", f"The body of a {stream} frame {what}. Expected one plain Arrow IPC stream."
    )


assert _HEADER.size == HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Frame:
    """One decoded header with its undecoded body.

    Attributes
    ----------
    seq : int
        Sequence number, 0 when the sender gave none.
    step : int
        Step of the newest row, -1 where no step is meant.
    time_us : int
        Producer's wall clock at the flush, microseconds since the epoch.
    rows : int
        Rows in the body, as the header says.
    bits : int
        ``BIT_CAUGHT_UP`` and ``BIT_MERGED``.
    body : memoryview
        The Arrow IPC stream.
    declared : Stream or None
        The stream's declaration; None when this side does not know the stream.
    """

    stream: str
    seq: int
    step: int
    time_us: int
    rows: int
    bits: int
    body: memoryview
    declared: Stream | None = None

    @property
    def known(self) -> bool:
        """Whether this side knows the stream."""
        return self.declared is not None

    @property
    def schema(self) -> pa.Schema:
        """The stream's schema; raises ``ProtocolError`` ``bad-frame`` when the stream is not known."""
        return (self.declared or STREAMS.named(self.stream)).schema

    def table(self) -> pa.Table:
        """Decode the body to rows with exactly the stream's schema, viewing the frame's memory.

        Raises
        ------
        ProtocolError
            ``bad-frame`` when the body is not a valid Arrow stream of that schema with the number of rows
            announced.
        """
        return pa.Table.from_batches(self.batches()[0], self.schema)

    def batches(self) -> tuple[list[pa.RecordBatch], list[int]]:
        """Decode the body batch by batch; raises as :meth:`table`.

        Returns
        -------
        list of pyarrow.RecordBatch, list of int
            The rows, viewing the frame's memory, and the offset in the body of each record batch's message;
            no offsets when another Arrow library wrote the schema, since its messages do not fit behind the
            stream's own schema as they are.
        """
        expected = self.schema
        # A body almost always begins with the schema message that this side would write, byte for byte. Then
        # there is nothing to parse or compare, and the record batches can be read by themselves.
        message = (self.declared or STREAMS.named(self.stream)).schema_message
        own = len(message) if self.body[: len(message)] == message else 0
        batches_at = check_arrow_stream(self.body, self.stream, own)
        buffer = pa.py_buffer(self.body)
        try:
            if own:
                batches = [pa.ipc.read_record_batch(buffer[at:], expected) for at in batches_at]
            else:
                batches = _read_other(buffer, expected, self.stream)
            for batch in batches:
                # Arrow trusts the offsets in a body. A wrong one would make a later read leave the buffer, so
                # every batch is checked in full before anybody uses it.
                batch.validate(full=True)
                for column in batch.columns:
                    _check_texts(column, self.stream)
        except ProtocolError:
            raise
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            UnicodeDecodeError,
            OverflowError,
            MemoryError,
        ) as error:
            raise _bad(
                f"The body of a {self.stream} frame is not a readable Arrow stream: {error}"
            ) from error
        rows = sum(batch.num_rows for batch in batches)
        if rows != self.rows:
            raise _bad(
                f"A {self.stream} frame holds another number of rows than its header says.",
                expected=str(self.rows),
                got=str(rows),
            )
        return batches, batches_at if own else []


def _check_texts(column: pa.Array, stream: str) -> None:
    """Refuse a text that no page draws. Only a column with that many bytes of text is looked into."""
    if pa.types.is_list(column.type):
        _check_texts(column.flatten(), stream)
    elif pa.types.is_string(column.type) and column.nbytes > _MAX_CELL_BYTES:
        # Imported by the few frames that need it: it takes a third of the time that `megalens.trace` takes to
        # load.
        import pyarrow.compute as pc

        longest = pc.max(pc.binary_length(column)).as_py() or 0
        if longest > _MAX_CELL_BYTES:
            raise _bad(
                f"A text of a {stream} frame is too long.",
                expected=f"at most {_MAX_CELL_BYTES} bytes",
                got=str(longest),
            )


def encode_frame(stream: str | Stream, table: pa.Table | pa.RecordBatch, **header: Any) -> bytes:
    """Return the frame that carries ``table``, as :func:`frame_pieces` in one piece."""
    return b"".join(frame_pieces(stream, table, **header))


def frame_pieces(
    stream: str | Stream,
    table: pa.Table | pa.RecordBatch,
    *,
    step: int,
    seq: int = 0,
    time_us: int | None = None,
    bits: int = 0,
) -> list[bytes | memoryview]:
    """Return the frame that carries ``table`` as pieces, which whoever sends it need not copy together.

    Parameters
    ----------
    stream : str or Stream
        The stream, one of ``streams.json`` by its name; ``table`` must have exactly its schema.
    step : int
        Step of the newest row, -1 where no step is meant.
    time_us : int, optional
        Microseconds since the epoch; now when absent.

    Raises
    ------
    ProtocolError
        ``bad-frame`` when the schema is not the stream's.
    """
    declared = STREAMS.named(stream) if isinstance(stream, str) else stream
    expected = declared.schema
    if not table.schema.equals(expected, check_metadata=False):
        raise _bad(
            f"These rows do not fit the stream {declared.name}.",
            expected=str(expected),
            got=str(table.schema),
        )
    if time_us is None:
        time_us = time.time_ns() // 1000
    batches = table.to_batches() if isinstance(table, pa.Table) else [table]
    # The same bytes as an Arrow stream writer's, without the copies that a writer makes while its buffer
    # grows.
    body: list[bytes | memoryview] = [declared.schema_message]
    body += [memoryview(batch.serialize()) for batch in batches]
    body.append(_END_OF_STREAM)
    header = _HEADER.pack(
        _MAGIC,
        _VERSION,
        bits,
        seq,
        step,
        time_us,
        table.num_rows,
        sum(len(part) for part in body),
        declared.name.encode("ascii"),
    )
    return [header, *body]


def decode_frame(data: bytes | bytearray | memoryview, streams: Streams = STREAMS) -> Frame:
    """Read the header of a complete frame. :meth:`Frame.table` decodes the body, which is viewed, not copied.

    ``streams`` are those of its run, where they are more than those of ``streams.json``.

    Raises
    ------
    ProtocolError
        ``bad-frame`` when the header is not one, ``version-mismatch`` when its version is another.
    """
    view = memoryview(data)
    if len(view) < HEADER_BYTES:
        raise _bad(
            "A data frame is shorter than its header.",
            expected=f"{HEADER_BYTES} bytes",
            got=f"{len(view)} bytes",
        )
    magic, version, bits, seq, step, time_us, rows, length, name = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        raise _bad("A binary message is not a Megalens data frame.", expected=repr(_MAGIC), got=repr(magic))
    if version != _VERSION:
        raise ProtocolError(
            "version-mismatch",
            f"This data frame has header version {version}; this side reads {_VERSION}. "
            "Update the older side.",
            expected=str(_VERSION),
            got=str(version),
        )
    if len(view) != HEADER_BYTES + length:
        raise _bad(
            "A data frame is cut short or has bytes left over.",
            expected=f"{HEADER_BYTES + length} bytes",
            got=f"{len(view)} bytes",
        )
    if not -1 <= step <= LAST_STEP:
        # No message could tell it.
        raise _bad("A data frame has a step out of range.", expected=f"-1 to {LAST_STEP}", got=str(step))
    stream = _stream_name(name)
    return Frame(stream, seq, step, time_us, rows, bits, view[HEADER_BYTES:], streams.get(stream))


@lru_cache(256)
def _stream_name(name: bytes) -> str:
    stripped = name.rstrip(b"\0")
    if not stripped or not all(0x21 <= byte < 0x7F for byte in stripped):
        raise _bad("The stream name of a data frame is not ASCII text.", got=repr(name))
    return stripped.decode("ascii")


def restamp_frame(data: bytes | bytearray | memoryview, *, seq: int, bits: int = 0) -> bytes:
    """Return the same frame with another sequence number and other bits. The caller has decoded it before."""
    return b"".join((restamp_header(data, seq=seq, bits=bits), memoryview(data)[HEADER_BYTES:]))


def restamp_header(data: bytes | bytearray | memoryview, *, seq: int, bits: int = 0) -> bytes:
    """Return the header alone of the same frame with another sequence number and other bits."""
    header = bytearray(data[:HEADER_BYTES])
    _STAMP.pack_into(header, 6, bits, seq)
    return bytes(header)


def renew_header(data: bytearray, *, step: int, seq: int) -> None:
    """Write into a frame of this side's own that it is of another step, and of now."""
    _NEWEST.pack_into(data, 8, seq, step, time.time_ns() // 1000)


def _read_other(buffer: pa.Buffer, expected: pa.Schema, stream: str) -> list[pa.RecordBatch]:
    """Read a body whose schema another Arrow library wrote."""
    with pa.ipc.open_stream(buffer) as reader:
        if not reader.schema.equals(expected, check_metadata=False):
            raise _bad(
                f"A {stream} frame has other columns than the stream.",
                expected=str(expected.names),
                got=str(reader.schema.names),
            )
        return [pa.RecordBatch.from_arrays(batch.columns, schema=expected) for batch in reader]


def _bad(message: str, *, expected: str | None = None, got: str | None = None) -> ProtocolError:
    return ProtocolError("bad-frame", message, expected=expected, got=got)
