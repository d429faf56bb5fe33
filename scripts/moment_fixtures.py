"""Golden cases of moments, of trends of whole tensors and of tensor names: what every implementation must give, from exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

__all__ = ["merge_cases", "moment_row", "name_cases", "plain", "raw_cases", "statistics_of", "trend_cases"]

NAN = math.nan
_OF_VALUES = (
    *("mean", "variance", "std", "l2", "rms", "skewness", "kurtosis", "excess_kurtosis"),
    *("min", "max", "near_zero_share"),
)
Number = float | str


def moment_row(values: Sequence[float], *, nan: int = 0, inf: int = 0, negative: int = 0) -> dict[str, float]:
    """The moments of finite values, correctly rounded; ``negative`` of the ``inf`` infinite ones are."""
    exact = [Fraction(value) for value in values]
    n = len(exact)
    mean = sum(exact, Fraction()) / n if n else None
    central = {
        f"m{power}": float(sum(((value - mean) ** power for value in exact), Fraction()))
        if mean is not None
        else 0.0
        for power in (2, 3, 4)
    }
    return {
        "count": float(n),
        "mean": NAN if mean is None else float(mean),
        **central,
        "min": min(values, default=NAN),
        "max": max(values, default=NAN),
        "nan_count": float(nan),
        "inf_count": float(inf),
        "negative_inf_count": float(negative),
        "near_zero_count": _near_zero(values),
        "rounding": 0.0,
    }


def statistics_of(values: Sequence[float], *, nan: int = 0, inf: int = 0) -> dict[str, float]:
    """Every statistic of finite values, from their exact sums."""
    exact = [Fraction(value) for value in values]
    n = len(exact)
    near = _near_zero(values)
    counts = {"count": float(n), "nan_count": float(nan), "inf_count": float(inf), "near_zero_count": near}
    if n + nan + inf:
        counts["near_zero_share"] = near / (n + nan + inf)
    if not n:
        return {**dict.fromkeys(_OF_VALUES, NAN), **counts}
    mean = sum(exact) / n
    c2, c3, c4 = (sum(((value - mean) ** power for value in exact), Fraction()) / n for power in (2, 3, 4))
    squares = sum((value**2 for value in exact), Fraction())
    kurtosis = c4 / c2**2 if c2 else None
    return {
        "mean": float(mean),
        "variance": float(c2),
        "std": _root(c2),
        "l2": _root(squares),
        "rms": _root(squares / n),
        "skewness": math.copysign(_root(c3**2 / c2**3), c3) if c2 else NAN,
        "kurtosis": NAN if kurtosis is None else float(kurtosis),
        "excess_kurtosis": NAN if kurtosis is None else float(kurtosis - 3),
        "min": min(values),
        "max": max(values),
        **counts,
    }


def _near_zero(values: Sequence[float]) -> float:
    return float(sum(abs(value) < 1e-8 for value in values))


def merge_cases() -> list[dict[str, Any]]:
    """Rows by group, and what each group's statistics are."""
    far = [1e4 + x for x in (-1.5, -0.5, 0.25, 1.75)]
    cases: list[tuple[str, dict[str, list[tuple[list[float], int, int]]]]] = [
        ("One row is its own group.", {"a": [([1, 2, 3, 4], 0, 0)], "b": [([0, 0, 0, 1], 0, 0)]}),
        ("Pieces of one tensor.", {"a": [([1, 2], 0, 0), ([3], 0, 0), ([4, 5, 6], 0, 0)]}),
        (
            "Tensors of other sizes are pooled value by value.",
            {"a": [([-1, 1, -1, 1], 0, 0), ([-10, 10, -10, 10], 0, 0)]},
        ),
        ("What lies between the means counts.", {"a": [([0, 2], 0, 0), ([10, 12], 0, 0)]}),
        ("A small spread far from zero.", {"a": [(far[:2], 0, 0), (far[2:], 0, 0)]}),
        (
            "Values that are all the same have no skewness and no kurtosis.",
            {"a": [([2, 2], 0, 0), ([2, 2], 0, 0)]},
        ),
        (
            "Nor where the mean of such parts is not exact.",
            {"a": [([0.1] * 3, 0, 0), ([0.1] * 7, 0, 0), ([0.1] * 11, 0, 0)]},
        ),
        ("Zeros are data.", {"a": [([0.0] * 5, 0, 0)]}),
        ("A row without data is not zero.", {"a": [([3], 0, 0), ([], 0, 0)], "b": [([], 0, 0)]}),
        (
            "Non-finite values are counted beside the finite ones.",
            {"a": [([1, 2], 2, 0), ([], 0, 3)], "b": [([5], 0, 0)]},
        ),
        ("One outlier among many.", {"a": [([0.0] * 999, 0, 0), ([1000.0], 0, 0)]}),
        ("Gradients far below one.", {"a": [([1e-12, -3e-12], 0, 0), ([4e-12], 0, 0)]}),
        ("Large values.", {"a": [([1e30, -2e30], 0, 0), ([5e30], 0, 0)]}),
        (
            "A share is the mean of ones and zeros.",
            {"a": [([1.0] * 3 + [0.0] * 61, 0, 0), ([0.0] * 7, 0, 0), ([1.0] + [0.0] * 28, 0, 0)]},
        ),
    ]
    found = [about_zero()]
    for doc, groups in cases:
        rows, expected = [], []
        for name, parts in groups.items():
            rows += [{"group": name, **moment_row(v, nan=nan, inf=inf)} for v, nan, inf in parts]
            pooled = [value for values, _, _ in parts for value in values]
            nan, inf = (sum(part[place] for part in parts) for place in (1, 2))
            expected.append({"group": name, **statistics_of(pooled, nan=nan, inf=inf)})
        found.append({"doc": doc, "rows": plain(rows), "expected": plain(expected)})
    return found


def about_zero() -> dict[str, Any]:
    """Rows of which one says the sum of squares and no mean: the size of all is known, and no spread."""
    values = [3.0, -4.0, 1.0, 2.0]
    known, other = moment_row(values[2:]), moment_row(values[:2])
    other |= {"mean": NAN, "m2": 25.0, "m3": NAN, "m4": NAN}
    whole = statistics_of(values)
    lost = dict.fromkeys(
        ("mean", "variance", "std", "skewness", "kurtosis", "excess_kurtosis", "m2", "m3", "m4"), NAN
    )
    whole |= {name: value for name, value in lost.items() if name in whole}
    return {
        "doc": "Where a mean is not known, moments are about zero and say the size.",
        "rows": plain([{"group": "a", **known}, {"group": "a", **other}]),
        "expected": plain([{"group": "a", **whole}]),
    }


def raw_cases() -> list[dict[str, Any]]:
    """Raw sums, the row that they become, and its statistics."""
    inf = math.inf
    cases: list[tuple[str, list[float]]] = [
        ("Four numbers.", [4, 10, 30, 100, 354]),
        ("All the same.", [4, 8, 16, 32, 64]),
        ("No data.", [0, 0, 0, 0, 0]),
        ("A negative mean.", [4, -5, 67, -509, 4099]),
        ("A NaN among the values: nothing is known but how many there are.", [8, NAN, NAN, NAN, NAN]),
        ("Every sum infinite.", [8, inf, inf, inf, inf]),
        ("Only the last sum overflowed.", [4, 10, 30, 100, inf]),
        ("Rounding made the spread negative.", [4, 8, 16 - 1e-12, 32, 64]),
    ]
    found = []
    for doc, sums in cases:
        n, s1, _, s3, _ = sums
        row: dict[str, float]
        known = 0.0 if math.isfinite(s1) else NAN
        if all(map(math.isfinite, sums)) and n:
            e = [Fraction(x) for x in sums]
            mean = e[1] / e[0]
            m2 = max(e[2] - e[0] * mean**2, Fraction())
            row = {
                "count": n,
                "mean": float(mean),
                "m2": float(m2),
                "m3": float(e[3] - 3 * mean * e[2] + 2 * e[0] * mean**3),
                "m4": float(e[4] - 4 * mean * e[3] + 6 * mean**2 * e[2] - 3 * e[0] * mean**4),
            }
        elif not n:
            row = {"count": 0.0, "mean": NAN, "m2": 0.0, "m3": 0.0, "m4": 0.0}
        elif math.isfinite(s3):
            row = {"count": n, "mean": s1 / n, "m2": 5.0, "m3": 0.0, "m4": inf}
        else:
            row = {"count": n, "mean": s1 / n, "m2": NAN, "m3": NAN, "m4": NAN}
        row |= {"min": NAN, "max": NAN, "nan_count": known, "inf_count": known, "negative_inf_count": known}
        row["near_zero_count"] = NAN if n else 0.0
        found.append(
            {
                "doc": doc,
                "sums": plain(dict(zip(("count", "sum_1", "sum_2", "sum_3", "sum_4"), sums, strict=True))),
                "row": plain(row),
            }
        )
    return found


_NAMES = {
    "decoder.layers.0.self_attention.linear_qkv.weight": (0, "decoder.layers", "self_attention.linear_qkv.weight", None, None),
    "decoder.layers.11.mlp.linear_fc1/output0": (11, "decoder.layers", "mlp.linear_fc1.output0", "output", None),
    "decoder.layers.3.mlp.experts.linear_fc1.weight12": (3, "decoder.layers", "mlp.experts.linear_fc1.weight", None, 12),
    "decoder.layers.3.mlp.experts.linear_fc2.bias0": (3, "decoder.layers", "mlp.experts.linear_fc2.bias", None, 0),
    "decoder.layers.3.mlp.experts.local_experts.7.linear_fc2.weight": (3, "decoder.layers", "mlp.experts.local_experts.linear_fc2.weight", None, 7),
    "decoder.layers.3.mlp.experts.local_experts.7.linear_fc2/input0": (3, "decoder.layers", "mlp.experts.local_experts.linear_fc2.input0", "input", 7),
    "decoder.layers.3.mlp.shared_experts.linear_fc1.weight": (3, "decoder.layers", "mlp.shared_experts.linear_fc1.weight", None, None),
    "model.layers.5.block_sparse_moe.experts.3.w1.weight": (5, "model.layers", "block_sparse_moe.experts.w1.weight", None, 3),
    "decoder.layers.0/output0": (0, "decoder.layers", "output0", "output", None),
    "decoder.layers.3.mlp.linear_fc1/input0/activation:float8_e4m3fn": (3, "decoder.layers", "mlp.linear_fc1.input0.activation:float8_e4m3fn", "input", None),
    "decoder.layers.3.mlp.experts.linear_fc1.weight12/param:mxfp8": (3, "decoder.layers", "mlp.experts.linear_fc1.weight.param:mxfp8", None, 12),
    "decoder.layers.4/residual:bfloat16": (4, "decoder.layers", "(layer).residual:bfloat16", None, None),
    "residual:bfloat16": (None, "(global)", "residual:bfloat16", None, None),
    "decoder/input0": (None, "(global)", "decoder.input0", "input", None),
    "embedding.word_embeddings.weight": (None, "(global)", "embedding.word_embeddings.weight", None, None),
    "embedding/output0": (None, "(global)", "embedding.output0", "output", None),
    "output_layer.weight": (None, "(global)", "output_layer.weight", None, None),
    "transformer.h.2.attn.c_attn.weight": (2, "transformer.h", "attn.c_attn.weight", None, None),
    "encoder.0.weight": (0, "encoder", "weight", None, None),
    "layers.4": (4, "layers", "(layer)", None, None),
    "h.0.mlp.0.weight": (0, "h", "mlp.0.weight", None, None),
    "swin.layers.1.blocks.2.attn": (1, "swin.layers", "blocks.2.attn", None, None),
    "multihead_layers.3.weight": (3, "multihead_layers", "weight", None, None),
    "head.1.weight": (None, "(global)", "head.1.weight", None, None),
    "adapters.2.down.weight": (None, "(global)", "adapters.2.down.weight", None, None),
    "mtp.layers.0.mtp_model_layer.layers.1.mlp.weight": (1, "mtp.layers.0.mtp_model_layer.layers", "mlp.weight", None, None),
    "net.3.weight": (None, "(global)", "net.3.weight", None, None),
    "0.weight": (None, "(global)", "0.weight", None, None),
    "weight": (None, "(global)", "weight", None, None),
    "input0": (None, "(global)", "input0", "input", None),
    "decoder.layers.0.output_layer/input": (0, "decoder.layers", "output_layer.input", "input", None),
    "decoder.layers.0.Größe.weight": (0, "decoder.layers", "Größe.weight", None, None),
    "decoder.layers.1234567890.weight": (None, "(global)", "decoder.layers.1234567890.weight", None, None),
    "decoder..layers.1.weight": (1, "decoder..layers", "weight", None, None),
    "": (None, "(global)", "", None, None),
}  # fmt: skip


def name_cases() -> list[dict[str, Any]]:
    """Names and what they say: layer, stack, item type, role, expert; the rest follows from the item type."""
    found = []
    for name, (layer, stack, item_type, role, expert) in _NAMES.items():
        parts = item_type.split(".")
        found.append(
            {
                "name": name,
                "layer": layer,
                "stack": stack,
                "item_type": item_type,
                "family": parts[0],
                "kind": parts[-1],
                "module_type": ".".join(parts[:-1]) or None,
                "role": role,
                "expert": expert,
            }
        )
    return found


_OF_WHOLE = ("mean", "std", "rms", "min", "max", "skewness", "kurtosis")
_OF_KEPT = ("mean", "std", "rms", "min", "max")

Row = tuple[int, int, list[float], list[float] | None]
"""Step, layer, what was kept, and the whole tensor where it is known."""


def trend_cases() -> list[dict[str, Any]]:
    """Rows, and each statistic of each step and layer. ``kept`` says that a statistic of whole tensors is of what was kept of them."""
    eight = [3.0, -4.0, 0.0, 5.0, 1.0, 1.0, -2.0, 8.0]
    cases: list[tuple[str, list[Row]]] = [
        ("The whole tensor, not the means of its tiles.", [(1, 0, [-0.5, 2.5, 1.0, 3.0], eight)]),
        (
            "Passes of a step are pooled value by value, and layers are apart.",
            [
                (2, 0, [1.0], [1.0, 1.0, 1.0, 1.0]),
                (2, 1, [-8.0], [-9.0, -7.0]),
                (2, 0, [6.0], [6.0]),
                (3, 0, [0.5], [0.25, 0.75]),
            ],
        ),
        (
            "Non-finite values stay out and are counted.",
            [(1, 0, [math.nan, 2.0], [math.nan, math.inf, 1.0, 3.0])],
        ),
        ("Where nothing is finite there is nothing but a count.", [(1, 0, [math.nan], [math.nan] * 3)]),
        (
            "Where one of the rows does not know its whole, all are of what was kept.",
            [(1, 0, [1.0, 2.0], [0.0, 2.0, 1.0, 3.0]), (2, 0, [4.0, 7.0], None)],
        ),
        ("A small spread far from zero.", [(1, 0, [1e4], [1e4 + x for x in (-1.5, -0.5, 0.25, 1.75)])]),
    ]
    return [_case(doc, rows) for doc, rows in cases]


def _case(doc: str, rows: list[Row]) -> dict[str, Any]:
    known = all(whole is not None for *_, whole in rows)
    places = sorted({(step, layer) for step, layer, *_ in rows})
    expected: dict[str, list[dict[str, Any]]] = {}
    for place in places:
        kept = [value for *at, values, _ in rows if tuple(at) == place for value in values]
        whole = [value for *at, _, values in rows if tuple(at) == place for value in values or ()]
        asked = dict.fromkeys(_OF_WHOLE, whole if known else kept) | {
            f"kept_{name}": kept for name in _OF_KEPT
        }
        if not known:
            # Those of tile means say nothing of a tensor's tails.
            asked |= {"skewness": [], "kurtosis": []}
        for name, values in asked.items():
            found = statistics_of([value for value in values if math.isfinite(value)])[
                name.removeprefix("kept_")
            ]
            _add(expected, name, place, found)
        finite = [value for value in kept if math.isfinite(value)]
        _add(expected, "kept_abs_mean", place, sum(map(abs, finite)) / len(finite) if finite else math.nan)
        of = whole if known else kept
        _add(expected, "nonfinite", place, float(sum(not math.isfinite(value) for value in of)))
    return {"doc": doc, "rows": [_row(*row) for row in rows], "kept": not known, "expected": expected}


def _add(expected: dict[str, list[dict[str, Any]]], name: str, place: tuple[int, int], value: float) -> None:
    (point,) = plain([{"step": place[0], "layer": place[1], "value": value}])
    expected.setdefault(name, []).append(point)


def _row(step: int, layer: int, kept: list[float], whole: list[float] | None) -> dict[str, Any]:
    row: dict[str, Any] = {"step": step, "layer": layer}
    (row["values"],) = [[value if math.isfinite(value) else "NaN" for value in kept]]
    looked = kept if whole is None else whole
    row["nan_count"] = sum(map(math.isnan, looked))
    row["inf_count"] = sum(map(math.isinf, looked))
    if whole is None:
        return {**row, "whole": None}
    moments = moment_row([value for value in whole if math.isfinite(value)])
    named = {name: moments[name] for name in ("count", "mean", "m2", "m3", "m4", "min", "max")}
    return {**row, "whole": plain([named])[0]}


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as text."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _root(value: Fraction) -> float:
    with localcontext() as context:
        context.prec = 50
        return float((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())
