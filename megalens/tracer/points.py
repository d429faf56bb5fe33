"""What an adapter says of a model: the catalogue of flags, and where the tensor of each can be seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor, nn

from ..protocol.messages_generated import Model
from .coordinates import RankCoordinates
from .own_hooks import Observed

Shards = Literal["none", "features", "uneven", "sequence", "heads"]


@dataclass(frozen=True)
class FlagKind:
    """What one flag means, whatever the model.

    Attributes
    ----------
    title : str
        In words, for a picker.
    parts : tuple of str
        Named parts that it usually has; an empty name is the complete tensor.
    axes : tuple of str
        Axes of one sample after the batch axis.
    exact : bool
        Whether the values name something (token ids), so that they cannot be averaged.
    signed : bool
        Whether values of both signs are usual, so that their mean says little of how large they are.
    gradient : bool
        Whether the model itself computes it, so that it has a gradient.
    """

    title: str
    parts: tuple[str, ...] = ("",)
    axes: tuple[str, ...] = ("position", "feature")
    exact: bool = False
    signed: bool = True
    gradient: bool = True

    @property
    def attends(self) -> bool:
        """Whether its last two axes are queries and keys."""
        return self.axes[-2:] == ("query", "key")


FLAGS: dict[str, FlagKind] = {
    "QKV_mat_mul": FlagKind("Queries, keys and values", parts=("q", "k", "v")),
    "RawAttentionScore_mat_mul": FlagKind(
        "Attention probabilities", axes=("head", "query", "key"), signed=False
    ),
    "ContextLayer_mat_mul": FlagKind("Attention context"),
    "MLP1_mat_mul": FlagKind("MLP1 output"),
    "MLP2_mat_mul": FlagKind("MLP2 output"),
    "AttentionOutput_mat_mul": FlagKind("Attention output"),
    "HiddenStates": FlagKind("Hidden states"),
    "RouterProbabilities": FlagKind(
        "Router probabilities", axes=("position", "expert"), signed=False, gradient=False
    ),
    "ExpertOutputs": FlagKind("Expert outputs", axes=("token", "feature"), gradient=False),
    "InputTokens": FlagKind(
        "Input tokens", parts=("ids", "positions"), axes=("position",), exact=True, gradient=False
    ),
}
"""Along which axis of the ``[B, S, *]`` tensor each tensor-parallel rank holds a piece; ``none`` where every
rank holds all of it.
"""


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
        Cuts the ``[B, S, features]`` tensor into its parts, best into views of it: a part that lies in groups
        may come as ``[B, S, groups, features of a group]``. Absent when there is one part.
    features : tuple of int or None
        Size of the last axis of each part over all tensor-parallel ranks, where known before the first
        forward pass.
    sequence_first : bool
        Whether the framework's own layout is ``[S, B, *]``.
    like_ids : bool
        Whether the tensor has one row for all samples and is to be repeated for each (position ids).
    rows_of : torch.nn.Module, optional
        A module of which the first tensor that it is given says batch and sequence ``[B, S, …]`` (in the
        framework's order), where this one may come with other axes for them, such as all tokens in one row.
    computed : callable, optional
        Makes the tensor of what the module gives, or of what it is given (as ``(args, kwargs)``), without
        gradients; None where there is nothing this time. Where it is absent the tensor is there.
    sparse : bool
        Whether it is usual that there is nothing to see in a step, such as for an expert to which no token
        was routed. A tensor of two axes then has its tokens in the first.
    shards : Shards or callable
        How the tensor is cut over the tensor-parallel ranks, the pieces being in the order of ``Place.tp``;
        or a function of this rank's tensor ``[B, S, *]`` (before ``split``) where only the tensor itself
        tells. ``features`` and ``uneven`` hold of each part by itself, after ``split``; ``uneven`` are
        features of which ranks hold pieces of other sizes, or nothing.
    observed : Observed, optional
        Where the framework itself tells of the tensor: listened to instead of a hook while no gradient is
        asked for.
    """

    module: nn.Module
    side: Literal["output", "input"] = "output"
    item: int = 0
    keyword: str | None = None
    parts: tuple[str, ...] = ("",)
    split: Callable[[Tensor], Sequence[Tensor]] | None = None
    features: tuple[int | None, ...] = (None,)
    sequence_first: bool = False
    like_ids: bool = False
    rows_of: nn.Module | None = None
    computed: Callable[[Any], Tensor | None] | None = None
    sparse: bool = False
    shards: Shards | Callable[[Tensor], Shards] = "none"
    observed: Observed | None = None

    def views(self, data: Tensor) -> Sequence[Tensor]:
        """Return the parts of a tensor as ``split`` gives them: one that lies in groups has an axis more."""
        return (data,) if self.split is None else self.split(data)

    def cut(self, data: Tensor) -> Sequence[Tensor]:
        """Return the parts of a tensor, each with the axes of the tensor."""
        return [part.flatten(data.ndim - 1) for part in self.views(data)]


@dataclass(frozen=True)
class FlagPoints:
    """Where one flag can be seen, by layer; or the reason why nowhere.

    Attributes
    ----------
    reasons : dict
        Why it cannot be seen in the layers that are not in ``layers``, where that is known of each.
    evidence : dict
        What a forward pass has shown of it, by layer; empty before one was watched.
    """

    layers: Mapping[int, tuple[Source, ...]] = field(default_factory=dict)
    reason: str | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)
    evidence: Mapping[int, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        first = next(iter(self.layers.values()), ())
        return tuple(part for source in first for part in source.parts)

    @property
    def outputs(self) -> dict[int, Source]:
        """By layer, the first of its sources, where that is what a module returns."""
        return {layer: first for layer, (first, *_) in self.layers.items() if first.side == "output"}

    @property
    def features(self) -> int | None:
        """Size of the last axis of all parts together in one layer, where known."""
        return None if self.widths is None else sum(self.widths)

    @property
    def widths(self) -> tuple[int, ...] | None:
        """Size of the last axis of each part in a layer, where all are known and the same in all layers."""
        every = {
            tuple(size for each in sources for size in each.features) for sources in self.layers.values()
        }
        sizes = every.pop() if len(every) == 1 else ()
        return None if not sizes or None in sizes else tuple(size for size in sizes if size is not None)


NO_EXPERTS = FlagPoints(reason="This model has no mixture of experts that is known here.")
"""Of the flags that an adapter need not speak of."""


@dataclass(frozen=True)
class SitePoints:
    """Modules by layer whose ``weight`` or (first) output can be perturbed; or the reason why none can."""

    layers: Mapping[int, tuple[nn.Module, ...]] = field(default_factory=dict)
    reason: str | None = None


class IPassWatch(Protocol):
    """Watches one forward pass and tells what it showed."""

    @property
    def changed(self) -> Collection[tuple[str, int]]:
        """After :meth:`finish`: flags and layers whose place is another one than supposed before."""

    @property
    def failed(self) -> str | None:
        """After :meth:`finish`: why nothing could be learnt."""

    @property
    def interrupted(self) -> bool: ...

    def begin(self, given: Iterable[Any] = ()) -> None:
        """Begin to watch a pass that is given these arguments."""
        ...

    def interrupt(self) -> None:
        """Learn nothing of this pass, in which something is about to be compiled: take the hooks off."""
        ...

    def stop(self) -> None:
        """Watch no more, while hooks of the module are called: of a pass that raised."""
        ...

    def end(self) -> None:
        """Watch no more, and take every hook off. Safe twice, and after :meth:`stop`."""
        ...

    def finish(self) -> ModelPoints: ...


class PointRow(NamedTuple):
    """One row of a table of trace points: layers that are alike are in one."""

    flag: str
    layers: str
    """Such as ``0–11``; empty where there is none."""
    where: str
    """Modules, with ``*`` for numbers that differ; empty where it cannot be seen."""
    evidence: str
    """What shows that it is so, or the reason why it is not there."""

    @property
    def words(self) -> str:
        return " — ".join(filter(None, (self.where or "not seen", self.evidence)))


@dataclass(repr=False)
class ModelPoints:
    """A model with all its trace points, as far as this process holds them; printed, a table of them.

    Other threads read it while the first forward pass teaches better: each member is replaced as a whole.

    Attributes
    ----------
    roots : tuple of torch.nn.Module
        Modules whose call is one forward pass of one micro-batch: one for each model chunk of this pipeline
        stage.
    model : dict
        The ``Model`` object of ``announce``; ``layers`` counts those of all stages.
    flags : dict
        Points by flag name; layers are numbered over all stages, from 0; the embedding is -1.
    sites : dict
        Where perturbations can be done, by name of the site (``weight``, ``calculation``, ``system``).
    place : RankCoordinates
        Where this process stands.
    watch : callable, optional
        Makes of such points what watches a forward pass, where one is to decide what is supposed so far. A
        flag without layers may have some after it.
    told : bool
        Whether the user's own adapter says where the tensors are: then no pass has to confirm it.
    table : callable, optional
        Makes rows of them for people: flag, layers, modules, and what shows that it is so.
    untraceable : str, optional
        Why no tensor can be traced, although it is known where they are.
    numbered : bool
        Whether an adapter that sees one stage of a pipeline has been told of the layers of the others.
    """

    roots: tuple[nn.Module, ...]
    model: Model
    flags: Mapping[str, FlagPoints]
    sites: Mapping[str, SitePoints] = field(default_factory=dict)
    place: RankCoordinates = field(default_factory=RankCoordinates)
    watch: Callable[[ModelPoints], IPassWatch] | None = None
    told: bool = False
    table: Callable[[ModelPoints], Sequence[PointRow]] | None = None
    untraceable: str | None = None
    numbered: bool = False

    def traceable(self, flag: str) -> FlagPoints:
        """Return where a flag can be traced."""
        return self.flags[flag] if self.untraceable is None else FlagPoints(reason=self.untraceable)

    def __repr__(self) -> str:
        if self.table is None:
            return f"<points of {self.model['name']}>"
        rows = self.table(self)
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        return "\n".join(
            f"{row.flag:<{widths[0]}}  {row.layers or '–':<{widths[1]}}  {row.words}" for row in rows
        )

    def evidence(self) -> dict[str, str]:
        """Return what a watched pass has shown of each flag, a line for layers that are alike."""
        shown: dict[str, list[str]] = {name: [] for name, flag in self.flags.items() if flag.evidence}
        if self.table is not None and shown:
            for row in self.table(self):
                if row.flag in shown:
                    shown[row.flag].append(f"{row.layers}: {row.words}" if row.layers else row.words)
        return {name: "\n".join(lines) for name, lines in shown.items() if lines}

    def learn(self, seen: ModelPoints) -> None:
        """Take what a watched pass showed in place of what was supposed."""
        self.model, self.flags, self.sites, self.watch = seen.model, seen.flags, seen.sites, None

    def give_up_watching(self, reason: str) -> set[tuple[str, int]]:
        """Stay with what is supposed, but for guesses; returns the flags and layers that are given up."""
        self.watch = None
        return self.leave_guesses(f"What the model does in a forward pass could not be watched: {reason}.")

    def leave_guesses(self, says: str) -> set[tuple[str, int]]:
        """Give up parts of one tensor, for this reason: how they lie in it only a pass shows.

        Returns the flags and layers that are given up.
        """
        lost = {
            (name, layer)
            for name, flag in self.flags.items()
            for layer, sources in flag.layers.items()
            if not self.told and FLAGS[name].gradient and any(source.split is not None for source in sources)
        }
        flags = {}
        for name, flag in self.flags.items():
            layers = {layer: each for layer, each in flag.layers.items() if (name, layer) not in lost}
            why = dict.fromkeys(flag.layers.keys() - layers.keys(), says)
            reason = None if layers else flag.reason or says
            flags[name] = replace(flag, layers=layers, reason=reason, reasons={**flag.reasons, **why})
        self.flags = flags
        return lost

    @property
    def layers(self) -> int:
        return int(self.model["layers"])


class IAdapter(Protocol):
    """What :func:`megalens.trace` takes as ``adapter``."""

    def points(self, model: Any) -> ModelPoints:
        """Return the trace points of a module, or of a stage's model chunks; raises ``TracerError``."""
        ...
