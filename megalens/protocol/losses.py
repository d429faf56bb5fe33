"""What was given up on its way to a hub or to the disk, and the sentences that name it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from .ranges import join_numbers, ranges_text

__all__ = ["Losses", "layers_words"]

_OTHER_TENSORS = "Trace it with Tile or Peaks, in fewer layers or samples, or every few steps."

_TOLD = "told"
# By reason: why, and what to do.
_REASONS = {
    "waiting": ("too much waits to be sent already", "Trace less, or every few steps."),
    "stalled": ("the hub has taken nothing for long", ""),
    "unsent": ("no hub took them", ""),
    "unwritten": ("too much waits for the disk", "If it is slow, trace less, or every few steps."),
    "too-large": ("a row is larger than one message may be", "Make its rows smaller."),
    "values-waiting": ("too much waits to be sent already", _OTHER_TENSORS),
    "values-too-large": ("one is larger than one message may be", _OTHER_TENSORS),
}


@dataclass
class _Loss:
    rows: int = 0
    first: int | None = None
    last: int | None = None
    layers: set[int] = field(default_factory=set)
    said: tuple[int, int] = (0, 0)
    """Rows and layers that the first sentence named."""


class Losses:
    """Counts rows that were given up, by reason and by what they are of.

    Each reason belongs to one thread, so that none needs a lock.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], _Loss] = {}

    @property
    def rows(self) -> int:
        """Rows that never reached a hub; those that lack only their values did."""
        return sum(loss.rows for (why, _), loss in self._of.copy().items() if not _bare(why))

    def add(
        self, rows: int, why: str, what: str, step: int, layers: Collection[int] = (), size: str = ""
    ) -> str | None:
        """Count rows, and return the sentence that names them where they are the first of their kind.

        Parameters
        ----------
        why : str
            A reason with words here, or ``told`` where the caller has a sentence of its own.
        what : str
            What the rows are of: a flag's title, an instrument, a stream.
        size : str, optional
            How large they are, and what the bound is, in words.
        """
        if rows <= 0:
            return None
        loss = self._of.setdefault((why, what), _Loss())
        loss.rows += rows
        loss.first = step if loss.first is None else min(loss.first, step)
        loss.last = step if loss.last is None else max(loss.last, step)
        loss.layers.update(layers)
        if loss.rows > rows or why == _TOLD:
            return None
        loss.said = rows, len(loss.layers)
        because, remedy = _REASONS[why]
        text = f"{what}{layers_words(loss.layers)}: {_came(rows, f'step {step}', why)}, because {because}"
        kept = f" {'Its' if rows == 1 else 'Their'} statistics are there." if _bare(why) else ""
        return f"{text}{f' ({size})' if size else ''}.{kept} {remedy}".rstrip()

    def totals(self) -> Iterator[str]:
        """Give a sentence on each kind of which more was given up than its first sentence said."""
        for (why, what), loss in self._of.copy().items():
            if why != _TOLD and loss.said != (loss.rows, len(loss.layers)):
                steps = (
                    f"steps {loss.first} to {loss.last}" if loss.first != loss.last else f"step {loss.first}"
                )
                came = _came(loss.rows, steps, why)
                yield f"{what}{layers_words(loss.layers)}: in all {came}, because {_REASONS[why][0]}."


def _bare(why: str) -> bool:
    """Whether rows lack only their values."""
    return why.startswith("values")


def layers_words(layers: Collection[int]) -> str:
    """Return ``, layers 0-3``; nothing where there are none."""
    numbers = sorted(layer for layer in layers if layer >= 0)
    if not numbers:
        return ""
    text = ranges_text(join_numbers(numbers))
    return f", layer{'s' if len(numbers) > 1 else ''} {text if len(text) <= 60 else f'{text[:60]}…'}"


def _came(rows: int, steps: str, why: str) -> str:
    fate = ("has no values", "have no values") if _bare(why) else ("was given up", "were given up")
    return f"{rows:,} row{'' if rows == 1 else 's'} of {steps} {fate[rows != 1]}"
