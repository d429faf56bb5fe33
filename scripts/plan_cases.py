"""Golden cases of pipeline plans, right and wrong, that both readers of plans are tested with."""

from __future__ import annotations

from typing import Any

__all__ = ["plan_cases"]


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
    "a missing backward pass": {
        "plan": _plan(["0F0 0F1 0B0", _LAST]),
        "code": "missing",
        "operation": "0B1",
        "stage": 0,
        "micro_batch": 1,
    },
    "a missing weight gradient": {
        "plan": _plan([_FIRST, "1F0 1I0 1F1 1B1"]),
        "code": "missing",
        "operation": "1W0",
        "stage": 1,
        "micro_batch": 0,
    },
    "a missing forward pass": {
        "plan": _plan(["0F0 0B0 0B1", _LAST]),
        "code": "missing",
        "operation": "0F1",
        "stage": 0,
        "micro_batch": 1,
    },
    "a doubled operation": {
        "plan": _plan([_FIRST + " 0B1", _LAST]),
        "code": "doubled",
        "operation": "0B1",
        "stage": 0,
        "micro_batch": 1,
    },
    "a backward pass both whole and in parts": {
        "plan": _plan([_FIRST + " 0I1 0W1", _LAST]),
        "code": "doubled",
        "operation": "0I1",
        "stage": 0,
        "micro_batch": 1,
    },
    "an operation of another stage": {
        "plan": _plan([_FIRST + " 1F0", _LAST]),
        "code": "misplaced",
        "operation": "1F0",
        "stage": 0,
        "micro_batch": 0,
    },
    "a virtual stage that is not there": {
        "plan": _plan([_FIRST + " 7F0", _LAST]),
        "code": "unknown",
        "operation": "7F0",
        "stage": 0,
        "micro_batch": 0,
    },
    "a micro-batch that is not there": {
        "plan": _plan([_FIRST + " 0F2", _LAST]),
        "code": "unknown",
        "operation": "0F2",
        "stage": 0,
        "micro_batch": 2,
    },
    "a word that is no operation": {
        "plan": _plan([_FIRST + " 0X1", _LAST]),
        "code": "unknown",
        "operation": "0X1",
        "stage": 0,
        "micro_batch": None,
    },
    "a micro-batch of the other copy": {
        "plan": _plan(["0F1 3F0 3B0 0B1", "2F0 1F1 1B1 2B0"], chunks=2, placement="two_way"),
        "code": "unknown",
        "operation": "0F1",
        "stage": 0,
        "micro_batch": 1,
    },
    "a backward pass before its forward pass": {
        "plan": _plan(["0F0 0B1 0F1 0B0", _LAST]),
        "code": "order",
        "operation": "0B1",
        "stage": 0,
        "micro_batch": 1,
    },
    "a weight gradient before its input gradient": {
        "plan": _plan([_FIRST, "1F0 1W0 1I0 1F1 1B1"]),
        "code": "order",
        "operation": "1W0",
        "stage": 1,
        "micro_batch": 0,
    },
    "stages that wait for one another": {
        "plan": _plan(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"]),
        "code": "cycle",
        "operation": "0B0",
        "stage": 0,
        "micro_batch": 0,
    },
    "too few stages": {
        "plan": {**_plan([_FIRST, _LAST]), "stages": 3},
        "code": "shape",
        "operation": None,
        "stage": None,
        "micro_batch": None,
    },
    "an odd number of micro-batches, two ways": {
        "plan": _plan(["0F0 3F1 3B1 0B0", "2F1 1F0 1B0 2B1"], micro_batches=3, chunks=2, placement="two_way"),
        "code": "shape",
        "operation": None,
        "stage": None,
        "micro_batch": None,
    },
    "three chunks, two ways": {
        "plan": _plan([_FIRST, _LAST], chunks=3, placement="two_way"),
        "code": "shape",
        "operation": None,
        "stage": None,
        "micro_batch": None,
    },
}


def plan_cases() -> dict[str, dict[str, Any]]:
    """Return the cases by what each is: ``plan``, and of a wrong one ``code``, ``operation``, ``stage`` and ``micro_batch``."""
    return _CASES
