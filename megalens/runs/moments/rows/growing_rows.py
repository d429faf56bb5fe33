"""Rows of the stream ``moments`` in a file that grows: they stay in the file, of which it is known where each message lies."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ....protocol import MomentIndex, Ranges, StatIndex, open_plain, stream_schema
from ....protocol.arrow_columns import CONTINUATION, MESSAGE_PREFIX, message_header
from ...arrows_map import ArrowsMap, check_message_size
from ...message_map import MessageMap
from ...recorded_parquet import DAMAGE
from .moment_rows import ROWS_SCHEMA, STAGE, Chunk, Wanted, stage_codes
from .packed_chunks import chosen_rows, places_of

__all__ = ["GrowingRows", "MOST_LAYOUTS", "read_batch"]

_STREAM = "moments"
# Rows that are handed on at once, and bytes that are read at once.
_PIECE_ROWS = 1 << 16
_PIECE_BYTES = 4 << 20

MOST_LAYOUTS = 64
"""Layouts that are remembered: a run has one for each set of tensors that its processes measure together."""

_SCHEMA = stream_schema("moments")
_WORDS = tuple(entry.name for entry in _SCHEMA if pa.types.is_string(entry.type))

Positions = slice | NDArray[np.int64]
"""Some rows of a message, ascending."""


# Messages of the stream ``moments``, read without Arrow where one like them was read with it.
class PartialMessage(ValueError):
    """The bytes end within a message. ``size``: the bytes that it has at least."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a message of {size} bytes is not whole")
        self.size = size


@dataclass(frozen=True, eq=False)
class Words:
    """What the rows of a message are of; one object for all messages that say the same.

    Attributes
    ----------
    columns : dict
        ``stat``, ``name`` and ``gradient_stage``.
    stats : dict
        Of each stat its rows.
    """

    columns: dict[str, pa.DictionaryArray]
    stats: dict[str, Positions]

    def __len__(self) -> int:
        return len(self.columns["stat"])

    def names(self, positions: Positions) -> list[str]:
        """Return the different names of some rows."""
        name = self.columns["name"]
        found: list[str] = name.dictionary.take(
            pa.array(np.unique(name.indices.to_numpy()[positions]))
        ).to_pylist()
        return found


@dataclass(frozen=True)
class MomentMessage:
    """One record batch.

    Attributes
    ----------
    end : int
        Where the next message begins.
    words : Words
        What its rows are of.
    column : callable
        Returns a column of numbers.
    """

    end: int
    words: Words
    column: Callable[[str], NDArray[Any]]


@dataclass(frozen=True)
class _Layout:
    """Where things lie in a message, from its beginning."""

    size: int
    words: Words
    texts: list[tuple[int, bytes]] = field(default_factory=list)
    numbers: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def column(self, data: bytes, at: int, name: str) -> NDArray[Any]:
        offset, kind = self.numbers[name]
        return np.frombuffer(data, kind, len(self.words), at + offset)


class LikeMessages:
    """Reads the messages of a stream.

    From step to step a training measures the same tensors, and only the numbers change. A message whose head and texts are, byte for byte, those of one that Arrow has read and checked
    has its numbers where that one has them.
    """

    def __init__(self) -> None:
        # By their heads.
        self._layouts: dict[bytes, list[_Layout]] = {}
        self._count = 0

    def read(self, data: bytes, at: int) -> MomentMessage:
        """Read the message that begins at a place of ``data``.

        Raises
        ------
        PartialMessage
            When ``data`` ends within it.
        EOFError
            At the mark of the stream's end.
        pyarrow.ArrowException, ValueError, struct.error, ClientError
            When it is damaged.
        """
        head = data[at : at + _head_bytes(data, at)]
        for layout in self._layouts.get(head, ()):
            if at + layout.size <= len(data) and all(
                data[at + offset : at + offset + len(text)] == text for offset, text in layout.texts
            ):
                return MomentMessage(at + layout.size, layout.words, partial(layout.column, data, at))
        return self._parsed(data, at, head)

    def _parsed(self, data: bytes, at: int, head: bytes) -> MomentMessage:
        batch, end, base = read_batch(data, at)
        layout = _layout_of(batch, end - at, base)
        if layout is None:
            return MomentMessage(
                end, _words_of(batch), lambda name: batch[name].to_numpy(zero_copy_only=False)
            )
        if self._count >= MOST_LAYOUTS:
            self._layouts.clear()
            self._count = 0
        self._layouts.setdefault(head, []).append(layout)
        self._count += 1
        return MomentMessage(end, layout.words, partial(layout.column, data, at))


def read_schema(data: bytes) -> tuple[pa.Schema, int]:
    """Read the message that a stream begins with; return it and where it ends. Raises as :meth:`LikeMessages.read`."""
    end = _end_of(data, 0)
    return pa.ipc.read_schema(pa.ipc.read_message(data[:end])), end


def read_batch(data: bytes, at: int) -> tuple[pa.RecordBatch, int, int]:
    """Read a message with Arrow, and check all of it; return it, where it ends, and the address in memory of where it begins. Raises as :meth:`LikeMessages.read`."""
    end = _end_of(data, at)
    check_message_size(io.BytesIO(data), "moments.arrows", at, end)
    buffer = pa.py_buffer(data).slice(at, end - at)
    batch = pa.ipc.read_record_batch(pa.ipc.read_message(pa.BufferReader(buffer)), _SCHEMA)
    batch.validate(full=True)
    return batch, end, buffer.address


def _end_of(data: bytes, at: int) -> int:
    body = at + _head_bytes(data, at)
    if len(data) < body:
        raise PartialMessage(body - at)
    end = body + max(0, message_header(memoryview(data)[at + 8 : body])[2])
    if len(data) < end:
        raise PartialMessage(end - at)
    return end


def _head_bytes(data: bytes, at: int) -> int:
    """Return how long the head of a message is."""
    if len(data) < at + 8:
        raise PartialMessage(8)
    marker, length = MESSAGE_PREFIX.unpack_from(data, at)
    if marker == 0 or (marker == CONTINUATION and length == 0):
        raise EOFError
    if marker != CONTINUATION or length < 0:
        raise ValueError("no message begins here")
    return 8 + int(length)


def positions_of(keep: NDArray[np.bool_]) -> Positions:
    """Return where something holds; as a slice where these are neighbours, so that a column's are no copy."""
    found = np.flatnonzero(keep)
    if len(found) and found[-1] - found[0] + 1 == len(found):
        return slice(int(found[0]), int(found[-1]) + 1)
    return found


def _words_of(batch: pa.RecordBatch) -> Words:
    columns = {name: batch[name].dictionary_encode() for name in _WORDS}
    codes = columns["stat"].indices.to_numpy()
    known = columns["stat"].dictionary.to_pylist()
    return Words(columns, {stat: positions_of(codes == code) for code, stat in enumerate(known)})


def _layout_of(batch: pa.RecordBatch, size: int, base: int) -> _Layout | None:
    """Return where the columns lie; None where that is not all there is to know: values are missing, or were unpacked."""
    layout = _Layout(size, _words_of(batch))
    for entry, column in zip(_SCHEMA, batch.columns, strict=True):
        validity, *buffers = column.buffers()
        if validity is not None or column.offset:
            return None
        for buffer in buffers:
            if buffer is None or not buffer.size:
                continue
            place = buffer.address - base
            if place < 0 or place + buffer.size > size:
                return None
            if entry.name in _WORDS:
                layout.texts.append((place, buffer.to_pybytes()))
            else:
                layout.numbers[entry.name] = (place, entry.type.to_pandas_dtype())
    return layout


class GrowingRows:
    """The messages of an Arrow stream file, as far as they are whole.

    Parameters
    ----------
    path : Path
        The file, which need not be there yet.
    refuse : callable
        Makes the error for columns that are not those of the stream.
    """

    def __init__(self, path: Path, refuse: Callable[[], Exception]) -> None:
        self._path = path
        self._refuse = refuse
        self._file: Any = None
        self._looked = 0
        self._forget()

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._at = 0
        self._messages = MessageMap()
        self._reader = LikeMessages()
        self._index = MomentIndex()
        self._known: set[Words] = set()
        self.cut = False

    @property
    def version(self) -> str:
        """Changes whenever there is more."""
        return str(self._looked)

    @property
    def samples(self) -> bool:
        """Whether steps are known as samples too."""
        return self._index.samples

    def stats(self) -> list[StatIndex]:
        """Return what there is."""
        return self._index.stats()

    def refresh(self, progress: Callable[[int, int, str], object] | None = None) -> bool:
        """Look at what was appended, and say whether there was any."""
        if not self._path.is_file() or self._path.is_symlink():
            return False
        found = self._path.stat()
        if self._file is not None:
            known = os.fstat(self._file.fileno())
            if (known.st_dev, known.st_ino) != (found.st_dev, found.st_ino) or found.st_size < self._at:
                # Another recording took its place, or the same one without its oldest rows.
                self._forget()
        if self._file is None:
            # Kept open: what was seen can be read, though the recording is packed meanwhile.
            self._file = open_plain(self._path)
        before = len(self._messages)
        try:
            self._look(found.st_size, progress)
        finally:
            more = len(self._messages) > before
            self._looked += more
        return more

    def _look(self, size: int, progress: Callable[[int, int, str], object] | None) -> None:
        wanted = _PIECE_BYTES
        while self._at < size:
            begin = self._at
            data = self._bytes(begin, min(size, begin + wanted))
            try:
                while self._at < begin + len(data):
                    self._at = begin + self._next(data, self._at - begin)
            except EOFError:
                break
            except PartialMessage as partial:
                if self._at + partial.size > size:
                    # The last message is not whole yet: it is read when it is.
                    self.cut = True
                    return
                wanted = max(_PIECE_BYTES, partial.size)
            except (*DAMAGE, struct.error):
                self.cut = True
                return
            if progress is not None:
                progress(self._at, size, "reading")
        self.cut = False

    def _take_indexed(self) -> None:
        """Take in the messages that the index beside the file knows, of which hardly any has to be read."""
        try:
            messages, kinds = ArrowsMap(self._path).indexed()
            ends = [
                messages[messages[:, 4] == number][[0, -1]] for number in kinds if number in messages[:, 4]
            ]
            # Whoever counts samples does so from the beginning, or from some step on.
            read = [self._bytes(begin, end) for begin, end in np.concatenate(ends)[:, :2].tolist()]
            samples = max(int(_again(self._reader.read, data, 0).column("samples").max()) for data in read)
        except (OSError, ValueError):
            return
        self._index.samples = samples >= 0
        for number in np.unique(messages[:, 4]).tolist():
            kind, steps = kinds[number], messages[messages[:, 4] == number, 2].tolist()
            for stat in kind["stat"].unique().to_pylist():
                rows = kind.filter(pc.field("stat") == stat)
                count = pc.sum(rows["rows"]).as_py() * len(steps)
                self._index.count(stat, count, steps, rows["name"].unique().to_pylist())
        self._messages.extend(*messages.T)
        self._at = int(messages[-1, 1])

    def _next(self, data: bytes, at: int) -> int:
        """Take in the message at a place, and return where it ends."""
        if self._at == 0:
            schema, end = read_schema(data)
            if not schema.equals(stream_schema(_STREAM)):
                raise self._refuse()
            self._take_indexed()
            return max(end, self._at)
        message = self._reader.read(data, at)
        if len(message.words):
            step = message.column("step")
            low, high = int(step.min()), int(step.max())
            self._messages.add(self._at, self._at + message.end - at, low, high)
            self._note(message, step, (low,) if low == high else None)
        return message.end

    def _note(self, message: MomentMessage, step: NDArray[np.int64], only: tuple[int] | None) -> None:
        words = message.words
        self._index.samples = self._index.samples or bool(message.column("samples").max() >= 0)
        is_new = words not in self._known
        for stat, positions in words.stats.items():
            of = step[positions]
            names = words.names(positions) if is_new else ()
            self._index.count(stat, len(of), only or np.unique(of).tolist(), names)
        if is_new:
            if len(self._known) >= MOST_LAYOUTS:
                self._known.clear()
            self._known.add(words)

    def chunks(self, wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of whole steps."""
        places = places_of(wanted)

        def choose(words: Words) -> tuple[Positions, Chunk]:
            place = places.find(words.columns["stat"], words.columns["name"])
            positions = positions_of(place >= 0)
            chosen: Chunk = {"place": place[positions]}
            if STAGE in wanted.columns:
                chosen[STAGE] = stage_codes(words.columns[STAGE])[positions]
            return positions, chosen

        return self._chosen(wanted, choose)

    def select(
        self,
        stats: Sequence[str],
        names: pa.Array,
        ids: NDArray[np.int32],
        ranges: Mapping[str, Ranges],
        first: int | None,
        last: int | None,
        limit: int | None,
    ) -> tuple[pa.Table, int]:
        """Return rows in the order of their steps, in the columns of :data:`ROWS_SCHEMA`, and how many there are; no rows where they are too many.

        Parameters
        ----------
        stats : sequence of str
            Which stats.
        names, ids : array
            Which names, and their numbers.
        ranges : mapping
            Ranges of ``rank`` and ``stage``.
        first, last : int or None
            Inclusive bounds of the step.
        limit : int or None
            How many rows there may be.
        """
        asked = pa.array(stats, pa.utf8())
        stages: dict[str, int] = {}

        def choose(words: Words) -> tuple[Positions, Chunk]:
            stat, name, stage = (words.columns[column] for column in ("stat", "name", "gradient_stage"))
            place = _codes(pc.index_in(name.dictionary, names))[name.indices.to_numpy()]
            code = _codes(pc.index_in(stat.dictionary, asked))[stat.indices.to_numpy()]
            known = [stages.setdefault(text, len(stages)) for text in stage.dictionary.to_pylist()]
            positions = positions_of((place >= 0) & (code >= 0))
            return positions, {
                "place": place[positions],
                "stat": code[positions],
                "gradient_stage": np.array(known, np.int32)[stage.indices.to_numpy()[positions]],
            }

        numbers = tuple(field.name for field in ROWS_SCHEMA if field.name in stream_schema(_STREAM).names)
        found: list[Chunk] = []
        rows = 0
        for chunk in self._chosen(Wanted({}, numbers, ranges, first, last), choose):
            rows += len(chunk["step"])
            if limit is None or rows <= limit:
                found.append(chunk)
            else:
                found.clear()
        texts = {"stat": asked, "gradient_stage": pa.array(list(stages), pa.utf8())}
        columns = []
        for column in ROWS_SCHEMA:
            name = "place" if column.name == "name_id" else column.name
            pieces = [pa.array(chunk[name]) for chunk in found]
            if name == "place":
                pieces = [pa.array(ids[chunk[name]]) for chunk in found]
            elif name in texts:
                pieces = [pa.DictionaryArray.from_arrays(piece, texts[name]) for piece in pieces]
            columns.append(pa.chunked_array(pieces, column.type))
        table = pa.Table.from_arrays(columns, schema=ROWS_SCHEMA)
        step = table["step"].to_numpy()
        if (step[1:] < step[:-1]).any():
            table = table.take(pa.array(np.argsort(step, kind="stable")))
        return table, rows

    def relation(self, connection: Any, first: int | None = None) -> str:
        """Return SQL for the rows from a step on, and some before it, which are in memory for as long as the connection is used."""
        batches = [_again(read_batch, data, at)[0] for data, at, _ in self._read(first, None)]
        # A question may be to several files.
        name = f"growing_{id(self)}"
        connection.register(name, pa.Table.from_batches(batches, stream_schema(_STREAM)))
        return f"SELECT * FROM {name}"

    def close(self) -> None:
        """Let go of the file. Safe twice."""
        self._forget()

    def _chosen(self, wanted: Wanted, choose: _Choose) -> Iterator[Chunk]:
        """Read chunks of whole steps of the rows that are wanted. ``choose``: says of what a message's rows are of which of them take part, and further columns for these, the place among them."""
        numbers = dict.fromkeys(("step", *wanted.columns, *wanted.ranges))
        known: dict[Words, tuple[Positions, Chunk]] = {}
        held: dict[str, list[NDArray[Any]]] = {}
        rows, newest = 0, -1
        for data, at, (low, high) in self._read(wanted.first, wanted.last):
            if rows >= _PIECE_ROWS and low > newest:
                yield from _joined(held, wanted)
                held, rows = {}, 0
            newest = max(newest, high)
            message = _again(self._reader.read, data, at)
            words = message.words
            if words not in known:
                if len(known) >= MOST_LAYOUTS:
                    known.clear()
                known[words] = choose(words)
            positions, further = known[words]
            count = len(further["place"])
            if not count:
                continue
            rows += count
            for name, column in further.items():
                held.setdefault(name, []).append(column)
            for name in numbers:
                if name not in further:
                    held.setdefault(name, []).append(message.column(name)[positions])
        if rows:
            yield from _joined(held, wanted)

    def _read(self, first: int | None, last: int | None) -> Iterator[tuple[bytes, int, tuple[int, int]]]:
        """Read the messages that have one of some steps, by their first steps: bytes, where in them it begins, and its first and last step. Neighbours are read at once."""
        found: list[list[int]] = self._messages.within(first, last).tolist()
        at = 0
        while at < len(found):
            begin, to = found[at][0], at + 1
            while (
                to < len(found) and found[to][0] == found[to - 1][1] and found[to][1] - begin <= _PIECE_BYTES
            ):
                to += 1
            data = self._bytes(begin, found[to - 1][1])
            for message, _, low, high, _ in found[at:to]:
                yield data, message - begin, (low, high)
            at = to

    def _bytes(self, begin: int, end: int) -> bytes:
        self._file.seek(begin)
        data: bytes = self._file.read(end - begin)
        return data


_T = TypeVar("_T")
_Choose = Callable[[Words], tuple[Positions, Chunk]]


def _again(read: Callable[[bytes, int], _T], data: bytes, at: int) -> _T:
    """Read a message that was whole when it was seen."""
    try:
        return read(data, at)
    except (EOFError, struct.error) as error:
        raise ValueError("it was written over since it was seen") from error


def _joined(held: Mapping[str, list[NDArray[Any]]], wanted: Wanted) -> Iterator[Chunk]:
    columns = {name: np.concatenate(pieces) for name, pieces in held.items()}
    chunk = chosen_rows(columns, columns["place"], columns["step"], wanted)
    if len(chunk["step"]):
        yield chunk


def _codes(places: pa.Array) -> NDArray[np.int32]:
    """Return places; -1 for none."""
    codes: NDArray[np.int32] = pc.fill_null(places, -1).to_numpy()
    return codes
