"""What was called otherwise before, and is taken for one release more, with a DeprecationWarning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["renamed", "warn_old"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def renamed(**names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator that takes arguments by their old names too: ``@renamed(group_by="by")``.

    Raises
    ------
    TypeError
        From the call, where an argument comes by both of its names.
    """

    def decorate(call: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(call)
        def taken(*args: _P.args, **options: _P.kwargs) -> _R:
            for old in names.keys() & options.keys():
                new = names[old]
                if new in options:
                    raise TypeError(
                        f"{call.__name__}() got {old}= and {new}=, which are one argument: use {new}=."
                    )
                warn_old(
                    f"{call.__name__}({old}=…) is called {new}= now. The next release no longer takes {old}=."
                )
                options[new] = options.pop(old)
            return call(*args, **options)

        return taken

    return decorate


def warn_old(sentence: str) -> None:
    """Give a DeprecationWarning where the first code that is not ours called us, so that a notebook shows
    it.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "megalens":
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, DeprecationWarning, stacklevel=level)
