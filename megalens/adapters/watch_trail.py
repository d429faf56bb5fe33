"""What is known of one tensor of a watched pass: whose features are in it, and what was done with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from . import feature_ids
from .watch_operations import NONLINEAR

MOST_PLANES = 8
"""How many summands of a sum are kept apart: the newest."""


@dataclass(eq=False, slots=True)
class Made:
    """What one product with a weight gives, or one attention: the beginning of a trail.

    Attributes
    ----------
    width : int
        Number of its features, which lie along ``axis``.
    call : object
        In which call of a module it is made.
    givers : list
        Calls of modules that return it as it is, the innermost first, and its place in what they return.
    given : Trail or None
        What was known of the tensor that it is made of.
    given_key : object
        Which tensor that was.
    attention : Attended, optional
        The attention that gives it.
    """

    number: int
    width: int
    axis: int
    call: Any
    givers: list[tuple[Any, int]] = field(default_factory=list)
    given: Trail | None = None
    given_key: Any = None
    attention: Attended | None = None
    shape: tuple[int, ...] = ()
    distributed: bool = False
    scored: str = ""
    """Whether it went through a softmax or a sigmoid, before anything else was made of it."""
    inner: bool = False
    """Whether it is only part of what a module gives, which has a trail of its own."""


@dataclass(eq=False, slots=True)
class Attended:
    """One attention: the rows of features that reach it as queries, keys and values, and what it gives."""

    call: Any
    operation: str
    q: Trail
    k: Trail
    v: Trail | None = None
    heads: dict[str, Tensor] = field(default_factory=dict)
    softmax: bool = False
    bent: bool = False
    """Whether the scores went through a softmax or another nonlinearity."""
    probabilities: Any = None
    """Where the softmax's result lies in memory."""
    made: Made | None = None
    queries: Tensor | None = None
    keys: Tensor | None = None
    """Ids of the queries and keys, with the features last."""

    def exchange(self) -> None:
        """Take the queries for the keys: the other axis of the scores turned out to be that of the keys."""
        self.q, self.k = self.k, self.q
        self.queries, self.keys = self.keys, self.queries
        self.heads["q"], self.heads["k"] = self.heads["k"], self.heads["q"]


@dataclass(eq=False, slots=True)
class Product:
    """An elementwise product of features of two projections, or of two parts of one."""

    call: Any
    left: Trail
    right: Trail


@dataclass(frozen=True, slots=True, eq=False)
class Trail:
    """What is known of one tensor.

    Attributes
    ----------
    planes : tuple of torch.Tensor
        Ids of the features in it; several where such were added up, the first as the first summand had them.
    origins : frozenset of int
        Numbers of what it depends on since the last product with a weight.
    notes : tuple of str
        What was done with the features.
    scores : Attended, optional
        The attention of which it is the scores, or the probabilities.
    marks : tuple of torch.Tensor, optional
        Of such scores, tensors of their shape that count the queries, and the keys: they tell the axes.
    softmaxed : bool
        Whether they are probabilities.
    products : tuple of Product
        Elementwise products that it comes from.
    weight : bool
        Whether it depends on parameters alone.
    """

    planes: tuple[Tensor, ...] = ()
    origins: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    scores: Attended | None = None
    marks: tuple[Tensor, Tensor] | None = None
    softmaxed: bool = False
    products: tuple[Product, ...] = ()
    weight: bool = False

    @property
    def is_noise(self) -> bool:
        """Whether it is drawn at random, for a dropout to multiply by."""
        return "dropout" in self.notes and not self.origins

    def along(self, which: int, axis: int) -> bool:
        """Return whether queries (0) or keys (1) of scores are counted along ``axis``."""
        return self.marks is not None and self.marks[which].stride(axis) != 0

    def noted(self, *notes: str) -> Trail:
        new = tuple(note for note in dict.fromkeys(notes) if note not in self.notes)
        return replace(self, notes=self.notes + new) if new else self


def bent(trail: Trail, unless: Collection[str] = ()) -> str:
    """Return the nonlinearity that features went through; empty where there was none."""
    return next((note for note in trail.notes if note in NONLINEAR and note not in unless), "")


def merged(trails: Sequence[Trail], planes: tuple[Tensor, ...]) -> Trail:
    """Return what is known of what several tensors were put together to."""
    notes = tuple(dict.fromkeys(note for trail in trails for note in trail.notes))
    origins = frozenset[int]().union(*(trail.origins for trail in trails))
    return Trail(planes, origins, notes, products=together(trails))


def together(trails: Iterable[Trail]) -> tuple[Product, ...]:
    """Return the products that any of ``trails`` comes from."""
    return tuple(dict.fromkeys(product for trail in trails for product in trail.products))[-MOST_PLANES:]


def owners_of(trail: Trail | None) -> frozenset[int]:
    """Return the numbers of the projections of which a tensor has features."""
    return frozenset[int]().union(
        *(owners_of_plane(plane) for plane in (trail.planes if trail is not None else ()))
    )


def same_planes(one: Trail, other: Trail) -> bool:
    """Return whether two tensors have the same features of the same projections."""
    return len(one.planes) == len(other.planes) and all(
        a.shape == b.shape and feature_ids.same(a, b) for a, b in zip(one.planes, other.planes, strict=True)
    )


def owners_of_plane(plane: Tensor) -> frozenset[int]:
    known: frozenset[int] | None = getattr(plane, "owners", None)
    if known is None:
        (small,) = feature_ids.compact([plane])
        numbers = torch.unique(feature_ids.projection_of(small)).tolist()
        known = frozenset(number for number in numbers if number >= 0)
        # Asked for again and again, and the same as long as there is the tensor.
        plane.owners = known  # type: ignore[attr-defined]
    return known


def is_all_of(trail: Trail | None, made: Made) -> bool:
    """Return whether a tensor has all features of ``made``, in their order, and nothing else."""
    return (
        trail is not None
        and len(trail.planes) == 1
        and feature_ids.is_whole(trail.planes[0], made.number, made.width)
    )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Give the tensors in what a function takes or returns."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each)
