"""Statistics of gradients, parameters and what goes through modules, against what was seen."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .traced import STATISTICS, Recording
from .verdict import ABSENT, FIRST, RIGHT, SILENT, STAGE, WATCHED, WRONG, Verdict, once, reason
from .witness import END, Step, Watched

# What a module of such a name gives are logits, which are documented not to be measured.
_LOGITS = ("head", "lm_head", "output_layer", "embed_out")


def compare_statistics(verdict: Verdict, watched: Watched, recording: Recording, stacks: bool) -> None:
    rows = [row for row in recording.moments if row["stat"] in STATISTICS]
    once(verdict, rows, "stat")
    own = [*watched.names.values(), *{part for step in watched.steps.values() for part in step.ends}]
    names = _canonical(own, {row["name"] for row in rows})
    found = {(row["stat"], row["step"], names.get(row["name"], row["name"])): row for row in rows}
    for number, step in watched.steps.items():
        for name, parameter in step.parameters.items():
            row = found.pop(("param", number, name), None)
            _statistic(verdict, "param", f"step {number}, {name}", row, [("", parameter)], recording)
        for name, stages in step.gradients.items():
            row = found.pop(("grad", number, name), None)
            where = f"step {number}, {name}"
            if row is not None:
                allowed = _of_stage(row["gradient_stage"], stages)
                clipped = any(stage == "reduced" for stage, _ in stages)
                _statistic(verdict, "grad", where, row, allowed, recording, clipped=clipped)
                _framed(verdict, recording, row)
            elif any(stage != "accumulated" for stage, _ in stages):
                _statistic(verdict, "grad", where, None, stages, recording)
        for (stat, name), tensor in _of_modules(step).items():
            row = found.pop((stat, number, name), None)
            if row is not None or name.rpartition("/")[0].rpartition(".")[2] not in _LOGITS:
                _statistic(verdict, stat, f"step {number}, {name}", row, [("", tensor)], recording)
        _residuals(verdict, number, step, found, recording, stacks)
    for (stat, number, name), row in found.items():
        # Gradients at inputs are those of one module alone, which no plain hook tells.
        told = not (name.endswith("/input0") and stat != "activation")
        if told and (row["count"] or row["nan_count"] or row["inf_count"]):
            verdict.say(stat, WRONG, f"recorded although there is none: step {number}, {name}")


def _of_modules(step: Step) -> dict[tuple[str, str], Tensor]:
    """Return by statistic and name what went in and out of each projection and embedding, over all micro-
    batches.
    """
    values: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    for here in step.micro_batches:
        for (flag, _, name), tensors in here.values.items():
            if flag == END and tensors[0].is_floating_point():
                values["activation", name] += tensors
        for (flag, _, name), entries in here.gradients.items():
            if flag == END and name.endswith("/output0"):
                values["dgrad", name] += [tensor for _, tensor in entries]
    return {
        key: torch.cat([each.reshape(-1).double() for each in several]) for key, several in values.items()
    }


def _residuals(
    verdict: Verdict, number: int, step: Step, found: dict[Any, Any], recording: Recording, stacks: bool
) -> None:
    """Compare the residual stream after each layer with what the layers gave."""
    for stat in ("residual", "residual_dgrad"):
        layers: dict[int, list[Tensor]] = defaultdict(list)
        for here in step.micro_batches:
            for (flag, layer, _), tensors in (here.values if stat == "residual" else here.gradients).items():
                if flag == "HiddenStates":
                    layers[layer] += tensors if stat == "residual" else [each for _, each in tensors]
        whole = {
            layer: torch.cat([each.reshape(-1).double() for each in several])
            for layer, several in layers.items()
        }
        rows = {key: row for key, row in found.items() if key[:2] == (stat, number)}
        for key, row in rows.items():
            match = re.search(r"(\d+)/output0$", key[2])
            if match and whole:
                of = [*whole.values()] if stacks else [whole.get(int(match[1]), torch.zeros(0))]
                _statistic(
                    verdict, stat, f"step {number}, {key[2]}", row, [("", each) for each in of], recording
                )
            found.pop(key)
        if len(rows) < len(whole):
            where = f"step {number}, {len(whole) - len(rows)} layers"
            _statistic(verdict, stat, where, None, [*whole.items()][-1:], recording)


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
        first = where.startswith("step 1,")
        kind = (WATCHED if first else ABSENT) if sentence else FIRST if first else SILENT
        verdict.say(stat, kind, sentence or where)
    elif any(agrees(row, tensor / _scale(stat, row)) for _, tensor in allowed):
        verdict.say(stat, STAGE if clipped and row["gradient_stage"] != "pre_clip" else RIGHT)
    else:
        label = f" labelled {row['gradient_stage']}" if stat == "grad" else ""
        expected = (
            "; ".join(f"{stage or 'seen'} {_l2(tensor):.6g}" for stage, tensor in allowed[-2:])
            or "none of that stage"
        )
        length = math.sqrt(max(0.0, row["m2"] + row["count"] * row["mean"] ** 2))
        verdict.say(stat, WRONG, f"{where}{label}: l2 {length:.6g}, and there is: {expected}")


def _scale(stat: str, row: Mapping[str, Any]) -> float:
    """Return by what a gradient inside of the model is divided: the loss scale that the row says."""
    return row["loss_scale"] if stat.endswith("dgrad") and row["loss_scale"] > 0 else 1.0


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
    found = {name: names[name] for name in recorded if name in names}
    theirs = _by_place(set(recorded) - names.keys(), r"(^|[._])layers$")
    for place, numbered in _by_place(names.keys(), r"^$").items():
        # Numbers may go on from another list of layers.
        if len(theirs.get(place, ())) == len(numbered):
            found |= dict(zip(theirs[place], (names[each] for each in numbered), strict=True))
    return found


def _by_place(names: Iterable[str], added: str) -> dict[tuple[str, str], list[str]]:
    """Return names by what stands before (less what is ``added``) and after their first number, in its
    order.
    """
    places: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        if match := _NUMBERED.match(name):
            places[re.sub(added, "", match[1]).replace(".", "_"), match[3]].append((int(match[2]), name))
    return {place: [name for _, name in sorted(numbered)] for place, numbered in places.items()}
