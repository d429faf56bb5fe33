"""What an adapter tells the tracer about a model: where each flag's tensor can be seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor, nn

__all__ = ["FlagPoints", "IAdapter", "ModelPoints", "Source"]


@dataclass(frozen=True)
class Source:
    """One module at whose border one tensor, or several parts of it, can be seen.

    Attributes
    ----------
    module : torch.nn.Module
        Where the hook goes.
    side : {'output', 'input'}
        Whether the tensor is what the module returns or what it is given.
    item : int
        Position in the returned tuple, or among the positional arguments.
    keyword : str, optional
        Name of the argument when it is passed by name; the first one when absent.
    parts : tuple of str
        Names of the parts, in the order in which ``split`` gives them.
    split : callable, optional
        Cuts the ``[B, S, *]`` tensor into its parts; absent when there is one part.
    cuts : tuple of int, optional
        Sizes of the parts where ``split`` cuts the last axis into consecutive pieces and does nothing else.
    features : tuple of int or None
        Size of the last axis of each part, where known before the first forward pass.
    sequence_first : bool
        Whether the framework's own layout is ``[S, B, *]``.
    like_ids : bool
        Whether the tensor has one row for all samples and is to be repeated for each (position ids).
    """

    module: nn.Module
    side: Literal["output", "input"] = "output"
    item: int = 0
    keyword: str | None = None
    parts: tuple[str, ...] = ("",)
    split: Callable[[Tensor], Sequence[Tensor]] | None = None
    cuts: tuple[int, ...] | None = None
    features: tuple[int | None, ...] = (None,)
    sequence_first: bool = False
    like_ids: bool = False


@dataclass(frozen=True)
class FlagPoints:
    """Where one flag can be seen, by layer; or the reason why nowhere."""

    layers: Mapping[int, tuple[Source, ...]] = field(default_factory=dict)
    reason: str | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts, the same in every layer."""
        first = next(iter(self.layers.values()), ())
        return tuple(part for source in first for part in source.parts)

    @property
    def features(self) -> int | None:
        """Size of the last axis of all parts together in one layer, where known."""
        first = next(iter(self.layers.values()), ())
        sizes = [size for source in first for size in source.features]
        return None if not sizes or None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True)
class ModelPoints:
    """A model with all its trace points.

    Attributes
    ----------
    root : torch.nn.Module
        The module whose call is one forward pass.
    model : dict
        The ``Model`` object of ``announce``.
    flags : dict
        Points by flag name.
    """

    root: nn.Module
    model: dict[str, Any]
    flags: Mapping[str, FlagPoints]

    @property
    def layers(self) -> int:
        """Number of transformer layers."""
        return int(self.model["layers"])


class IAdapter(Protocol):
    """What :func:`megalens.trace` takes as ``adapter``."""

    def points(self, model: nn.Module) -> ModelPoints:
        """Return the trace points of ``model``, or raise ``TracerError`` saying what does not fit."""
        ...
