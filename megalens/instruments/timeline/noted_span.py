"""A span as the training thread notes it."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """One row, without the columns that are constant on a rank. Times in ns of the rank's own clock."""

    kind: str
    start: int
    end: int
    name: str = ""
    chunk: int = -1
    micro_batch: int = -1
    blocked: int = 0
    bytes: int = 0
    group: str = ""
    peer: int = -1
    sequence: int = -1
    counted: int = 1
    device: str = "cpu"
