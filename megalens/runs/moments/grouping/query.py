"""A question about groups of tensors, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....protocol import MOMENT_READINGS, MOMENT_STATS
from ...errors import ClientError
from .group_keys import Grouping
from .name_filter import NameFilter, Where
from .shaping import SHOWS

__all__ = ["MomentQuery", "check_stat"]

_RATIOS = ("none", "grad_to_param", "gain")


@dataclass(frozen=True)
class MomentQuery:
    """What is asked of the stream ``moments``; ``protocol/README.md`` says what groups and ratios are.

    Attributes
    ----------
    stat : str
        What was measured.
    statistic : str
        What is read of a group.
    grouping : Grouping
        What makes a group.
    where : NameFilter
        Which tensors take part.
    first, last : int or None
        Inclusive bounds of the step.
    points : int or None
        About how many steps of a group may stay.
    series : int or None
        How many groups may stay.
    ratio : str
        ``none``, ``grad_to_param`` or ``gain``.
    mixed : bool
        Let inputs and outputs of modules enter one group.
    show : str
        ``raw``, ``relative``, ``delta`` or ``percent``: against the first value of the whole run.
    smoothing : int
        How many steps of a group a trailing mean is over; 0 and 1 are none.
    lean : bool
        Only the value and its error, counts and non-finite counts are needed: what else is merged may be left out, as NaN.
    """

    stat: str
    statistic: str
    grouping: Grouping
    where: NameFilter
    first: int | None = None
    last: int | None = None
    points: int | None = None
    series: int | None = None
    ratio: str = "none"
    mixed: bool = False
    show: str = "raw"
    smoothing: int = 0
    lean: bool = False

    @property
    def shaped(self) -> bool:
        """Whether values are shown otherwise than they are: what lies before the steps that are asked for is needed then."""
        return self.show != "raw" or self.smoothing > 1

    @classmethod
    def of(
        cls,
        stat: str,
        statistic: str = "l2",
        by: Sequence[Any] = (),
        pattern: str | None = None,
        where: Where = None,
        first: int | None = None,
        last: int | None = None,
        points: int | None = None,
        series: int | None = None,
        ratio: str = "none",
        mixed: bool = False,
        show: str = "raw",
        smoothing: int = 0,
    ) -> MomentQuery:
        """Return the question that the members of a request mean.

        Raises
        ------
        ClientError
            ``bad-parameter``, naming the member at fault.
        """
        check_stat(stat)
        for field, value, known in (
            ("statistic", statistic, MOMENT_READINGS),
            ("ratio", ratio, _RATIOS),
            ("show", show, SHOWS),
        ):
            if value not in known:
                raise _bad(field, f"one of {', '.join(known)}", value)
        for field, number in (("first", first), ("last", last)):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
                raise _bad(field, "a whole number", number)
        for field, number in (("points", points), ("series", series)):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
                raise _bad(field, "a whole number from 1", number)
        if not isinstance(smoothing, int) or isinstance(smoothing, bool) or smoothing < 0:
            raise _bad("smoothing", "a whole number from 0", smoothing)
        if ratio == "gain" and stat not in ("activation", "dgrad"):
            raise ClientError(
                f"A gain is of what goes into modules and comes out of them, and {stat} is neither. Choose activation or dgrad.",
                code="bad-parameter",
                field="ratio",
            )
        if isinstance(by, str):
            by = [by]
        return cls(
            stat,
            statistic,
            Grouping(by, pattern),
            NameFilter(where),
            first,
            last,
            points,
            series,
            ratio,
            bool(mixed),
            show,
            smoothing,
        )

    @classmethod
    def of_members(cls, members: Mapping[str, Any]) -> MomentQuery:
        """Return the question of a request's body, whose members are those of :meth:`of`; its answer has no moments, so it is lean."""
        known = (
            "stat",
            "statistic",
            "by",
            "pattern",
            "where",
            "first",
            "last",
            "points",
            "series",
            "ratio",
            "mixed",
            "show",
            "smoothing",
        )
        unknown = [str(member) for member in members if member not in known]
        if unknown:
            raise _bad(unknown[0][:50], f"one of {', '.join(known)}", unknown[0])
        if "stat" not in members:
            raise _bad("stat", f"one of {', '.join(MOMENT_STATS)}", None)
        return replace(cls.of(**members), lean=True)


def check_stat(stat: Any) -> str:
    """Return ``stat``, which must be one of the six.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming what there is.
    """
    if stat not in MOMENT_STATS:
        raise _bad("stat", f"one of {', '.join(MOMENT_STATS)}", stat)
    return str(stat)


def _bad(field: str, expected: str, got: object) -> ClientError:
    return ClientError(f"{field} must be {expected}, got {got!r:.100}.", code="bad-parameter", field=field)
