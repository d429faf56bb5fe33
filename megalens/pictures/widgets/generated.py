# Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.
"""A widget class for each view of the contract."""

from __future__ import annotations

from typing import ClassVar

from ipywidgets import register

from .base import Option, View
from .explorer import Explorer

__all__ = [
    "VIEW_CLASSES",
    "Attention",
    "Distribution",
    "Effects",
    "Health",
    "Heatmap",
    "History",
    "Lens",
    "Overview",
    "Pipeline",
    "Scalars",
    "Scatter",
    "Split",
    "Statistics",
    "Timeline",
    "Tokens",
    "Trend",
]


@register
class Overview(View):
    """Overview. The run at a glance, and what is out of the ordinary."""

    view_name: ClassVar[str] = "overview"

    names = Option()
    steps = Option()


@register
class Heatmap(View):
    """Heatmap. One tensor, position by tile."""

    view_name: ClassVar[str] = "heatmap"

    flag = Option()
    part = Option()
    layers = Option()
    step = Option()
    sample = Option()
    head = Option()
    scale = Option()
    transform = Option()
    color_range = Option()
    phase = Option()
    rank = Option()
    pass_ = Option()
    generation = Option()


@register
class Trend(View):
    """Trend. A statistic per layer over steps."""

    view_name: ClassVar[str] = "trend"

    flag = Option()
    part = Option()
    layers = Option()
    statistic = Option()
    kind = Option()
    steps = Option()
    transform = Option()
    color_range = Option()
    phase = Option()
    rank = Option()
    pass_ = Option()
    positions = Option()
    vector = Option()
    interval = Option()
    smoothing = Option()
    runs = Option()
    compare = Option()
    baseline = Option()
    align = Option()
    hidden = Option()
    ignore_outliers = Option()


@register
class History(View):
    """History. Layer by step, and the tensor at any of them."""

    view_name: ClassVar[str] = "history"

    flag = Option()
    part = Option()
    layers = Option()
    layer = Option()
    step = Option()
    statistic = Option()
    steps = Option()
    sample = Option()
    head = Option()
    transform = Option()
    color_range = Option()
    map_range = Option()
    phase = Option()
    rank = Option()
    pass_ = Option()


@register
class Distribution(View):
    """Distribution. How the values of a tensor are distributed over steps."""

    view_name: ClassVar[str] = "distribution"

    flag = Option()
    part = Option()
    layers = Option()
    tiles = Option()
    kind = Option()
    steps = Option()
    transform = Option()
    color_range = Option()
    phase = Option()
    rank = Option()
    replicas = Option()
    pass_ = Option()


@register
class Statistics(Explorer):
    """Statistics. Statistics of weights, gradients and activations, grouped as you like."""

    view_name: ClassVar[str] = "statistics"

    stat = Option()
    statistic = Option()
    kind = Option()
    by = Option()
    pattern = Option()
    where = Option()
    steps = Option()
    step = Option()
    marks = Option()
    x = Option()
    show = Option()
    ratio = Option()
    transform = Option()
    columns = Option()
    colors = Option()
    cells = Option()
    along = Option()
    color_range = Option()
    smoothing = Option()
    mixed = Option()
    series = Option()
    runs = Option()
    compare = Option()
    align = Option()
    hidden = Option()
    ignore_outliers = Option()
    derive = Option()
    filter = Option()


@register
class Scalars(View):
    """Scalars. Loss and other numbers over steps."""

    view_name: ClassVar[str] = "scalars"

    names = Option()
    steps = Option()
    kind = Option()
    search = Option()
    folded = Option()
    x = Option()
    transform = Option()
    smoothing = Option()
    runs = Option()
    compare = Option()
    baseline = Option()
    aliases = Option()
    align = Option()
    hidden = Option()
    ignore_outliers = Option()


@register
class Health(View):
    """Health. The first thing that went wrong, and all alarms."""

    view_name: ClassVar[str] = "health"

    severity = Option()
    rule = Option()
    steps = Option()
    name = Option()
    step = Option()


@register
class Timeline(View):
    """Timeline. What each rank does in a step, and who makes the others wait."""

    view_name: ClassVar[str] = "timeline"

    ranks = Option()
    kind = Option()
    steps = Option()
    path = Option()
    find = Option()
    hidden = Option()


@register
class Tokens(View):
    """Tokens. What the model writes, and what else it could have written."""

    view_name: ClassVar[str] = "tokens"

    generation = Option()
    other = Option()
    other_run = Option()
    sequence = Option()
    color = Option()
    position = Option()


@register
class Attention(View):
    """Attention. Which tokens each head looks at."""

    view_name: ClassVar[str] = "attention"

    generation = Option()
    sequence = Option()
    step = Option()
    layers = Option()
    heads = Option()
    kind = Option()
    measure = Option()
    position = Option()
    transform = Option()
    color_range = Option()


@register
class Scatter(View):
    """Projection. Vectors of tokens as points of a plane."""

    view_name: ClassVar[str] = "projection"

    flag = Option()
    part = Option()
    layer = Option()
    keep_axes = Option()
    generations = Option()
    method = Option()
    standardise = Option()
    across = Option()
    up = Option()
    neighbors = Option()
    seed = Option()
    color = Option()
    group = Option()
    position = Option()


@register
class Lens(View):
    """Logit lens. What each layer would predict."""

    view_name: ClassVar[str] = "lens"

    generation = Option()
    sequence = Option()
    layers = Option()
    color = Option()
    position = Option()


@register
class Effects(View):
    """Perturbation effects. What a perturbation changed, beside a clean control."""

    view_name: ClassVar[str] = "effects"

    generation = Option()
    sequence = Option()
    kind = Option()
    measure = Option()
    position = Option()
    transform = Option()


@register
class Pipeline(View):
    """Pipeline. What each pipeline stage does in a step, and which schedule would be faster."""

    view_name: ClassVar[str] = "pipeline"

    schedule = Option()
    kind = Option()
    stages = Option()
    micro_batches = Option()
    chunks = Option()
    forward = Option()
    input_gradient = Option()
    weight_gradient = Option()
    optimizer = Option()
    latency = Option()
    bandwidth = Option()
    jitter = Option()
    message_mb = Option()
    activation_mb = Option()
    weight_mb = Option()
    memory_gb = Option()
    steps = Option()
    measured = Option()
    hidden = Option()


@register
class Split(View):
    """Split. Forward and backward in different processes: which does what, and whether it is worth it."""

    view_name: ClassVar[str] = "split"

    layout = Option()
    kind = Option()
    rank_map = Option()
    tensor = Option()
    pipeline = Option()
    data = Option()
    forward_tensor = Option()
    last_forward = Option()
    devices = Option()
    others = Option()
    forward = Option()
    backward = Option()
    others_slower = Option()
    micro_batches = Option()
    model_layers = Option()
    most_tensor = Option()
    ahead = Option()
    latency = Option()
    bandwidth = Option()
    message_mb = Option()
    activation_mb = Option()
    weight_mb = Option()
    state_mb = Option()
    memory_gb = Option()
    others_memory_gb = Option()
    uncertainty = Option()
    steps = Option()
    measured = Option()
    hidden = Option()


VIEW_CLASSES: dict[str, type[View]] = {
    "overview": Overview,
    "heatmap": Heatmap,
    "trend": Trend,
    "history": History,
    "distribution": Distribution,
    "statistics": Statistics,
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
