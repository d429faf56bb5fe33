"""Which tensors take part in an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....protocol import Ranges, in_ranges, parse_name
from ...arguments import chosen_ranges
from ...errors import ClientError
from .patterns import Pattern

__all__ = ["NameFilter", "Where"]

Where = Mapping[str, Any] | Callable[[str], bool] | None

_NUMBERS = ("layer", "expert")
_ROW_NUMBERS = ("rank", "stage")
_WORDS = ("stack", "family", "kind", "module_type", "item_type", "role")


class NameFilter:
    """A filter, checked once; what it says of names is asked once for each name, never for each row.

    Parameters
    ----------
    where : mapping or callable, optional
        By column: ``layer``, ``expert``, ``rank``, ``stage`` take numbers or texts of ranges; ``stack``, ``family``, ``kind``, ``module_type``, ``item_type``, ``role``
        take one word or several; ``name`` a regular expression or a function of the name. A function alone is one of the name.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming the column at fault.
    """

    def __init__(self, where: Where = None) -> None:
        if where is not None and not isinstance(where, Mapping):
            where = {"name": where}
        where = dict(where or {})
        unknown = [str(key) for key in where if key not in (*_NUMBERS, *_ROW_NUMBERS, *_WORDS, "name")]
        if unknown:
            raise ClientError(
                f"where knows no column {unknown[0]!r:.100}. It has name, {', '.join((*_NUMBERS, *_ROW_NUMBERS, *_WORDS))}.",
                code="bad-parameter",
                field=f"where.{unknown[0]:.50}",
            )
        self._ranges = {
            key: found for key in _NUMBERS if (found := chosen_ranges(where.get(key), key)) is not None
        }
        self.rows: dict[str, Ranges] = {
            key: found for key in _ROW_NUMBERS if (found := chosen_ranges(where.get(key), key)) is not None
        }
        """Ranges of ``rank`` and ``stage``, which rows say and names do not."""
        self._words = {key: _words(where[key], key) for key in _WORDS if where.get(key) is not None}
        name = where.get("name")
        self._function = name if callable(name) else None
        self._pattern = (
            None if name is None or self._function is not None else Pattern(name, "pattern in where")
        )

    @property
    def all_names(self) -> bool:
        """Whether no name is left out."""
        return not (self._ranges or self._words or self._function or self._pattern)

    def keep(self, names: Sequence[str], *, any_role: bool = False) -> list[bool]:
        """Say of each name whether it takes part.

        Parameters
        ----------
        names : sequence of str
            The names.
        any_role : bool
            Leave out what is said of ``role``.
        """
        kept = [True] * len(names)
        words = {key: found for key, found in self._words.items() if not (any_role and key == "role")}
        if self._ranges or words:
            for at, name in enumerate(names):
                said = parse_name(name)
                kept[at] = all(
                    in_ranges(getattr(said, key), found) for key, found in self._ranges.items()
                ) and all(getattr(said, key) in found for key, found in words.items())
        if self._pattern is not None:
            kept = [one and found for one, found in zip(kept, self._pattern.matches(names), strict=True)]
        if self._function is not None:
            kept = [one and bool(self._function(name)) for one, name in zip(kept, names, strict=True)]
        return kept


def _words(value: Any, key: str) -> frozenset[str | None]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, Sequence | set | frozenset) or not all(
        word is None or isinstance(word, str) for word in words
    ):
        raise ClientError(
            f"where: {key} must be a word or several, got {value!r:.100}.",
            code="bad-parameter",
            field=f"where.{key}",
        )
    return frozenset(words)
