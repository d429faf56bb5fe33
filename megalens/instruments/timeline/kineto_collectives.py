"""Collectives and messages in a trace of PyTorch's profiler: a call on the host and its kernel are one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...protocol import join_numbers, ranges_text
from .trace_events import EventArguments

Times = NDArray[np.float64]
Launched = Callable[[Times, Times], Times]

CORRELATIONS = 1 << 53
"""A kernel and its launch have one number below it: larger ones are damage, and no whole float64."""
_CALL = re.compile(r"(?:(\w*ccl)|gloo|ucc|mpi):\s*(.+)", re.IGNORECASE)
"""The first is a library for devices: its calls only queue a kernel."""
_KERNEL = re.compile(
    r"(?:void\s+)?(?:\w+::)*(?:m?s?nccl|rccl|mscclpp|mccl|oneccl|ccl|xccl|hccl|hcom_|lccl)", re.IGNORECASE
)
_NAMES = [
    (name, re.compile(pattern))
    for name, pattern in (
        ("reduce_scatter", r"reduce_?scatter"),
        ("all_reduce", r"all_?reduce"),
        ("all_gather", r"all_?gather"),
        ("all_to_all", r"all_?to_?all"),
        ("send_receive", r"send_?recv|coalesced$|groupend"),
        ("broadcast", r"broadcast|bcast"),
        ("barrier", r"barrier"),
        ("reduce", r"reduce"),
        ("gather", r"gather"),
        ("scatter", r"scatter"),
        ("send", r"send"),
        ("receive", r"recv|receive"),
    )
]
_RANKS = re.compile(r"\d{1,7}")
_BYTES = {
    **dict.fromkeys(("char", "byte", "bool"), 1),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long"), 8),
}
_MOST = 200_000
_NESTED = 8


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective or message. Times in µs; ``group`` is empty and numbers are -1 where unknown."""

    name: str
    start: float
    end: float
    group: str = ""
    bytes: int = 0
    peer: int = -1
    sequence: int = -1
    correlation: int = -1
    on_device: bool = False
    known: bool = False
    """Whether the profiler said what it is, rather than a name that looks like it."""

    @property
    def kind(self) -> str:
        return self.name if self.name in ("send", "receive") else "collective"


@dataclass
class Collectives:
    """Collects calls on the host and kernels, and joins them."""

    _calls: list[Collective] = field(default_factory=list)
    _queued: list[Collective] = field(default_factory=list)
    _kernels: list[Collective] = field(default_factory=list)
    unseen: int = 0
    """Calls that queued a kernel which is not in the trace; known once ``found`` was called."""

    @property
    def full(self) -> bool:
        return max(len(self._calls), len(self._queued), len(self._kernels)) >= _MOST

    @property
    def extent(self) -> Times:
        both = [(each.start, each.end) for each in (*self._kernels, *self._calls)]
        return np.array(both, float).reshape(-1, 2)

    def take_call(self, name: str, start: float, end: float, args: EventArguments | None) -> bool:
        """Take a call on the host, and return whether it is one."""
        said = args is not None and isinstance(args.collective, str)
        match = _CALL.match(name)
        if match is None and not (said and name.startswith("record_param_comms")):
            return False
        own = _collective(match[2] if match else "", start, end, args)
        (self._queued if match is None or match[1] else self._calls).append(own)
        return True

    def take_kernel(self, name: str, start: float, end: float, args: EventArguments | None) -> bool:
        """Take a kernel, and return whether it is a collective."""
        if not _KERNEL.match(name):
            return False
        self._kernels.append(replace(_collective(name.split("(")[0], start, end, args), on_device=True))
        return True

    def found(self, launched: Launched, only_group: Any) -> list[Collective]:
        """Return them by time: kernels, with what their calls say of them, and calls that wait themselves."""
        queued = sorted(self._queued, key=lambda each: each.start)
        starts = [each.start for each in queued]
        correlation, begin = (
            np.array([getattr(each, name) for each in self._kernels], float)
            for name in ("correlation", "start")
        )
        result = list(self._calls)
        ran: set[int] = set()
        for kernel, launch in zip(self._kernels, launched(correlation, begin).tolist(), strict=True):
            last = bisect_right(starts, launch)
            around = [
                at
                for at in range(max(0, last - _NESTED), last)
                if launch <= queued[at].end and launch < kernel.start
            ]
            ran.update(around)
            for at in sorted(around, key=lambda at: not queued[at].known):
                kernel = _joined(kernel, queued[at])
            result.append(kernel)
        # Where the profiler says of a call what it is, that and the library's own name of it are two events.
        named = [each for at, each in enumerate(queued) if at not in ran and not each.known]
        self.unseen = len(named) or sum(at not in ran for at in range(len(queued)))
        group = _group(only_group)
        return [
            replace(each, group=each.group or group) for each in sorted(result, key=lambda each: each.start)
        ]


def _joined(kernel: Collective, call: Collective) -> Collective:
    """Return a kernel with what is said by its call, and not by itself."""
    named = kernel.known or call.name not in dict(_NAMES)
    return replace(
        kernel,
        name=kernel.name if named else call.name,
        group=kernel.group or call.group,
        bytes=kernel.bytes or call.bytes,
        peer=kernel.peer if kernel.peer >= 0 else call.peer,
        sequence=kernel.sequence if kernel.sequence >= 0 else call.sequence,
        known=kernel.known or call.known,
    )


def _collective(name: str, start: float, end: float, args: EventArguments | None) -> Collective:
    if args is None:
        return Collective(_name_of(name), start, end)
    said = args.collective if isinstance(args.collective, str) and args.collective else ""
    own = _name_of(said or name)
    peer = args.destination if own == "send" else args.source if own == "receive" else None
    return Collective(
        own, start, end, _group(args.ranks), _size(args), whole(peer), whole(args.seq, 1 << 60),
        whole(args.correlation, CORRELATIONS), known=bool(said),
    )  # fmt: skip


def _name_of(text: str) -> str:
    """Return one name for what libraries, their kernels and the profiler write in several ways."""
    lowered = text.lower()
    return next((name for name, pattern in _NAMES if pattern.search(lowered)), text.strip()[:200])


def whole(value: Any, end: int = 1 << 20) -> int:
    """Return a whole number from 0 up to ``end``, -1 for everything else that a file may say."""
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end
    return value if fits else -1


def _group(value: Any) -> str:
    ranks: set[int] = set()
    # The profiler shortens long lists in the middle, which makes them useless.
    if isinstance(value, str) and "..." not in value:
        ranks = {int(each) for each in _RANKS.findall(value[:400_000])}
    elif isinstance(value, list) and len(value) < 65_536:
        ranks = {each for each in value if whole(each) >= 0}
    return ranges_text(join_numbers(sorted(ranks))) if ranks else ""


def _size(args: EventArguments) -> int:
    elements = whole(args.elements, 1 << 50)
    if elements < 0:
        elements = 0
        for dimensions in re.findall(rb"\[([\d,\s]*)\]", bytes(args.dimensions)[:4000]):
            product = 1
            for each in re.findall(rb"\d{1,12}", dimensions):
                product *= int(each)
            elements += product if dimensions.strip() else 0
    kind = args.dtype if isinstance(args.dtype, str) else "float"
    return min(elements * _BYTES.get(kind.lower(), 4), 1 << 50)
