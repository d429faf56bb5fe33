"""Timelines of several ranks: one clock, who makes the others wait, and traces of other tools."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analysis import analyse, judge_runs

__all__ = ["analyse", "judge_runs"]


def __getattr__(name: str) -> Any:
    # The command line is read before numpy is needed.
    if name in __all__:
        from . import analysis

        return getattr(analysis, name)
    raise AttributeError(name)
