"""Structs in Thrift's compact protocol, in which Parquet's headers are written."""

from __future__ import annotations

from typing import Any

__all__ = ["BINARY", "I32", "I64", "CutShort", "ThriftReader"]

I32, I64, BINARY = 5, 6, 8
_BOOLS, _NUMBERS, _LISTS, _STRUCT = (1, 2), (4, 5, 6), (9, 10), 12
_BYTE, _DOUBLE = 3, 7
_BITS = {4: 16, I32: 32, I64: 64}
_MOST_DEPTH = 16


class CutShort(ValueError):
    """The struct goes on behind what was read."""


class ThriftReader:
    """Reads structs by their layout: ``{number of a field: what it holds}``.

    A field holds ``I32``, ``I64`` or ``BINARY``, a struct (its layout), or a list of one of these (a list of that one, and of what to make of each struct at
    once, where so much need not be kept). Fields that a layout lacks are passed over, as every reader does. Where readers differ in what they believe, such as a field that is there twice or is a list of something else, the
    struct is refused, so that what was checked here is what Arrow and DuckDB read.

    Parameters
    ----------
    data : bytes
        Where they are.
    most : int, optional
        Structs in lists, at most.
    """

    def __init__(self, data: bytes, most: int = 1000) -> None:
        self._data = data
        self._left = most
        self.at = 0

    def struct(self, layout: Any, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct that its layout names: numbers, bytes, structs, lists of structs; of other lists their length.

        Raises
        ------
        CutShort
            When the data ends first.
        ValueError
            When it is no such struct.
        """
        if depth > _MOST_DEPTH:
            raise ValueError("its headers must nest less deeply")
        found: dict[int, Any] = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return found
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._signed(16)
            wanted = layout.get(number)
            if wanted is None:
                self._value(kind, {}, depth)
                continue
            if number in found or kind != _kind_of(wanted):
                raise ValueError("its headers must be Parquet's")
            found[number] = self._value(kind, wanted, depth)

    def _value(self, kind: int, wanted: Any, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._signed(_BITS[kind])
        if kind == BINARY:
            return self._skip(self._unsigned())
        if kind == _STRUCT:
            return self.struct(wanted, depth + 1)
        if kind in _LISTS:
            return self._list(wanted, depth)
        if kind in _BOOLS:
            return None
        if kind in (_BYTE, _DOUBLE):
            return self._skip(1 if kind == _BYTE else 8)
        raise ValueError("its headers must be Parquet's")

    def _list(self, wanted: Any, depth: int) -> Any:
        head = self._byte()
        kind, count = head & 15, head >> 4
        if count == 15:
            count = self._unsigned()
        inner = wanted[0] if wanted else {}
        if wanted and count and kind != _kind_of(inner):
            raise ValueError("its headers must be Parquet's")
        if kind == _STRUCT:
            self._left -= count
            if self._left < 0:
                raise ValueError("its headers must list fewer things")
            if inner:
                make = wanted[1] if len(wanted) > 1 else dict
                return [make(self.struct(inner, depth + 1)) for _ in range(count)]
        elif count > len(self._data):
            raise CutShort("its headers are cut short")
        if kind in (*_BOOLS, _BYTE):
            self._skip(count)
        else:
            for _ in range(count):
                self._value(kind, {}, depth + 1)
        return count

    def _byte(self) -> int:
        try:
            byte = self._data[self.at]
        except IndexError:
            raise CutShort("its headers are cut short") from None
        self.at += 1
        return byte

    def _skip(self, count: int) -> bytes:
        begin = self.at
        self.at += count
        if self.at > len(self._data):
            raise CutShort("its headers are cut short")
        return self._data[begin : self.at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("its headers must be Parquet's")

    def _signed(self, bits: int) -> int:
        value = self._unsigned()
        # Readers cut off what a number has beyond its width.
        if value >> bits:
            raise ValueError("its headers must be Parquet's")
        return (value >> 1) ^ -(value & 1)


def _kind_of(wanted: Any) -> int:
    if isinstance(wanted, int):
        return wanted
    return _STRUCT if isinstance(wanted, dict) else _LISTS[0]
