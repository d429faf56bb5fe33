"""The wire and the recording, in Python: messages, streams, frames, settings. Imports stdlib, numpy, pyarrow and jsonschema only."""

from .budget_limit import parse_budget
from .contract import contract_file, contract_json
from .disturbance import perturb_from_disturbance
from .errors import ProtocolError
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
from .messages import MESSAGE_TYPES, SUBPROTOCOL, check_message, decode_message, encode_message
from .moment_index import MOMENT_INDEX, MOMENT_SAME, MomentIndex, StatIndex
from .moments import (
    MOMENT_COLUMNS,
    MOMENT_STATISTICS,
    MOMENT_STATS,
    merge_moments,
    moments_from_raw_sums,
    raw_sums_from_moments,
    read_moments,
    single_moments,
)
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
from .streams import STREAM_NAMES, empty_table, lacking, stream_schema, with_later_columns
from .tensor_name import TensorName, name_values, natural_key, parse_name
from .views import (
    VIEW_NAMES,
    check_view_options,
    option_name,
    python_name,
    view_defaults,
    view_fields,
)

__all__ = [
    "BIT_CAUGHT_UP",
    "BIT_MERGED",
    "COMPRESSORS",
    "HEADER_BYTES",
    "MESSAGE_TYPES",
    "MOMENT_COLUMNS",
    "MOMENT_INDEX",
    "MOMENT_SAME",
    "MomentIndex",
    "StatIndex",
    "MOMENT_STATISTICS",
    "MOMENT_STATS",
    "PERTURBATIONS",
    "STREAM_NAMES",
    "SUBPROTOCOL",
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
    "check_message",
    "check_view_options",
    "compressor_from_setting",
    "compressor_infos",
    "contract_file",
    "contract_json",
    "decode_frame",
    "decode_message",
    "empty_table",
    "in_ranges",
    "join_numbers",
    "lacking",
    "encode_frame",
    "encode_message",
    "merge_moments",
    "moments_from_raw_sums",
    "name_values",
    "natural_key",
    "parse_budget",
    "parse_layers",
    "parse_name",
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
    "with_later_columns",
    "option_name",
    "python_name",
    "view_defaults",
    "view_fields",
]
