"""How well planners predict steps of real pipelines and of processes that split forward from backward passes, whether a verdict on a split is right, and what orders by arrival gain where links are slow."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import megalens
from megalens.instruments.pipeline import Plan, plan
from megalens.instruments.pipeline.connections import expected_messages
from megalens.instruments.pipeline.orders import FixedOrder, choice_from_json
from megalens.instruments.pipeline.split import SplitPlan
from megalens.instruments.pipeline.split import plan as plan_split

from .common import Measured, Row, benchmark, judged, ratio, timed
from .live import node_side, run_processes

__all__ = ["pipeline", "split"]

STAGES, MICRO_BATCHES, PARTS = 4, 8, 8
_SCHEDULES = {
    # Name: chunks and placement.
    "zb_h1": (1, "loop"),
    "gpipe": (1, "loop"),
    "1f1b": (1, "loop"),
    "zb_h2": (1, "loop"),
    "zb_v": (2, "v"),
    "dualpipev": (2, "v"),
    "interleaved_1f1b": (2, "loop"),
    "breadth_first": (2, "loop"),
}
_READ = {1: "zb_h1", 2: "zb_v"}
"""By chunks, the schedule that times are read off; the others are held out."""
_SIZES = {
    "small": {"ms": 8.0, "message": 1 << 16, "kept": 32 << 20},
    "medium": {"ms": 16.0, "message": 1 << 19, "kept": 64 << 20},
    "large": {"ms": 32.0, "message": 1 << 21, "kept": 64 << 20},
}
_LATE_MS = 12.0
_DELAYS = {
    "one slow link": {"kind": "link", "ranks": [1, 2], "ms": 3 * _LATE_MS},
    "random delays": {"kind": "random", "ms": _LATE_MS},
    "bursts": {"kind": "burst", "ms": _LATE_MS},
    "no delay": None,
}
_ORDERS = {
    "1F1B": ("1f1b", 1, "loop"),
    "interleaved 1F1B": ("interleaved_1f1b", 2, "loop"),
    "by arrival": ({"rule": "greedy", "prefer": "depth"}, 1, "loop"),
    "by arrival, two chunks": ({"rule": "greedy", "prefer": "depth"}, 2, "loop"),
}


@benchmark(
    "Plans of pipelines, and orders by arrival",
    "few steps",
    steps=(12, 3, "steps of each schedule"),
    rounds=(8, 3, "rounds of each delay, of 2 steps in every order"),
)
def pipeline(options: argparse.Namespace) -> Measured:
    """How well the planner predicts real pipelines, what orders by arrival gain where links are slow, and how fast plans are made."""
    folder, steps, rounds = options.folder, options.steps, options.rounds
    rows = [*_planning(), *_predicted(folder, steps), *_computed(folder, steps), *_delayed(folder, rounds)]
    how = (
        f"{STAGES} processes with gloo on one machine, {MICRO_BATCHES} micro-batches. Passes sleep for their time, as a processor does whose device computes: the first stage takes 10 % longer, the last 25 %; layers of a GPT compute, on two stages of one processor each. "
        f"Predicted: times are read off recorded runs of ZB-H1 (one chunk) and ZB-V (two) by megalens.pipeline.plan(run, …); {steps} steps of each other schedule are then measured (median), none of which the planner has seen. "
        f"Delays: {rounds} rounds of 2 steps in every order, in random order, in one job; messages are held back by another thread of the sender. Ratios of the rounds' steps, 95 % bootstrap interval."
    )
    return Measured(rows, how)


def _planning() -> list[Row]:
    with node_side("planning") as node:
        found = node.read()
    what = "simulate 64 stages × 512 micro-batches (1F1B), all figures of the step"
    parts = "the same with zero-bubble passes in two parts (ZB-H1)"
    return [
        judged(what, found["simulate_ms"] / 1e3, "s", "< 1"),
        judged(parts, found["split_ms"] / 1e3, "s", "< 1"),
        _adopting(),
        Row("search, 4 stages × 8 micro-batches", found["search_small_ms"], "ms"),
        Row("search, 16 stages × 64 micro-batches", found["search_ms"], "ms"),
    ]


def _adopting() -> Row:
    """What a step pays for another plan: the rest is done in another thread, or by the engine's process."""
    made = plan({"forward": 1.0}, "1f1b", stages=64, micro_batches=128).to_json()

    def adopt() -> None:
        choice = choice_from_json(dict(made))
        assert isinstance(choice, Plan)
        FixedOrder(choice.operations(1))
        expected_messages(choice.layout, 1, choice, True, (0, 2))

    ms = 1e3 * statistics.median(timed(adopt) for _ in range(50))
    what = "take another plan at a step, 64 stages × 128 micro-batches: what the step pays on one rank"
    return judged(what, ms, "ms", "≤ 1")


def _predicted(folder: Path, steps: int) -> list[Row]:
    """Passes that sleep, of four stages."""
    rows, errors = [], []
    for size, facts in _SIZES.items():
        case = {"message": facts["message"], "kept": facts["kept"], **_profile(facts["ms"])}
        more, found = _compared(size, case, STAGES, steps, folder)
        rows += more
        errors += found
    mean, worst = statistics.fmean(each[0] for each in errors), max(each[0] for each in errors)
    memory = max(each[1] for each in errors)
    return [
        judged("error of predicted steps, mean of the held-out schedules", 100 * mean, "%", "≤ 5"),
        judged("error of predicted steps, worst", 100 * worst, "%", "≤ 10"),
        judged("error of the peak of activations, worst stage", 100 * memory, "%", "≤ 3"),
        *rows,
    ]


def _computed(folder: Path, steps: int) -> list[Row]:
    """Passes that compute, of as many stages as this machine has processors at least."""
    return _compared("layers of a GPT", {"layers": 16, "message": 0, "kept": 0}, 2, steps, folder)[0]


def _compared(
    size: str, facts: dict[str, Any], stages: int, steps: int, folder: Path
) -> tuple[list[Row], list[tuple[float, float]]]:
    """Predict steps and measure them: rows, and of each held-out schedule the error of its step and of its memory."""
    cases = {
        name: _case(name, name, chunks, placement, MICRO_BATCHES, **facts)
        for name, (chunks, placement) in _SCHEDULES.items()
    }
    for name in _READ.values():
        cases[name]["record"] = str(folder / f"{size}-{name}")
    found = _run([cases[name] for name in _READ.values()], stages, folder, steps=steps)
    runs = {chunks: megalens.open(found[name]["folder"]) for chunks, name in _READ.items()}
    made = {}
    for name, (chunks, _) in _SCHEDULES.items():
        # A pass keeps what it is told, and its output.
        held = facts["kept"] / stages + chunks * facts["message"]
        made[name] = plan(runs[chunks], name, chunks=chunks, activation_bytes=held)
        cases[name]["order"] = made[name].to_json()
    others = [name for name in _SCHEDULES if name not in _READ.values()]
    found |= _run([cases[name] for name in others], stages, folder, steps=steps)
    rows, errors = [], []
    for name in _SCHEDULES:
        measured, planned = found[name]["step_ms"], made[name]
        off = planned.step_ms / measured - 1
        is_read, memory, words = name in _READ.values(), 0.0, ""
        if facts["kept"]:
            both = zip(planned.peak_bytes, found[name]["peaks"], strict=True)
            memory = max((p / m - 1 for p, m in both), key=abs)
            words = f"; peak of activations {100 * memory:+.1f} % off"
        if not is_read:
            errors.append((abs(off), abs(memory)))
        what = f"{size}, {name}: predicted over measured step" + (" (times are from it)" if is_read else "")
        note = f"{planned.step_ms:.0f} ms predicted, {measured:.0f} ms measured{words}"
        rows.append(judged(what, 100 * off, "%", "" if is_read else "± 10", note))
    return rows, errors


def _case(
    name: str, order: Any, chunks: int, placement: str, micro_batches: int, **facts: Any
) -> dict[str, Any]:
    placed = {"chunks": chunks, "placement": placement, "micro_batches": micro_batches}
    return {"name": name, "order": order, **placed, **facts}


def _delayed(folder: Path, rounds: int) -> list[Row]:
    rows = []
    for pattern, delay in _DELAYS.items():
        facts = {"message": 1 << 16, "kept": 1 << 20, **_profile(_LATE_MS, even=True)}
        cases = [_case(name, *how, 2 * MICRO_BATCHES, **facts) for name, how in _ORDERS.items()]
        found = _run(cases, STAGES, folder, together=True, steps=2, rounds=rounds, delay=delay)
        for dynamic, fixed in (("by arrival", "1F1B"), ("by arrival, two chunks", "interleaved 1F1B")):
            got = ratio(found[dynamic]["steps_ms"], found[fixed]["steps_ms"], middle=statistics.median)
            promised = _promised(delay, dynamic, fixed)
            says = "" if promised is None else f"the simulator says {promised:.2f}; "
            target, met = "", None
            if delay is None:
                target, met = "≤ 1.01", got.low <= 1.01 and (got.value <= 1.01 or None)
            elif promised is not None and promised <= 0.9:
                target, met = "≤ 0.9", got.high <= 0.9 or (None if got.low <= 0.9 else False)
            took, held = (
                [of(found[name]) for name in (fixed, dynamic)]
                for of in (lambda way: way["step_ms"], lambda way: max(way["peaks"]) / 1e6)
            )
            note = f"{says}{took[0]:.0f} → {took[1]:.0f} ms; a stage holds {held[0]:.2g} → {held[1]:.2g} MB"
            what = f"{pattern}: step {dynamic}, over {fixed}"
            rows.append(Row(what, got.value, "", got.low, got.high, target, met, note))
    return rows


def _promised(delay: dict[str, Any] | None, dynamic: str, fixed: str) -> float | None:
    """What the simulator says of the two orders, where links are late by the same time for every message."""
    if delay is None or delay["kind"] != "link":
        return None
    links = [{"from": a, "to": b, "latency": delay["ms"]} for a, b in ((1, 2), (2, 1))]
    times = {**_times(_LATE_MS), "links": links}
    steps = []
    for name in (dynamic, fixed):
        order, chunks, _ = _ORDERS[name]
        schedule = order if isinstance(order, str) else "depth_first"
        made = plan(times, schedule, stages=STAGES, micro_batches=2 * MICRO_BATCHES, chunks=chunks)
        steps.append(made.step_ms)
    return steps[0] / steps[1]


def _times(ms: float) -> dict[str, Any]:
    return {"forward": ms, "input_gradient": ms, "weight_gradient": ms}


def _profile(ms: float, *, even: bool = False) -> dict[str, list[float]]:
    """Times over the model's depth, in as many parts as there are virtual stages at most: a stage has two."""
    factors = [1.0] * PARTS if even else [1.1, 1.1, *([1.0] * (PARTS - 4)), 1.25, 1.25]
    half = [ms / 2 * factor for factor in factors]
    return {"forward": half, "input": half, "weight": [0.9 * each for each in half]}


def _run(
    cases: list[dict[str, Any]], stages: int, folder: Path, together: bool = False, **more: Any
) -> dict[str, dict[str, Any]]:
    """Run pipelines, one after the other or in turns; return what came of each, by name."""
    blocks = [{"cases": each, **more} for each in ([cases] if together else [[case] for case in cases])]
    found = run_processes("ranks:measured", {"blocks": blocks}, stages, folder)
    return {each["name"]: each for each in found}


_LAYERS, _GB = 6, 10**9
_CASE = {"split": True, "micro_batches": 7, "message": 1 << 12, "recompute": False, "last_forward": True, "ahead": 1}  # fmt: skip
"""What processes do, where nothing else is said."""
_UNLIKE = {
    # Of each kind of device how many, how much slower, and GB: two hold half of the training and one micro-batch, or all that are in flight.
    "forward devices a third as fast, memory to spare": ((2, 1, 40), (2, 3, 4)),
    "forward devices a third as fast, memory for one micro-batch": ((2, 1, 13), (2, 3, 4)),
    "backward devices a third as fast, memory for one micro-batch": ((2, 1, 3), (2, 3, 13)),
    "forward devices a tenth as fast, memory for one micro-batch": ((2, 1, 13), (2, 10, 4)),
    "three stages, forward devices half as fast, memory for one micro-batch": ((3, 1, 9), (2, 2, 4)),
    "alike devices, memory to spare": ((4, 1, 40),),
}
_CORES = {
    # Cores of forward and of backward processes.
    "forward processes on one core, backward ones free": ([0], [0, 1]),
    "backward processes on one core, forward ones free": ([0, 1], [0]),
}


@benchmark("Forward and backward in different processes", "few steps", steps=(12, 3, "steps of each layout"))
def split(options: argparse.Namespace) -> Measured:
    """How well the planner predicts steps of real processes, and whether its verdict on a split is right."""
    rows: list[Row] = []
    right: list[bool] = []
    for name, devices in _UNLIKE.items():
        _compared_split(name, _request(devices), options.steps, options.folder, rows, right)
    rows += _read_off(options.folder, options.steps)
    for name, cores in _CORES.items():
        _held_to_cores(f"cores: {name}", *cores, options.steps, options.folder, rows, right)
    verdicts = judged("verdicts that are right, of all cases", sum(right), "", str(len(right)))
    how = (
        f"Processes with gloo on one machine, {_CASE['micro_batches']} micro-batches, {options.steps} steps of each layout (median). Unlike devices: passes sleep for their time, as a processor does whose device computes; the memory of devices is what the planner is told, "
        "and bounds nothing here. Both the best split and the best other layout that the planner names are run. Percent: the split's step over the other's, 95 % bootstrap interval; negative where the split is faster. "
        "Read off: times from one recorded run, others predicted by megalens.split.plan(run). Cores: layers of a GPT that compute, processes held to cores."
    )
    return Measured([verdicts, *rows], how)


def _request(devices: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    """Of a model whose training takes 16 GB, its weights 2 and what a micro-batch keeps 8: seven micro-batches, so that there is one replica. Passes through it take 48 and 96 ms on a fast device."""
    return {
        "devices": [
            {
                "name": f"{slower} times as slow",
                "count": count,
                **{"forward": 48 * slower, "recompute": 48 * slower, "backward": 96 * slower},
                "memory_bytes": memory * _GB,
            }
            for count, slower, memory in devices
        ],
        "layers": _LAYERS,
        "micro_batches": _CASE["micro_batches"],
        **{"weight_bytes": 2 * _GB, "state_bytes": 16 * _GB, "activation_bytes": 8 * _GB},
        "uncertainty": 0.03,
    }


def _family(layout: dict[str, Any]) -> dict[str, Any]:
    """Return what processes do for a layout."""
    family = layout["family"]
    return {
        **_CASE,
        "split": family == "split",
        "recompute": family in ("recompute", "pipeline_recompute"),
        "last_forward": layout["stages"][-1].get("forward_device") is not None,
    }


def _compared_split(
    name: str, request: dict[str, Any], steps: int, folder: Path, rows: list[Row], right: list[bool]
) -> None:
    """Run the best split and the best other layout that the planner names, on devices that sleep."""
    made = plan_split(request)
    found = {}
    for camp in ("split", "other"):
        layout = made.layout(camp)
        stages = []
        for each in layout["stages"]:
            share, device = each["layers"] / _LAYERS, request["devices"][each["device"]]
            other = each.get("forward_device")
            forward = device if other is None else request["devices"][other]
            of = {"forward": forward, "recompute": device, "backward": device}
            stages.append({what: share * which[what] for what, which in of.items()})
        found[camp] = _split_run({**_family(layout), "stages": stages}, steps, folder)["steps_ms"]
        rows.append(_error(f"{name}, {layout['family']}", made.step_ms(camp), found[camp]))
    rows.append(_verdict(name, made, found["split"], found["other"]))
    right.append(bool(rows[-1].met))


def _held_to_cores(
    name: str,
    forward: list[int],
    backward: list[int],
    steps: int,
    folder: Path,
    rows: list[Row],
    right: list[bool],
) -> None:
    """Layers of a GPT in processes that are held to cores of this machine."""
    # By rank: the first stage's forward and backward process, the last stage's backward process.
    case = {**_CASE, "stages": [{"layers": 4}, {"layers": 4}], "last_forward": False}
    record = str(folder / name.replace(" ", "-"))
    found = _split_run({**case, "record": record}, steps, folder, [forward, backward, backward])
    made = plan_split(megalens.open(found["folder"]))
    layout = made.layout("other")
    stages = [{"layers": 4 * each["layers"]} for each in layout["stages"]]
    cpus = [(forward, backward)[each["device"]] for each in layout["stages"]]
    other = _split_run({**_family(layout), "stages": stages}, steps, folder, cpus)["steps_ms"]
    rows.append(_error(f"{name}, split", made.step_ms("own"), found["steps_ms"]))
    rows.append(_error(f"{name}, {layout['family']}", made.step_ms("other"), other))
    rows.append(_verdict(name, made, found["steps_ms"], other))
    right.append(bool(rows[-1].met))


def _read_off(folder: Path, steps: int) -> Iterator[Row]:
    """Times of one recorded split, by which it and others are predicted."""
    stage = {"forward": 72.0, "recompute": 24.0, "backward": 48.0}
    case = {**_CASE, "stages": [stage, stage]}
    found = _split_run({**case, "record": str(folder / "read")}, steps, folder)
    run = megalens.open(found["folder"])
    yield _error(
        "read off: the same split (times are from it)", plan_split(run).step_ms("own"), found["steps_ms"]
    )
    # Whether there are forward processes of the two stages, and what is wished for.
    others: dict[str, tuple[str, tuple[bool, bool], dict[str, int]]] = {
        "without the last forward process": ("split", (True, False), {}),
        "two recomputed ahead": ("split", (True, True), {"ahead": 2}),
        "a pipeline of its backward processes": ("pipeline", (False, False), {}),
        "the same, recomputing": ("pipeline_recompute", (False, False), {}),
    }
    for name, (family, forward, wish) in others.items():
        stages = [{"device": 1, "layers": 1} | ({"forward_device": 0} if each else {}) for each in forward]
        layout = {"data": 1, "tensor": 1, "family": family, "stages": stages}
        made = plan_split(run, layout=layout, **wish)
        measured = _split_run({**case, **_family(layout), "stages": case["stages"], **wish}, steps, folder)
        yield _error(f"read off: {name}", made.step_ms("own"), measured["steps_ms"])


def _error(name: str, predicted: float, steps: list[float]) -> Row:
    measured = statistics.median(steps)
    off = predicted / measured - 1
    note = f"{predicted:.0f} ms predicted, {measured:.0f} ms measured"
    return judged(f"{name}: predicted over measured step", 100 * off, "%", "± 10", note)


def _verdict(name: str, made: SplitPlan, split: list[float], other: list[float]) -> Row:
    got = ratio(split, other, middle=statistics.median)
    says = "split" if made.worth_it else "do not split"
    value, low, high = (100 * (each - 1) for each in (got.value, got.low, got.high))
    note = f"the planner says {made.percent:+.0f} % ({made.low_percent:+.0f} to {made.high_percent:+.0f}): {says}"
    met = (got.high < 1) == made.worth_it
    return Row(f"{name}: a split's step over the best other", value, "%", low, high, says, met, note)


def _split_run(
    case: dict[str, Any], steps: int, folder: Path, cpus: list[list[int]] | None = None
) -> dict[str, Any]:
    count = len(case["stages"])
    world = 2 * count - (not case["last_forward"]) if case["split"] else count
    job = {"blocks": [{"cases": [case], "steps": steps}], "cpus": cpus}
    (found,) = run_processes("ranks:measured", job, world, folder)
    return found
