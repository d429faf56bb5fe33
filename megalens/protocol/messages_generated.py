"""The messages of ``protocol/messages.schema.json`` as types.

Generated from ``protocol/messages.schema.json`` by ``scripts/message_types.py``. Do not edit: run ``make generate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    # Annotations are never evaluated here, so that Python 3.10 needs no other package for it.
    from typing import NotRequired

__all__ = [
    "Announce",
    "Budget",
    "Cancel",
    "Compiled",
    "CompressorInfo",
    "CompressorSetting",
    "Config",
    "ConfigPatch",
    "Configure",
    "Configured",
    "Control",
    "DeclaredPolicy",
    "DeclaredPolicyDrop",
    "DeclaredPolicyNonfinite",
    "DeclaredPolicyPacking",
    "DeclaredStream",
    "Dropped",
    "ErrorCode",
    "ErrorMessage",
    "FlagInfo",
    "FlagSetting",
    "Generate",
    "GenerateRequest",
    "Generating",
    "GenerationInfo",
    "Goodbye",
    "Hello",
    "HelloResumed",
    "InstrumentInfo",
    "Join",
    "KindInfo",
    "Layout",
    "Limits",
    "LoggedStatistics",
    "Message",
    "Mode",
    "Model",
    "NonFinite",
    "NonFiniteFirst",
    "NonFiniteMoments",
    "NonFiniteMomentsFirst",
    "Origin",
    "Overhead",
    "Pass",
    "Peer",
    "Perturb",
    "PerturbSite",
    "Phase",
    "Probes",
    "RankCondition",
    "RankPlace",
    "RankState",
    "Recording",
    "Role",
    "RunFile",
    "RunInfo",
    "RunNotes",
    "RunState",
    "RuntimeFile",
    "SilentProbes",
    "SiteInfo",
    "Status",
    "StepSpan",
    "StreamField",
    "StreamStatus",
    "StreamStatusNonfinite",
    "StreamSummary",
    "Sweep",
]

Role = Literal["producer", "viewer"]
"""What a connection is for."""

Phase = Literal["train", "eval", "generate"]
"""What the model was doing."""

Pass = Literal["forward", "backward"]
"""Whether values are what a forward pass gave or their gradients."""

Control = Literal["pause", "watched", "perturb", "generate"]
"""What viewers may do to the training beyond looking, where its script allows it: pause (also single steps), watched (train only while a viewer is attached), perturb, generate (have the model write text)."""

RunState = Literal["waiting", "training", "paused", "idle", "finished", "lost"]
"""waiting: no producer yet; training: steps arrive; paused: the training waits at a step because somebody asked for it; idle: a producer is attached and no step ended for 3 s; finished: the producer said goodbye; lost: the producer went without a goodbye."""

ErrorCode = Literal[
    "bad-message",
    "bad-frame",
    "too-large",
    "unauthorized",
    "forbidden",
    "version-mismatch",
    "join-expected",
    "not-found",
    "unknown-flag",
    "unknown-layer",
    "unavailable-flag",
    "unknown-compressor",
    "bad-parameter",
    "bad-reduction",
    "bad-vectors",
    "no-producer",
    "refused",
    "internal",
]
"""Stable machine-readable reason."""


class Peer(TypedDict):
    """How a program names itself: shown to other viewers and kept in the audit stream."""

    name: str
    """Such as 'panel', 'kernel', 'tail', 'tracer'."""
    version: str
    user: NotRequired[str]
    """The person, where the program knows."""


class RunInfo(TypedDict):
    """What identifies a run."""

    id: str
    name: str
    started: float
    """Seconds since the epoch, up to the year 9999."""


StepSpan = list[int]
"""First and last step, both inclusive."""


class RunFile(TypedDict):
    """run.json of a run folder. Members of a later version may be in it; what a reader does not know it leaves alone."""

    format: int
    """2; in one of 1 layers count from 1, and the embedding is layer 0."""
    run: RunInfo
    state: NotRequired[str]
    """A RunState; any other counts as lost."""
    ended: NotRequired[float | None]
    """Seconds since the epoch; null or absent: nobody closed the recording."""
    model: NotRequired[Model | None]
    layout: NotRequired[Layout | None]
    flags: NotRequired[list[FlagInfo]]
    compressors: NotRequired[list[CompressorInfo]]
    config: NotRequired[Config]
    versions: NotRequired[dict[str, str]]
    instruments: NotRequired[dict[str, dict[str, Any]]]
    """What instruments said last of themselves, by name, as in status."""
    configurable: NotRequired[dict[str, InstrumentInfo]]
    """By name, instruments whose settings can be changed."""
    statistics: NotRequired[LoggedStatistics]
    generation: NotRequired[GenerationInfo]
    phase: NotRequired[Phase]
    origin: NotRequired[Origin]
    streams: NotRequired[dict[str, StreamSummary]]
    """By name, what is recorded of a stream."""
    announced: NotRequired[dict[str, Any]]
    """Declarations of streams that streams.json lacks. Each is checked by itself: one that cannot be read hides its stream only."""
    superseded_from: NotRequired[int]
    """In the folder of an earlier attempt: steps from this one on were trained again."""
    missing_steps: NotRequired[list[StepSpan]]
    """Steps that the recording lacks."""


class StreamSummary(TypedDict):
    """What run.json says of one stream."""

    rows: NotRequired[int]
    bytes: NotRequired[int]
    first_step: NotRequired[int | None]
    last_step: NotRequired[int | None]


class RunNotes(TypedDict):
    """notes.json of a run folder: what a person wrote about the run. Nothing that trains writes it."""

    format: int
    notes: str
    tags: list[str]


class RuntimeFile(TypedDict):
    """The runtime file by which a hub of this user is found."""

    format: int
    id: str
    name: str
    pid: int
    host: str
    port: int
    token: str
    started: float
    record: NotRequired[str | None]
    """The run folder, when the hub records."""
    process: NotRequired[str | None]
    """Tells the hub's process from a later one with its number."""
    ended: NotRequired[float | None]
    """When the training ended, seconds since the epoch, while the hub is still there for those who look on; null or absent while it may go on."""
    node: NotRequired[str | None]
    """Name of the machine or container of the hub."""
    namespaces: NotRequired[list[int] | None]
    """Numbers of the hub's process and network namespace, which differ between containers; 0 where a system has none."""
    via: NotRequired[str | None]
    """The machine to which a tunnel leads; pid and process are then the tunnel's."""


class Model(TypedDict):
    """What the traced model is."""

    name: str
    adapter: NotRequired[str]
    """Which adapter found the trace points."""
    layers: int
    hidden: NotRequired[int | None]
    heads: NotRequired[int | None]
    kv_heads: NotRequired[int | None]
    vocabulary: NotRequired[int | None]
    parameters: NotRequired[int | None]
    dtype: NotRequired[str | None]
    device: NotRequired[str | None]


class Layout(TypedDict):
    """Parallel layout of the job."""

    world_size: int
    tp: int
    pp: int
    dp: int
    vpp: NotRequired[int]
    """Model chunks per pipeline stage."""
    ep: NotRequired[int]
    cp: NotRequired[int]
    ranks: NotRequired[list[RankPlace]]
    """Where each rank stands; absent where nobody told."""


class RankPlace(TypedDict):
    """Coordinates of one rank, each counted from 0."""

    rank: int
    tp: int
    pp: int
    dp: int
    host: NotRequired[str]


class Origin(TypedDict):
    """Where the rows come from when no tracer of ours sends them."""

    kind: Literal["foreign", "replay", "trace"]
    """foreign: another program's hub, translated; replay: a recorded run, sent again; trace: files of another tool."""
    name: NotRequired[str]
    """The dialect that the foreign hub speaks, the run that is replayed, or the tool that wrote the files."""
    steps: Literal["counted", "inferred"]
    """inferred: the peer sends no step numbers, and they were made out from the order of what it sends."""
    speed: NotRequired[float]
    """Of a replay, relative to the time when it was recorded."""
    ranks: NotRequired[int]
    """Of a trace, how many ranks its files say that the job has."""


class KindInfo(TypedDict):
    """One kind of perturbation, with the JSON Schema of its parameters."""

    name: str
    title: str
    description: str
    schema: dict[str, Any]


class SiteInfo(TypedDict):
    """One place of the model that can be perturbed."""

    name: str
    """weight, calculation or system."""
    title: str
    layers: list[int]
    kinds: list[KindInfo]
    reason: NotRequired[str]
    """Why it is not available; absent when it is."""


class FlagInfo(TypedDict):
    """One trace point that a picker can offer."""

    name: str
    title: str
    """In words, such as 'MLP1 output'."""
    layers: list[int]
    """Layers where it exists, from 0; -1 alone for what is at the embedding; empty when the model has no such point."""
    parts: list[str]
    """Named parts of the tensor; expert0, expert1 and so on are those of the experts of a mixture."""
    axes: list[str]
    """Axis names of one sample after the batch axis, such as ['position', 'feature'] or ['head', 'query', 'key']."""
    features: NotRequired[int | None]
    """Size of the last axis of all parts together, where known before the first step."""
    bytes_per_layer: float | None
    """Uncompressed float32 bytes per sample, layer and forward pass, where known: what the size estimate starts from."""
    widths: NotRequired[list[int]]
    """Size of the last axis of each part, where known: with it one knows how many tiles there will be."""
    compressor: NotRequired[CompressorSetting]
    """What suits this tensor: how it is traced where nobody chose."""
    reason: NotRequired[str]
    """Why it is not available; absent when it is."""
    evidence: NotRequired[str]
    """In words, where it is and what a forward pass has shown of that, a line for layers that are alike; absent before a pass was watched."""


class CompressorInfo(TypedDict):
    """One compressor that a picker can offer, with the JSON Schema of its parameters."""

    name: str
    title: str
    description: str
    schema: dict[str, Any]
    """JSON Schema of params: an object schema with title, default and description on each property."""


class InstrumentInfo(TypedDict):
    """An instrument whose settings can be changed while it watches: what a form of them needs. The settings are in config."""

    title: str
    schema: dict[str, Any]
    """JSON Schema of its settings: objects of numbers, switches and texts, with title and description on each property."""


class CompressorSetting(TypedDict):
    """A compressor by name with its parameters."""

    name: str
    params: NotRequired[dict[str, Any]]


class FlagSetting(TypedDict):
    """How one flag is traced. Absent members take their defaults: all layers, every step, phase train, one sample, the forward pass, the first data-parallel replica."""

    layers: NotRequired[str]
    """'all' or ranges such as '0-3,7'; layers count from 0."""
    every: NotRequired[int]
    """Trace every n-th step."""
    phases: NotRequired[list[Phase]]
    samples: NotRequired[int | None]
    """First samples of each micro-batch that are kept; null keeps all."""
    compressor: CompressorSetting
    passes: NotRequired[list[Pass]]
    """backward is the gradient of the loss with respect to the same tensor."""
    replicas: NotRequired[Literal["first", "all"]]
    """Whether every data-parallel replica is traced, or the first only."""


class PerturbSite(TypedDict):
    """What is done at one site. Absent members take their defaults: all layers, phase train."""

    kind: CompressorSetting
    """Name of the kind, with its parameters."""
    layers: NotRequired[str]
    """'all' or ranges such as '0-3,7'; layers count from 0."""
    phases: NotRequired[list[Phase]]


class Perturb(TypedDict):
    """An armed perturbation. It ends by itself."""

    sites: dict[str, PerturbSite]
    """By name of the site."""
    seed: NotRequired[int]
    """The same seed gives the same perturbation; 0 when absent."""
    steps: NotRequired[int]
    """Training steps after which it disarms itself; 100 when absent."""
    until: NotRequired[int]
    """Last step that it touches. Only in what is in force, never in a patch."""


class Mode(TypedDict):
    """Whether the training waits. Absent members are off."""

    paused: NotRequired[bool]
    """Every rank waits before the same step."""
    steps: NotRequired[int]
    """In a patch: take this many steps, then be paused."""
    while_watched: NotRequired[bool]
    """Train only while a viewer is attached."""


class Config(TypedDict):
    """What is in force: settings by flag name (a flag that is not there is off), an armed perturbation, a mode, a budget, settings of instruments."""

    flags: dict[str, FlagSetting]
    perturb: NotRequired[Perturb]
    mode: NotRequired[Mode]
    budget: NotRequired[float | None]
    """What tracing may cost, as per cent of step time; null or absent: not limited."""
    instruments: NotRequired[dict[str, dict[str, Any]]]
    """Settings of instruments by name, complete. Together at most 64 KiB as JSON, and 6 levels deep."""


class ConfigPatch(TypedDict):
    """A change to a Config: each named flag is replaced, null switches it off, the others stay. perturb is replaced as a whole, null disarms. Members of mode that are not named stay, and so do those of instruments' settings."""

    flags: dict[str, FlagSetting | None]
    perturb: NotRequired[Perturb | None]
    mode: NotRequired[Mode]
    budget: NotRequired[float | None]
    """What tracing may cost, as per cent of step time; null or absent: not limited."""
    instruments: NotRequired[dict[str, dict[str, Any]]]
    """By name of an instrument a JSON Merge Patch (RFC 7396) of its settings: members that are not named stay, null takes one back to its default, lists are replaced."""


class Limits(TypedDict):
    """Bounds that the hub enforces."""

    max_message_bytes: int
    viewer_queue_bytes: int
    backlog_bytes: int


class Probes(TypedDict):
    """Whether every installed probe fired in the last traced step."""

    fired: int
    expected: int
    missing: list[str]
    """Names such as 'MLP1_mat_mul layer 3', at most 50."""
    reasons: NotRequired[list[SilentProbes]]
    """Why, each reason with those of the missing that it holds of. Absent where all fired."""


class SilentProbes(TypedDict):
    """Probes that did not fire for one reason."""

    reason: str
    """Such as 'its module was not called in this step'."""
    missing: list[str]


class Compiled(TypedDict):
    """Code with probes that torch.compile has compiled since tracing began."""

    times: int
    """How often any was compiled."""
    again: int
    """How many of these times it had been compiled already, as for another length of sequences. A change of what is traced is no such time."""


class Overhead(TypedDict):
    """What tracing costs by its own clocks, as per cent of step time, with a 95 % interval: in the training process and in the hub's. Processor time of the hub and of the thread that sends need not make a step longer."""

    percent: float
    low: float
    high: float
    training: NotRequired[float]
    """Part of percent: time that the training thread spent inside of the tracer."""
    producer: NotRequired[float]
    """Part of percent: CPU time of the thread that sends."""
    hub: NotRequired[float]
    """Part of percent: CPU time of the hub's process, without what records. Absent where no hub adds it."""
    recorder: NotRequired[float]
    """Part of percent: CPU time of the thread that records. Absent where no hub adds it."""


class NonFiniteFirst(TypedDict):
    """NonFiniteFirst."""

    step: int
    layer: int
    flag: str


class NonFiniteMomentsFirst(TypedDict):
    """NonFiniteMomentsFirst."""

    step: int
    stat: str
    name: str


class NonFiniteMoments(TypedDict):
    """The same of the stream moments: non-finite values of whole tensors at the steps that are logged. Absent: there were none."""

    count: int
    first: NonFiniteMomentsFirst


class NonFinite(TypedDict):
    """Non-finite entries of traced tensors seen so far and where the first one was."""

    count: int
    first: NotRequired[NonFiniteFirst]
    moments: NotRequired[NonFiniteMoments]
    """The same of the stream moments: non-finite values of whole tensors at the steps that are logged. Absent: there were none."""


class Dropped(TypedDict):
    """Rows that did not arrive somewhere, by where they were given up."""

    producer: int
    """Rows that the tracer gave up because its queue was full."""
    viewer: int
    """Rows that this viewer was not sent because it was slow; a newer row of the same flag and layer came instead."""
    recorder: int
    """Rows that the recording lacks, but for those given up to stay within its bound."""


class Recording(TypedDict):
    """State of the recording; no path crosses the wire."""

    state: Literal["off", "on", "failed", "closed"]
    bytes: NotRequired[int]
    limit_bytes: NotRequired[int]
    """What it may take while it is written: its oldest steps are given up for newer ones. Absent: no bound."""
    message: NotRequired[str]
    """What went wrong, when failed; when on, what did and is over, or that old steps are given up."""
    missing_steps: NotRequired[list[StepSpan]]
    """Ranges of steps that the recording lacks."""


RankCondition = Literal["training", "paused", "idle", "silent", "lost", "finished"]
"""silent: nothing was heard of it for 2 s, it is stopped or frozen; lost: its connection ended without a goodbye."""


class RankState(TypedDict):
    """How one training process is."""

    rank: int
    name: NotRequired[str]
    """Such as 'rank 3 (tp 1, pp 1) on node-2'."""
    state: RankCondition
    step: int
    seconds: NotRequired[float]
    """Since something was heard of it."""


class Budget(TypedDict):
    """What tracing costs by comparison of traced and untraced steps in random order, and what was given up to stay inside of the limit."""

    limit: float
    """Per cent of step time."""
    state: Literal["measuring", "inside", "over"]
    """measuring: too few steps for an answer; over: nothing is left to give up."""
    percent: NotRequired[float]
    low: NotRequired[float]
    high: NotRequired[float]
    """95 % interval."""
    steps: NotRequired[int]
    """Steps compared."""
    gave_up: list[str]
    """Sentences, in the order in which it was given up."""


class StreamField(TypedDict):
    """One column of a stream. Types of later versions may come: a reader that does not know one keeps the stream away from itself, and says so."""

    name: str
    type: str
    """int64, int32, float64, utf8, list<int32>, list<float32> or list<utf8>."""
    doc: NotRequired[str]
    absent: NotRequired[str]
    """nan: the column came later, and is read as NaN from a recording that lacks it."""


class DeclaredPolicyDrop(TypedDict):
    """What a slow viewer's full queue gives up: streams of a lower order first. Absent: never."""

    order: int
    covered_first: NotRequired[bool]
    """First the frames of which every row's identity has a newer row in the queue."""


class DeclaredPolicyNonfinite(TypedDict):
    """What counts as non-finite: columns that count, or columns of values. first: what is told of the first such row."""

    counts: NotRequired[list[str]]
    values: NotRequired[list[str]]
    first: NotRequired[list[str]]


class DeclaredPolicyPacking(TypedDict):
    """How a closed recording is packed to Parquet."""

    group_rows: NotRequired[int]
    group_bytes: NotRequired[int]
    null_marks: NotRequired[bool]
    """Whether columns carry marks of nulls, which no stream has."""
    dictionary: NotRequired[list[str]]
    """Columns whose values come again; all when absent."""
    fast: NotRequired[list[str]]
    """Columns that hardly repeat: LZ4 in place of zstd."""


class DeclaredPolicy(TypedDict):
    """How every room treats a stream. README.md says what each member means."""

    keep: str
    """What the hub keeps for viewers that come later: all rows, or the newest frames."""
    hub_bytes: NotRequired[int]
    """Of the newest frames, so many bytes at most; limits.backlog_bytes when absent or larger."""
    drop: NotRequired[DeclaredPolicyDrop]
    """What a slow viewer's full queue gives up: streams of a lower order first. Absent: never."""
    identity: NotRequired[list[str]]
    """Columns that say what a row is about: a newer row of the same identity takes its place."""
    newer: NotRequired[str]
    """Column that rises within an identity: tells rows that come a second time."""
    memory_bytes: NotRequired[int]
    """Bound in a kernel."""
    page_bytes: NotRequired[int]
    """Bound in a browser's page."""
    row_bytes: NotRequired[int]
    """What a row costs beside the values of its lists: to thin out steps before rows are read."""
    shape: NotRequired[str]
    """Column whose product says how many float32 values a row has."""
    replay_order: NotRequired[int]
    """Of rows of one step, streams of a lower order are replayed first."""
    marks_step: NotRequired[bool]
    """Whether a row says that its step was reached; true when absent."""
    ask: NotRequired[dict[str, str]]
    """Columns that rows can be asked for by, and how: equal, equal_or_lowest, ranges, newest_finite, peaks. The step can always be."""
    nonfinite: NotRequired[DeclaredPolicyNonfinite]
    """What counts as non-finite: columns that count, or columns of values. first: what is told of the first such row."""
    packing: NotRequired[DeclaredPolicyPacking]
    """How a closed recording is packed to Parquet."""


class DeclaredStream(TypedDict):
    """One stream as it is declared: what a row is, its columns in order, and how every room treats it."""

    title: str
    doc: NotRequired[str]
    instrument: NotRequired[str]
    """Which instrument fills it."""
    policy: DeclaredPolicy
    fields: list[StreamField]


class StreamStatusNonfinite(TypedDict):
    """StreamStatusNonfinite."""

    count: int
    first: dict[str, Any]
    """The columns that the policy names, of the first such row."""


class StreamStatus(TypedDict):
    """What has come of one stream so far."""

    rows: int
    bytes: int
    """Of all frames together."""
    first_step: NotRequired[int | None]
    last_step: NotRequired[int | None]
    dropped: NotRequired[int]
    """Rows that this viewer was not sent because it was slow; status.dropped.viewer is the sum. Absent: none."""
    nonfinite: NotRequired[StreamStatusNonfinite]


class Join(TypedDict):
    """First message of every connection, client to hub."""

    type: Literal["join"]
    protocol: str
    """megalens.v2."""
    role: Role
    peer: Peer
    since: NotRequired[int | None]
    """Last sequence number that this viewer has, or null for a first connection."""
    run: NotRequired[str]
    """Run that since belongs to; another run's since is ignored."""
    backlog: NotRequired[int]
    """How many bytes of past tensors frames to send at most, and of moments frames as many more; scalars and audit always come whole. Absent: the hub's own bound."""


class Announce(TypedDict):
    """Producer to hub after hello: what it can trace. A later announce of the same rank replaces it."""

    type: Literal["announce"]
    rank: int
    run_name: NotRequired[str]
    model: Model
    layout: Layout
    flags: list[FlagInfo]
    compressors: list[CompressorInfo]
    config: Config
    versions: dict[str, str]
    """Such as {megalens, torch, python}."""
    controls: NotRequired[list[Control]]
    """What viewers may do beyond looking. Absent: nothing."""
    sites: NotRequired[list[SiteInfo]]
    """What can be perturbed, where controls has perturb."""
    streams: NotRequired[dict[str, DeclaredStream]]
    """Streams by name, beside those of streams.json, that this producer sends."""
    configurable: NotRequired[dict[str, InstrumentInfo]]
    """By name, instruments whose settings can be changed."""
    statistics: NotRequired[LoggedStatistics]
    generation: NotRequired[GenerationInfo]
    phase: NotRequired[Phase]
    origin: NotRequired[Origin]
    leader: NotRequired[int]
    """Rank that answers configure for this one. Absent: this one itself."""


class LoggedStatistics(TypedDict):
    """What is logged to the stream moments, each every so many steps. Absent: nothing is."""

    param: NotRequired[int]
    grad: NotRequired[int]
    activation: NotRequired[int]
    dgrad: NotRequired[int]
    residual: NotRequired[int]
    residual_dgrad: NotRequired[int]
    attention_entropy: NotRequired[int]
    attention_max: NotRequired[int]
    router_entropy: NotRequired[int]
    router_similarity: NotRequired[int]
    stable_rank: NotRequired[int]
    kernel_norm: NotRequired[int]
    precision: NotRequired[int]
    """What casts to fewer bits lose: the stats underflow, overflow, saturated, subnormal, cast_error, cast_scale and cast_amax."""


class HelloResumed(TypedDict):
    """Present when join named since: what cannot be caught up."""

    since: int
    missed_frames: int
    """Frames after since that the buffer no longer holds or the backlog bound left out."""
    missed_rows: int
    first_step: NotRequired[int | None]
    last_step: NotRequired[int | None]


class Hello(TypedDict):
    """Hub to client: the answer to join, and again to every viewer when a producer announces."""

    type: Literal["hello"]
    protocol: Literal["megalens.v2"]
    run: RunInfo
    seq: int
    """Newest sequence number that the hub has given out."""
    resumed: NotRequired[HelloResumed]
    """Present when join named since: what cannot be caught up."""
    model: Model | None
    """null until a producer has announced."""
    layout: Layout | None
    flags: list[FlagInfo]
    compressors: list[CompressorInfo]
    config: Config
    limits: Limits
    versions: dict[str, str]
    controls: NotRequired[list[Control]]
    """What viewers may do beyond looking. Absent: nothing."""
    sites: NotRequired[list[SiteInfo]]
    """What can be perturbed, where controls has perturb."""
    streams: NotRequired[dict[str, DeclaredStream]]
    """Every stream of the run by name, those that this version of the protocol does not know too."""
    configurable: NotRequired[dict[str, InstrumentInfo]]
    """By name, instruments whose settings can be changed."""
    statistics: NotRequired[LoggedStatistics]
    generation: NotRequired[GenerationInfo]
    phase: NotRequired[Phase]
    origin: NotRequired[Origin]


class Configure(TypedDict):
    """Viewer to hub, hub to producers: change what is traced, at any time."""

    type: Literal["configure"]
    id: str
    """Chosen by the viewer; every answer carries it. The hub adds a prefix towards producers so that two viewers' ids never meet."""
    patch: ConfigPatch


class Configured(TypedDict):
    """Producer to hub, hub to all viewers: twice for each configure, first when accepted (applied false, the step from which it can apply), then when applied."""

    type: Literal["configured"]
    id: str
    applied: bool
    step: int
    config: Config
    by: NotRequired[Peer]
    time: NotRequired[float]
    """Seconds since the epoch, the hub's clock."""


class Status(TypedDict):
    """How the run is. Producer to hub with what a producer knows, hub to viewers with everything, at most every 500 ms and at least every 2 s."""

    type: Literal["status"]
    state: RunState
    step: int
    """Newest step; 0 before the first."""
    time: NotRequired[float]
    probes: NotRequired[Probes]
    compiled: NotRequired[Compiled]
    overhead: NotRequired[Overhead]
    nonfinite: NotRequired[NonFinite]
    dropped: NotRequired[Dropped]
    bytes_per_step: NotRequired[float]
    """Mean size of the tensors frames of the last steps."""
    viewers: NotRequired[int]
    producers: NotRequired[list[int]]
    """Ranks that are attached now."""
    recording: NotRequired[Recording]
    warnings: NotRequired[list[str]]
    """Sentences for the user, such as 'The hub was restarted at step 812'."""
    ranks: NotRequired[list[RankState]]
    """Every training process that was heard of, by rank."""
    streams: NotRequired[dict[str, StreamStatus]]
    """What has come so far, by stream; one that is not here has no rows."""
    budget: NotRequired[Budget]
    instruments: NotRequired[dict[str, dict[str, Any]]]
    """By name, settings and state of instruments beside those whose state has members of its own here."""
    perturbed_steps: NotRequired[int]
    """Steps that perturbations have touched so far in this run."""
    left_out_passes: NotRequired[int]
    """Forward passes inside of steps and outside of a phase so far that were without gradients, or in evaluation mode and never backpropagated: no training, and not traced. Absent where there were none."""
    micro_batches: NotRequired[int]
    """Micro-batches of the last training step in which they were counted: one in which tensors were traced, or the second of a run that traces none. Absent before, and where what is compiled does not show them."""
    armed_steps: NotRequired[int]
    """Steps that the perturbation that is armed now has touched so far; absent when none is."""


class ErrorMessage(TypedDict):
    """Something was refused. The connection stays open unless a close follows."""

    type: Literal["error"]
    code: ErrorCode
    message: str
    """One or two sentences: what was expected, what came, what to try."""
    reply_to: NotRequired[str]
    """id of the configure that it answers."""
    field: NotRequired[str]
    """Dotted path of the field at fault, such as flags.MLP1_mat_mul.compressor.params.reduction."""
    column: NotRequired[int]
    """Column of the fault inside an expression, counted from 1."""
    expected: NotRequired[str]
    got: NotRequired[str]


class Goodbye(TypedDict):
    """Either side ends on purpose: a producer that finished training, a hub that shuts down, a viewer that leaves."""

    type: Literal["goodbye"]
    reason: Literal["finished", "shutdown", "leaving"]
    message: NotRequired[str]


class GenerationInfo(TypedDict):
    """How the model can be asked to write text, where controls has generate."""

    prompts: int
    """Sequences of one generation at most: prompts times samples."""
    tokens: int
    """Tokens that one generation may write at most."""
    context: NotRequired[int | None]
    """Positions that the model can read; null where that is not known."""
    no_attention: NotRequired[str]
    """Why attention probabilities cannot be had; absent where they can."""
    no_lens: NotRequired[str]
    """Why the logit lens cannot be had; absent where it can."""


class Sweep(TypedDict):
    """The perturbation of a request, repeated with one thing of it set differently each time. It must have one site."""

    over: Literal["coefficient", "layers", "site"]
    """What is varied: the parameter coefficient (of a bit flip its rate), the layers, or the site."""
    values: list[float | str]
    """Numbers for coefficient, texts such as '0-3' for layers, names for site."""


class GenerateRequest(TypedDict):
    """What the model is to write, and what is to be kept of it."""

    prompts: list[str]
    """Texts to go on from."""
    tokens: NotRequired[int]
    """Tokens to write, at most; 64 when absent. 0 only reads the prompts."""
    temperature: NotRequired[float]
    """Logits are divided by it; 1 when absent. 0 always takes the most probable token."""
    top_k: NotRequired[int]
    """Draw from the k most probable tokens only; 0, and absent, from all."""
    top_p: NotRequired[float]
    """Draw from the fewest most probable tokens whose probabilities reach p together; 1, and absent, from all."""
    seed: NotRequired[int]
    """The same seed draws the same tokens; 0 when absent."""
    samples: NotRequired[int]
    """Texts for each prompt; 1 when absent."""
    stop: NotRequired[list[str]]
    """A sequence ends once its new text has one of these in it."""
    stop_tokens: NotRequired[list[int]]
    """A sequence ends after one of these tokens; the tokenizer's end of text when absent."""
    candidates: NotRequired[int]
    """Candidates to keep of each position; 20 when absent."""
    attention: NotRequired[bool]
    """Also trace attention probabilities, in the layers that the flag RawAttentionScore_mat_mul asks for, all when it is off. Where the model computes attention without giving them it is switched to an implementation that does, for this generation."""
    lens: NotRequired[int]
    """Candidates to read from each layer's hidden state (logit lens); 0, and absent, none."""
    perturb: NotRequired[Perturb | None]
    """Write the text twice, without and with this perturbation, and say what it changed. Needs perturb among controls. phases and steps are not read: it lasts as long as the generation."""
    sweep: NotRequired[Sweep | None]
    """Repeat the perturbation with other settings, and say of each what it changed."""


class Generate(TypedDict):
    """Viewer to hub, hub to the producer that leads: have the model write text. Answered by generating, or by an error with the id."""

    type: Literal["generate"]
    id: str
    """Chosen by the viewer; the answer carries it. The hub adds a prefix towards the producer."""
    request: GenerateRequest
    by: NotRequired[Peer]


class Cancel(TypedDict):
    """Viewer to hub, hub to the producer that leads: end a generation that waits or runs. Answered by generating, or by an error."""

    type: Literal["cancel"]
    id: str
    generation: int


class Generating(TypedDict):
    """Producer to hub, hub to the viewer that asked: the generation's number. How it goes is told by the stream generations."""

    type: Literal["generating"]
    id: str
    generation: int
    control: NotRequired[int]
    """The clean one beside it, where there is a perturbation."""


Message: TypeAlias = "Join | Announce | Hello | Configure | Configured | Status | ErrorMessage | Goodbye | Generate | Cancel | Generating"
"""Every JSON control message of the megalens.v2 protocol. Binary frames are described in README.md."""
