"""The wire and the recording, in Python: messages, streams, frames, settings. Imports stdlib, numpy, pyarrow and jsonschema only."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .budget_limit import parse_budget
from .contract import contract_file, contract_json
from .disturbance import perturb_from_disturbance
from .errors import ProtocolError
from .messages import (
    MAX_TEXT_BYTES,
    MESSAGE_TYPES,
    SUBPROTOCOL,
    check_definition,
    check_message,
    decode_message,
    encode_message,
)
from .outside_file import open_plain, read_json_file
from .pace import Pace
from .perturbations import (
    PERTURBATIONS,
    BitFlip,
    Noise1,
    Noise2,
    Offset,
    Perturbation,
    perturbation_from_setting,
    perturbation_infos,
)
from .plain_json import parse_json
from .ranges import Ranges, in_ranges, join_numbers, parse_layers, ranges_text, read_ranges
from .settings import (
    COMPRESSORS,
    Compressor,
    Empty,
    NoOp,
    Projection,
    Tile,
    compressor_from_setting,
    compressor_infos,
)
from .shown_text import shown_text
from .views import (
    VIEW_NAMES,
    check_view_options,
    option_name,
    option_schema,
    python_name,
    view_about,
    view_defaults,
    view_fields,
)

# What needs numpy and pyarrow is loaded on first use: `from megalens import Tile` is to cost nothing.
if TYPE_CHECKING:
    from .frame import (
        BIT_CAUGHT_UP,
        BIT_MERGED,
        HEADER_BYTES,
        Frame,
        decode_frame,
        encode_frame,
        restamp_frame,
        restamp_header,
    )
    from .frame_checker import CheckedBody, FrameChecker
    from .frame_template import FrameTemplate
    from .hub_reader import FROM_HUB, MAX_HUB_BYTES, HubReader
    from .moment_index import MOMENT_INDEX, MOMENT_SAME, MomentIndex, StatIndex
    from .moments import (
        MOMENT_COLUMNS,
        MOMENT_READINGS,
        MOMENT_STATISTICS,
        MOMENT_STATS,
        merge_moments,
        moments_from_raw_sums,
        raw_sums_from_moments,
        read_moments,
        single_moments,
    )
    from .streams import (
        STREAM_NAMES,
        STREAMS,
        Stream,
        StreamPolicy,
        Streams,
        empty_table,
        parse_stream,
        policy,
        stream_schema,
    )
    from .tensor_name import TensorName, name_values, natural_key, parse_name

__all__ = [
    "BIT_CAUGHT_UP",
    "BIT_MERGED",
    "COMPRESSORS",
    "FROM_HUB",
    "HEADER_BYTES",
    "HubReader",
    "MAX_HUB_BYTES",
    "MAX_TEXT_BYTES",
    "MESSAGE_TYPES",
    "MOMENT_COLUMNS",
    "MOMENT_INDEX",
    "MOMENT_READINGS",
    "MOMENT_SAME",
    "MomentIndex",
    "StatIndex",
    "MOMENT_STATISTICS",
    "MOMENT_STATS",
    "PERTURBATIONS",
    "STREAMS",
    "STREAM_NAMES",
    "SUBPROTOCOL",
    "Stream",
    "StreamPolicy",
    "Streams",
    "VIEW_NAMES",
    "BitFlip",
    "CheckedBody",
    "Compressor",
    "Empty",
    "Frame",
    "FrameChecker",
    "FrameTemplate",
    "NoOp",
    "Noise1",
    "Noise2",
    "Offset",
    "Perturbation",
    "Projection",
    "ProtocolError",
    "Ranges",
    "TensorName",
    "Tile",
    "check_definition",
    "check_message",
    "check_view_options",
    "compressor_from_setting",
    "compressor_infos",
    "contract_file",
    "contract_json",
    "decode_frame",
    "decode_message",
    "Pace",
    "open_plain",
    "parse_json",
    "read_json_file",
    "shown_text",
    "empty_table",
    "in_ranges",
    "join_numbers",
    "encode_frame",
    "encode_message",
    "merge_moments",
    "moments_from_raw_sums",
    "name_values",
    "natural_key",
    "parse_budget",
    "parse_layers",
    "parse_name",
    "parse_stream",
    "policy",
    "perturb_from_disturbance",
    "perturbation_from_setting",
    "perturbation_infos",
    "ranges_text",
    "raw_sums_from_moments",
    "read_moments",
    "read_ranges",
    "single_moments",
    "restamp_frame",
    "restamp_header",
    "stream_schema",
    "option_name",
    "option_schema",
    "python_name",
    "view_about",
    "view_defaults",
    "view_fields",
]

_LATER = (
    ".frame",
    ".frame_checker",
    ".frame_template",
    ".hub_reader",
    ".moment_index",
    ".moments",
    ".streams",
    ".tensor_name",
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for home in _LATER:
        module = import_module(home, __name__)
        globals().update({each: getattr(module, each) for each in module.__all__ if each in __all__})
    return globals()[name]
