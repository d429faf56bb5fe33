"""The wire and the recording, in Python: messages, streams, frames, settings. Imports stdlib, numpy and
pyarrow only.

What the modules' own ``__all__`` name is what the other rooms import from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import (
    connection,
    contract,
    errors,
    generation,
    instrument_settings,
    messages,
    old_names,
    outside,
    perturbations,
    ranges,
    settings,
    views,
)
from .connection import *
from .contract import *
from .errors import *
from .generation import *
from .instrument_settings import *
from .messages import *
from .old_names import *
from .outside import *
from .perturbations import *
from .ranges import *
from .settings import *
from .views import *

__all__: list[str] = []
__all__ += connection.__all__
__all__ += contract.__all__
__all__ += errors.__all__
__all__ += generation.__all__
__all__ += instrument_settings.__all__
__all__ += messages.__all__
__all__ += old_names.__all__
__all__ += outside.__all__
__all__ += perturbations.__all__
__all__ += ranges.__all__
__all__ += settings.__all__
__all__ += views.__all__

# What needs numpy and pyarrow is loaded on first use: `from megalens import Tile` is to cost nothing.
_LATER = (
    "streams",
    "frame",
    "frame_checker",
    "hub_reader",
    "moments",
    "readings",
    "segments",
    "tensor_name",
)
if TYPE_CHECKING:
    from . import (
        frame,
        frame_checker,
        hub_reader,
        moments,
        readings,
        segments,
        streams,
        tensor_name,
    )
    from .frame import *
    from .frame_checker import *
    from .hub_reader import *
    from .moments import *
    from .readings import *
    from .segments import *
    from .streams import *
    from .tensor_name import *

    __all__ += frame.__all__
    __all__ += frame_checker.__all__
    __all__ += hub_reader.__all__
    __all__ += moments.__all__
    __all__ += readings.__all__
    __all__ += segments.__all__
    __all__ += streams.__all__
    __all__ += tensor_name.__all__


def __getattr__(name: str) -> Any:
    for home in _LATER if not name.startswith("_") else ():
        module = import_module(f".{home}", __name__)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
