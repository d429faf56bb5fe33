"""Golden cases of pipeline plans, right and wrong, that both readers of plans are tested with, and of rank maps.

The latter are made by walking through processes as a launcher starts them, not by the formula of ``src/instruments/pipeline/split/plan/rank-map.ts``.
"""

from __future__ import annotations

from typing import Any

__all__ = ["plan_cases", "rank_map_cases"]


def _plan(
    order: list[str], micro_batches: int = 2, chunks: int = 1, placement: str = "loop"
) -> dict[str, Any]:
    """Return a plan of as many stages as there are orders."""
    return {
        "schedule": "own",
        "stages": len(order),
        "chunks": chunks,
        "micro_batches": micro_batches,
        "placement": placement,
        "order": order,
    }


def _wrong(
    plan: dict[str, Any],
    code: str,
    operation: str | None = None,
    stage: int | None = None,
    micro_batch: int | None = None,
) -> dict[str, Any]:
    """Return a plan with what is wrong with it, and where."""
    found = {"code": code, "operation": operation, "stage": stage, "micro_batch": micro_batch}
    return {"plan": plan, **found}


_FIRST, _LAST = "0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"

_CASES: dict[str, dict[str, Any]] = {
    "1F1B of two stages": {"plan": _plan([_FIRST, _LAST])},
    "one stage": {"plan": _plan(["0F0 0B0 0F1 0B1"])},
    "split backward passes": {"plan": _plan(["0F0 0F1 0I0 0I1 0W0 0W1", "1F0 1I0 1F1 1I1 1W1 1W0"])},
    "split on one virtual stage only": {"plan": _plan([_FIRST, "1F0 1I0 1W0 1F1 1I1 1W1"])},
    "split of one micro-batch only": {"plan": _plan([_FIRST, "1F0 1B0 1F1 1I1 1W1"])},
    "two chunks in a loop": {
        "plan": _plan(["0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0"], micro_batches=1, chunks=2)
    },
    "two chunks in a V": {
        "plan": _plan(["0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"], micro_batches=1, chunks=2, placement="v")
    },
    "two ways": {"plan": _plan(["0F0 3F1 3B1 0B0", "2F1 1F0 1B0 2B1"], chunks=2, placement="two_way")},
    "a missing backward pass": _wrong(_plan(["0F0 0F1 0B0", _LAST]), "missing", "0B1", 0, 1),
    "a missing weight gradient": _wrong(_plan([_FIRST, "1F0 1I0 1F1 1B1"]), "missing", "1W0", 1, 0),
    "a missing forward pass": _wrong(_plan(["0F0 0B0 0B1", _LAST]), "missing", "0F1", 0, 1),
    "a doubled operation": _wrong(_plan([_FIRST + " 0B1", _LAST]), "doubled", "0B1", 0, 1),
    "a backward pass both whole and in parts": _wrong(
        _plan([_FIRST + " 0I1 0W1", _LAST]), "doubled", "0I1", 0, 1
    ),
    "an operation of another stage": _wrong(_plan([_FIRST + " 1F0", _LAST]), "misplaced", "1F0", 0, 0),
    "a virtual stage that is not there": _wrong(_plan([_FIRST + " 7F0", _LAST]), "unknown", "7F0", 0, 0),
    "a micro-batch that is not there": _wrong(_plan([_FIRST + " 0F2", _LAST]), "unknown", "0F2", 0, 2),
    "a word that is no operation": _wrong(_plan([_FIRST + " 0X1", _LAST]), "unknown", "0X1", 0, None),
    "a micro-batch of the other copy": _wrong(
        _plan(["0F1 3F0 3B0 0B1", "2F0 1F1 1B1 2B0"], chunks=2, placement="two_way"), "unknown", "0F1", 0, 1
    ),
    "a backward pass before its forward pass": _wrong(
        _plan(["0F0 0B1 0F1 0B0", _LAST]), "order", "0B1", 0, 1
    ),
    "a weight gradient before its input gradient": _wrong(
        _plan([_FIRST, "1F0 1W0 1I0 1F1 1B1"]), "order", "1W0", 1, 0
    ),
    "stages that wait for one another": _wrong(
        _plan(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"]), "cycle", "0B0", 0, 0
    ),
    "too few stages": _wrong({**_plan([_FIRST, _LAST]), "stages": 3}, "shape"),
    "an odd number of micro-batches, two ways": _wrong(
        _plan(["0F0 3F1 3B1 0B0", "2F1 1F0 1B0 2B1"], micro_batches=3, chunks=2, placement="two_way"), "shape"
    ),
    "three chunks, two ways": _wrong(_plan([_FIRST, _LAST], chunks=3, placement="two_way"), "shape"),
}


def plan_cases() -> dict[str, dict[str, Any]]:
    """Return the cases by what each is: ``plan``, and of a wrong one ``code``, ``operation``, ``stage`` and ``micro_batch``."""
    return _CASES


def _walked(
    layout: str, tensor: int, pipeline: int, replicas: int, forward_tensor: int, last: bool
) -> list[list[int]]:
    """Return the virtual ranks of each process in the order of real ranks."""
    size = 2 * replicas
    # Megatron counts tensor first, then data, then pipeline.
    number = {}
    for stage in range(pipeline):
        for data in range(size):
            for at in range(tensor):
                number[at, data, stage] = len(number)
    processes: list[list[int]] = [[]] if layout == "megafbd" else []
    for stage in range(pipeline):
        for data in range(size):
            if data % 2:
                processes += [[number[at, data, stage]] for at in range(tensor)]
            elif last or stage < pipeline - 1:
                threads = tensor // forward_tensor
                for first in range(0, tensor, threads):
                    processes.append([number[at, data, stage] for at in range(first, first + threads)])
    return processes


def rank_map_cases() -> list[dict[str, Any]]:
    """Return requests, each with the virtual ranks of every process and what the peer's table holds."""
    cases = []
    for tensor in range(1, 9):
        for pipeline in range(1, 5):
            for data in (2, 4, 6):
                for layout in ("megafbd", "one_flag"):
                    forward = 1 if layout == "megafbd" else tensor
                    processes = _walked(layout, tensor, pipeline, data // 2, forward, True)
                    cases.append(_rank_map(layout, tensor, pipeline, data, {}, processes))
            for forward in (each for each in range(1, tensor + 1) if tensor % each == 0):
                for data in (1, 3):
                    for last in (True, False) if pipeline > 1 else (True,):
                        processes = _walked("megalens", tensor, pipeline, data, forward, last)
                        more = {"forward_tensor": forward, "last_forward": last}
                        cases.append(_rank_map("megalens", tensor, pipeline, data, more, processes))
    return cases


def _rank_map(
    layout: str, tensor: int, pipeline: int, data: int, more: dict[str, Any], processes: list[list[int]]
) -> dict[str, Any]:
    request = {"layout": layout, "tensor": tensor, "pipeline": pipeline, "data": data, **more}
    return {"request": request, "processes": " ".join(",".join(map(str, each)) or "-" for each in processes)}
