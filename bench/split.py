"""How well the planner predicts steps of real processes, and whether its verdict on a split is right."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import megalens
from megalens.instruments.pipeline.split import SplitPlan, plan

from .children import run_processes
from .common import ratio
from .report import Measured, Row, benchmark, judged

__all__ = ["split"]

MICRO_BATCHES, LAYERS = 7, 6
GB = 10**9


def _device(name: str, count: int, slower: float, memory: float) -> dict[str, Any]:
    """A kind of device whose passes take 48 and 96 ms times ``slower`` through the whole model."""
    forward = 48 * slower
    passes = {"forward": forward, "recompute": forward, "backward": 2 * forward}
    return {"name": name, "count": count, **passes, "memory_bytes": memory}


def _request(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Of a model whose training takes 16 GB, its weights 2 and what a micro-batch keeps 8: seven micro-batches, so that there is one replica."""
    return {
        "devices": list(devices),
        "layers": LAYERS,
        "micro_batches": MICRO_BATCHES,
        "weight_bytes": 2 * GB,
        "state_bytes": 16 * GB,
        "activation_bytes": 8 * GB,
        "uncertainty": 0.03,
        **more,
    }


_UNLIKE = {
    # Two devices hold half of the training and one micro-batch, or all that are in flight.
    "forward devices a third as fast, memory to spare": _request(
        _device("fast", 2, 1, 40 * GB), _device("slow", 2, 3, 4 * GB)
    ),
    "forward devices a third as fast, memory for one micro-batch": _request(
        _device("fast", 2, 1, 13 * GB), _device("slow", 2, 3, 4 * GB)
    ),
    "backward devices a third as fast, memory for one micro-batch": _request(
        _device("fast", 2, 1, 3 * GB), _device("slow", 2, 3, 13 * GB)
    ),
    "forward devices a tenth as fast, memory for one micro-batch": _request(
        _device("fast", 2, 1, 13 * GB), _device("slow", 2, 10, 4 * GB)
    ),
    "three stages, forward devices half as fast, memory for one micro-batch": _request(
        _device("fast", 3, 1, 9 * GB), _device("slow", 2, 2, 4 * GB)
    ),
    "alike devices, memory to spare": _request(_device("fast", 4, 1, 40 * GB)),
}


@benchmark("Forward and backward in different processes", "few steps", steps=(12, 3, "steps of each layout"))
def split(options: argparse.Namespace) -> Measured:
    """How well the planner predicts steps of real processes, and whether its verdict on a split is right."""
    typed, right = _typed(options.folder, options.steps)
    measured = _read_off(options.folder, options.steps)
    computed, also = _computed(options.folder, options.steps)
    right += also
    verdicts = judged("verdicts that are right, of all cases", sum(right), "", str(len(right)))
    how = (
        f"Processes with gloo on one machine, {MICRO_BATCHES} micro-batches, {options.steps} steps of each layout (median). Unlike devices: passes sleep for their time, as a processor does whose device computes; the memory of devices is what the planner is told, "
        "and bounds nothing here. Both the best split and the best other layout that the planner names are run. Percent: the split's step over the other's, 95 % bootstrap interval; negative where the split is faster. "
        "Read off: times from one recorded run, others predicted by megalens.split.plan(run). Cores: layers of a GPT that compute, processes held to cores."
    )
    return Measured([verdicts, *typed, *measured, *computed], how)


def _typed(folder: Path, steps: int) -> tuple[list[Row], list[bool]]:
    rows, right = [], []
    for name, request in _UNLIKE.items():
        made = plan(request)
        found = {}
        for camp, layout in (("split", made.layout("split")), ("other", made.layout("other"))):
            case = _case(layout, request)
            found[camp] = _run(case, steps, folder)
            predicted = made.step_ms(camp)
            rows.append(_error(f"{name}, {layout['family']}", predicted, found[camp]))
        row, ok = _verdict(name, made, found["split"], found["other"])
        rows.append(row)
        right.append(ok)
    return rows, right


def _case(layout: dict[str, Any], request: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What processes do for a layout of devices that sleep."""
    total, stages = sum(each["layers"] for each in layout["stages"]), []
    for each in layout["stages"]:
        share, device = each["layers"] / total, request["devices"][each["device"]]
        other = each.get("forward_device")
        forward = device if other is None else request["devices"][other]
        stages.append(
            {
                "forward": share * forward["forward"],
                "recompute": share * device["recompute"],
                "backward": share * device["backward"],
            }
        )
    split = layout["family"] == "split"
    return {
        "kind": "split" if split else "pipeline",
        "stages": stages,
        "micro_batches": request["micro_batches"],
        "message": request.get("message_bytes", 1 << 12),
        "recompute": layout["family"] in ("recompute", "pipeline_recompute"),
        "last_forward": layout["stages"][-1].get("forward_device") is not None,
        "ahead": request.get("ahead", 1),
        **more,
    }


def _error(name: str, predicted: float, steps: list[float]) -> Row:
    measured = statistics.median(steps)
    off = predicted / measured - 1
    note = f"{predicted:.0f} ms predicted, {measured:.0f} ms measured"
    return judged(f"{name}: predicted over measured step", 100 * off, "%", "± 10", note)


def _verdict(name: str, made: SplitPlan, split: list[float], other: list[float]) -> tuple[Row, bool]:
    got = ratio(split, other, middle=statistics.median)
    is_faster = got.high < 1
    says = "split" if made.worth_it else "do not split"
    met = is_faster == made.worth_it
    value, low, high = (100 * (each - 1) for each in (got.value, got.low, got.high))
    note = f"the planner says {made.percent:+.0f} % ({made.low_percent:+.0f} to {made.high_percent:+.0f}): {says}"
    return Row(f"{name}: a split's step over the best other", value, "%", low, high, says, met, note), met


def _read_off(folder: Path, steps: int) -> list[Row]:
    """Times of one recorded split, by which it and others are predicted."""
    stage = {"forward": 72.0, "recompute": 24.0, "backward": 48.0}
    case = {
        "kind": "split",
        "stages": [stage, stage],
        "micro_batches": MICRO_BATCHES,
        "message": 1 << 12,
        "recompute": False,
        "last_forward": True,
        "ahead": 1,
    }
    found = _measured({**case, "record": str(folder / "read")}, steps, folder)
    run = megalens.open(found["folder"])
    rows = [
        _error("read off: the same split (times are from it)", plan(run).step_ms("own"), found["steps_ms"])
    ]

    def stages(forward: int | None, last: int | None) -> list[dict[str, Any]]:
        both = ({} if forward is None else {"forward_device": each} for each in (forward, last))
        return [{"device": 1, "layers": 1, **each} for each in both]

    others: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
        "without the last forward process": (
            {"family": "split", "stages": stages(0, None)},
            {"last_forward": False},
            {},
        ),
        "two recomputed ahead": ({"family": "split", "stages": stages(0, 0)}, {"ahead": 2}, {"ahead": 2}),
        "a pipeline of its backward processes": (
            {"family": "pipeline", "stages": stages(None, None)},
            {"kind": "pipeline"},
            {},
        ),
        "the same, recomputing": (
            {"family": "pipeline_recompute", "stages": stages(None, None)},
            {"kind": "pipeline", "recompute": True},
            {},
        ),
    }
    for name, (layout, how, wish) in others.items():
        made = plan(run, layout={"data": 1, "tensor": 1, **layout}, **wish)
        rows.append(_error(f"read off: {name}", made.step_ms("own"), _run({**case, **how}, steps, folder)))
    return rows


_CORES = {
    # Cores of forward and of backward processes.
    "forward processes on one core, backward ones free": ([0], [0, 1]),
    "backward processes on one core, forward ones free": ([0, 1], [0]),
}


def _computed(folder: Path, steps: int) -> tuple[list[Row], list[bool]]:
    """Layers of a GPT in processes that are held to cores of this machine."""
    rows, right = [], []
    for number, (name, (forward, backward)) in enumerate(_CORES.items()):
        case = {
            "kind": "split",
            "stages": [{"layers": 4}, {"layers": 4}],
            "micro_batches": MICRO_BATCHES,
            "recompute": False,
            "last_forward": False,
            "ahead": 1,
        }
        # By rank: the first stage's forward and backward process, the last stage's backward process.
        cpus = [forward, backward, backward]
        found = _measured({**case, "cpus": cpus, "record": str(folder / f"cores-{number}")}, steps, folder)
        made = plan(megalens.open(found["folder"]))
        layout = made.layout("other")
        held = [forward, backward]
        other = _run(
            {
                **case,
                "kind": "pipeline",
                "stages": [{"layers": 4 * each["layers"]} for each in layout["stages"]],
                "recompute": layout["family"] in ("recompute", "pipeline_recompute"),
                "cpus": [held[each["device"]] for each in layout["stages"]],
            },
            steps,
            folder,
        )
        rows.append(_error(f"cores: {name}, split", made.step_ms("own"), found["steps_ms"]))
        rows.append(_error(f"cores: {name}, {layout['family']}", made.step_ms("other"), other))
        row, ok = _verdict(f"cores: {name}", made, found["steps_ms"], other)
        rows.append(row)
        right.append(ok)
    return rows, right


def _run(case: dict[str, Any], steps: int, folder: Path) -> list[float]:
    return _measured(case, steps, folder)["steps_ms"]  # type: ignore[no-any-return]


def _measured(case: dict[str, Any], steps: int, folder: Path) -> dict[str, Any]:
    count = len(case["stages"])
    world = 2 * count - (not case["last_forward"]) if case["kind"] == "split" else count
    found: dict[str, Any] = run_processes("ranks:split", {**case, "steps": steps}, world, folder)
    return found
