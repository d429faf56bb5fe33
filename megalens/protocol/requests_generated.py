"""The requests of ``protocol/requests.schema.json`` as types.

Generated from ``protocol/requests.schema.json`` by ``scripts/message_types.py``. Do not edit: run ``make generate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    # Annotations are never evaluated here, so that Python 3.10 needs no other package for it.
    from typing import NotRequired

__all__ = [
    "AlarmCountRequest",
    "CoursesGroup",
    "CoursesRequest",
    "MomentFilter",
    "MomentGroupsRequest",
    "MomentRowsRequest",
    "PipelineStepsRequest",
    "RequestLayers",
    "RequestPoints",
    "RequestRank",
    "RequestSteps",
    "RunRequest",
    "ScalarsRequest",
    "StatisticsRequest",
    "StreamRequest",
    "TensorSelection",
    "TimelineRequest",
    "TrendRequest",
]

RequestSteps = list[int]
"""First and last step, both included; an open end is 2^53 - 1. All steps when absent."""

RequestLayers = list[int]
"""Numbers of layers; all when absent."""

RequestRank = int | Literal["lowest"]
"""One rank, or of each layer the lowest rank that has it."""

RequestPoints = int
"""About how many points of a line to return, with the extremes of every stretch; every one when absent."""

_StreamRequestPass = TypedDict("_StreamRequestPass", {"pass": Literal["forward", "backward"]}, total=False)


class StreamRequest(_StreamRequestPass):
    """Rows of a stream. Absent members match everything; a stream takes those that the ask of its policy names."""

    flag: NotRequired[str]
    """Trace point by name."""
    part: NotRequired[str]
    """Named part (q, k, v …)."""
    phase: NotRequired[Literal["train", "eval", "generate"]]
    """What the model was doing."""
    rank: NotRequired[RequestRank]
    layers: NotRequired[RequestLayers]
    steps: NotRequired[RequestSteps]
    measured: NotRequired[bool]
    """Of each layer only the newest row, up to the last step, whose compression error was measured."""
    peaks: NotRequired[int]
    """Most blocks along an axis of Peaks rows; compressor then names the blocks they were made of."""
    where: NotRequired[dict[str, str | int]]
    """Columns that the stream's policy lets be asked for as equal, and what they must equal."""
    columns: NotRequired[list[str]]
    """Only these columns of each row, and the step; all when absent."""
    limit_bytes: NotRequired[int]
    """Bytes that the answer may have; steps are thinned out to fit."""


_TrendRequestPass = TypedDict("_TrendRequestPass", {"pass": Literal["forward", "backward"]}, total=False)


class TrendRequest(_TrendRequestPass):
    """A statistic of the tensors of a flag over steps, as a line for each layer."""

    flag: str
    """Trace point by name."""
    part: NotRequired[str]
    """Named part (q, k, v …)."""
    phase: NotRequired[Literal["train", "eval", "generate"]]
    """What the model was doing."""
    rank: NotRequired[RequestRank]
    layers: NotRequired[RequestLayers]
    steps: NotRequired[RequestSteps]
    statistic: Literal[
        "mean",
        "std",
        "rms",
        "min",
        "max",
        "skewness",
        "kurtosis",
        "nonfinite",
        "kept_mean",
        "kept_std",
        "kept_rms",
        "kept_min",
        "kept_max",
        "kept_abs_mean",
    ]
    """Over the finite values of the whole tensor of a layer and step; nonfinite counts the others. kept_…: over what the compressor kept of them."""
    selection: NotRequired[TensorSelection]
    points: NotRequired[RequestPoints]


class TensorSelection(TypedDict):
    """Which of the values that a compressor kept enter a statistic, and what is asked of their spread. Absent: all, and nothing."""

    axes: list[str]
    """Names of the axes of one sample, as hello has them: ['position', 'feature']."""
    positions: str
    """'all' or ranges such as '0-15,31', counted from 0."""
    vector: int
    """Vector of a projection."""
    interval: Literal["none", "std", "ci95"]
    """Band about the mean (only with the statistic mean), over positions and samples: one standard deviation, or a 95 % confidence interval. The interval takes positions for independent, which neighbours are not: the true one is wider."""


class ScalarsRequest(TypedDict):
    """Scalars over steps, as a line for each name."""

    names: NotRequired[list[str] | None]
    """All when absent."""
    steps: NotRequired[RequestSteps]
    points: NotRequired[RequestPoints]


class MomentFilter(TypedDict):
    """Which tensors take part. Absent members match everything; numbers are texts of ranges such as '0-3,7', words are lists of which one must match."""

    name: NotRequired[str]
    """Regular expression that is found somewhere in the name."""
    layer: NotRequired[str]
    """'all' or ranges such as '0-3,7'."""
    expert: NotRequired[str]
    """'all' or ranges such as '0-3,7'."""
    rank: NotRequired[str]
    """'all' or ranges such as '0-3,7'."""
    stage: NotRequired[str]
    """'all' or ranges such as '0-3,7'."""
    stack: NotRequired[list[str]]
    family: NotRequired[list[str]]
    kind: NotRequired[list[str]]
    module_type: NotRequired[list[str]]
    item_type: NotRequired[list[str]]
    role: NotRequired[list[Literal["input", "output"]]]


class MomentRowsRequest(TypedDict):
    """Rows of the stream moments."""

    stats: list[
        Literal[
            "param",
            "grad",
            "activation",
            "dgrad",
            "residual",
            "residual_dgrad",
            "grad_unreduced",
            "param_origin",
            "exp_avg",
            "exp_avg_sq",
            "attention_entropy",
            "attention_max",
            "router_entropy",
            "router_similarity",
            "stable_rank",
            "kernel_norm",
            "underflow",
            "overflow",
            "saturated",
            "subnormal",
            "cast_error",
            "cast_scale",
            "cast_amax",
        ]
    ]
    where: NotRequired[MomentFilter]
    """Which tensors take part. Absent members match everything; numbers are texts of ranges such as '0-3,7', words are lists of which one must match."""
    steps: NotRequired[list[int] | None]
    """First and last step, both included; all steps when absent."""
    limit_rows: NotRequired[int]
    """With more rows than this that match, the answer is the error too-large."""


class MomentGroupsRequest(TypedDict):
    """Groups of the stream moments. Members that the view moments has mean here what they mean there."""

    stat: Literal[
        "param",
        "grad",
        "activation",
        "dgrad",
        "residual",
        "residual_dgrad",
        "grad_unreduced",
        "param_origin",
        "exp_avg",
        "exp_avg_sq",
        "attention_entropy",
        "attention_max",
        "router_entropy",
        "router_similarity",
        "stable_rank",
        "kernel_norm",
        "underflow",
        "overflow",
        "saturated",
        "subnormal",
        "cast_error",
        "cast_scale",
        "cast_amax",
    ]
    """What was measured. The last seven are of a cast to fewer bits: of underflow, overflow, saturated and subnormal the mean is the share of values."""
    statistic: Literal[
        "l2",
        "rms",
        "mean",
        "variance",
        "std",
        "skewness",
        "kurtosis",
        "excess_kurtosis",
        "min",
        "max",
        "near_zero_share",
        "nonfinite",
    ]
    """What is read of it; near_zero_share is the share of values of a size below 1e-8, nonfinite the number of NaN and infinite values."""
    by: list[
        Literal[
            "name",
            "layer",
            "stack",
            "family",
            "kind",
            "module_type",
            "item_type",
            "role",
            "expert",
            "rank",
            "stage",
            "capture",
        ]
    ]
    """Columns that make a group; none is the total."""
    pattern: NotRequired[str | None]
    """Regular expression whose groups are the column 'capture'; names in which it finds nothing are left out."""
    where: NotRequired[MomentFilter]
    """Which tensors take part. Absent members match everything; numbers are texts of ranges such as '0-3,7', words are lists of which one must match."""
    steps: NotRequired[list[int] | None]
    """First and last step, both included; all steps when absent."""
    points: NotRequired[int]
    """At most about so many steps a group; every minimum, maximum and non-finite step stays."""
    series: NotRequired[int]
    """At most so many groups: those of the greatest magnitudes."""
    ratio: NotRequired[Literal["none", "grad_to_param", "gain"]]
    """grad_to_param: gradients over parameters, by the same names. gain: what comes out of a module over what goes in (of dgrads in over out: the way the gradient goes)."""
    mixed: NotRequired[bool]
    """Let inputs and outputs of modules enter one group; refused without it."""
    show: NotRequired[Literal["raw", "relative", "delta", "percent"]]
    """The numbers as they are; divided by the first of their series; minus it; or the change from it in per cent. The first is that of the whole run."""
    smoothing: NotRequired[int]
    """Trailing mean over this many points; 0 draws the numbers as they are."""


class TimelineRequest(TypedDict):
    """What of a timeline is drawn; what is absent is chosen by who answers."""

    first: NotRequired[int]
    last: NotRequired[int]
    window: NotRequired[list[float]]
    """ms since the first of the steps; the second is larger."""
    columns: NotRequired[int]
    """Pixels across."""
    ranks: NotRequired[str]
    """'all' or ranges such as '0-3,7'."""
    row: NotRequired[int]
    """The span whose dependencies are wanted."""
    path: NotRequired[bool]
    """Whether the critical path is wanted."""
    find: NotRequired[str]
    """What names of spans must have in them."""
    found_from: NotRequired[int]
    """Number of the first that is wanted of those that are found, from 0."""
    sums: NotRequired[list[float]]
    """The window in ms whose spans are summed by name; the second is larger."""
    sums_ranks: NotRequired[str]
    """Ranks whose spans are summed: 'all' or ranges such as '0-3,7'."""
    draft: NotRequired[bool]
    """Whether lanes will do, where a verdict takes seconds."""


class PipelineStepsRequest(TypedDict):
    """Which steps of a pipeline, as they were measured; the newest 10 whole ones when absent."""

    first: NotRequired[int]
    last: NotRequired[int]
    replica: NotRequired[int]
    """Which pipeline, from 0: the how-manieth rank of each stage."""


class AlarmCountRequest(TypedDict):
    """How many alarms other settings of the rules would have given."""

    settings: dict[str, Any]
    """Settings of the instrument monitor."""


class StatisticsRequest(TypedDict):
    """A tree of raw-moment files to open."""

    path: str
    """Below the server's root."""


class CoursesGroup(TypedDict):
    """Some of the runs of a request, such as those of one setting."""

    name: str
    runs: list[int]
    """Their places in `runs` of the request, from 0."""


class CoursesRequest(TypedDict):
    """One scalar of many recorded runs: quantiles over them by step, and who is far from them."""

    name: NotRequired[str]
    """The scalar; a loss, or the first there is, when absent."""
    scale: NotRequired[Literal["linear", "log"]]
    """How distance is measured: in the scalar's own unit, or in decades. Linear when absent."""
    runs: NotRequired[list[str]]
    """Ids of runs; all recorded ones when absent."""
    groups: NotRequired[list[CoursesGroup]]
    """Of which the quantiles are answered too, each by itself."""


RunRequest: TypeAlias = "StreamRequest | TrendRequest | ScalarsRequest | MomentRowsRequest | MomentGroupsRequest | TimelineRequest | PipelineStepsRequest | AlarmCountRequest | StatisticsRequest | CoursesRequest"
"""What is asked of the rows of a run. One object goes unchanged from who asks to who answers: a view, the page's store, the Jupyter server's endpoints, the engine's pipe, a report's file."""
