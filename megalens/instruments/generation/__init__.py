"""Models that write text while they are watched: the generation lab. torch is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import GenerationError
    from .instrument import GenerationInstrument
    from .language_model import LanguageModel, PaddedPrompts, Reading
    from .of_model import as_language_model
    from .texts import Texts

__all__ = [
    "GenerationError",
    "GenerationInstrument",
    "LanguageModel",
    "PaddedPrompts",
    "Reading",
    "Texts",
    "as_language_model",
]

_HOMES = {
    ".errors": ("GenerationError",),
    ".instrument": ("GenerationInstrument",),
    ".language_model": ("LanguageModel", "PaddedPrompts", "Reading"),
    ".of_model": ("as_language_model",),
    ".texts": ("Texts",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home, __name__), name)
    raise AttributeError(f"module 'megalens.instruments.generation' has no attribute {name!r}")
