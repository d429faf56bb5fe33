"""Arrow schema and policy of each stream: of ``protocol/streams.json``, or announced by a producer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from .arrow_columns import arrow_column
from .contract import contract_json
from .errors import ProtocolError
from .messages import check_definition
from .messages_generated import DeclaredStream

__all__ = [
    "STREAMS",
    "STREAM_NAMES",
    "Stream",
    "StreamPolicy",
    "Streams",
    "empty_table",
    "parse_stream",
    "policy",
    "stream_schema",
]

_MIB = 1024 * 1024
_TYPES: dict[str, pa.DataType] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "utf8": pa.utf8(),
    "list<int32>": pa.list_(pa.int32()),
    "list<float32>": pa.list_(pa.float32()),
    "list<utf8>": pa.list_(pa.utf8()),
}
_ABSENT: dict[str, tuple[float, str]] = {"nan": (math.nan, "float64"), "zero": (0, "int32")}
"""What is read in place of a column that came later, and of which type it is."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,23}")
_ASK = {"equal": ("int32", "int64", "utf8"), "equal_or_lowest": ("int32",), "ranges": ("int32", "int64")}
_ASK |= {"newest_finite": ("float64",), "peaks": ("utf8",)}
_MOST_ANNOUNCED = 32


@dataclass(frozen=True)
class StreamPolicy:
    """How every room treats a stream; ``protocol/README.md`` says what each member means.

    What a declaration leaves out is as here. None means for ``hub_bytes`` the hub's own bound, for
    ``drop_order`` never dropped, for ``dictionary`` every column. ``row_bytes`` lacks ``shape``'s values.
    """

    keep: str = "newest"
    hub_bytes: int | None = None
    drop_order: int | None = None
    covered_first: bool = False
    identity: tuple[str, ...] = ()
    newer: str = "step"
    memory_bytes: int = 128 * _MIB
    page_bytes: int = 32 * _MIB
    row_bytes: int = 128
    shape: str | None = None
    replay_order: int = 100
    marks_step: bool = True
    ask: Mapping[str, str] = field(default_factory=dict)
    counts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    first: tuple[str, ...] = ("step",)
    group_rows: int = 131072
    group_bytes: int = 16 * _MIB
    null_marks: bool = True
    dictionary: tuple[str, ...] | None = None
    fast: tuple[str, ...] = ()

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield every column that the policy names, with the member that names it."""
        for member in ("identity", "counts", "values", "first", "dictionary", "fast"):
            for column in getattr(self, member) or ():
                yield member, column
        yield from (("ask", column) for column in self.ask)
        yield "newer", self.newer
        if self.shape is not None:
            yield "shape", self.shape


@dataclass(frozen=True, eq=False)
class Stream:
    """One stream as it is declared.

    Attributes
    ----------
    schema : pyarrow.Schema
        Its columns, in order; the first is ``step``.
    absent : dict
        Columns that older recordings lack, with what is read instead.
    """

    name: str
    schema: pa.Schema
    policy: StreamPolicy
    declaration: DeclaredStream
    absent: Mapping[str, Any]

    @cached_property
    def schema_message(self) -> bytes:
        """The schema as the first message of an Arrow stream."""
        return bytes(self.schema.serialize())

    def empty_table(self) -> pa.Table:
        """Return a table with no rows."""
        # The schema's own empty_table looks for pandas, which takes a quarter of a second.
        return pa.Table.from_batches([], self.schema)

    def lacking(self, columns: list[str]) -> list[str]:
        """Return the columns that a recording with ``columns`` lacks; those that came later may be absent."""
        return [name for name in self.schema.names if name not in columns and name not in self.absent]

    def with_later_columns(self, batch: pa.RecordBatch, columns: list[str] | None = None) -> pa.RecordBatch:
        """Return ``batch`` with those of ``columns`` (None: all) that an older recording lacks, in order."""
        wanted = self.schema
        if columns is not None:
            wanted = pa.schema([wanted.field(column) for column in columns])
        absent = [column for column in wanted.names if column not in batch.schema.names]
        if not absent:
            return batch
        filled = {
            column: arrow_column([self.absent[column]] * batch.num_rows, wanted.field(column).type)
            for column in absent
        }
        arrays = [filled[column] if column in filled else batch.column(column) for column in wanted.names]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)


class Streams(Mapping[str, Stream]):
    """The streams of one run by name: those of ``streams.json``, and those that its producers announced."""

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._streams = {stream.name: stream for stream in streams}

    def __getitem__(self, name: str) -> Stream:
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def named(self, name: str) -> Stream:
        """Return one stream.

        Raises
        ------
        ProtocolError
            ``bad-frame`` when there is no such stream.
        """
        stream = self._streams.get(name)
        if stream is None:
            known = ", ".join(self._streams)
            raise ProtocolError(
                "bad-frame",
                f"There is no stream {name!r:.100}. The streams are {known}.",
                expected=known,
                got=repr(name)[:200],
            )
        return stream

    def declarations(self) -> dict[str, DeclaredStream]:
        """Return the ``streams`` member of ``hello``: every declaration, without the docs of columns."""
        return {name: _brief(stream.declaration) for name, stream in self._streams.items()}

    def announced(self) -> dict[str, DeclaredStream]:
        """Return the declarations that are not this version's own."""
        return {name: s.declaration.copy() for name, s in self._streams.items() if name not in STREAMS}

    def announce(self, declared: Mapping[str, Any], field: str = "streams") -> bool:
        """Add what a producer announces, all of it or nothing, and return whether any of it is new.

        Raises
        ------
        ProtocolError
            ``bad-parameter`` with the dotted field: a declaration is wrong, there are too many, or a stream
            of this name has other columns.
        """
        fresh: dict[str, Stream] = {}
        for name, value in declared.items():
            stream = parse_stream(name, value, f"{field}.{name}"[:200])
            known = self._streams.get(name)
            if known is None:
                fresh[name] = stream
            elif not known.schema.equals(stream.schema):
                raise _bad(f"{field}.{name}.fields", f"those of the stream {name}", _types(stream.schema))
        count = sum(name not in STREAMS for name in (*self._streams, *fresh))
        if count > _MOST_ANNOUNCED:
            raise _bad(field, f"at most {_MOST_ANNOUNCED} streams", str(count))
        for name, stream in fresh.items():
            if stream.policy.keep != "newest":
                # Whole streams are kept for as long as the run goes on: only those of the protocol are.
                raise _bad(f"{field}.{name}.policy.keep", "newest", repr(stream.policy.keep))
        self._streams.update(fresh)
        return bool(fresh)

    def learn(self, declared: Mapping[str, Any]) -> list[str]:
        """Add what a hub or a recording declares, and return the names of what this version cannot read."""
        unreadable = []
        for name, value in declared.items():
            try:
                self.announce({name: value})
            except ProtocolError:
                unreadable.append(name)
        return unreadable


def parse_stream(name: str, value: Any, field: str = "", *, strict: bool = False) -> Stream:
    """Return the stream that a ``Stream`` of ``messages.schema.json`` declares.

    Parameters
    ----------
    field : str
        Dotted name of the declaration, for errors; the stream's name when empty.
    strict : bool
        Whether to refuse members that this version does not know, which a later one may have.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, with the dotted field.
    """
    field = field or name
    if not _NAME.fullmatch(name):
        raise _bad(field, "a name of at most 24 of a-z, 0-9 and _, a letter first", repr(name))
    check_definition("Stream", value, field)
    schema = _schema(value["fields"], field)
    given = dict(value["policy"])
    # Members of members, such as policy.drop.order, are told apart by the prefix that they have in
    # StreamPolicy.
    for group, names in _GROUPS.items():
        inner = given.pop(group, None)
        if inner is not None:
            given.update({names.get(member, f"{group}.{member}"): entry for member, entry in inner.items()})
    unknown = [member for member in given if member not in StreamPolicy.__dataclass_fields__]
    if strict and unknown:
        raise _bad(f"{field}.policy.{unknown[0]}", "a member of StreamPolicy", repr(unknown[0]))
    settings: dict[str, Any] = {
        member: tuple(entry) if isinstance(entry, list) else entry
        for member, entry in given.items()
        if member not in unknown
    }
    policy = StreamPolicy(**settings)
    _check_policy(policy, schema, field)
    absent = {entry["name"]: _ABSENT[entry["absent"]][0] for entry in value["fields"] if "absent" in entry}
    return Stream(name, schema, policy, copy(value), absent)


_GROUPS: dict[str, dict[str, str]] = {
    "drop": {"order": "drop_order", "covered_first": "covered_first"},
    "nonfinite": {"counts": "counts", "values": "values", "first": "first"},
    "packing": {name: name for name in ("group_rows", "group_bytes", "null_marks", "dictionary", "fast")},
}


def _schema(fields: list[dict[str, Any]], where: str) -> pa.Schema:
    names = [entry["name"] for entry in fields]
    if names[0] != "step" or fields[0]["type"] != "int64":
        raise _bad(f"{where}.fields.0", "step, int64", f"{names[0]}, {fields[0]['type']}")
    for number, entry in enumerate(fields):
        if entry["type"] not in _TYPES:
            raise _bad(f"{where}.fields.{number}.type", f"one of {', '.join(_TYPES)}", repr(entry["type"]))
        if entry["name"] in names[:number]:
            raise _bad(f"{where}.fields.{number}.name", "another name for each column", repr(entry["name"]))
        if "absent" in entry and _ABSENT.get(entry["absent"], (0, ""))[1] != entry["type"]:
            expected = "nan, of a float64 column, or zero, of an int32 one"
            raise _bad(f"{where}.fields.{number}.absent", expected, repr(entry["absent"]))
    return pa.schema([pa.field(entry["name"], _TYPES[entry["type"]]) for entry in fields])


def _check_policy(policy: StreamPolicy, schema: pa.Schema, where: str) -> None:
    if policy.keep not in ("all", "newest"):
        raise _bad(f"{where}.policy.keep", "all or newest", repr(policy.keep))
    for member, column in policy.columns():
        if column not in schema.names:
            raise _bad(f"{where}.policy.{member}", f"among {', '.join(schema.names)}", repr(column))
    kinds = dict(zip(schema.names, _types(schema).split(", "), strict=True))
    for column, how in policy.ask.items():
        if kinds[column] not in _ASK.get(how, ()):
            fitting = [known for known, types in _ASK.items() if kinds[column] in types]
            raise _bad(f"{where}.policy.ask.{column}", f"one of {', '.join(fitting)}", repr(how))
    for member, columns, fits in (
        ("counts", policy.counts, ("int32", "int64", "float64")),
        ("values", policy.values, ("float64",)),
        ("newer", (policy.newer,), ("int32", "int64", "float64")),
        ("identity", policy.identity, ("int32", "int64", "utf8")),
        ("first", policy.first, ("int32", "int64", "utf8")),
        ("shape", (policy.shape,) if policy.shape else (), ("list<int32>",)),
    ):
        for column in columns:
            if kinds[column] not in fits:
                raise _bad(
                    f"{where}.policy.{member}",
                    f"columns of {' or '.join(fits)}",
                    f"{column}, {kinds[column]}",
                )
    if policy.covered_first and (policy.drop_order is None or not policy.identity):
        raise _bad(f"{where}.policy.drop.covered_first", "with drop.order and an identity", "without")


def _types(schema: pa.Schema) -> str:
    names = {kind: name for name, kind in _TYPES.items()}
    return ", ".join(names[entry.type] for entry in schema)


def _brief(declaration: DeclaredStream) -> DeclaredStream:
    fields = [each.copy() for each in declaration["fields"]]
    for each in fields:
        each.pop("doc", None)
    return {**declaration, "fields": fields}


def _bad(field: str, expected: str, got: str) -> ProtocolError:
    message = f"{field} must be {expected}, got {got:.200}."
    return ProtocolError("bad-parameter", message, field=field, expected=expected, got=got)


STREAMS: Streams = Streams(
    parse_stream(name, value) for name, value in contract_json("streams.json")["streams"].items()
)
STREAM_NAMES: tuple[str, ...] = tuple(STREAMS)


def stream_schema(name: str) -> pa.Schema:
    """Return the schema of a stream of ``streams.json``; ``ProtocolError`` ``bad-frame`` for another name."""
    return STREAMS.named(name).schema


def policy(name: str) -> StreamPolicy:
    """Return the policy of a stream of ``streams.json``; the defaults for any other."""
    return STREAMS[name].policy if name in STREAMS else StreamPolicy()


def empty_table(name: str) -> pa.Table:
    """Return a table of a stream of ``streams.json`` with no rows."""
    return STREAMS.named(name).empty_table()
