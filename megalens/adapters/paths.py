"""Dotted paths of modules, as tables have them: ``attn.scores``, and ``attn[1]`` for the second value that a module returns."""

from __future__ import annotations

import re

from torch import nn

__all__ = ["below", "find", "is_path", "path_and_item"]

_PATH = re.compile(r"([^\s.\[\]{}]+(?:\.[^\s.\[\]{}]+)*)(?:\[(\d{1,3})\])?")


def is_path(text: str, *, item: bool = False) -> bool:
    """Return whether ``text`` is a path, with a number in brackets where ``item`` allows one."""
    match = _PATH.fullmatch(text)
    return match is not None and (item or match[2] is None)


def path_and_item(text: str) -> tuple[str, int]:
    """Return the path of a module and the place of a value in what it returns or is given; the first where none is named."""
    path, _, item = text.partition("[")
    return path, int(item.rstrip("]") or 0)


def find(module: nn.Module, path: str) -> nn.Module | None:
    """Return what is at ``path`` below ``module``, or None."""
    try:
        return module.get_submodule(path)
    except (AttributeError, TypeError):
        return None


def below(holder: nn.Module, path: str | None) -> nn.Module | None:
    """Return what is at ``path``; None where there is no path."""
    return None if path is None else holder.get_submodule(path)
