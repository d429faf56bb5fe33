"""Golden rank maps, made by walking through processes as a launcher starts them, not by the formula of `src/instruments/pipeline/split/plan/rank-map.ts`."""

from __future__ import annotations

from typing import Any

__all__ = ["rank_map_cases"]


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
                    cases.append(_case(layout, tensor, pipeline, data, {}, processes))
            for forward in (each for each in range(1, tensor + 1) if tensor % each == 0):
                for data in (1, 3):
                    for last in (True, False) if pipeline > 1 else (True,):
                        processes = _walked("megalens", tensor, pipeline, data, forward, last)
                        more = {"forward_tensor": forward, "last_forward": last}
                        cases.append(_case("megalens", tensor, pipeline, data, more, processes))
    return cases


def _case(
    layout: str, tensor: int, pipeline: int, data: int, more: dict[str, Any], processes: list[list[int]]
) -> dict[str, Any]:
    request = {"layout": layout, "tensor": tensor, "pipeline": pipeline, "data": data, **more}
    return {"request": request, "processes": " ".join(",".join(map(str, each)) or "-" for each in processes)}
