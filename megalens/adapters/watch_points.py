"""Makes trace points of what a watched pass has shown: confirms, corrects, adds or refuses, flag by flag."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..protocol import EMBEDDING, layer_name
from ..protocol.ranges import join_numbers
from ..tracer import FLAGS, FlagPoints, ModelPoints, Source
from ..tracer.points import PointRow
from .adapter import input_tokens
from .feature_parts import FeatureParts, ranges
from .sizes import canonical, has_weight, stored, unwrapped
from .structure import probabilities_missing
from .table import sites_of
from .watch_flow import Flow
from .watch_layer import LayerSeen
from .watch_sources import Finding, LayerFinder
from .watch_trail import Call, NotSeen, Seen, gathered

_IDLE = "Its layer was not called in the pass that was watched."


def seen_points(
    points: ModelPoints, flow: Flow, calls: Sequence[Call], adapter: Any, changed: set[tuple[str, int]]
) -> ModelPoints:
    """Return ``points`` as the pass has shown them; adds to ``changed`` the flags and layers that are not as
    they were supposed.
    """
    names = module_names(points.roots)
    body = unwrapped(points.roots[0])
    by_module: dict[nn.Module, list[Call]] = {}
    for call in calls:
        by_module.setdefault(call.module, []).append(call)
    layers = {n: sources[0].module for n, sources in points.flags["HiddenStates"].layers.items() if sources}
    for module in layers.values():
        if module not in by_module and (whole := gathered(module, calls)) is not None:
            by_module[module] = [whole]
    seen = {
        # A call that raised, which the model caught, shows nothing.
        n: LayerSeen(flow, calls, next((c for c in by_module[m] if c.gave), by_module[m][0]), names)
        for n, m in layers.items()
        if m in by_module
    }
    found: dict[str, dict[int, Finding]] = {flag: {} for flag in points.flags}
    reasons: dict[str, dict[int, str]] = {flag: {} for flag in points.flags}
    heads = set[tuple[int, int]]()
    for number, module in layers.items():
        if number not in seen:
            for flag in points.flags:
                reasons[flag][number] = _IDLE
            continue
        hints = {flag: here.layers.get(number, ()) for flag, here in points.flags.items()}
        beside = [seen[each] for each in (number - 1, number + 1) if each in seen]
        layer = LayerFinder(seen[number], hints, by_module[module], beside, by_module)
        for flag in layer.finders.keys() & points.flags.keys():
            try:
                found[flag][number] = layer.checked(flag, layer.finders[flag]())
            except NotSeen as error:
                reasons[flag][number] = probabilities_missing(body, flag) or str(error)
            except Exception as error:  # Of one flag: the others are still known.
                reasons[flag][number] = f"What was seen could not be understood ({error!r:.200})."
        if (counts := layer.heads()) is not None:
            heads.add(counts)
    if "InputTokens" in points.flags:
        found["InputTokens"] = _tokens(points, flow, calls, adapter is not None)
        reasons["InputTokens"] = {}
    flags = {
        flag: _flag(flag, here, found[flag], reasons[flag], adapter, changed, names)
        for flag, here in points.flags.items()
    }
    return replace(points, flags=flags, model=_model(points, heads), sites=_sites(points, flags, layers))


def _tokens(points: ModelPoints, flow: Flow, calls: Sequence[Call], told: bool) -> dict[int, Finding]:
    """Find the table whose rows what the model is given looks up: the supposed one, or that of most rows.

    The table that a user has ``told`` stays.
    """
    given = {seen.key and seen.key[0] for call in calls if call.module in points.roots for seen in call.given}
    supposed = points.flags["InputTokens"].layers.get(EMBEDDING, ())
    found: list[tuple[bool, bool, int, int, Call, Seen]] = []
    for made, outer in ((made, made.call) for made in flow.made if made.rows and made.call):
        for call in outer.and_outer():
            for at in (seen for seen in call.given if seen.key and seen.key == made.given_key):
                hinted = bool(supposed) and call.module is supposed[0].module
                found.append((at.key[0] in given, hinted, made.rows, -len(found), call, at))
    if told and supposed:
        found = [each for each in found if each[1]]
    unseen = "by names and sizes: it was not seen to be given what the model is given"
    if not found:
        return {EMBEDDING: (tuple(supposed), unseen)} if supposed else {}
    direct, hinted, rows, _, call, at = max(found, key=lambda each: each[:4])
    said = f"its {rows} rows are looked up by what the model is given"
    if direct and not hinted:
        return {EMBEDDING: (input_tokens(call.module, at.item, at.keyword), said)}
    return {EMBEDDING: (tuple(supposed), said if direct and hinted else unseen)} if supposed else {}


def _flag(
    flag: str,
    supposed: FlagPoints,
    found: Mapping[int, Finding],
    reasons: Mapping[int, str],
    adapter: Any,
    changed: set[tuple[str, int]],
    names: Mapping[nn.Module, str],
) -> FlagPoints:
    layers: dict[int, tuple[Source, ...]] = {}
    why = dict(reasons)
    evidence = {}
    for number, (sources, shown) in found.items():
        before = supposed.layers.get(number, ())
        kept = same_sources(before, sources)
        if adapter is not None and before and not kept:
            said, seen = ("; ".join(describe(each, names) for each in those) for those in (before, sources))
            why[number] = (
                f"The adapter {getattr(adapter, 'name', type(adapter).__name__)!r} says that "
                f"{FLAGS[flag].title} are {said}; the watched pass shows {seen} ({shown}). Correct the "
                "adapter, or leave it out."
            )
            continue
        if kept:
            # What was supposed also knows how else a module may get its tokens, as all of a batch in one row.
            pairs = zip(before, sources, strict=True)
            sources = tuple(replace(each, features=seen.features) for each, seen in pairs)
        else:
            changed.add((flag, number))
        layers[number], evidence[number] = sources, shown
    for number, before in supposed.layers.items():
        idle = flag == "HiddenStates" and why.get(number) == _IDLE
        if number in layers or not (idle or (adapter is not None and number not in found)):
            continue
        layers[number] = before
        evidence[number] = f"as supposed: {why.pop(number, 'it was not followed')}"
    for number in supposed.layers.keys() - layers.keys():
        changed.add((flag, number))
        if number in supposed.evidence and number in why:
            why[number] += f" Without gradients it was seen: {supposed.evidence[number]}."
    if layers:
        return FlagPoints(dict(sorted(layers.items())), None, why, evidence)
    reason = next(iter(why.values()), None) or (None if supposed.layers else supposed.reason)
    return FlagPoints({}, reason or "It was not seen in the watched pass.", why)


def describe(source: Source, names: Mapping[nn.Module, str]) -> str:
    """Return in words which tensor a source is, and which of its features each part is."""
    where = names.get(source.module, type(source.module).__name__)
    where += f"[{source.item}]" if source.item else ""
    where += ":input" if source.side == "input" else ""
    if source.split is None:
        return f"{'/'.join(filter(None, source.parts))} = {where}" if source.parts != ("",) else where
    indices = _indices(source)
    if indices is None:
        return f"{'/'.join(source.parts)} of {where}"
    return f"{where}, " + ", ".join(
        f"{part} {ranges(each)}" for part, each in zip(source.parts, indices, strict=True)
    )


def same_sources(one: Sequence[Source], other: Sequence[Source]) -> bool:
    """Return whether what was supposed and what was seen take the same values from the same places."""
    alike = ("module", "side", "item", "parts", "sequence_first", "computed", "sparse", "shards")
    return len(one) == len(other) and all(
        all(getattr(a, name) == getattr(b, name) for name in alike)
        and (b.rows_of is None or a.rows_of is not None)
        and _indices(a, b) == _indices(b)
        for a, b in zip(one, other, strict=True)
    )


def _indices(source: Source, seen: Source | None = None) -> Sequence[Sequence[int]] | None:
    """Return the features of each part, as the split takes them; None where that is not known."""
    if source.split is None:
        return None
    if isinstance(source.split, FeatureParts):
        return source.split.indices
    size = stored(source.module, "out_features")
    if seen is not None and isinstance(seen.split, FeatureParts):
        size = max(size or 0, *(max(part) + 1 for part in seen.split.indices))
    try:
        width = size or sum(each or 0 for each in source.features)
        return tuple(
            tuple(part.flatten().tolist()) for part in source.cut(torch.arange(width).view(1, 1, -1))
        )
    except (RuntimeError, ValueError):
        return None


def module_names(roots: Iterable[nn.Module]) -> dict[nn.Module, str]:
    """Return the dotted paths of all modules, without what only wraps another."""
    names: dict[nn.Module, str] = {}
    for root in roots:
        for path, module in unwrapped(root).named_modules():
            names.setdefault(module, canonical(path))
    return names


def _model(points: ModelPoints, counts: set[tuple[int, int]]) -> Any:
    """Return the description of the model with the numbers of heads that all layers were seen to have."""
    if len(counts) != 1:
        return points.model
    ((heads, kv_heads),) = counts
    return {**points.model, "heads": heads, "kv_heads": kv_heads}


def _sites(points: ModelPoints, flags: Mapping[str, FlagPoints], layers: Mapping[int, nn.Module]) -> Any:
    """Return where perturbations can be done: what was supposed, and what was found besides."""

    def modules(number: int, site: str, *names: str) -> list[nn.Module]:
        before = points.sites[site].layers.get(number, ()) if site in points.sites else ()
        new = [s.module for name in names if name in flags for s in flags[name].layers.get(number, ())]
        return [*before, *new]

    linears = ("QKV_mat_mul", "ContextLayer_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")
    return sites_of(
        weight={
            number: [m for m in modules(number, "weight", *linears) if has_weight(m)] for number in layers
        },
        calculation={number: modules(number, "calculation", "MLP2_mat_mul")[:1] for number in layers},
        system={number: modules(number, "system") for number in layers},
    )


# Shown to people.

_SUPPOSED = "supposed before a forward pass was watched"


def points_table(points: ModelPoints) -> list[PointRow]:
    """Return the rows of all flags of ``points``, those of one flag one after another."""
    names = module_names(points.roots)
    rows: list[PointRow] = []
    for flag, here in points.flags.items():
        alike: dict[tuple[str, str], list[int]] = {}
        for number, sources in here.layers.items():
            said = here.evidence.get(number, _SUPPOSED)
            where = "; ".join(describe(source, names) for source in sources[:4])
            alike.setdefault((_starred(where), _starred(said)), []).append(number)
        for number, reason in here.reasons.items():
            if number not in here.layers:
                alike.setdefault(("", _starred(reason)), []).append(number)
        rows += [PointRow(flag, _range(numbers), *said) for said, numbers in alike.items()]
        if not alike:
            rows.append(PointRow(flag, "", "", here.reason or ""))
    return rows


def _starred(text: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=[.\[:;,) ]|$)", "*", text)


def _range(numbers: Sequence[int]) -> str:
    if min(numbers) < 0:
        return layer_name(min(numbers))
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in join_numbers(numbers))
