"""What to trace, without torch: compressors, settings of flags, the budget; and how people write them."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from .errors import ProtocolError, must_be
from .kinds import Kind, chosen, kind_from_setting, kind_infos, number, switch, text, whole
from .messages_generated import CompressorInfo, Pass, Phase
from .outside import parse_json
from .ranges import is_whole, ranges_text, read_ranges

__all__ = [
    "COMMON_SETTINGS",
    "COMPRESSORS",
    "PASSES",
    "PHASES",
    "Compressor",
    "Empty",
    "Histogram",
    "NoOp",
    "Peaks",
    "Projection",
    "Tile",
    "compressor_from_setting",
    "compressor_infos",
    "flags_from_text",
    "layers_text",
    "named_flags",
    "parse_budget",
    "read_flags",
    "read_setting",
    "some_of",
    "words_from_text",
]

_TEXT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%?")

PHASES: tuple[Phase, ...] = ("train", "eval", "generate")
PASSES: tuple[Pass, ...] = ("forward", "backward")
_REPLICAS = ("first", "all")
COMMON_SETTINGS = ("layers", "every", "samples", "phases", "passes", "replicas")
"""What a call may say of all flags that it names."""
_CHOICES = "a compressor such as Tile(96), True, False, None or a dict of settings"


@dataclass(frozen=True)
class Compressor(Kind):
    """How one traced tensor is made small. Subclasses hold the parameters; the tracer does the arithmetic."""

    def __str__(self) -> str:
        """Return the canonical text, such as ``Tile(tiles=96, reduction='mean')``."""
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in asdict(self).items())})"


@dataclass(frozen=True)
class Tile(Compressor):
    """Cut the last axis into equal tiles and reduce each to one number.

    A last axis of F features is cut into tiles of ``ceil(F / tiles)`` features, which gives at most ``tiles``
    of them; the last one holds what is left and is reduced over its own features only.
    """

    name: ClassVar[str] = "Tile"
    title: ClassVar[str] = "Tile"
    tiles: int = whole("Tiles", "At most this many tiles over the features.", 1, 65536, 96)
    reduction: str = text(
        "Reduction",
        "One number a tile: mean, rms (how large values of both signs are), max, std, or an expression over "
        "data such as data.abs().mean(dim=-1).",
        500,
        default="mean",
        examples=["mean", "rms", "max", "std", "norm", "abs().mean()"],
    )


@dataclass(frozen=True)
class NoOp(Compressor):
    """Keep every value."""

    name: ClassVar[str] = "NoOp"
    title: ClassVar[str] = "No compression"


@dataclass(frozen=True)
class Empty(Compressor):
    """Keep no value, only the shape and the non-finite counts."""

    name: ClassVar[str] = "Empty"
    title: ClassVar[str] = "Counts only"


@dataclass(frozen=True)
class Projection(Compressor):
    """Project each position on one or more unit vectors per layer, loaded from a file in an allowed
    folder.
    """

    name: ClassVar[str] = "Projection"
    title: ClassVar[str] = "Projection"
    vectors: str = text(
        "Vectors",
        "File with one vector per layer, [layers, features] or [layers, vectors, features]: .safetensors, "
        ".npy or weights-only .pt.",
        1000,
    )


@dataclass(frozen=True)
class Peaks(Compressor):
    """Cut queries and keys of attention probabilities into blocks and keep the largest value of each.

    An axis of N positions is cut into blocks of ``side(N)``; the last one holds what is left. Where N is at
    most ``cells`` the blocks are single positions.
    """

    name: ClassVar[str] = "Peaks"
    title: ClassVar[str] = "Peaks"
    cells: int = whole(
        "Cells",
        "At most this many blocks along queries and along keys; a block's side is a power of two.",
        1,
        65536,
        256,
    )

    def side(self, positions: int) -> int:
        """Return a block's side on an axis: the least power of two that leaves at most ``cells`` blocks."""
        return 1 << (max(1, -(-positions // self.cells)) - 1).bit_length()


@dataclass(frozen=True)
class Histogram(Compressor):
    """Count the values of each sample in fixed bins, the same for every tensor, so that counts of ranks,
    steps and layers add up.

    A row is ``[samples, tiles, 2 bins + 1]``. The middle bin is zero; ``bins`` of each sign lie about it, the
    larger values farther out. Edges follow from the parameters alone (:meth:`edges`). Values
    are compared as float32. The last bin of either sign is open; NaN and infinities are in no bin, but in the
    row's counts.
    """

    name: ClassVar[str] = "Histogram"
    title: ClassVar[str] = "Histogram"
    bins: int = whole("Bins", "Bins of each sign, besides one for zero.", 4, 1024, 128)
    log: bool = switch(
        "Logarithmic",
        "Bins that grow with the value, for sizes from 2^-40 to 2^24; else bins of one width, up to the "
        "limit.",
        True,
    )
    tiles: int = whole("Tiles", "Count apart in at most this many tiles over the features.", 1, 4096, 1)
    limit: float = chosen(number("Limit", "Size at which bins of one width end.", 1e-30, 1e30, 1.0))

    @staticmethod
    def from_text(text: str) -> Histogram | None:
        """Return the histogram that a canonical text names, such as a row has; None where it names none."""
        found = _HISTOGRAM.fullmatch(text)
        if found is None:
            return None
        bins, log, tiles, limit = found.groups()
        return Histogram(int(bins), log == "True", int(tiles), float(limit))

    def edges(self) -> list[float]:
        """Return where the bins of positive values begin, rising: exact, the same on every machine.

        Of logarithmic bins the first is 2^-40, below which a value counts as zero. An octave is cut into
        equal parts, so that edges are short binary fractions and no logarithm is rounded. Bins of one width
        begin at the least positive value, given as 0; only zeros lie in the middle then.
        """
        if not self.log:
            return [self.limit * k / self.bins for k in range(self.bins)]
        places = [-(-k * LOG_PARTS // self.bins) * LOG_OCTAVES / LOG_PARTS for k in range(self.bins)]
        return [math.ldexp(1 + at % 1, LOG_LEAST + math.floor(at)) for at in places]


_HISTOGRAM = re.compile(
    r"Histogram\(bins=([0-9]{1,4}), log=(True|False), tiles=([0-9]{1,4}), limit=([0-9.e+-]{1,24})\)"
)
LOG_LEAST, LOG_OCTAVES, LOG_PARTS = -40, 64, 1 << 20
"""Logarithmic bins of :class:`Histogram` begin at 2^LOG_LEAST, span octaves, and end at a whole part."""

COMPRESSORS: dict[str, type[Compressor]] = {
    kind.name: kind for kind in (Tile, NoOp, Empty, Projection, Peaks, Histogram)
}


def compressor_infos() -> list[CompressorInfo]:
    """Return the ``CompressorInfo`` list that ``announce`` and ``hello`` carry."""
    return [*kind_infos(COMPRESSORS)]


def compressor_from_setting(setting: Mapping[str, Any], field: str = "compressor") -> Compressor:
    """Return the compressor that a ``CompressorSetting`` names.

    Raises
    ------
    ProtocolError
        ``unknown-compressor`` or ``bad-parameter``, with the dotted field.
    """
    return kind_from_setting(COMPRESSORS, setting, field, noun="compressor", unknown="unknown-compressor")


# What a person writes to have flags traced: the one reader of ``trace(flags=…)``, ``tracer.configure`` and
# ``run.configure``.
def named_flags(asked: Any, call: str) -> dict[str, Any]:
    """Return choices by flag name: of a mapping, of one name, or of several, which are switched on.

    Raises
    ------
    ProtocolError
        ``bad-parameter`` when it is none of these.
    """
    if isinstance(asked, Mapping) and all(isinstance(name, str) for name in asked):
        return dict(asked)
    names = [asked] if isinstance(asked, str) else [*asked] if isinstance(asked, Iterable) else [None]
    if isinstance(asked, (Mapping, Compressor)) or not all(isinstance(name, str) for name in names):
        raise must_be(call, "a dict such as {'MLP1_mat_mul': Tile(96)}, or names of flags", asked, "flags")
    return dict.fromkeys(map(str, names), True)


def read_flags(
    asked: Mapping[str, Any],
    *,
    now: Mapping[str, Any],
    suited: Callable[[str], Mapping[str, Any]],
    common: Mapping[str, Any],
    spell: str = "flags[{!r}]",
    prefix: str = "flags.",
) -> dict[str, Any]:
    """Return a ``FlagSetting``, or None for off, by flag name.

    Parameters
    ----------
    asked : mapping
        By flag name: a compressor, a mapping of some settings, True (on, as it is now or with what suits it),
        False or None (off).
    now : mapping
        The settings in force, which ``True`` and mappings keep.
    suited : callable
        Gives the ``CompressorSetting`` that suits a flag.
    common : mapping
        Settings of all flags that are switched on, from :func:`read_setting`; a flag's own override them.
    spell : str
        How the call names a flag.
    prefix : str
        Dotted path put before a flag's name in an error's ``field``.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, in the words of the call.
    """
    settings: dict[str, Any] = {}
    for name, choice in asked.items():
        where, field = spell.format(name), f"{prefix}{name}"
        current = {**now.get(name, {"compressor": suited(name)}), **common}
        if choice is None or choice is False:
            settings[name] = None
        elif choice is True:
            settings[name] = current
        elif isinstance(choice, Compressor):
            settings[name] = {**common, "compressor": choice.to_setting()}
        elif isinstance(choice, Mapping):
            settings[name] = {**current, **read_setting(choice, where, f"{field}.")}
        else:
            hint = (
                f" ({choice.__name__}(…), not the class)"
                if isinstance(choice, type) and issubclass(choice, Compressor)
                else ""
            )
            raise must_be(where, _CHOICES + hint, choice, field)
    return settings


def read_setting(given: Mapping[str, Any], of: str = "", prefix: str = "") -> dict[str, Any]:
    """Return members of a ``FlagSetting`` as messages have them, from what people write.

    Parameters
    ----------
    given : mapping
        Any of the members. ``layers`` may be numbers, ``phases`` one of them, ``samples`` ``"all"``;
        ``compressor`` a :class:`Compressor`.
    of : str
        What the call names by what they are members; they are its arguments when empty.
    prefix : str
        Dotted path put before the member's name in an error's ``field``.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, in the words of the call.
    """
    setting: dict[str, Any] = {}
    for name, value in given.items():
        where, field = f"{of}[{name!r}]" if of else f"{name}=…", f"{prefix}{name}"
        if name == "compressor":
            value = value.to_setting() if isinstance(value, Compressor) else value
            named = isinstance(value, Mapping) and isinstance(value.get("name"), str)
            if not named or not isinstance(value.get("params", {}), Mapping) or {*value} - {"name", "params"}:
                expected = "a compressor such as Tile(96), or {'name': 'Tile', 'params': {'tiles': 96}}"
                raise must_be(where, expected, value, field)
        elif name == "layers":
            value = layers_text(value, where, field)
        elif name == "samples" and (value is None or value == "all"):
            value = None
        elif name in ("every", "samples"):
            if not is_whole(value, 1):
                more = " or 'all'" if name == "samples" else ""
                raise must_be(where, f"a whole number from 1{more}", value, field)
            value = int(value)
        elif name in ("phases", "passes"):
            value = some_of(value, PHASES if name == "phases" else PASSES, where, field)
        elif name == "replicas":
            if not isinstance(value, str) or value not in _REPLICAS:
                raise must_be(where, "first or all", value, field)
        else:
            known = ", ".join(("compressor", *COMMON_SETTINGS))
            raise ProtocolError(
                "bad-parameter",
                f"{of or 'A flag'} has no setting {name!r:.100}. It takes {known}.",
                field=field,
            )
        setting[name] = value
    return setting


def layers_text(layers: Any, where: str = "layers=…", field: str = "layers") -> str:
    """Return a choice of layers as the range text of a message: ``"all"``, ``"0-3,7"``.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, naming the field.
    """
    expected = "a layer, several layers, 'all' or ranges such as '0-3,7'"
    try:
        ranges = read_ranges(layers, field)
    except ProtocolError as error:
        raise must_be(where, expected, layers, field) from error
    if ranges is None and layers is not None:
        return "all"
    # An embedding is no layer that one could choose.
    if not ranges or any(low < 0 for low, _ in ranges):
        raise must_be(where, expected, layers, field)
    return ranges_text(ranges)


def some_of(
    chosen: Any, known: tuple[str, ...] = PHASES, where: str = "phases=…", field: str = "phases"
) -> list[str]:
    """Return one word or several as a list without repeats.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, naming the field, where one is not known or there is none.
    """
    words = [chosen] if isinstance(chosen, str) else [*chosen] if isinstance(chosen, Iterable) else []
    if not words or any(word not in known for word in words):
        raise must_be(where, f"one or more of {', '.join(known)}", chosen, field)
    return list(dict.fromkeys(words))


def parse_budget(budget: str | float | None, field: str = "budget") -> float | None:
    """Return a limit in per cent of step time from ``"1%"``, ``"0.5 %"``, ``1``, ``1.0``; None for no limit.

    A number is per cent: ``0.5`` is half a per cent, not a half.

    Raises
    ------
    ProtocolError
        ``bad-parameter`` when it is none of these, or not above 0 and at most 100.
    """
    if budget is None:
        return None
    value = math.nan
    if isinstance(budget, str):
        found = _TEXT.fullmatch(budget.strip())
        if found:
            value = float(found[1])
    elif isinstance(budget, (int, float)) and not isinstance(budget, bool):
        # Compared as it is: a whole number of 400 digits is no float.
        value = budget
    if not 0 < value <= 100:
        raise ProtocolError(
            "bad-parameter",
            "A budget must be per cent of step time, above 0 and at most 100, such as '1%', "
            f"got {budget!r:.50}. None takes the limit away.",
            field=field,
            expected="'1%', 1.0 or None",
            got=repr(budget)[:200],
        )
    return float(value)


def words_from_text(text: str) -> list[str]:
    """Return the words of a text from a shell, with commas between them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def flags_from_text(text: str) -> Any:
    """Read flags from a shell: names with commas between them, or a JSON object of settings.

    Raises
    ------
    argparse.ArgumentTypeError
        When it is neither.
    """
    if not text.lstrip().startswith("{"):
        return words_from_text(text)
    try:
        return parse_json(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected names or a JSON object of flag settings: {error}"
        ) from error
