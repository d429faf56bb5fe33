"""What a verdict says: culprits with their prices, and the words for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .spans import COMPUTING, ranks_text

_ALIKE = 1.5
"""Of ranks that are slow together and differ by more, the range is told."""
_SAME_STEPS = 0.7
_NOTHING = 0.001
"""Share of a step: of what costs less it is said that nobody waits for it."""
_UNEXPLAINED = "which nothing recorded explains (garbage collection, another process, …)"
_PART_WORDS = {
    "forward": "forward pass",
    "backward": "backward pass",
    "wgrad": "gradients of weights",
    "optimizer": "optimizer",
    "data": "waiting for data",
    "checkpoint": "saving",
    "paused": "evaluation or sample text",
    "host": "what no span explains",
}
_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))


@dataclass(frozen=True)
class Culprit:
    """One thing that costs time.

    Attributes
    ----------
    kind : str
        ``device`` (computes more slowly), ``link`` (slow transfers between the ranks), ``host`` (pauses
        between passes), ``data`` (waits for batches), ``checkpoint`` (saves while others do not), ``stage``
        (more to compute than other stages), ``step`` (one long step, or some for one reason), ``stall`` (a
        few steps longer, mostly by what no span explains).
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
    others : tuple of int
        The faster ranks with which it is compared, where these are the fewer of its stage; else empty.
    steps : tuple of int
        Of single steps which they are; else empty.
    longer : tuple of (str, float)
        Of single steps, and of a rank that is alone: which parts take longer, the most first, and by how many
        ns: ``forward``, ``backward``, ``wgrad``, ``optimizer``, ``data``, ``checkpoint``, ``paused``
        (evaluation or sample text), ``host`` (what no span explains), ``moving``
        (communication, with no ranks), or the name of a span of the script's own.
    alone : bool
        Whether there is no other rank: it is compared with its own other steps.
    share_of : str
        What ``slower`` of data and checkpoint is a share of: ``computing``, or ``steps`` where no pass was
        recorded.
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
    others: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    longer: tuple[tuple[str, float], ...] = ()
    alone: bool = False
    share_of: str = "computing"

    def __str__(self) -> str:
        """Return it as sentences, the second with the price."""
        what = self._alone_text() if self.alone else self._says()
        return f"{self._when()}: {what}.{self._price_text()}"

    def _when(self) -> str:
        if len(self.steps) > 1:
            return ranks_text(self.steps, "Step")
        return f"Step {self.first}" if self.first == self.last else f"Steps {self.first} to {self.last}"

    def _by(self) -> str:
        sizes = sorted(each.slower for each in self.parts)
        if sizes and sizes[-1] > _ALIKE * sizes[0]:
            return f"{percent(sizes[0])} to {percent(sizes[-1])}"
        error = interval_text((self.high - self.low) / 2)
        return percent(self.slower) + (f" (± {error})" if error else "")

    def _says(self) -> str:
        ranks = ranks_text(self.ranks)
        who = f"{self.where} ({ranks})" if self.where else ranks
        one = len(self.ranks) == 1 or (self.where and " ranks of " not in self.where)
        several, whose = ("s", "its") if one else ("", "their")
        by = self._by()
        if self.others:
            among = f"{len(self.ranks)} of {len(self.ranks) + len(self.others)} ranks"
            rest = f"the other {len(self.others)}" if len(self.others) > 1 else ranks_text(self.others)
            return f"{among} ({self.where or ranks}) compute {by} longer than {rest}"
        return {
            "device": f"{who} compute{several} {by} slower than {whose} like",
            "link": f"transfers between {who} take {by} longer than others of their size",
            "host": f"{who} pause{several} between passes for {by} of {whose} computing",
            "data": f"{who} wait{several} for data for {by} of {whose} {self.share_of}",
            "checkpoint": f"{who} save{several} for {by} of {whose} {self.share_of}, and others do not",
            "stage": f"the stage of {who} computes {by} more than the others",
            "step": f"the step takes {percent(self.slower, '.0f')} longer; {self._cause(who, one)}",
            "stall": self._cause(who, one),
        }[self.kind]

    def _cause(self, who: str, one: object) -> str:
        """Say what takes longer in single steps on which ranks, and what no span explains."""
        s, whose = ("s", "its") if one else ("", "their")
        if not self.ranks:
            took = self._ns(sum(ns for _, ns in self.longer))
            return f"it takes {took} longer in communication, and no rank works longer than usual"
        if not self.longer:
            return f"{who} make{s} it so"
        said = {
            "data": f"wait{s} {{}} longer for data",
            "checkpoint": f"save{s} for {{}}",
            "paused": f"evaluate{s} or write{s} text for {{}}",
            "host": f"stall{s} for {{}}, {_UNEXPLAINED}",
        }

        def takes(part: str) -> str:
            if part not in _PART_WORDS:
                return f"take{s} {{}} longer in “{part}”"
            return said.get(part, f"take{s} {{}} longer in {whose} {_PART_WORDS[part]}, {_UNEXPLAINED}")

        text = " and ".join(takes(part).replace("{}", self._ns(ns)) for part, ns in self.longer)
        # Said once.
        return f"{who} {text.replace(f', {_UNEXPLAINED}', '', text.count(_UNEXPLAINED) - 1)}"

    def _alone_text(self) -> str:
        by, total = self._by(), self._ns(sum(ns for _, ns in self.longer))
        parts = [
            f"{self._ns(ns)} in {'the ' * (part in COMPUTING)}{_PART_WORDS.get(part, f'“{part}”')}"
            for part, ns in self.longer
        ]
        inside = " and ".join(parts)
        tail = f": {inside}" if inside else ""
        takes = "they take" if len(self.steps) > 1 else "it takes"
        if self.kind == "stall":
            longer = f"{takes} {total} longer than the steps around it"
            if self.longer[0][0] not in _PART_WORDS:
                return f"{longer}: {inside}"
            return f"{longer}{'' if self.longer[0][0] == 'host' else f', {inside}'}, {_UNEXPLAINED}"
        return {
            "device": f"computing takes {total} longer than in other steps, {by}{tail}",
            "host": f"what no span explains takes {total} longer than in other steps, {by} of computing",
            "data": f"waiting for data takes {total} a step, {by} of {self.share_of}",
            "checkpoint": f"saving takes {total} a step, {by} of {self.share_of}",
            "step": f"{takes} {percent(self.slower, '.0f')} longer than the steps around it{tail}",
        }[self.kind]

    def _ns(self, ns: float) -> str:
        return duration_text(ns) + " (median)" * (len(self.steps) > 1)

    def _price_text(self) -> str:
        if self.price_ns != self.price_ns:
            return ""
        if not self.price_ns > 0:
            return " Without that alone a step is no shorter: others are as slow."
        which = "such a step" if self.kind == "checkpoint" or len(self.steps) > 1 else "a step"
        without = "If they were as fast," if self.others else "Without that"
        text = f" {without} {which} is {price_text(self.price_ns, self.price_low, self.price_high)} shorter"
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
        values["longer"] = [list(each) for each in self.longer]
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
        What is slow and costs less than 1 % of a step, mostly nothing, since nobody waits for it.
    stalls : tuple of Culprit
        What makes a few steps longer, mostly what no span explains; says nothing against a rank.
    alone : bool
        Whether there is one rank only.
    lacking : tuple of str
        Sentences about what would have to be there to call the job healthy.
    price_ns, price_low, price_high : float
        By how much a step would be shorter without all of several culprits; NaN of one, and where it was not
        replayed.
    stuck : tuple of str
        Sentences about collectives in which ranks wait for others that never came.
    """

    culprits: tuple[Culprit, ...]
    first: int
    last: int
    step_ns: float
    problems: tuple[str, ...] = ()
    hidden: tuple[Culprit, ...] = ()
    stalls: tuple[Culprit, ...] = ()
    alone: bool = False
    lacking: tuple[str, ...] = ()
    price_ns: float = float("nan")
    price_low: float = float("nan")
    price_high: float = float("nan")
    stuck: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nobody makes the others wait, and all was there that shows it."""
        return not self.culprits and self.last > 0 and not self.lacking and not self.stuck

    def __str__(self) -> str:
        if not self.last:
            return "\n".join((*self.stuck, "There is nothing to judge.", *self.problems))
        judged = f"Steps {self.first} to {self.last}, {duration_text(self.step_ns, 4)} each"
        found = [str(each) for each in self.culprits]
        if not found:
            found = [
                "Nothing slow is found, which says little:"
                if self.lacking
                else "No step takes unusually long."
                if self.alone
                else "Healthy: no rank makes the others wait."
            ]
        if self.price_ns > 0:
            price = price_text(self.price_ns, self.price_low, self.price_high)
            found.append(f"Without all of these a step is {price} shorter.")
        return "\n".join((*self.stuck, f"{judged}.", *found, *self.lacking, *self._notes(), *self.problems))

    def _notes(self) -> list[str]:
        """Return sentences about what is slow and costs little or nothing, and about stalls."""
        return [*(self._little(each) for each in self.hidden), *map(str, self.stalls)]

    def _little(self, each: Culprit) -> str:
        price = each.price_ns
        if not price > _NOTHING * self.step_ns:
            nothing = replace(each, price_ns=float("nan"))
            return f"Nobody waits for it: {nothing}"
        if each.price_low <= 0:
            return f"What it costs is within the noise of steps: {each}"
        return f"It costs less than 1 % of a step: {each}"

    def to_message(self) -> dict[str, Any]:
        return {
            "healthy": self.healthy,
            "culprits": [each.to_message() for each in self.culprits],
            "hidden": [each.to_message() | {"sentence": self._little(each)} for each in self.hidden],
            "stalls": [each.to_message() for each in self.stalls],
            "first": self.first,
            "last": self.last,
            "step_ns": None if self.step_ns != self.step_ns else self.step_ns,
            "price_ns": None if self.price_ns != self.price_ns else self.price_ns,
            "lacking": list(self.lacking),
            "stuck": list(self.stuck),
            "problems": [*self.stuck, *self.lacking, *self.problems],
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


def percent(share: float, form: str = ".1f") -> str:
    return f"{100 * share:{form}} %"


def interval_text(error: float) -> str:
    """Return half an interval of a share in per cent; empty where there is none."""
    text = significant(100 * error, 1 if error < 0.001 else 2) if error > 0 else "0"
    return "" if text == "0" else f"{text} %"
