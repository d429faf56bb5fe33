"""How much memory a process's training takes: of its CUDA devices by the allocator's own counters, else of
the process itself. A reading takes some µs, waits for no device, and changes none of these counters.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

_CGROUPS = Path("/sys/fs/cgroup")
_GROUPS = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60


class MemorySizes(NamedTuple):
    """Bytes of one reading.

    ``allocated``: in tensors of CUDA devices; of a process its resident size without what is mapped of files
    and shared. ``reserved``: what the allocator holds of the devices; of a process its whole resident size.
    ``peak``: the largest ``allocated`` since the reading before, as far as the allocator or the system tells,
    which keep the largest of all times: where that has not risen, it is the larger of the two readings.
    """

    allocated: int
    reserved: int
    peak: int


_Counters: TypeAlias = Callable[[], tuple[int, MemorySizes]]
"""The counter of the largest size, and the sizes, with the ``peak`` that it stands for."""


class MemoryReader:
    """Reads the sizes of one training.

    Attributes
    ----------
    device : str
        ``cpu``, ``cuda:0``, or ``cuda`` for the sum of several.
    limit : int
        Bytes that there are in all; 0 where that is not known.
    limit_of : str
        What has them: ``device``, ``cgroup`` (the container or the job's own limit), ``machine`` or nothing.
    """

    def __init__(self, device: str, counters: _Counters, limit: int, limit_of: str) -> None:
        self.device, self.limit, self.limit_of = device, limit, limit_of
        self._counters = counters
        self._top, before = counters()
        self._before = before.allocated

    def read(self) -> MemorySizes:
        top, now = self._counters()
        # Neither risen, nor reset by the script.
        if top == self._top:
            now = now._replace(peak=max(now.allocated, self._before))
        self._top, self._before = top, now.allocated
        return now


def memory_reader(roots: Iterable[nn.Module]) -> MemoryReader | None:
    """Return what reads the memory of a model's training; None on a CPU of another system than Linux."""
    devices = sorted({each.device.index or 0 for root in roots for each in root.parameters() if each.is_cuda})
    if devices:
        total = sum(torch.cuda.get_device_properties(each).total_memory for each in devices)
        name = f"cuda:{devices[0]}" if len(devices) == 1 else "cuda"
        return MemoryReader(name, lambda: allocator_sizes(map(_statistics, devices)), total, "device")
    counters = _of_process() if sys.platform == "linux" else None
    return None if counters is None else MemoryReader("cpu", counters, *memory_limit())


def _statistics(device: int) -> Any:
    # The flat form of these is sorted anew by each call.
    return torch.cuda.memory_stats_as_nested_dict(device)


def allocator_sizes(statistics: Iterable[Any]) -> tuple[int, MemorySizes]:
    """Return the counters of torch's CUDA allocator, ``memory_stats_as_nested_dict`` of each device; sums."""
    allocated = reserved = peak = 0
    for each in statistics:
        # Empty before the device's first tensor.
        if each:
            allocated += each["allocated_bytes"]["all"]["current"]
            peak += each["allocated_bytes"]["all"]["peak"]
            reserved += each["reserved_bytes"]["all"]["current"]
    return peak, MemorySizes(allocated, reserved, peak)


def _of_process() -> _Counters | None:
    import resource

    try:
        statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    page = resource.getpagesize()
    file = _Descriptor(statm)

    def sizes() -> tuple[int, MemorySizes]:
        _, resident, shared, *_ = map(int, os.pread(file.number, 128, 0).split())
        own = (resident - shared) * page
        top = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return top, MemorySizes(own, resident * page, max(own, top - shared * page))

    return sizes


class _Descriptor:
    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


def memory_limit() -> tuple[int, str]:
    """Return the bytes that this process and those beside it may take in all, and what says it."""
    limits = [each for each in _cgroup_limits() if 0 < each < _UNLIMITED]
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        machine = 0
    if limits and (machine <= 0 or min(limits) < machine):
        return min(limits), "cgroup"
    return (machine, "machine") if machine > 0 else (0, "")


def _cgroup_limits() -> Iterable[int]:
    """Yield the limits of the process's control groups and those around them, of both versions."""
    try:
        groups = _GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = _CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = _CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        here = top / path.lstrip("/")
        for folder in (here, *here.parents):
            if folder.is_relative_to(top):
                try:
                    yield int((folder / name).read_text(encoding="ascii"))
                except (OSError, ValueError):
                    # Not of this group, not visible from inside of a container, or "max".
                    continue
