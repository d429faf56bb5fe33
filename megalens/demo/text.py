"""English that comes with CPython itself: the language reference topics and the standard library's
docstrings.
"""

from __future__ import annotations

import ast
import functools
import os
import sysconfig
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LEFT_OUT = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "turtledemo", "__pycache__"}
)
_SHORTEST_PARAGRAPH = 20
_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_HELD_OUT_SHARE = 1 / 12


@dataclass(frozen=True)
class Corpus:
    """Text as bytes, split by document so that no document is in both halves."""

    train: bytes
    held_out: bytes
    documents: int
    """Documents in both halves together."""


@functools.cache
def load_corpus(limit_bytes: int = 1_000_000) -> Corpus:
    """Collect the corpus. The same interpreter always gives the same bytes, which are read once in a process.

    Nothing of the standard library is imported for it: sources are parsed and their docstrings read. A
    paragraph that an earlier document had already is left out (the topics quote each other), so nothing of
    the training text comes back in the held-out text.

    Parameters
    ----------
    limit_bytes : int
        Stop after this many bytes of UTF-8.

    Raises
    ------
    ValueError
        When this interpreter brings less than 64 KiB of text.
    """
    halves: tuple[list[bytes], list[bytes]] = ([], [])
    seen: set[str] = set()
    total = held_out_bytes = documents = 0
    for document in _documents():
        text = _fresh_paragraphs(document, seen)
        if not text:
            continue
        data = text.encode("utf-8", "replace")[: limit_bytes - total]
        documents += 1
        total += len(data)
        held_out = held_out_bytes + len(data) <= total * _HELD_OUT_SHARE
        held_out_bytes += len(data) * held_out
        halves[held_out].append(data)
        if total >= limit_bytes:
            break
    if total < min(limit_bytes, 1 << 16):
        raise ValueError(
            f"Expected at least 64 KiB of English in this Python's standard library, found {total} bytes. "
            "Use a Python that ships its sources, such as one from python.org or a distribution's full "
            "package."
        )
    return Corpus(b"\n\n".join(halves[0]), b"\n\n".join(halves[1]), documents)


def _documents() -> Iterator[str]:
    yield from _topics()
    root = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for folder, below, files in os.walk(root):
        # Packages that others installed are often below it, and many more files than its own.
        below[:] = [name for name in below if name not in _LEFT_OUT]
        found += [Path(folder, name).relative_to(root) for name in files if name.endswith(".py")]
    for path in sorted(found, key=Path.as_posix):
        if path.parts[0] != "pydoc_data":
            yield _docstrings(root / path)


def _topics() -> list[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        # Some distributions leave it out; the docstrings alone are enough.
        return []
    return [topics[name] for name in sorted(topics)]


def _docstrings(path: Path) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in _blocks(tree) if isinstance(node, kinds))
    return "\n\n".join(text for text in found if text)


def _blocks(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield statements and what holds them, breadth first: as ``ast.walk`` does, without expressions."""
    todo = deque[ast.AST]([tree])
    while todo:
        node = todo.popleft()
        yield node
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], _STATEMENTS):
                todo.extend(value)


def _fresh_paragraphs(document: str, seen: set[str]) -> str:
    fresh = []
    for paragraph in document.split("\n\n"):
        key = " ".join(paragraph.split())
        if len(key) >= _SHORTEST_PARAGRAPH and key not in seen:
            seen.add(key)
            fresh.append(paragraph.strip("\n"))
    return "\n\n".join(fresh)
