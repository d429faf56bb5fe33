"""What a person writes to have flags traced: the one reader of ``trace(flags=…)``, ``tracer.configure`` and ``run.configure``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .errors import ProtocolError, must_be
from .ranges import is_whole, ranges_text, read_ranges
from .settings import Compressor

__all__ = ["COMMON_SETTINGS", "layers_text", "named_flags", "read_flags", "read_setting", "some_of"]

_PHASES = ("train", "eval", "generate")
_PASSES = ("forward", "backward")
_REPLICAS = ("first", "all")
COMMON_SETTINGS = ("layers", "every", "samples", "phases", "passes", "replicas")
"""What a call may say of all flags that it names."""
_CHOICES = "a compressor such as Tile(96), True, False, None or a dict of settings"


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
        By flag name: a compressor, a mapping of some settings, True (on, as it is now or with what suits it), False or None (off).
    now : mapping
        The settings in force, which ``True`` and mappings keep.
    suited : callable
        Gives the ``CompressorSetting`` that suits a flag.
    common : mapping
        Settings of all flags that are switched on, as :func:`read_setting` gives them; a flag's own are put over them.
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
        kept = {**now.get(name, {"compressor": suited(name)}), **common}
        if choice is None or choice is False:
            settings[name] = None
        elif choice is True:
            settings[name] = kept
        elif isinstance(choice, Compressor):
            settings[name] = {**common, "compressor": choice.to_setting()}
        elif isinstance(choice, Mapping):
            settings[name] = {**kept, **read_setting(choice, where, f"{field}.")}
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
        Any of the members. ``layers`` may be numbers, ``phases`` one of them, ``samples`` ``"all"``; ``compressor`` a :class:`Compressor`.
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
            value = some_of(value, _PHASES if name == "phases" else _PASSES, where, field)
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
    chosen: Any, known: tuple[str, ...] = _PHASES, where: str = "phases=…", field: str = "phases"
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
