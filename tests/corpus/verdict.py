"""What is right, absent with a sentence, wrong, twice there, or missing in silence."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .traced import FLAGS, STATISTICS, Recording
from .witness import Watched

RIGHT, ABSENT, WRONG, TWICE, SILENT = (
    "right",
    "absent with a sentence",
    "wrong",
    "twice there",
    "missing in silence",
)
STAGE = "right, of another stage"
"""A gradient as the optimizer took it, clipped, although it was there unclipped; its label says so."""
BAD = (WRONG, TWICE, SILENT)
_VALUES = {
    "values",
    "labels",
    "source_shape",
    "shape",
    "nan_count",
    "inf_count",
    "compression_error",
    "compressor",
}
_VALUES |= {
    "count",
    "mean",
    "m2",
    "m3",
    "m4",
    "min",
    "max",
    "negative_inf_count",
    "near_zero_count",
    "rounding",
}
_VALUES |= {"samples", "gradient_stage", "loss_scale", "stage"}


@dataclass
class Verdict:
    """Of one watched model: by flag or statistic, how many rows are what, with a sentence for each kind."""

    counts: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    sentences: dict[tuple[str, str], str] = field(default_factory=dict)

    def say(self, what: str, kind: str, sentence: str = "", rows: int = 1) -> None:
        self.counts[what][kind] += rows
        if sentence:
            self.sentences.setdefault((what, kind), sentence)

    def worst(self, what: str) -> str | None:
        """Return the worst that is said of a flag; None where there is nothing of it."""
        return next(
            (kind for kind in (WRONG, TWICE, SILENT, ABSENT, STAGE, RIGHT) if self.counts[what].get(kind)),
            None,
        )


def judge(watched: Watched, recording: Recording, *, stacks: bool) -> Verdict:
    """Compare a recording with what was seen of the same training in a plain run.

    ``stacks``: the model has several lists of layers, whose numbers in the recording are found by their
    values.
    """
    verdict = Verdict()
    _tensors(verdict, watched, recording, stacks)
    _gradients(verdict, watched, recording)
    for row, array in recording.arrays:
        if not same(np.asarray(row["values"], np.float32), torch.from_numpy(array.reshape(-1))):
            verdict.say(row["flag"], WRONG, "run.array gives other values than the row has")
    return verdict


def same(found: Any, expected: Tensor) -> bool:
    """Return whether values are equal to the bit, or to a millionth of the largest, non-finite ones in the
    same places.
    """
    a, b = np.asarray(found, np.float32).reshape(-1), expected.detach().float().reshape(-1).numpy()
    if a.size != b.size:
        return False
    if np.array_equal(a, b, equal_nan=True):
        return True
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return False
    most = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    return bool(np.all(np.abs(a[finite] - b[finite]) <= 1e-6 * most))


# Tensors


def _tensors(verdict: Verdict, watched: Watched, recording: Recording, stacks: bool) -> None:
    once(verdict, recording.rows, "flag")
    rows = [row for row in recording.rows if row["phase"] == "train"]
    layers = _layers(watched, rows) if stacks else {}
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        layer = layers.get(row["layer"], row["layer"])
        found[row["step"], row["micro_batch"], row["pass"], row["flag"], layer, row["part"]].append(row)
    for number, step in watched.steps.items():
        for micro_batch, here in enumerate(step.micro_batches):
            for way, seen in (("forward", here.values), ("backward", here.gradients)):
                for (flag, layer, part), entries in seen.items():
                    if flag == "InputTokens" and way == "backward":
                        continue
                    expected = list(enumerate(entries)) if way == "forward" else entries
                    got = found.pop((number, micro_batch, way, flag, layer, part), [])
                    where = f"step {number}, micro-batch {micro_batch}, {way}, layer {layer} {part}".rstrip()
                    _compare(verdict, flag, where, expected, got, recording)
    for (number, micro_batch, way, flag, layer, part), got in found.items():
        if part != "positions" or not _are_positions(got):
            where = f"step {number}, micro-batch {micro_batch}, {way}, layer {layer} {part}".rstrip()
            verdict.say(flag, WRONG, f"recorded although the script has no such tensor: {where}", len(got))


def _compare(
    verdict: Verdict,
    flag: str,
    where: str,
    expected: Sequence[tuple[int, Tensor]],
    got: Sequence[dict[str, Any]],
    recording: Recording,
) -> None:
    left = list(expected)
    for row in got:
        call = row.get("call")
        fitting = [
            each
            for each in left
            if (call is None or len(got) == 1 or call == each[0]) and _fits(row, each[1])
        ]
        if fitting:
            left.pop(_index(left, fitting[0]))
            verdict.say(flag, RIGHT)
        else:
            verdict.say(
                flag,
                WRONG,
                f"other values: {where}{'' if call is None else f', call {call}'}; "
                f"{_difference(row, expected)}",
            )
    missing = len(expected) - len(got)
    # A pair of models has ids of both; those of one will do.
    if missing > 0 and not (got and flag == "InputTokens"):
        sentence = reason(flag, recording)
        verdict.say(
            flag,
            ABSENT if sentence else SILENT,
            sentence or f"{missing} of {len(expected)}: {where}",
            missing,
        )


def _index(entries: Sequence[tuple[int, Tensor]], entry: tuple[int, Tensor]) -> int:
    return next(at for at, each in enumerate(entries) if each is entry)


def _fits(row: Mapping[str, Any], tensor: Tensor) -> bool:
    # A stage may have positions in two axes, as pictures have.
    return same(row["values"], tensor) and (not row["shape"] or row["shape"][-1] == tensor.shape[-1])


def _difference(row: Mapping[str, Any], expected: Sequence[tuple[int, Tensor]]) -> str:
    if not expected:
        return "there is none"
    tensor = expected[0][1]
    if np.prod(row["shape"]) != tensor.numel():
        return f"shape {row['shape']}, and {list(tensor.shape)} was seen"
    off = np.abs(np.asarray(row["values"], np.float32) - tensor.float().reshape(-1).numpy()).max()
    return f"off by up to {off:.3g} of {tensor.float().abs().max():.3g}"


def _are_positions(rows: Iterable[Mapping[str, Any]]) -> bool:
    return all(
        list(row["values"]) == list(range(row["shape"][-1])) * (len(row["values"]) // row["shape"][-1])
        for row in rows
    )


def _layers(watched: Watched, rows: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return by recorded number the script's number of the layer whose values it has, each once and in
    order of the number.
    """
    first = next((step.micro_batches[0].values for step in watched.steps.values() if step.micro_batches), {})
    step = min((number for number, each in watched.steps.items() if each.micro_batches), default=0)
    layers: dict[int, int] = {}
    at_hand = [
        row for row in rows if row["step"] == step and row["micro_batch"] == 0 and row["pass"] == "forward"
    ]
    for number in sorted({row["layer"] for row in rows} - {-1}):
        own = [row for row in at_hand if row["layer"] == number]
        scores = {
            layer: sum(
                any(_fits(row, each) for each in first.get((row["flag"], layer, row["part"]), ()))
                for row in own
            )
            for layer in sorted({layer for _, layer, _ in first} - {-1} - set(layers.values()))
        }
        best = max(scores, key=lambda layer: scores[layer], default=None)
        layers[number] = best if best is not None and scores[best] else 1000 + number
    return layers


# Gradients and parameters


def _gradients(verdict: Verdict, watched: Watched, recording: Recording) -> None:
    once(verdict, [row for row in recording.moments if row["stat"] in STATISTICS], "stat")
    names = _canonical(watched.names.values(), {row["name"] for row in recording.moments})
    found = {
        (row["stat"], row["step"], names.get(row["name"], row["name"])): row
        for row in recording.moments
        if row["stat"] in STATISTICS
    }
    for number, step in watched.steps.items():
        for name, parameter in step.parameters.items():
            row = found.pop(("param", number, name), None)
            _statistic(verdict, "param", f"step {number}, {name}", row, [("", parameter)], recording)
        for name, stages in step.gradients.items():
            row = found.pop(("grad", number, name), None)
            if row is not None:
                allowed, clipped = (
                    _of_stage(row["gradient_stage"], stages),
                    any(stage == "reduced" for stage, _ in stages),
                )
                _statistic(
                    verdict, "grad", f"step {number}, {name}", row, allowed, recording, clipped=clipped
                )
                _framed(verdict, recording, row)
            elif any(stage != "accumulated" for stage, _ in stages):
                _statistic(verdict, "grad", f"step {number}, {name}", None, stages, recording)
    for (stat, number, name), row in found.items():
        if row["count"] or row["nan_count"] or row["inf_count"]:
            verdict.say(stat, WRONG, f"recorded although there is none: step {number}, {name}")


def _of_stage(stage: str, stages: Sequence[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """Return the gradients that a label may stand for."""
    taken = [each for each in stages if each[0] == "taken"]
    if stage == "pre_clip":
        return [each for each in stages if each[0] == "reduced"] or taken or list(stages)[-1:]
    return taken if stage == "pre_step" else list(stages)


def _statistic(
    verdict: Verdict,
    stat: str,
    where: str,
    row: Mapping[str, Any] | None,
    allowed: Sequence[tuple[str, Tensor]],
    recording: Recording,
    *,
    clipped: bool = False,
) -> None:
    if row is None:
        if allowed and not allowed[-1][1].is_floating_point():
            sentence = next((each for each in recording.warnings if "omplex" in each), None)
        else:
            sentence = reason(stat, recording, where.rpartition(" ")[2])
        verdict.say(stat, ABSENT if sentence else SILENT, sentence or where)
    elif any(agrees(row, tensor) for _, tensor in allowed):
        verdict.say(stat, STAGE if clipped and row["gradient_stage"] != "pre_clip" else RIGHT)
    else:
        label = f" labelled {row['gradient_stage']}" if stat == "grad" else ""
        expected = (
            "; ".join(f"{stage or 'seen'} {_l2(tensor):.6g}" for stage, tensor in allowed[-2:])
            or "none of that stage"
        )
        length = math.sqrt(max(0.0, row["m2"] + row["count"] * row["mean"] ** 2))
        verdict.say(stat, WRONG, f"{where}{label}: l2 {length:.6g}, and there is: {expected}")


def _l2(tensor: Tensor) -> float:
    finite = tensor[torch.isfinite(tensor)] if tensor.is_floating_point() else tensor
    return float(
        torch.linalg.vector_norm(finite.to(torch.complex128 if tensor.is_complex() else torch.float64))
    )


def agrees(row: Mapping[str, Any], tensor: Tensor) -> bool:
    """Return whether a row's count, sum, sum of squares, extremes and numbers of non-finite values are the
    tensor's.
    """
    if not tensor.is_floating_point():
        return False
    values = tensor.double().reshape(-1)
    finite = values[torch.isfinite(values)]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    nan, inf = int(values.isnan().sum()), int(values.isinf().sum())
    if (row["count"], row["nan_count"], row["inf_count"]) != (finite.numel(), nan, inf):
        return False
    if not finite.numel():
        return True
    count, mean = row["count"], row["mean"]
    squares = row["m2"] + count * mean * mean
    return (
        math.isclose(mean, float(finite.mean()), rel_tol=1e-6, abs_tol=1e-6 * largest)
        and math.isclose(squares, float((finite * finite).sum()), rel_tol=1e-6, abs_tol=1e-30)
        and math.isclose(row["min"], float(finite.min()), rel_tol=1e-6, abs_tol=1e-30)
        and math.isclose(row["max"], float(finite.max()), rel_tol=1e-6, abs_tol=1e-30)
    )


def _framed(verdict: Verdict, recording: Recording, row: Mapping[str, Any]) -> None:
    """Check that ``run.moments`` says of one tensor what its row says."""
    frame = recording.framed.get((row["step"], row["name"]))
    length = math.sqrt(max(0.0, row["m2"] + row["count"] * row["mean"] ** 2))
    if frame is None or (row["count"] and not math.isclose(frame["l2"], length, rel_tol=1e-9)):
        verdict.say(
            "grad", WRONG, f"run.moments says otherwise than the row: step {row['step']}, {row['name']}"
        )


_NUMBERED = re.compile(r"^(.*?)(?:^|\.)(\d+)\.(.+)$")


def _canonical(own: Iterable[str], recorded: Iterable[str]) -> dict[str, str]:
    """Return by recorded name the parameter's own one. Where the own one does not say that a number is a
    layer's, they differ by what stands before the number, or by words of wrappers.
    """
    names = {
        re.sub(r"(^|\.)(_orig_mod|_checkpoint_wrapped_module|module|base_layer)(?=\.)", "", name).lstrip(
            "."
        ): name
        for name in own
    }
    by_end: dict[tuple[str, str], list[str]] = defaultdict(list)
    for short, name in names.items():
        if match := _NUMBERED.match(short):
            by_end[match[2], match[3]].append(name)
    found = {}
    for name in recorded:
        match = _NUMBERED.match(name)
        if name in names:
            found[name] = names[name]
        elif match and len(by_end[match[2], match[3]]) == 1:
            found[name] = by_end[match[2], match[3]][0]
    return found


# Sentences and keys


_WORDS = {
    "QKV_mat_mul": r"QKV|[Qq]ueries",
    "RawAttentionScore_mat_mul": r"RawAttention|[Pp]robabilities",
    "ContextLayer_mat_mul": r"ContextLayer|[Cc]ontext",
    "AttentionOutput_mat_mul": r"AttentionOutput|[Aa]ttention output",
    "MLP1_mat_mul": r"MLP1",
    "MLP2_mat_mul": r"MLP2",
    "HiddenStates": r"HiddenStates|[Hh]idden states",
    "InputTokens": r"InputTokens|[Ii]nput tokens",
    "grad": r"[Gg]radient",
    "param": r"[Pp]arameter|[Ww]eight",
}


def reason(what: str, recording: Recording, name: str = "") -> str | None:
    """Return the sentence that says why there is nothing: of the flag, or of tracing this model at all."""
    if what in FLAGS and recording.refused:
        return recording.refused
    if said := recording.refusals.get(what) or recording.reasons.get(what):
        return said
    return next(
        (each for each in recording.warnings if re.search(_WORDS[what], each) or (name and name in each)),
        None,
    )


def once(verdict: Verdict, rows: Iterable[Mapping[str, Any]], of: str) -> None:
    """Check that no two rows have one key: all columns that are no values."""
    seen: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows:
        seen[
            tuple(
                (name, row[name]) for name in sorted(row) if name not in _VALUES and not name.endswith("time")
            )
        ] += 1
    for key, count in seen.items():
        if count > 1:
            named = dict(key)
            where = ", ".join(f"{name} {named[name]}" for name in named if name not in ("rank", "phase", of))
            verdict.say(named[of], TWICE, f"{count} rows of {where}", count - 1)
