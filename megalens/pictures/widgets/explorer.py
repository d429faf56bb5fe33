"""What the explorer of statistics does beyond its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...protocol import option_schema
from .base import View, WidgetError

if TYPE_CHECKING:
    from pandas import DataFrame


class Explorer(View):
    """A view with its rows as a table, in which a statistic may replace the measured stat."""

    @property
    def df(self) -> DataFrame:
        """The rows that the view draws with its current options: a ``pandas.DataFrame``, read at each access.

        They are those of ``run.moments`` with the same grouping, filter and steps, and a column ``value``
        with what is drawn: the statistic, or the ratio. It is neither thinned nor smoothed, and not cut to
        the largest series.
        """
        if self._framer is None:
            raise WidgetError("This view was made without a run. Make it with run.statistics(…).", "run")
        return self._framer(self.options)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Distinguish the measured stat from the statistic read of it: no word names both."""
        measured, read = (option_schema(cls.view_name, name) for name in ("stat", "statistic"))
        stat, statistic = options.get("stat", measured["default"]), options.get("statistic")
        if stat not in read["enum"]:
            return {**options, "stat": stat, "statistic": read["default"] if statistic is None else statistic}
        if statistic is not None:
            raise WidgetError(
                f"stat={stat!r} is a statistic, and statistic={statistic!r:.100} came beside it. Name what "
                f"was measured with stat: {', '.join(measured['enum'])}.",
                "stat",
            )
        return {**options, "stat": measured["default"], "statistic": stat}
