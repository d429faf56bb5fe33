"""What a verdict says: culprits with their prices, and the words for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .spans import ranks_text

_ALIKE = 1.5
"""Of ranks that are slow together and differ by more, the range is told."""
_SAME_STEPS = 0.7
_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))


@dataclass(frozen=True)
class Culprit:
    """One thing that costs time.

    Attributes
    ----------
    kind : str
        ``device`` (computes more slowly), ``link`` (slow transfers between the ranks), ``host`` (pauses
        between passes), ``data`` (waits for batches), ``checkpoint`` (saves while others do not), ``stage``
        (more to compute than other stages), ``step`` (one long step).
    ranks : tuple of int
        Whose.
    first, last : int
        Steps.
    slower : float
        0.34 for 1.34 times as long as the others; of host and data relative to the rank's own computing.
    low, high : float
        95 % interval of ``slower``; NaN of a single step.
    confidence : float
        That ``slower`` is more than nothing, 0 to 1.
    price_ns, price_low, price_high : float
        By how much the step would be shorter without it, with an interval over steps; NaN where it was not
        replayed, the interval also where one step was.
    where : str
        What the ranks are, as ``node 3``; empty where they are nothing in common.
    parts : tuple of Culprit
        Of several ranks that are slow together each, with what it would bring alone.
    """

    kind: str
    ranks: tuple[int, ...]
    first: int
    last: int
    slower: float
    low: float
    high: float
    confidence: float
    price_ns: float = float("nan")
    price_low: float = float("nan")
    price_high: float = float("nan")
    where: str = ""
    parts: tuple[Culprit, ...] = ()

    def __str__(self) -> str:
        """Return it as sentences, the second with the price."""
        ranks = ranks_text(self.ranks)
        who = f"{self.where} ({ranks})" if self.where else ranks
        one = len(self.ranks) == 1 or (self.where and " ranks of " not in self.where)
        several, whose = ("s", "its") if one else ("", "their")
        by = f"{self.slower:.1%}"
        sizes = sorted(each.slower for each in self.parts)
        error = interval_text((self.high - self.low) / 2)
        if sizes and sizes[-1] > _ALIKE * sizes[0]:
            by = f"{sizes[0]:.1%} to {sizes[-1]:.1%}"
        elif error:
            by += f" (± {error})"
        says = {
            "device": f"{who} compute{several} {by} slower than {whose} like",
            "link": f"transfers between {who} take {by} longer than others of their size",
            "host": f"{who} pause{several} between passes for {by} of {whose} computing",
            "data": f"{who} wait{several} for data for {by} of {whose} computing",
            "checkpoint": f"{who} save{several} for {by} of {whose} computing, and others do not",
            "stage": f"the stage of {who} computes {by} more than the others",
            "step": f"the step takes {self.slower:.0%} longer; {who} make{several} it so",
        }[self.kind]
        when = f"Step {self.first}" if self.first == self.last else f"Steps {self.first} to {self.last}"
        return f"{when}: {says}.{self._price_text()}"

    def _price_text(self) -> str:
        if self.price_ns != self.price_ns:
            return ""
        if not self.price_ns > 0:
            return " Without that alone a step is no shorter: others are as slow."
        which = "a step in which it is so" if self.kind == "checkpoint" else "a step"
        text = (
            f" Without that {which} is {price_text(self.price_ns, self.price_low, self.price_high)} shorter"
        )
        alone = [each.price_ns for each in self.parts]
        if alone and all(each == each for each in alone):
            most = max(alone)
            least = f"by at most {duration_text(most)}" if most > 0 else "it is not"
            return f"{text}; without any one of these ranks alone {least}."
        return f"{text}."

    def with_(self, other: Culprit) -> bool:
        """Return whether another is slow in the same way, mostly at the same steps."""
        both = min(self.last, other.last) - max(self.first, other.first) + 1
        either = max(self.last, other.last) - min(self.first, other.first) + 1
        return self.kind == other.kind and both >= _SAME_STEPS * either

    def to_message(self) -> dict[str, Any]:
        """Return it as plain JSON, with ``sentence``; unknown numbers are None."""
        values = {
            name: None if isinstance(value, float) and value != value else value
            for name, value in vars(self).items()
        }
        parts = [each.to_message() for each in self.parts]
        return values | {"ranks": list(self.ranks), "parts": parts, "sentence": str(self)}


@dataclass(frozen=True)
class Verdict:
    """The culprits of the steps ``first`` to ``last``.

    Attributes
    ----------
    culprits : tuple of Culprit
        The most expensive first.
    first, last : int
        Judged steps; 0 where there were none.
    step_ns : float
        Median duration of a step, NaN where there was none.
    problems : tuple of str
        Sentences about what could not be used or judged.
    hidden : tuple of Culprit
        What is slow and costs nothing, since nobody waits for it.
    lacking : tuple of str
        Sentences about what would have to be there to call the job healthy.
    price_ns, price_low, price_high : float
        By how much a step would be shorter without all of several culprits; NaN of one, and where it was not
        replayed.
    """

    culprits: tuple[Culprit, ...]
    first: int
    last: int
    step_ns: float
    problems: tuple[str, ...] = ()
    hidden: tuple[Culprit, ...] = ()
    lacking: tuple[str, ...] = ()
    price_ns: float = float("nan")
    price_low: float = float("nan")
    price_high: float = float("nan")

    @property
    def healthy(self) -> bool:
        """Whether nobody makes the others wait, and all was there that shows it."""
        return not self.culprits and self.last > 0 and not self.lacking

    def __str__(self) -> str:
        if not self.last:
            return "\n".join(("There is nothing to judge.", *self.problems))
        judged = f"Steps {self.first} to {self.last}, {duration_text(self.step_ns, 4)} each"
        found = [str(each) for each in self.culprits]
        if not found:
            found = [
                "Nothing slow is found, which says little:"
                if self.lacking
                else "Healthy: no rank makes the others wait."
            ]
        if self.price_ns > 0:
            price = price_text(self.price_ns, self.price_low, self.price_high)
            found.append(f"Without all of these a step is {price} shorter.")
        hidden = [f"Nobody waits for it: {each}" for each in self.hidden]
        return "\n".join((f"{judged}.", *found, *self.lacking, *hidden, *self.problems))

    def to_message(self) -> dict[str, Any]:
        return {
            "healthy": self.healthy,
            "culprits": [each.to_message() for each in self.culprits],
            "hidden": [each.to_message() for each in self.hidden],
            "first": self.first,
            "last": self.last,
            "step_ns": None if self.step_ns != self.step_ns else self.step_ns,
            "price_ns": None if self.price_ns != self.price_ns else self.price_ns,
            "lacking": list(self.lacking),
            "problems": [*self.lacking, *self.problems],
        }


def significant(value: float, digits: int = 3) -> str:
    """Return a number with so many digits and no exponent."""
    text = f"{float(f'{value:.{digits}g}'):.9f}"
    return text.rstrip("0").rstrip(".")


def duration_text(ns: float, digits: int = 3) -> str:
    """Return ns as ``11.3 ms`` or ``1.04 s``."""
    value = float(f"{ns:.{digits}g}")
    unit, scale = next(((unit, scale) for unit, scale in _UNITS if abs(value) >= scale), _UNITS[-1])
    return f"{significant(value / scale, digits)} {unit}"


def price_text(price: float, low: float, high: float) -> str:
    """Return a duration with its interval, which one observation does not have: ``11.3 ms (± 0.1)``."""
    text = duration_text(price)
    scale = dict(_UNITS)[text.split()[1]]
    error = significant((high - low) / 2 / scale, 2) if high > low else ""
    return f"{text} (± {error})" if error not in ("", "0") else text


def interval_text(error: float) -> str:
    """Return half an interval of a share in per cent; empty where there is none."""
    text = significant(100 * error, 1 if error < 0.001 else 2) if error > 0 else "0"
    return "" if text == "0" else f"{text}%"
