"""Calls of modules in a watched pass, tensors at their borders, and which features of a layer are what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from .watch_flow import Flow
from .watch_trail import Attended, Made, Trail


class Call:
    """One call of a module: what was known of the tensors that it was given, and of those that it gave."""

    __slots__ = ("gave", "given", "module", "number", "parent", "shown")

    def __init__(self, module: nn.Module, parent: Call | None, number: int) -> None:
        self.module, self.parent, self.number = module, parent, number
        self.shown = module
        """The module that gives what this call gives."""
        self.given: list[Seen] = []
        self.gave: list[Seen] = []

    def inside(self, outer: Call) -> bool:
        """Return whether this call happened within ``outer``, or is it."""
        call: Call | None = self
        while call is not None:
            if call is outer:
                return True
            call = call.parent
        return False


class Seen:
    """One tensor at the border of a module."""

    __slots__ = ("item", "key", "keyword", "shape", "trail")

    def __init__(self, flow: Flow, tensor: Tensor, item: int, keyword: str | None = None) -> None:
        self.item, self.keyword = item, keyword
        self.trail: Trail | None = flow.of(tensor)
        self.key = flow.key(tensor)
        self.shape = tuple(tensor.shape)


def gathered(holder: nn.Module, calls: Sequence[Call]) -> Call | None:
    """Return one call that stands for those of the modules in a list that nobody calls; None without any."""
    own = set(holder.modules())
    inside = [call for call in calls if call.module in own]
    outer = [call for call in inside if call.parent is None or call.parent.module not in own]
    if not outer:
        return None
    first, last = outer[0], outer[-1]
    made = Call(holder, first.parent, first.number)
    made.given, made.gave, made.shown = first.given, last.gave, last.module
    for call in outer:
        call.parent = made
    return made


class NotSeen(Exception):
    """Says in a sentence why something cannot be told from what was seen."""


@dataclass(frozen=True)
class Features:
    """Which features of one projection something is, in order."""

    made: Made
    indices: tuple[int, ...]
    whole: bool


@dataclass
class Group:
    """Attentions of one layer that share their projections: one, or one for each of several heads."""

    attentions: list[Attended]
    parts: dict[str, list[Features]] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    among: int = 1
    """How many attentions of its own the layer has."""
    unknown: str = ""
    """Why the parts cannot be told."""
    crosses: bool | None = None

    @property
    def gives(self) -> set[int]:
        """Numbers of what the attentions give."""
        return {each.made.number for each in self.attentions if each.made is not None}


@dataclass(frozen=True)
class Gated:
    gate: Features
    up: Features
    activation: str
