"""Lines of TrainerMon's files as rows of the stream ``moments``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ....protocol import MOMENT_COLUMNS, merge_moments, stream_schema
from ..jsonl.tree import StatisticsTree
from .files import KINDS, read_csv_table

Column = NDArray[np.float64]

# Statistics of complete models: file, column, name here, and suffix of the module's name.
_FEATURES = {
    "attention_hook": ({"entropy": "attention_entropy", "softmax_max": "attention_max"}, ".attention"),
    "linear_hook": ({"sr": "stable_rank", "kernel_norm": "kernel_norm"}, ".linear"),
    "moe_router_weight_hook": ({"router_weight_similarity": "router_similarity"}, ".moe_router"),
    "moe_router_logit_hook": ({"per_token_expert_entropy": "router_entropy"}, ".moe_router"),
}
# Files and scopes of Monitor V2, as the kinds of the first layout.
_SCOPES = {
    ("module", "forward"): "actv",
    ("module", "backward"): "actv_grad",
    ("weight_grad", "unreduced"): "grad_unreduced",
    ("weight_grad", "reduced"): "grad_reduced",
    ("optimizer", "exp_avg"): "exp_avg",
    ("optimizer", "exp_avg_sq"): "exp_avg_sq",
    ("param", "param_origin"): "param_origin",
    ("param", "param_updated"): "param_updated",
}
_END = re.compile(r"(.*?)\.?(input|output)(?:_(\d{1,9}))?")
_INTEGER = r"(?:^|\.)(?:u?int\d+|bool)$"
# Files have six decimals unless their writer was configured otherwise.
_HALF_UNIT = 5e-7


def moment_tables(kind: str, rank: int, lines: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a file's lines, one statistic after the other.

    The norm is the size of all values, the mean theirs: together they give M2; the norm alone gives the size,
    as a row with a NaN mean. The shape gives the count; lines without one are left out, as are tensors of
    whole numbers (token ids) and what was no tensor. Micro-batches of a step are merged; of gradients, which
    accumulate, the last one counts.
    """
    if "scope" in lines.column_names:
        lines = lines.rename_columns(
            ["name" if name == "module_name" else name for name in lines.column_names]
        )
        for (file, scope), first in _SCOPES.items():
            if file == kind:
                yield from moment_tables(
                    first, rank, lines.filter(pc.equal(lines["scope"], scope)).drop_columns(["scope"])
                )
        return
    if {"name", "step"} - {*lines.column_names} or not lines.num_rows:
        return
    if kind in _FEATURES:
        columns, suffix = _FEATURES[kind]
        for column, stat in columns.items():
            if column in lines.column_names:
                values = lines[column].to_numpy().astype(np.float64)
                # Theirs is ‖W‖ over the largest singular value; the stable rank is its square.
                values = values**2 if stat == "stable_rank" else values
                yield _rows(stat, rank, lines, _numbers(values), suffix)
    elif kind in KINDS and "shape" in lines.column_names:
        keep = pc.and_(_sizes(lines["shape"]) > 0, _no_ids(lines))
        known = lines.filter(keep)
        if known.num_rows:
            yield _rows(KINDS[kind], rank, known, _moments(known))


def _no_ids(lines: pa.Table) -> pa.Array:
    if "dtype" not in lines.column_names:
        return pa.array(np.ones(lines.num_rows, bool))
    return pc.invert(pc.match_substring_regex(pc.fill_null(lines["dtype"], ""), _INTEGER)).combine_chunks()


def _sizes(shapes: pa.ChunkedArray) -> Column:
    """Return the number of values of each shape; 0 where the text is no shape."""
    coded = pc.dictionary_encode(pc.fill_null(shapes, "")).combine_chunks()
    sizes = np.array([_size(text) for text in coded.dictionary.to_pylist()], np.float64)
    return sizes[coded.indices.to_numpy()] if len(sizes) else np.zeros(0)


def _size(text: str) -> float:
    if not re.fullmatch(r"\[(\d{1,12}(, ?\d{1,12})*)?\]", text):
        return 0.0
    return float(np.prod([float(each) for each in re.findall(r"\d+", text)], initial=1.0))


def _moments(lines: pa.Table) -> dict[str, Column]:
    n = lines.num_rows
    size = _sizes(lines["shape"])

    def of(name: str) -> Column:
        unknown = np.full(n, np.nan)
        return lines[name].to_numpy().astype(np.float64) if name in lines.column_names else unknown

    norm, mean, low, high, nans, zeros = (
        of(name) for name in ("norm", "mean", "min", "max", "nans", "zeros")
    )
    # A NaN among the values makes each of them NaN, an infinity makes norm or mean infinite.
    clean = np.isfinite(norm) | np.isfinite(mean) | (np.isfinite(low) & np.isfinite(high))
    nan_count = np.where(clean, 0.0, nans)
    inf_count = np.where(clean, 0.0, np.nan)
    count = np.where(np.isnan(nan_count), size, size - nan_count)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        mean = np.where(clean & np.isfinite(mean), mean, np.nan)
        squares = np.where(clean & np.isfinite(norm), norm * norm, np.nan)
        m2 = np.where(np.isnan(mean), squares, np.maximum(squares - count * mean * mean, 0))
        rounding = np.where(norm > 0, np.minimum(1.0, 2 * _HALF_UNIT / norm), 0.0)
    return {
        "count": count,
        "mean": mean,
        "m2": m2,
        "m3": np.full(n, np.nan),
        "m4": np.full(n, np.nan),
        "min": np.where(clean, low, np.nan),
        "max": np.where(clean, high, np.nan),
        "nan_count": nan_count,
        "inf_count": inf_count,
        "negative_inf_count": inf_count.copy(),
        "near_zero_count": np.where(clean, np.rint(zeros * size), np.nan),
        "rounding": rounding,
    }


def _numbers(values: Column) -> dict[str, Column]:
    finite = np.isfinite(values)
    known = np.where(finite, values, np.nan)
    zero = np.where(finite, 0.0, np.nan)
    return {
        "count": finite.astype(np.float64),
        **{"mean": known, "m2": zero, "m3": zero, "m4": zero, "min": known, "max": known},
        "nan_count": np.isnan(values).astype(np.float64),
        "inf_count": np.isinf(values).astype(np.float64),
        "negative_inf_count": np.isneginf(values).astype(np.float64),
        "near_zero_count": (np.abs(values) < 1e-8).astype(np.float64),
        "rounding": np.zeros(len(values)),
    }


def _rows(
    stat: str, rank: int, lines: pa.Table, moments: dict[str, Column], suffix: str | None = None
) -> pa.Table:
    """Return the rows of the stream, ordered by step, one for each tensor of a step."""
    n = lines.num_rows
    chunk = _integers(lines, "vpp_stage", 0)
    coded = pc.dictionary_encode(pc.fill_null(lines["name"], "")).combine_chunks()
    ids, texts = coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()
    # Chunks of a model have the same names.
    several = chunk.max(initial=0) > 0
    pairs, index = np.unique(np.stack([chunk, ids]), axis=1, return_inverse=True)
    names = [_name(texts[at], suffix, stat, chunk if several else 0) for chunk, at in pairs.T.tolist()]
    step = _integers(lines, "step", 0)
    keys = np.stack([step, index.reshape(-1)])
    unique, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    rounding = moments["rounding"]
    if unique.shape[1] < n:
        if stat.startswith("grad"):
            last = np.zeros(unique.shape[1], np.int64)
            order = np.argsort(_integers(lines, "micro_step", 0), kind="stable")
            last[group[order]] = order
            moments = {name: column[last] for name, column in moments.items()}
            rounding = rounding[last]
        else:
            most = np.zeros(unique.shape[1])
            np.maximum.at(most, group, rounding)
            moments, rounding = merge_moments(moments, group, unique.shape[1]), most
    else:
        order = np.argsort(group)
        moments = {name: column[order] for name, column in moments.items()}
        rounding = rounding[order]
    rows = unique.shape[1]
    gradient = stat.startswith(("grad", "dgrad"))
    named = pa.DictionaryArray.from_arrays(pa.array(unique[1].astype(np.int32)), pa.array(names, pa.utf8()))
    columns = {
        **{name: pa.array(np.ascontiguousarray(moments[name])) for name in MOMENT_COLUMNS},
        "step": pa.array(unique[0]),
        "samples": pa.array(np.full(rows, -1, np.int64)),
        "stat": pa.array([stat]).take(pa.array(np.zeros(rows, np.int32))),
        "name": named.dictionary_decode(),
        "rank": pa.array(np.full(rows, rank, np.int32)),
        "stage": pa.array(np.full(rows, -1, np.int32)),
        "rounding": pa.array(rounding),
        # They are measured before the optimizer's step, where clipping and a loss scale may be in them.
        "gradient_stage": pa.array(["pre_step" if stat == "grad" else ""]).take(
            pa.array(np.zeros(rows, np.int32))
        ),
        "loss_scale": pa.array(np.full(rows, np.nan if gradient else 1.0)),
    }
    schema = stream_schema("moments")
    return pa.table([columns[field.name] for field in schema], schema=schema)


def _integers(lines: pa.Table, name: str, otherwise: int) -> NDArray[np.int64]:
    if name not in lines.column_names:
        return np.full(lines.num_rows, otherwise, np.int64)
    column: NDArray[np.int64] = pc.fill_null(lines[name], otherwise).to_numpy().astype(np.int64)
    return column


def _name(text: str, suffix: str | None, stat: str, chunk: int) -> str:
    """Return a tensor's name here: ``mlp.input_1`` is ``mlp/input1``."""
    name = text
    if suffix is not None:
        name = text.removesuffix(suffix)
    elif stat in ("activation", "dgrad") and (found := _END.fullmatch(text)):
        name = f"{found[1]}/{found[2]}{found[3] or 0}"
    return f"chunk{chunk}.{name}" if chunk > 0 else name


def readings_of(tree: StatisticsTree, kind: str) -> tuple[pa.Table, list[str]]:
    """Return the lines of all files of a kind, kind and rank first, and sentences about what was left out."""
    tables, sentences = [], []
    for file in tree.files():
        if file.kind == kind:
            table, problems = read_csv_table(file.path)
            sentences += problems
            if table.num_rows:
                rows = table.num_rows
                table = table.add_column(0, "kind", pa.array([kind]).take(pa.array([0] * rows)))
                tables.append(table.add_column(1, "rank", pa.array([file.rank] * rows, pa.int32())))
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({}), sentences
