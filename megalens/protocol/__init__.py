"""The wire and the recording, in Python: messages, streams, frames, settings. Imports stdlib, numpy and pyarrow only.

What the modules' own ``__all__`` name is what the other rooms import from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import (
    attempts,
    budget_limit,
    contract,
    disturbance,
    errors,
    experts,
    flag_choice,
    generation,
    instrument_settings,
    messages,
    old_names,
    outside_file,
    pace,
    perturbations,
    pipeline_order,
    plain_json,
    ranges,
    settings,
    steps,
    views,
)
from .attempts import *
from .budget_limit import *
from .contract import *
from .disturbance import *
from .errors import *
from .experts import *
from .flag_choice import *
from .generation import *
from .instrument_settings import *
from .messages import *
from .old_names import *
from .outside_file import *
from .outside_file import replace_file
from .pace import *
from .perturbations import *
from .pipeline_order import *
from .plain_json import *
from .ranges import *
from .settings import *
from .shown_text import shown_text
from .steps import *
from .views import *

__all__ = ["replace_file", "shown_text"]
__all__ += attempts.__all__
__all__ += budget_limit.__all__
__all__ += contract.__all__
__all__ += disturbance.__all__
__all__ += errors.__all__
__all__ += experts.__all__
__all__ += flag_choice.__all__
__all__ += generation.__all__
__all__ += instrument_settings.__all__
__all__ += messages.__all__
__all__ += old_names.__all__
__all__ += outside_file.__all__
__all__ += pace.__all__
__all__ += perturbations.__all__
__all__ += pipeline_order.__all__
__all__ += plain_json.__all__
__all__ += ranges.__all__
__all__ += settings.__all__
__all__ += steps.__all__
__all__ += views.__all__

# What needs numpy and pyarrow is loaded on first use: `from megalens import Tile` is to cost nothing.
_LATER = (
    "streams",
    "frame",
    "frame_checker",
    "hub_reader",
    "moments",
    "moment_index",
    "readings",
    "stream_index",
    "tensor_name",
)
if TYPE_CHECKING:
    from . import (
        frame,
        frame_checker,
        hub_reader,
        moment_index,
        moments,
        readings,
        stream_index,
        streams,
        tensor_name,
    )
    from .frame import *
    from .frame_checker import *
    from .hub_reader import *
    from .moment_index import *
    from .moments import *
    from .readings import *
    from .stream_index import *
    from .streams import *
    from .tensor_name import *

    __all__ += frame.__all__
    __all__ += frame_checker.__all__
    __all__ += hub_reader.__all__
    __all__ += moment_index.__all__
    __all__ += moments.__all__
    __all__ += readings.__all__
    __all__ += stream_index.__all__
    __all__ += streams.__all__
    __all__ += tensor_name.__all__


def __getattr__(name: str) -> Any:
    for home in _LATER if not name.startswith("_") else ():
        module = import_module(f".{home}", __name__)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
