"""Follows features through the operations of a forward pass: what is moved, changed, multiplied, attended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from . import feature_ids as ids_of
from . import watch_operations as op
from .watch_memory import Memory
from .watch_trail import (
    MOST_PLANES,
    Attended,
    Call,
    Made,
    Product,
    Trail,
    bent,
    merged,
    origins_of,
    owners_of,
    owners_of_plane,
    tensors_in,
    together,
)


class Flow(Memory):
    """What a forward pass has shown so far. ``call`` is the call of a module that is running."""

    def __init__(self) -> None:
        super().__init__()
        self.call: Call | None = None
        self.made: list[Made] = []
        self.attentions: list[Attended] = []
        self.lost: list[tuple[str, Any]] = []
        """Operations that could not be followed, each with the call in which it was."""
        self.looks = False
        """Whether what runs is our own."""
        self.failed: str | None = None
        """The error that ended the watching."""

    def begin(self, tensor: Tensor, axis: int = -1, **known: Any) -> Made:
        """Begin a new trail: ``tensor`` is what a product with a weight, or an attention, gives."""
        made = Made(len(self.made), tensor.shape[axis], axis, self.call, tuple(tensor.shape), **known)
        made.distributed = hasattr(tensor, "device_mesh")
        self.made.append(made)
        ids = ids_of.fresh(made.number, tensor.shape, axis)
        self.put(tensor, Trail((ids,), frozenset((made.number,))))
        return made

    def fail(self, error: Exception) -> None:
        self.failed = f"{type(error).__name__}: {error}"[:300]
        self.forget()

    def _lose(self, name: str, inputs: Iterable[Trail | None], outputs: Iterable[Tensor]) -> None:
        known = [trail for trail in inputs if trail is not None and not trail.weight]
        if any(trail.planes or trail.scores for trail in known) and name.partition(".")[2] not in op.PLAIN:
            self.lost.append((name, self.call))
        if name.partition(".")[2] in op.EMPTY:
            known = []
        trail = Trail(origins=origins_of(known), products=together(known)) if known else None
        for output in outputs:
            self.put(output, trail)

    # Operations.

    def follow(self, func: Any, args: Sequence[Any], kwargs: Any, known: Sequence[Any], result: Any) -> None:
        """Learn from one operation that has run.

        Parameters
        ----------
        known : sequence of (torch.Tensor, Trail or None)
            What it was given, and what was known of that before it ran.
        """
        name = func.overloadpacket.__name__
        outputs = tensors_in(result)
        inputs = [trail for _, trail in known]
        plain = name[:-1] if name[-1] == "_" and name[-2:] != "__" else name
        changed = tensors_in(args[:1] if plain != name else kwargs.get("out"))
        if not any(inputs) and name not in ("embedding", "convolution"):
            noise = Trail(notes=("dropout",)) if plain == "bernoulli" else None
            for output in outputs if noise else changed:
                self.put(output, noise)
                self.overwritten(output)
            return
        try:
            done = func.namespace == "aten" and self._step(plain, func, args, kwargs, known, result)
        except ids_of.TooLarge:
            done = False
        if not done and not self._custom_attention(name, known, outputs):
            if func.namespace != "aten" and not outputs:
                # What gives nothing has written into what it was given.
                outputs = [tensor for tensor, _ in known]
            self._lose(f"{func.namespace}.{name}", inputs, outputs)
        for output in changed:
            self.overwritten(output)

    def _step(
        self, name: str, func: Any, args: Sequence[Any], kwargs: Any, known: Sequence[Any], result: Any
    ) -> bool:
        first = known[0][1] if known else None
        if name in op.SAME and isinstance(result, Tensor):
            cast = name == "_to_copy" and result.dtype != known[0][0].dtype
            self.put(result, first.noted("cast") if first is not None and cast else first)
        elif name == "copy":
            source, target = known[-1]
            if target is not None and target.planes and source.shape != result.shape:
                target = replace(target, planes=tuple(p.expand(result.shape) for p in target.planes))
            self.put(result, target)
        elif name in op.RESHAPES or name in op.MOVES or name in op.COPIES:
            if first is None:
                return False
            self._move(name, func, args, kwargs, first, result)
        elif name in ("cat", "stack", "concat", "hstack", "vstack"):
            return self._join(name, args, kwargs, known, result)
        elif name in ("view_as_complex", "view_as_real"):
            return self._complex(name, first, result)
        elif name == "constant_pad_nd":
            return self._pad(func, args, first, result)
        elif name in op.PRODUCTS:
            return self._product(name, args, result)
        elif name in ("convolution", "_convolution"):
            return self._convolution(known, args, result)
        elif name == "embedding":
            self.begin(result, given_key=self.key(args[1]), rows=len(args[0]))
        elif op.ATTENTION in name or name in ("_flash_attention_forward", "_efficient_attention_forward"):
            return self._fused_attention(name, known, result)
        elif name in op.SOFTMAX:
            self._softmax(args, first, result)
        elif name in op.NORMS:
            if first is None or first.weight:
                return False
            self.put(tensors_in(result)[0], first.noted("normed"))
        elif name == "native_dropout":
            self.put(result[0], first and first.noted("dropout"))
        elif name == "sum":
            return self._sum(args, first, result)
        elif name == "glu":
            return self._glu(args, kwargs, first, result)
        elif (
            torch.Tag.pointwise in func.tags or name in op.TIMES or name in op.SUMS or name in op.LINEAR_UNARY
        ):
            self._pointwise(name, known, result)
        elif name in ("hardswish", "rrelu_with_noise", "prelu", "_prelu_kernel", "log_sigmoid_forward"):
            self._pointwise(name, known[:1], tensors_in(result)[0])
        elif name in op.CHOICES:
            for number in owners_of(first):
                self.made[number].chooses = True
            return False
        else:
            return False
        return True

    def _move(self, name: str, func: Any, args: Any, kwargs: Any, trail: Trail, result: Any) -> None:
        outputs = tensors_in(result)

        def moved(ids: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
            each = [ids_of.moves(name, func, args, kwargs, one, outputs) for one in ids]
            return list(zip(*each, strict=True)) if each else [()] * len(outputs)

        if trail.scores is None:
            for output, planes in zip(outputs, moved(trail.planes), strict=True):
                self.put(output, replace(trail, planes=planes))
            return
        note = ("cut",) if name in ("slice", "narrow", "index", "select") else ()
        marks: list[Any] = [None] * len(outputs)
        if trail.marks is not None:
            with contextlib.suppress(ids_of.TooLarge):
                marks = moved(trail.marks)
        for output, mark in zip(outputs, marks, strict=True):
            self.put(output, replace(trail, marks=mark).noted(*note))

    def _join(self, name: str, args: Any, kwargs: Any, known: Any, result: Any) -> bool:
        axis = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        data = [trail for _, trail in known if trail is not None]
        if all(trail is not None and trail.weight for _, trail in known):
            self.put(result, Trail(weight=True))
            return True
        scores = next((trail for trail in data if trail.scores is not None), None)
        if scores is not None:
            self.put(result, replace(scores, marks=None).noted("joined"))
            return True
        if not any(trail.planes for trail in data) or name not in ("cat", "concat", "stack"):
            return False
        # An empty tensor of one axis is left out by torch.
        kept = [
            (piece, trail) for piece, trail in known if piece.ndim > 1 or piece.numel() or result.ndim == 1
        ]
        planes = []
        for number in range(max(len(trail.planes) for trail in data)):
            each = [
                trail.planes[number]
                if trail is not None and len(trail.planes) > number
                else ids_of.nothing(piece.shape)
                for piece, trail in kept
            ]
            if name == "stack":
                each = [plane.unsqueeze(axis % result.ndim) for plane in each]
            planes.append(ids_of.join(each, axis % result.ndim))
        self.put(result, merged(data, tuple(planes)))
        return True

    def _complex(self, name: str, trail: Trail | None, result: Tensor) -> bool:
        """Keep the ids of complex numbers with an axis more, as their real view has them."""
        if trail is None or not trail.planes:
            return False
        if name == "view_as_real" and trail.planes[0].shape != result.shape:
            return False
        self.put(result, trail)
        return True

    def _pad(self, func: Any, args: Any, trail: Trail | None, result: Tensor) -> bool:
        if trail is None or not trail.planes:
            if trail is None or trail.scores is None:
                return False
            self.put(result, replace(trail, marks=None))
            return True
        planes = []
        for plane in trail.planes:
            small = ids_of.compact(
                [plane], spare=[a for a in range(plane.ndim) if plane.shape[a] != result.shape[a]]
            )[0]
            planes.append(func(small, args[1], ids_of.NOTHING).expand(result.shape))
        self.put(result, replace(trail, planes=tuple(planes)))
        return True

    # Products, attention.

    def _product(self, name: str, args: Any, result: Tensor) -> bool:
        one, other = op.PRODUCTS[name]
        left, right = args[one], args[other]
        a, b = self.of(left), self.of(right)
        if b is not None and b.weight:
            # Also where both depend on parameters alone: learnt queries.
            known = None if a is None or a.weight else a
            self.begin(result, given=known, given_key=self.key(left))
            return True
        if a is None or b is None or a.weight or name == "linear":
            return False
        if a.scores is not None and b.planes:
            return self._attended(a, b, -1, result)
        if b.scores is not None and a.planes:
            return self._attended(b, a, -2, result)
        if a.planes and b.planes and left.ndim > 1 and right.ndim > 1:
            attention = Attended(self.call, name, a, b)
            try:
                attention.heads = {"q": ids_of.rows(a.planes), "k": ids_of.rows(b.planes, -2)}
            except ids_of.TooLarge:
                return False
            if attention.heads["q"].shape[-1] != attention.heads["k"].shape[-1]:
                return False
            attention.queries, attention.keys = a.planes[0], b.planes[0].transpose(-1, -2)
            marks = ids_of.fresh(0, result.shape, -2), ids_of.fresh(0, result.shape)
            self.put(result, Trail(origins=a.origins | b.origins, scores=attention, marks=marks))
            return True
        return False

    def _attended(self, scores: Trail, values: Trail, axis: int, result: Tensor) -> bool:
        attention = scores.scores
        assert attention is not None
        if attention.v is not None:
            # Probabilities that are used twice.
            attention = replace(attention, made=None, heads=dict(attention.heads))
        attention.heads = {**attention.heads, "v": ids_of.rows(values.planes, axis)}
        attention.v, attention.bent = values, attention.softmax or bool(bent(scores))
        if scores.along(0, axis):
            attention.exchange()
        self.attentions.append(attention)
        self._context(attention, result, axis)
        return True

    def _context(self, attention: Attended, result: Tensor, axis: int) -> None:
        """Begin the trail of what an attention gives: its features are those of one head after another."""
        made = attention.made = self.begin(result, axis, attention=attention)
        rows = None if attention.queries is None else ids_of.row_numbers(attention.queries)
        if rows is None or axis != -1 or rows.shape[:-1] != result.shape[:-1]:
            return
        width = result.shape[-1]
        made.width = width * len(attention.heads["q"])
        (small,) = ids_of.compact([rows])
        ids = ids_of.fresh(made.number, (width,)) + small * width
        self.put(result, Trail((ids.expand(result.shape),), frozenset((made.number,))))

    def _fused_attention(self, name: str, known: Any, result: Any) -> bool:
        trails = [trail for _, trail in known[:3] if trail is not None and trail.planes]
        if len(trails) < 3:
            return False
        attention = Attended(self.call, name, *trails[:3], softmax=True, bent=True)  # type: ignore[misc]
        attention.heads = {part: ids_of.rows(each.planes) for part, each in zip("qkv", trails, strict=True)}
        self.attentions.append(attention)
        attention.queries = trails[0].planes[0]
        self._context(attention, tensors_in(result)[0], -1)
        return True

    def _custom_attention(self, name: str, known: Any, outputs: Sequence[Tensor]) -> bool:
        """Take an operation of some package as an attention where its name says so and its tensors fit."""
        if ("attention" not in name and "flash_attn" not in name) or "backward" in name or not outputs:
            return False
        shapes = [tensor.shape for tensor, _ in known[:3]]
        if len(shapes) < 3 or shapes[0][:-1] != outputs[0].shape[:-1] or shapes[1] != shapes[2]:
            return False
        try:
            return self._fused_attention(name, known, outputs)
        except ids_of.TooLarge:
            return False

    def _softmax(self, args: Any, trail: Trail | None, result: Tensor) -> None:
        if trail is None:
            return
        attention = trail.scores
        if attention is None:
            self._scored(trail, "softmax")
            self.put(result, trail.noted("softmax"))
            return
        axis = args[1] if len(args) > 1 and isinstance(args[1], int) else -1
        attention.softmax = True
        attention.probabilities = self.key(result)
        marks = trail.marks
        if marks is not None and trail.along(0, axis):
            attention.exchange()
            marks = marks[1], marks[0]
        self.put(result, Trail(origins=trail.origins, scores=attention, marks=marks, softmaxed=True))

    def _scored(self, trail: Trail, by: str) -> None:
        for number in trail.origins:
            self.made[number].scored = self.made[number].scored or by

    def _convolution(self, known: Any, args: Any, result: Tensor) -> bool:
        (given, trail), (_, weight) = known[:2]
        if weight is None or not weight.weight:
            return False
        groups = args[8] if len(args) > 8 else 1
        if groups > 1 and groups == given.shape[1] == result.shape[1]:
            if trail is None or not trail.planes:
                return False
            planes = []
            for plane in trail.planes:
                (small,) = ids_of.compact([plane])
                if small.numel() != plane.shape[1]:
                    return False
                planes.append(small.expand(result.shape))
            self.put(result, replace(trail, planes=tuple(planes)).noted("convolved"))
            return True
        self.begin(result, 1, given=trail, given_key=self.key(given))
        return True

    # Elementwise.

    def _glu(self, args: Any, kwargs: Any, trail: Trail | None, result: Tensor) -> bool:
        if trail is None or not trail.planes:
            return False
        axis = args[1] if len(args) > 1 else kwargs.get("dim", -1)
        halves = [plane.chunk(2, axis) for plane in trail.planes]
        up = replace(trail, planes=tuple(half[0] for half in halves))
        gate = replace(trail, planes=tuple(half[1] for half in halves)).noted("sigmoid")
        self.put(result, replace(up, products=(*up.products, Product(up, gate))))
        return True

    def _sum(self, args: Any, trail: Trail | None, result: Tensor) -> bool:
        """Follow a rotation by small matrices: each pair is there once a row of its matrix, and summed.

        Any other sum has no features any more.
        """
        axes = args[1] if len(args) > 1 else None
        if trail is None or not trail.planes or "scaled" not in trail.notes or bent(trail):
            return False
        if not axes or len(axes) > 1:
            return False
        plane, more = trail.planes[0], trail.planes[1:]
        axis = axes[0] % plane.ndim
        size, strides = plane.shape[axis], plane.stride()
        alike = axis and strides[axis - 1] == 0 and plane.shape[axis - 1] == size
        if more or not alike or not strides[axis] or size > MOST_PLANES or result.ndim == plane.ndim:
            return False
        self.put(result, replace(trail, planes=plane.unbind(axis)).noted("rotated"))
        return True

    def _pointwise(self, name: str, known: Any, result: Any) -> None:
        (result, *_) = tensors_in(result)
        data = [trail for _, trail in known if trail is not None and not trail.weight]
        others = [(tensor, trail) for tensor, trail in known if trail is None or trail.weight]
        if len(kept := [trail for trail in data if not trail.is_noise]) < len(data):
            name, data = "dropout", kept or data
        if not data:
            large = any(
                t.numel() > result.numel() or (trail is None and t.numel() > 1) for t, trail in others
            )
            self.put(result, None if large else Trail(weight=True))
            return
        scores = next((trail for trail in data if trail.scores is not None), None)
        if scores is not None:
            marks = scores.marks
            if marks is not None and marks[0].shape != result.shape:
                marks = marks[0].expand(result.shape), marks[1].expand(result.shape)
            self.put(result, replace(scores, marks=marks).noted(name))
            return
        featured = [trail for trail in data if trail.planes]
        if name in op.NONLINEAR:
            self._scored(data[0], name)
        if not featured:
            self.put(result, Trail(origins=origins_of(data), products=together(data), notes=data[0].notes))
            return
        trail = combined(name, data, featured, others)
        if len(known) > 1 or trail.planes[0].shape != result.shape:
            trail = replace(trail, planes=tuple(spread(plane, result) for plane in trail.planes))
        self.put(result, trail)


def combined(name: str, data: Sequence[Trail], featured: Sequence[Trail], others: Sequence[Any]) -> Trail:
    """Return what is known of the result of an elementwise operation of several tensors.

    ``data`` depends on what the model was given, ``featured`` of that holds features; ``others`` are
    constants and weights.
    """
    first = featured[0]
    if name == "dropout":
        return first.noted(name)
    if name in op.TIMES or name == "pow":
        if len(featured) > 1:
            one, other = featured[:2]
            if len(one.planes) == len(other.planes) == 1 and ids_of.same(one.planes[0], other.planes[0]):
                return merged((one, other), one.planes).noted(
                    *(() if bent(one) or bent(other) else ("squared",))
                )
            product = Product(one, other)
            keep = other if bent(one) and not bent(other) else one
            return replace(
                keep,
                origins=one.origins | other.origins,
                products=(*together((one, other)), product),
            ).noted("gated")
        if len(data) > 1:
            inside = any(each.origins & first.origins for each in data if each is not first)
            both = origins_of(data)
            if not inside:
                product = Product(first, next(each for each in data if each is not first))
                return replace(first, origins=both, products=(*together(data), product)).noted("gated")
            return replace(first, origins=both).noted("normed")
        if name == "pow":
            return first.noted("pow")
        if any(tensor.is_complex() for tensor, _ in others):
            return first.noted("rotated")
        return first.noted("scaled")
    if len(featured) > 1:
        planes: list[Tensor] = []
        for plane in (plane for trail in featured for plane in trail.planes):
            own = owners_of_plane(plane)
            if not any(own == owners_of_plane(each) and ids_of.same(plane, each) for each in planes):
                planes.append(plane)
        newest = sorted(planes, key=lambda plane: max(owners_of_plane(plane), default=-1))[-MOST_PLANES:]
        joined = merged(featured, tuple(plane for plane in planes if any(plane is each for each in newest)))
        owners = {each for trail in featured for each in trail.origins}
        if len(planes) == 1:
            return joined
        return joined.noted("rotated" if len(owners) == 1 else "added")
    if len(data) > 1 or name in op.SUMS or name in op.LINEAR_UNARY or others:
        if name in op.SUMS and any(tensor.numel() > 1 for tensor, _ in others):
            first = first.noted("shifted")
        return first if len(data) == 1 else merged((first, *data), first.planes)
    return first.noted(name)


def spread(plane: Tensor, result: Tensor) -> Tensor:
    """Return ids in the shape of a result, which has an axis less where it is complex."""
    if plane.shape == result.shape:
        return plane
    if result.is_complex():
        return plane.expand(*result.shape, plane.shape[-1])
    return plane.expand(result.shape)
