"""Views as the Python calls that make them: the twin of ``src/views/code.ts``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..protocol import python_name, view_defaults, view_fields

__all__ = ["to_code"]

_METHODS = {
    "heatmap": "heatmap",
    "trend": "trend",
    "scalars": "scalars_view",
    "history": "history",
    "moments": "explore",
}


def to_code(options: Mapping[str, Any], run: str = "run") -> str:
    """Return a call such as ``run.heatmap("MLP1_mat_mul", layers="1-4", step=1240)``. Options at their default are left out.

    Parameters
    ----------
    options : mapping
        Options of one view.
    run : str
        Name of the variable that holds the run.
    """
    defaults = view_defaults(options["view"])
    named = [
        f"{python_name(name)}={_literal(options[name])}"
        for name in view_fields(options["view"])
        if name != "flag" and name in options and options[name] != defaults[name]
    ]
    flag = [_literal(options["flag"])] if "flag" in options else []
    return f"{run}.{_METHODS[options['view']]}({', '.join([*flag, *named])})"


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_literal(name)}: {_literal(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
