"""Where the language-neutral contract files are."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["contract_file", "contract_json"]

_PACKAGED = Path(__file__).parent / "contract"
_CHECKOUT = Path(__file__).parents[2] / "protocol"


def contract_file(name: str) -> Path:
    """Return the path of one contract file, in an installed wheel or in a checkout.

    Parameters
    ----------
    name : str
        Path inside ``protocol/``, such as ``streams.json``.

    Raises
    ------
    FileNotFoundError
        When this installation lacks the file.
    """
    for folder in (_PACKAGED, _CHECKOUT):
        path = folder / name
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"Megalens's contract file {name} is missing from this installation. Reinstall megalens."
    )


@cache
def contract_json(name: str) -> Any:
    """Return one parsed contract file. The result is shared: do not change it."""
    return json.loads(contract_file(name).read_text(encoding="utf-8"))
