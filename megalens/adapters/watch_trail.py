"""What is known of a watched pass: calls of modules, tensors, whose features are in them, what was done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from .feature_ids import Plane, compact
from .watch_operations import NONLINEAR

MOST_PLANES = 8
"""How many summands of a sum are kept apart: the newest."""


class NotSeen(Exception):
    """Says in a sentence why something cannot be told from what was seen."""


@dataclass(eq=False, slots=True)
class Call:
    """One call of a module, with the tensors that it was given and those that it gave."""

    module: nn.Module
    parent: Call | None
    number: int
    given: list[Seen] = field(default_factory=list)
    gave: list[Seen] = field(default_factory=list)
    last: nn.Module | None = None
    """Of a list that nobody calls, the module in it that gives what the whole gives."""

    @property
    def shown(self) -> nn.Module:
        return self.last or self.module

    def inside(self, outer: Call) -> bool:
        """Return whether this call happened within ``outer``, or is it."""
        return outer in self.and_outer()

    def and_outer(self) -> Iterator[Call]:
        call: Call | None = self
        while call is not None:
            yield call
            call = call.parent


def gathered(holder: nn.Module, calls: Sequence[Call]) -> Call | None:
    """Return one call that stands for those of the modules in a list that nobody calls; None without any."""
    own = set(holder.modules())
    outer = [c for c in calls if c.module in own and (c.parent is None or c.parent.module not in own)]
    if not outer:
        return None
    first, last = outer[0], outer[-1]
    made = Call(holder, first.parent, first.number, first.given, last.gave, last.module)
    for call in outer:
        call.parent = made
    return made


@dataclass(eq=False, slots=True)
class Seen:
    """One tensor at the border of a module; ``key`` tells it from all others of the pass."""

    item: int
    trail: Trail | None
    key: Any
    shape: tuple[int, ...]
    keyword: str | None = None


@dataclass(eq=False, slots=True)
class Made:
    """What one product with a weight gives, or one attention: the beginning of a trail.

    It has ``width`` features along ``axis``, and is made in ``call`` of the tensor ``given_key``, of which
    ``given`` was known.
    """

    number: int
    width: int
    axis: int
    call: Call | None
    shape: tuple[int, ...] = ()
    given: Trail | None = None
    given_key: Any = None
    attention: Attended | None = None
    """The attention that gives it."""
    rows: int = 0
    """Of an embedding, how many rows its table has."""
    givers: list[tuple[Call, int]] = field(default_factory=list)
    """Calls of modules that return it as it is, the innermost first, and its place in what they return."""
    distributed: bool = False
    scored: str = ""
    """The nonlinearity that it went through first."""
    chooses: bool = False
    """Whether the largest of its features were chosen."""
    inner: bool = False
    """Whether it is only part of what a module gives, which has a trail of its own."""

    @property
    def giver(self) -> nn.Module | None:
        return self.givers[0][0].module if self.givers else None

    def within(self, call: Call) -> bool:
        return self.call is not None and self.call.inside(call)


@dataclass(eq=False, slots=True)
class Attended:
    """One attention: the rows of features that reach it as queries, keys and values, and what it gives."""

    call: Any
    operation: str
    q: Trail
    k: Trail
    v: Trail | None = None
    heads: dict[str, Any] = field(default_factory=dict)
    softmax: bool = False
    bent: bool = False
    """Whether the scores went through a softmax or another nonlinearity."""
    probabilities: Any = None
    """Where the softmax's result lies in memory."""
    made: Made | None = None
    queries: Plane | None = None
    keys: Plane | None = None
    """The queries and keys, with the features last."""

    def exchange(self) -> None:
        """Take the queries for the keys: the other axis of the scores turned out to be that of the keys."""
        self.q, self.k = self.k, self.q
        self.queries, self.keys = self.keys, self.queries
        self.heads["q"], self.heads["k"] = self.heads["k"], self.heads["q"]


@dataclass(frozen=True)
class Features:
    """Which features of one projection something is, in order."""

    made: Made
    indices: tuple[int, ...]

    @property
    def whole(self) -> bool:
        return self.indices == tuple(range(self.made.width))


@dataclass(frozen=True)
class Gated:
    gate: Features
    up: Features
    activation: str


@dataclass
class Group:
    """Attentions of one layer that share their projections: one, or one for each of several heads."""

    attentions: list[Attended]
    parts: dict[str, list[Features]] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    among: str = ""
    """Of how many attentions of the layer it is, and why it is taken."""
    unknown: str = ""
    """Why the parts cannot be told."""
    crosses: bool | None = None

    @property
    def gives(self) -> set[int]:
        """Numbers of what the attentions give."""
        return {each.made.number for each in self.attentions if each.made is not None}


@dataclass(eq=False, slots=True)
class Product:
    """An elementwise product of features of two projections, or of two parts of one."""

    left: Trail
    right: Trail


class Trail(NamedTuple):
    """What is known of one tensor."""

    planes: tuple[Plane, ...] = ()
    """Ids of the features in it; several of a sum, the first as the first summand had them."""
    origins: frozenset[int] = frozenset()
    """Numbers of what it depends on since the last product with a weight."""
    notes: tuple[str, ...] = ()
    """What was done with the features."""
    scores: Attended | None = None
    """The attention of which it is the scores, or the probabilities."""
    marks: tuple[Plane, ...] | None = None
    """Of such scores, tensors of their shape that count the queries, the keys, and the heads: they tell the
    axes.
    """
    softmaxed: bool = False
    """Whether they are probabilities."""
    products: tuple[Product, ...] = ()
    """Elementwise products that it comes from."""
    weight: bool = False
    """Whether it depends on parameters alone."""
    norms: frozenset[object] = frozenset()
    """The norms that it went through."""

    @property
    def is_noise(self) -> bool:
        """Whether it is drawn at random, for a dropout to multiply by."""
        return "dropout" in self.notes and not self.origins

    def along(self, which: int, axis: int) -> bool:
        """Return whether queries (0), keys (1) or heads (2) of scores are counted along ``axis``."""
        if self.marks is None or not self.marks[which].layout.ids.stride(axis):
            return False
        # What was put into one axis with others, and taken out again, has a stride along all of them.
        (ids,) = compact([self.marks[which].layout.ids])
        return ids.shape[axis] > 1 and bool((ids != ids.narrow(axis, 0, 1)).any())

    def head_axis(self) -> int | None:
        """Return along which of the first two axes scores have their heads, each once; None for neither."""
        if self.marks is None:
            return 1
        ids = self.marks[2].layout.ids
        count = np.unique(compact([ids])[0].numpy()).size
        axes = [
            axis
            for axis in (1, 0)
            if ids.shape[axis] == count
            and not self.along(2, 1 - axis)
            and (count == 1 or self.along(2, axis))
        ]
        return axes[0] if axes else None

    def noted(self, *notes: str) -> Trail:
        new = tuple([note for note in notes if note not in self.notes])
        if "normed" in notes:
            return self._replace(notes=self.notes + new, norms=self.norms | {object()})
        return self._replace(notes=self.notes + new) if new else self


def bent(trail: Trail, unless: Collection[str] = ()) -> str:
    """Return the nonlinearity that features went through; empty where there was none."""
    return next((note for note in trail.notes if note in NONLINEAR and note not in unless), "")


def merged(trails: Sequence[Trail], planes: tuple[Plane, ...]) -> Trail:
    """Return what is known of what several tensors were put together to."""
    notes = tuple(dict.fromkeys(note for trail in trails for note in trail.notes))
    norms = frozenset[object]().union(*(trail.norms for trail in trails))
    return Trail(planes, origins_of(trails), notes, products=together(trails), norms=norms)


def origins_of(trails: Iterable[Trail]) -> frozenset[int]:
    return frozenset[int]().union(*(trail.origins for trail in trails))


def together(trails: Iterable[Trail]) -> tuple[Product, ...]:
    """Return the products that any of ``trails`` comes from."""
    return tuple(dict.fromkeys(product for trail in trails for product in trail.products))[-MOST_PLANES:]


def owners_of(trail: Trail | None) -> frozenset[int]:
    """Return the numbers of the projections of which a tensor has features."""
    return frozenset() if trail is None else frozenset([o for plane in trail.planes for o in plane.owners])


def same_planes(one: Trail, other: Trail) -> bool:
    """Return whether two tensors have the same features of the same projections."""
    return len(one.planes) == len(other.planes) and all(map(Plane.same, one.planes, other.planes))


def is_all_of(trail: Trail | None, made: Made) -> bool:
    """Return whether a tensor has all features of ``made``, in their order, and nothing else."""
    if trail is None or len(trail.planes) != 1:
        return False
    (plane,) = trail.planes
    return plane.owners == (made.number,) and plane.shape[-1:] == (made.width,) and plane.layout.whole


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors in what a function takes or returns."""
    if isinstance(value, Tensor):
        return [value]
    found: list[Tensor] = []
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return found
    for each in value:
        if isinstance(each, Tensor):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            # Not so sizes.
            if each and not (type(each[0]) is type(each[-1]) is int):
                found += tensors_in(each)
        elif isinstance(each, dict):
            found += tensors_in(each)
    return found
