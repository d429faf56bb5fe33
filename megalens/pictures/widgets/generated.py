# Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.
"""A widget class for each view of the contract."""

from __future__ import annotations

from typing import ClassVar

from ipywidgets import register
from traitlets import observe

from .base import Option, View
from .explorer import Explorer

__all__ = [
    "VIEW_CLASSES",
    "Attention",
    "Effects",
    "Health",
    "Heatmap",
    "History",
    "Lens",
    "Moments",
    "Pipeline",
    "Scalars",
    "Scatter",
    "Split",
    "Timeline",
    "Tokens",
    "Trend",
]


@register
class Heatmap(View):
    """Heatmap. One tensor, position by tile."""

    view_name: ClassVar[str] = "heatmap"

    flag = Option(help="Trace point by name.")
    part = Option(help="Named part (q, k, v …); the first when absent.")
    layers = Option(help="Layers to draw, such as '0-3,7' or 'all'; more than one makes small multiples.")
    step = Option(help="Step to draw; follows the newest when absent.")
    sample = Option(help="Sample of the batch, counted from 0.")
    head = Option(help="Head, where the tensor has a head axis, counted from 0.")
    scale = Option(help="One colour scale for all layers, or one each.")
    transform = Option(help="Scale of the values; log is symmetric about zero for signed values.")
    color_range = Option(
        help="Lowest and highest value of the colours, which are then locked; those of the data when absent."
    )
    phase = Option(help="What the model was doing.")
    rank = Option(
        help="Global rank whose rows are shown; of each layer the lowest that has it when absent, so that replicas never mix."
    )
    pass_ = Option(help="backward shows the gradients of the same tensors. Python calls it pass_.")
    generation = Option(
        help="Number of a generation: its positions are put together from all its passes, position by tile, and sample is its sequence. 0 is the newest. A step as it is when absent."
    )

    _sync = observe(
        "flag",
        "part",
        "layers",
        "step",
        "sample",
        "head",
        "scale",
        "transform",
        "color_range",
        "phase",
        "rank",
        "pass_",
        "generation",
    )(View._option_changed)


@register
class Trend(View):
    """Trend. A statistic per layer over steps."""

    view_name: ClassVar[str] = "trend"

    flag = Option(help="Trace point by name.")
    part = Option(help="Named part (q, k, v …); the first when absent.")
    layers = Option(help="Layers to draw, such as '0-3,7' or 'all'.")
    statistic = Option(
        help="Over the finite values of the whole tensor of a layer and step; nonfinite counts the others. kept_…: over what the compressor kept of them."
    )
    kind = Option(help="A line for each layer, or layer × step cells.")
    steps = Option(help="First and last step, both included; all steps when absent.")
    transform = Option(help="Scale of the values; log is symmetric about zero for signed values.")
    color_range = Option(
        help="Lowest and highest value of the colours, which are then locked; those of the data when absent."
    )
    phase = Option(help="What the model was doing.")
    rank = Option(
        help="Global rank whose rows are shown; of each layer the lowest that has it when absent, so that replicas never mix."
    )
    pass_ = Option(help="backward shows the gradients of the same tensors. Python calls it pass_.")
    positions = Option(
        help="Positions that enter, counted from 0, such as '0-15,31' or 'all'. Tensors without a position axis enter whole."
    )
    vector = Option(help="Which vector of a projection, counted from 0. Other tensors have none.")
    interval = Option(
        help="Band about the mean (only with the statistic mean), over positions and samples: one standard deviation, or a 95 % confidence interval. The interval takes positions for independent, which neighbours are not: the true one is wider."
    )
    smoothing = Option(help="Trailing mean over this many points; 0 draws the numbers as they are.")
    runs = Option(help="Other runs, or their ids, to compare with.")
    compare = Option(
        help="The runs over one another, or what each of the others is minus, or over, this one."
    )
    align = Option(
        help="What the horizontal axis is, and so by what runs are compared: steps, tokens that were consumed (a scalar such as tokens says how many), or time since the run's first step."
    )
    hidden = Option(
        help="Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run by its id where each has one line. Of several columns as a list in JSON ('[3,\"output\"]')."
    )

    _sync = observe(
        "flag",
        "part",
        "layers",
        "statistic",
        "kind",
        "steps",
        "transform",
        "color_range",
        "phase",
        "rank",
        "pass_",
        "positions",
        "vector",
        "interval",
        "smoothing",
        "runs",
        "compare",
        "align",
        "hidden",
    )(View._option_changed)


@register
class History(View):
    """History. Layer by step, and the tensor at any of them."""

    view_name: ClassVar[str] = "history"

    flag = Option(help="Trace point by name.")
    part = Option(help="Named part (q, k, v …); the first when absent.")
    layers = Option(help="Layers of the map, such as '0-3,7' or 'all'.")
    layer = Option(help="Layer whose tensor is drawn; the first when absent.")
    step = Option(help="Step whose tensor is drawn; follows the newest when absent.")
    statistic = Option(
        help="Colour of the map, over the finite traced values of a layer and step; nonfinite counts the others."
    )
    steps = Option(help="First and last step of the map, both included; all when absent.")
    sample = Option(help="Sample of the batch, counted from 0.")
    head = Option(help="Head, where the tensor has a head axis, counted from 0.")
    transform = Option(help="Scale of the values; log is symmetric about zero for signed values.")
    color_range = Option(
        help="Lowest and highest value of the tensor's colours, which are then locked; those of the data when absent."
    )
    map_range = Option(help="The same of the map's colours.")
    phase = Option(help="What the model was doing.")
    rank = Option(
        help="Global rank whose rows are shown; of each layer the lowest that has it when absent, so that replicas never mix."
    )
    pass_ = Option(help="backward shows the gradients of the same tensors. Python calls it pass_.")

    _sync = observe(
        "flag",
        "part",
        "layers",
        "layer",
        "step",
        "statistic",
        "steps",
        "sample",
        "head",
        "transform",
        "color_range",
        "map_range",
        "phase",
        "rank",
        "pass_",
    )(View._option_changed)


@register
class Moments(Explorer):
    """Statistics. Statistics of weights, gradients and activations, grouped as you like."""

    view_name: ClassVar[str] = "moments"

    stat = Option(help="What was measured.")
    statistic = Option(
        help="What is read of it; near_zero_share is the share of values of a size below 1e-8, nonfinite the number of NaN and infinite values."
    )
    kind = Option(
        help="lines: each group over steps. overview: total, largest moves and families. layers: each layer at one step. map: each group × step, or × what columns says; layer_map and item_map: the same of layers or item types. tensors: single tensors over steps. table: the rows."
    )
    by = Option(
        help="Columns that make a group: name, layer, stack, family, kind, module_type, item_type, role, expert, rank, stage, capture; an empty list is the total."
    )
    pattern = Option(
        help="Regular expression whose groups are the column 'capture'; names in which it finds nothing are left out."
    )
    where = Option(
        help="Which tensors take part, by the same columns, such as {'layer': '0-3', 'role': 'output', 'name': 'mlp'}."
    )
    steps = Option(help="First and last step, both included; all steps when absent.")
    step = Option(
        help="Step of the layer chart, and of a map whose columns are not steps; follows the newest when absent."
    )
    marks = Option(help="How the layer chart is drawn.")
    x = Option(help="What the horizontal axis is.")
    show = Option(
        help="The numbers as they are; divided by the first of their series; minus it; or the change from it in per cent. The first is that of the whole run."
    )
    ratio = Option(
        help="grad_to_param: gradients over parameters, by the same names. gain: what comes out of a module over what goes in (of dgrads in over out: the way the gradient goes)."
    )
    transform = Option(help="Scale of the values.")
    columns = Option(
        help="What the columns of a map are: steps, or ranks, layers, stages or experts at one step."
    )
    colors = Option(
        help="Colours of a map: without steps, or seven bands by the mean ± 1, 2 and 3 standard deviations of its cells."
    )
    cells = Option(
        help="Cells of a map whose lines are drawn below it, as a click on them chooses: the values of the row's columns and that of the column as a list in JSON ('[3,120]': layer 3 at step 120)."
    )
    along = Option(
        help="What the lines of chosen cells go over. auto: what the map is of one of: ranks where its rows are not ranks and 'where' has some, tensors where its rows are ranks and 'where' has a name, else steps."
    )
    color_range = Option(
        help="Lowest and highest value of the colours, which are then locked; those of the data when absent."
    )
    smoothing = Option(help="Trailing mean over this many points; 0 draws the numbers as they are.")
    mixed = Option(
        help="Let inputs and outputs of modules enter one group, where the same values may count twice."
    )
    series = Option(
        help="At most so many lines: those with the largest values. The caption says what is left out."
    )
    runs = Option(help="Other runs, or their ids, to compare with.")
    compare = Option(
        help="The runs over one another, or what each of the others is minus, or over, this one."
    )
    align = Option(
        help="What the horizontal axis is, and so by what runs are compared: steps, tokens that were consumed (a scalar such as tokens says how many), or time since the run's first step."
    )
    hidden = Option(
        help="Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run by its id where each has one line. Of several columns as a list in JSON ('[3,\"output\"]')."
    )
    derive = Option(
        help="Of the table: new columns as expressions of arquero, such as 'share = d.value / op.max(d.value)', several with ';' between. Functions of several rows go over the rows of one group."
    )
    filter = Option(
        help="Of the table: which rows it shows, as an expression of arquero, such as 'd.value > op.mean(d.value)'."
    )

    _sync = observe(
        "stat",
        "statistic",
        "kind",
        "by",
        "pattern",
        "where",
        "steps",
        "step",
        "marks",
        "x",
        "show",
        "ratio",
        "transform",
        "columns",
        "colors",
        "cells",
        "along",
        "color_range",
        "smoothing",
        "mixed",
        "series",
        "runs",
        "compare",
        "align",
        "hidden",
        "derive",
        "filter",
    )(View._option_changed)


@register
class Scalars(View):
    """Scalars. Loss and other numbers over steps."""

    view_name: ClassVar[str] = "scalars"

    names = Option(help="Names to draw; when absent every name that has 'loss' in it, or else all.")
    steps = Option(help="First and last step, both included; all steps when absent.")
    x = Option(help="What the horizontal axis is.")
    transform = Option(help="Scale of the values.")
    smoothing = Option(help="Trailing mean over this many points; 0 draws the numbers as they are.")
    runs = Option(help="Other runs, or their ids, to compare with.")
    compare = Option(
        help="The runs over one another, or what each of the others is minus, or over, this one."
    )
    align = Option(
        help="What the horizontal axis is, and so by what runs are compared: steps, tokens that were consumed (a scalar such as tokens says how many), or time since the run's first step."
    )
    hidden = Option(
        help="Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run by its id where each has one line. Of several columns as a list in JSON ('[3,\"output\"]')."
    )

    _sync = observe(
        "names",
        "steps",
        "x",
        "transform",
        "smoothing",
        "runs",
        "compare",
        "align",
        "hidden",
    )(View._option_changed)


@register
class Health(View):
    """Health. The first thing that went wrong, and all alarms."""

    view_name: ClassVar[str] = "health"

    severity = Option(help="Alarms of this severity only.")
    rule = Option(help="Alarms of this rule only; of all when absent.")
    steps = Option(help="First and last step, both included; all steps when absent.")
    name = Option(
        help="Tensor or scalar whose line is drawn around an alarm; that of the first anomaly when absent."
    )
    step = Option(help="Step of that alarm; the first one of the tensor when absent.")

    _sync = observe(
        "severity",
        "rule",
        "steps",
        "name",
        "step",
    )(View._option_changed)


@register
class Timeline(View):
    """Timeline. What each rank does in a step, and who makes the others wait."""

    view_name: ClassVar[str] = "timeline"

    ranks = Option(
        help="Ranks, such as '0-3,7'. Of more than 64 the first are drawn, those that make others wait among them."
    )
    kind = Option(
        help="A lane of spans for each rank, or how much longer each rank computes than its stage, rank × step."
    )
    steps = Option(help="First and last step, both included; all steps when absent.")
    path = Option(
        help="Also draw the critical path: what each step waited for from its end back to its beginning, of at most 30 steps."
    )
    find = Option(
        help="Spans with this in their name or kind are counted and can be gone to, one after the other."
    )
    hidden = Option(
        help="Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run by its id where each has one line. Of several columns as a list in JSON ('[3,\"output\"]')."
    )

    _sync = observe(
        "ranks",
        "kind",
        "steps",
        "path",
        "find",
        "hidden",
    )(View._option_changed)


@register
class Tokens(View):
    """Tokens. What the model writes, and what else it could have written."""

    view_name: ClassVar[str] = "tokens"

    generation = Option(help="Number of the generation; the newest when absent.")
    other = Option(
        help="Another generation to show beside it, with the first difference marked; of one under a perturbation its clean control when absent."
    )
    other_run = Option(help="Run of the other generation; the same run when absent.")
    sequence = Option(
        help="Sequence of the generation, counted from 0; samples of one prompt are neighbours."
    )
    color = Option(
        help="What colours the tokens: probability, surprise (−log2 of it, bits), entropy of the distribution (nats), or rank."
    )
    position = Option(
        help="Position that is looked at, counted from 0; follows the newest, or what is pinned in another view, when absent."
    )

    _sync = observe(
        "generation",
        "other",
        "other_run",
        "sequence",
        "color",
        "position",
    )(View._option_changed)


@register
class Attention(View):
    """Attention. Which tokens each head looks at."""

    view_name: ClassVar[str] = "attention"

    generation = Option(help="Number of the generation; the newest when absent.")
    sequence = Option(
        help="Sequence of the generation, counted from 0; samples of one prompt are neighbours."
    )
    step = Option(
        help="Step of the training whose attention is drawn instead of a generation's, and sequence is its sample. When absent the generation's, and of a run that wrote nothing the newest step's."
    )
    layers = Option(help="'all' or ranges such as '0-3,7'.")
    heads = Option(help="Heads, such as '0-3', or 'all'. One layer and one head are drawn in full.")
    kind = Option(
        help="Query × key for each layer and head, or layer × head coloured by a measure of the head."
    )
    measure = Option(
        help="Of a head, over all queries: mean entropy of its attention (nats), mean distance to the key in tokens, or share on the first token."
    )
    position = Option(
        help="Position that is looked at, counted from 0; follows the newest, or what is pinned in another view, when absent."
    )
    transform = Option(help="Scale of the values; log is symmetric about zero for signed values.")
    color_range = Option(
        help="Lowest and highest value of the colours, which are then locked; those of the data when absent."
    )

    _sync = observe(
        "generation",
        "sequence",
        "step",
        "layers",
        "heads",
        "kind",
        "measure",
        "position",
        "transform",
        "color_range",
    )(View._option_changed)


@register
class Scatter(View):
    """Projection. Vectors of tokens as points of a plane."""

    view_name: ClassVar[str] = "projection"

    flag = Option(help="Trace point by name.")
    part = Option(help="Named part (q, k, v …); the first when absent.")
    layer = Option(help="Layer, counted from 0.")
    keep_axes = Option(
        help="Turn the points of each layer onto those of the layer before (Procrustes), so that they stay where they were when the layer changes. Otherwise the axes are each layer's own components."
    )
    generations = Option(help="Generations whose tokens are drawn: 'newest', or numbers such as '3-5,8'.")
    method = Option(
        help="Principal components, with the variance that they explain, or UMAP, which keeps neighbours together and no distances."
    )
    standardise = Option(help="Divide each feature by its deviation first.")
    across = Option(help="Principal component on the horizontal axis, counted from 1.")
    up = Option(help="Principal component on the vertical axis.")
    neighbors = Option(help="Neighbours that UMAP keeps together.")
    seed = Option(help="Seed of UMAP.")
    color = Option(help="What colours the points: the prompt, the token's text, its position, or the step.")
    group = Option(
        help="Tokens that are looked at together, as generation:sequence:positions: '2:0:4-5,2:1:7'. Drawing a loop around them with Shift held, or a box with Ctrl and Shift, chooses them."
    )
    position = Option(
        help="Position that is marked in every sequence, counted from 0; what is pinned in another view when absent."
    )

    _sync = observe(
        "flag",
        "part",
        "layer",
        "keep_axes",
        "generations",
        "method",
        "standardise",
        "across",
        "up",
        "neighbors",
        "seed",
        "color",
        "group",
        "position",
    )(View._option_changed)


@register
class Lens(View):
    """Logit lens. What each layer would predict."""

    view_name: ClassVar[str] = "lens"

    generation = Option(help="Number of the generation; the newest when absent.")
    sequence = Option(
        help="Sequence of the generation, counted from 0; samples of one prompt are neighbours."
    )
    layers = Option(help="'all' or ranges such as '0-3,7'.")
    color = Option(
        help="What colours a cell: the probability of its best candidate, that of the token that came in the end, the rank of that token, or the entropy (nats)."
    )
    position = Option(
        help="Position that is looked at, counted from 0; follows the newest, or what is pinned in another view, when absent."
    )

    _sync = observe(
        "generation",
        "sequence",
        "layers",
        "color",
        "position",
    )(View._option_changed)


@register
class Effects(View):
    """Perturbation effects. What a perturbation changed, beside a clean control."""

    view_name: ClassVar[str] = "effects"

    generation = Option(help="Number of the generation; the newest when absent.")
    sequence = Option(
        help="Sequence of the generation, counted from 0; samples of one prompt are neighbours."
    )
    kind = Option(
        help="A measure of each next token over positions; the distance of hidden states, layer × position; or a measure over the points of a sweep."
    )
    measure = Option(
        help="Kullback-Leibler divergence (nats), change of the most probable token, relative distance of hidden states, or first position at which the text differs (of a sweep)."
    )
    position = Option(
        help="Position that is looked at, counted from 0; follows the newest, or what is pinned in another view, when absent."
    )
    transform = Option(help="Scale of the values; log is symmetric about zero for signed values.")

    _sync = observe(
        "generation",
        "sequence",
        "kind",
        "measure",
        "position",
        "transform",
    )(View._option_changed)


@register
class Pipeline(View):
    """Pipeline. What each pipeline stage does in a step, and which schedule would be faster."""

    view_name: ClassVar[str] = "pipeline"

    schedule = Option(
        help="The schedule whose plan is drawn. best: the fastest within memory_gb; measured: the order in which the run's own steps ran."
    )
    kind = Option(
        help="The plan as lanes of stages, its memory over time, the schedules side by side, or all three."
    )
    stages = Option(help="Pipeline stages; 0: as many as the run has, 4 where it has none.")
    micro_batches = Option(
        help="Micro-batches of a step; 0: as many as the run has, twice the stages where it has one."
    )
    chunks = Option(help="Model chunks of a stage, for the schedules that take several.")
    forward = Option(help="ms of a forward pass of one micro-batch through one stage.")
    input_gradient = Option(
        help="ms of the part of its backward pass that gives the gradient of the stage's input."
    )
    weight_gradient = Option(help="ms of the part that gives the gradients of the weights.")
    optimizer = Option(help="ms of a stage's optimizer step.")
    latency = Option(help="ms before a message between two stages begins to arrive.")
    bandwidth = Option(help="GB/s of a link between two stages in each direction; 0: no limit.")
    jitter = Option(help="How much durations vary, % (standard deviation).")
    message_mb = Option(help="MB of a micro-batch's activations between two stages.")
    activation_mb = Option(help="MB that a stage keeps of one micro-batch for its backward pass.")
    weight_mb = Option(help="MB of a stage's weights, gradients and optimizer state.")
    memory_gb = Option(help="GB that a stage may hold; none: no limit.")
    steps = Option(help="First and last step, both included; all steps when absent.")
    measured = Option(help="Lay the last measured step over the plan.")
    hidden = Option(
        help="Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run by its id where each has one line. Of several columns as a list in JSON ('[3,\"output\"]')."
    )

    _sync = observe(
        "schedule",
        "kind",
        "stages",
        "micro_batches",
        "chunks",
        "forward",
        "input_gradient",
        "weight_gradient",
        "optimizer",
        "latency",
        "bandwidth",
        "jitter",
        "message_mb",
        "activation_mb",
        "weight_mb",
        "memory_gb",
        "steps",
        "measured",
        "hidden",
    )(View._option_changed)


@register
class Split(View):
    """Split. Forward and backward in different processes: which does what, and whether it is worth it."""

    view_name: ClassVar[str] = "split"

    layout = Option(
        help="The layout whose step is drawn. split: the best split; run: that of the run itself; best: the fastest of all; the others: the best of a family."
    )
    kind = Option(
        help="The step as lanes of processes, the map of roles, the layouts side by side, or all three."
    )
    rank_map = Option(
        help="Whose map of roles is drawn: without a coordinator, that of MegaFBD with both of its flags, or what it means by one of them."
    )
    tensor = Option(
        help="Tensor-parallel degree of the map's backward processes; that of the layout when absent."
    )
    pipeline = Option(help="Stages of the map; those of the layout when absent.")
    data = Option(
        help="Replicas of the map; those of the layout when absent. Of MegaFBD's maps Megatron's data-parallel size is twice as much."
    )
    forward_tensor = Option(
        help="Tensor-parallel degree of the map's forward processes; that of the layout when absent."
    )
    last_forward = Option(
        help="Whether the map's last stage has forward processes; as the layout when absent."
    )
    devices = Option(help="Devices of the first kind; of a split run those of forward processes.")
    others = Option(help="Devices of the second kind; of a split run those of backward processes. 0: none.")
    forward = Option(
        help="ms of a forward pass of one micro-batch through the whole model on a device of the first kind."
    )
    backward = Option(help="ms of its backward pass there.")
    others_slower = Option(help="How many times as long the second kind takes.")
    micro_batches = Option(help="Micro-batches of a step, of all replicas together.")
    model_layers = Option(help="Layers between which the model can be cut.")
    most_tensor = Option(help="Largest tensor-parallel degree that is tried.")
    ahead = Option(help="Micro-batches that a backward process recomputes ahead of their gradients.")
    latency = Option(help="ms before a message between two processes begins to arrive.")
    bandwidth = Option(help="GB/s of a link between two processes in each direction; 0: no limit.")
    message_mb = Option(help="MB of a micro-batch's activations between two layers.")
    activation_mb = Option(help="MB that the whole model keeps of one micro-batch for its backward pass.")
    weight_mb = Option(help="MB of the whole model's weights.")
    state_mb = Option(
        help="MB of its weights, gradients and optimizer state together; that of the weights when absent."
    )
    memory_gb = Option(help="GB that a device of the first kind may hold; none: no limit.")
    others_memory_gb = Option(help="GB that a device of the second kind may hold; none: no limit.")
    uncertainty = Option(
        help="By how much the times may be off, % (standard deviation): the verdict's interval comes from it."
    )
    steps = Option(help="First and last step, both included; all steps when absent.")
    measured = Option(help="Lay the last measured step over the plan of the run's own layout.")
    hidden = Option(
        help="Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run by its id where each has one line. Of several columns as a list in JSON ('[3,\"output\"]')."
    )

    _sync = observe(
        "layout",
        "kind",
        "rank_map",
        "tensor",
        "pipeline",
        "data",
        "forward_tensor",
        "last_forward",
        "devices",
        "others",
        "forward",
        "backward",
        "others_slower",
        "micro_batches",
        "model_layers",
        "most_tensor",
        "ahead",
        "latency",
        "bandwidth",
        "message_mb",
        "activation_mb",
        "weight_mb",
        "state_mb",
        "memory_gb",
        "others_memory_gb",
        "uncertainty",
        "steps",
        "measured",
        "hidden",
    )(View._option_changed)


VIEW_CLASSES: dict[str, type[View]] = {
    "heatmap": Heatmap,
    "trend": Trend,
    "history": History,
    "moments": Moments,
    "scalars": Scalars,
    "health": Health,
    "timeline": Timeline,
    "tokens": Tokens,
    "attention": Attention,
    "projection": Scatter,
    "lens": Lens,
    "effects": Effects,
    "pipeline": Pipeline,
    "split": Split,
}
"""Every view's class by the view's name."""
