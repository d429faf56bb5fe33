"""Timelines of several ranks: one clock, who makes the others wait, and traces of other tools."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analysis import analyse

__all__ = ["analyse"]


def __getattr__(name: str) -> Any:
    # The command line is read before numpy is needed.
    if name == "analyse":
        from .analysis import analyse

        return analyse
    raise AttributeError(name)
