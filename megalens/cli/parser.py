"""The parser of every command: a word that is not known is answered with the nearest that is."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, NoReturn

from ..protocol import shown_text

__all__ = ["CommandParser", "nearest"]

_CHOICE = re.compile(r"invalid choice: '(?P<word>.*)' \(choose from (?P<words>.*)\)", re.DOTALL)
_OPTION = re.compile(r"unrecognized arguments: (?P<word>--?[^\s=]+)")


def nearest(word: str, words: list[str]) -> str:
    """Return a sentence with the nearest of some words, or nothing where none is near."""
    found = get_close_matches(word, words, n=1)
    return f" Did you mean {found[0]}?" if found else ""


class CommandParser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that also says which word was probably meant."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2, the usage and a sentence."""
        if found := _CHOICE.search(message):
            message += nearest(found["word"], re.findall(r"[\w.-]+", found["words"]))
        elif found := _OPTION.match(message):
            # The main parser complains about options of a command too: it was given the whole line.
            message += nearest(found["word"], sorted(self._options(self._given)))
        super().error(shown_text(message, 600))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a line; see ``ArgumentParser``."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_args(args, namespace)

    def _options(self, given: list[str]) -> Iterator[str]:
        """Yield the options of this parser and of the command in it that is given."""
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for name in given:
                    if name in action.choices:
                        yield from action.choices[name]._options(given[given.index(name) + 1 :])
                        break
