"""Functions that take their settings as one object or as keywords, documented once, in the object's class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

__all__ = ["takes_keywords"]

_P = ParamSpec("_P")
_M = TypeVar("_M")
_R = TypeVar("_R")
_S = TypeVar("_S")


def takes_keywords(
    settings: Callable[_P, _S],
) -> Callable[[Callable[[_M, _S], _R]], Callable[Concatenate[_M, _P], _R]]:
    """Have a function of a model and a settings object take the settings as keywords too.

    Its signature and its documentation then list the keywords, for ``help`` and for completion in a cell. A
    class with a field ``options`` gets there what it has no field for.

    Parameters
    ----------
    settings : class
        A dataclass whose documentation has a section ``Attributes``, without ``options``.
    """
    kind: Any = settings
    own = [field.name for field in fields(kind) if field.name != "options"]
    others = len(own) < len(fields(kind))

    def decorate(call: Callable[[_M, _S], _R]) -> Callable[Concatenate[_M, _P], _R]:
        @wraps(call)
        def front(model: Any, *given: Any, **keywords: Any) -> Any:
            if given and isinstance(given[-1], kind) and not keywords:
                return call(model, given[-1])
            named = dict(zip(own, given, strict=False)) if others else {}
            if len(given) > (1 if others else 0):
                raise TypeError(
                    f"{call.__name__}() takes its settings by keyword, got {len(given)} by position"
                )
            rest = {name: keywords.pop(name) for name in list(keywords) if name not in own}
            if rest and not others:
                raise TypeError(f"{call.__name__}() got an unexpected keyword argument {next(iter(rest))!r}")
            return call(model, kind(**named, **keywords, **({"options": rest} if rest else {})))

        described = inspect.signature(kind)
        parameters = [each for each in described.parameters.values() if each.name != "options"]
        if others:
            # The first parameter follows the model.
            parameters[0] = parameters[0].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
            parameters.append(inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD))
        first = next(iter(inspect.signature(call).parameters.values()))
        # The model may also be a keyword, which the type cannot express.
        documented: Any = front
        documented.__signature__ = inspect.signature(call).replace(parameters=[first, *parameters])
        section = (
            inspect.cleandoc(kind.__doc__)
            .partition("Attributes\n----------\n")[2]
            .partition("\n\nRaises\n")[0]
        )
        documented.__doc__ = inspect.cleandoc(call.__doc__ or "").replace("settings\n    See below.", section)
        return cast("Callable[Concatenate[_M, _P], _R]", documented)

    return decorate
