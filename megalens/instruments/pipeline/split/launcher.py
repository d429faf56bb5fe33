"""What a launcher is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .asked_map import asked_map

__all__ = ["launch"]


def launch(
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    *,
    layout: str = "megalens",
    forward_tp: int | None = None,
    last_forward: bool = True,
    context: int = 1,
    expert: int = 1,
    world: int | None = None,
    hosts: str | Path | None = None,
) -> dict[str, Any]:
    """Return the processes that a launcher starts, as plain JSON.

    Parameters are those of :func:`megalens.split.rank_map`.

    Returns
    -------
    dict
        ``layout``, ``world`` and ``processes``, each with ``rank``, ``role``, ``stage``, ``replica``, ``tensor``, ``host`` and ``device`` (None where no host file says it), ``local_rank`` (its slot; its rank without hosts) and ``env``:
        the variables ``RANK``, ``WORLD_SIZE`` and ``LOCAL_RANK``.

    Raises
    ------
    SplitError
        With the field at fault.
    EngineError
        When the engine cannot run.
    """
    answer = asked_map(
        tp,
        pp,
        dp,
        layout=layout,
        forward_tensor=forward_tp,
        last_forward=last_forward,
        context=context,
        expert=expert,
        world=world,
        hosts=hosts,
    )
    count = len(answer["processes"])
    return {
        "layout": layout,
        "world": count,
        "processes": [_process(each, count) for each in answer["processes"]],
    }


def _process(each: dict[str, Any], count: int) -> dict[str, Any]:
    seat, rank = each["seat"], each["real"]
    local = rank if seat is None else seat["slot"]
    return {
        "rank": rank,
        "role": each["role"],
        "stage": each["pipeline"],
        "replica": each["replica"],
        "tensor": each["tensor"],
        "host": None if seat is None else seat["host"],
        "local_rank": local,
        "device": (seat["device"] or None) if seat is not None else None,
        "env": {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(local)},
    }
