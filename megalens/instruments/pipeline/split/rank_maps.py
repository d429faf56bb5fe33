"""Which process does what, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .asked_map import asked_map

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["rank_map"]


def rank_map(
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
) -> pd.DataFrame:
    """Return which process stands for which of Megatron's ranks where forward and backward passes run apart.

    Parameters
    ----------
    tp, pp : int
        Tensor-parallel degree of the backward processes, and pipeline stages.
    dp : int
        Replicas; of the layouts ``megafbd`` and ``one_flag`` Megatron's data-parallel size, which is twice as much.
    layout : str
        ``megalens``; ``megafbd``, MegaFBD's with both of its flags; or ``one_flag``, what it means by the first alone.
    forward_tp : int, optional
        Tensor-parallel degree of the forward processes, which divides ``tp``.
    last_forward : bool
        Whether the last stage has forward processes.
    context, expert : int
        Context- and expert-parallel degree: no layout takes one above 1.
    world : int, optional
        Processes that there are.
    hosts : str or Path, optional
        A host file, or its text: a line for each host, such as ``node1 slots=4 role=backward device=cuda``.

    Returns
    -------
    pandas.DataFrame
        By virtual rank ``virtual``, ``real``, ``role``, ``tensor``, ``pipeline``, ``data``, ``replica``; with hosts also ``host``, ``slot``, ``device``. ``attrs`` has ``layout``, ``tensor``,
        ``forward_tensor``, ``stages``, ``replicas``, ``last_forward``, ``world``; of ``megafbd`` also ``coordinator``, the real rank of the process without a model, and ``deleted_ranks``, the table that MegaFBD keeps.

    Raises
    ------
    SplitError
        With the field at fault.
    EngineError
        When the engine cannot run.
    """
    import pandas as pd

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
    processes = answer.pop("processes")
    table = pd.DataFrame(answer.pop("ranks"))
    if hosts is not None:
        for name in ("host", "slot", "device"):
            table[name] = [processes[real]["seat"][name] for real in table["real"]]
    table.attrs = {**answer, "world": len(processes)}
    if layout == "megafbd":
        table.attrs["coordinator"] = next(each["real"] for each in processes if each["role"] == "coordinator")
    return table
