"""The wire and the recording, in Python: messages, streams, frames, settings. Imports stdlib, numpy and
pyarrow only.

What the modules' own ``__all__`` name is what the other rooms import from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .connection import *
from .contract import *
from .errors import *
from .instrument_settings import *
from .losses import *
from .messages import *
from .old_names import *
from .outside import *
from .perturbations import *
from .ranges import *
from .requests import *
from .requests_generated import *
from .settings import *
from .views import *

if TYPE_CHECKING:
    from .cast_names import *
    from .frame import *
    from .frame_checker import *
    from .moments import *
    from .readings import *
    from .segments import *
    from .streams import *
    from .tensor_name import *

# What needs numpy and pyarrow is loaded on first use: `from megalens import Tile` is to cost nothing.
_LATER = ("cast_names", "streams", "frame", "frame_checker", "moments", "readings", "segments", "tensor_name")


def __getattr__(name: str) -> Any:
    for home in _LATER if not name.startswith("_") else ():
        module = import_module(f".{home}", __name__)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
