"""The machine that this process runs on, and its processes: whether a runtime file speaks of one of them."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

POSIX = os.name == "posix"


@cache
def node_name() -> str:
    """Return the name of this machine, or of this container."""
    return socket.gethostname()[:253]


@cache
def boot_id() -> str | None:
    """Return what tells this boot of this machine from all others; None where the system does not say.

    Containers of one machine have one.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


@cache
def own_namespaces() -> list[int]:
    """Return the numbers of the process and network namespaces of this process; 0 where there are none."""
    try:
        return [os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("pid", "net")]
    except OSError:
        return [0, 0]


def process_identity(pid: int) -> str | None:
    """Return what tells a process from all others with its number; None where that is unknown.

    It contains when the process began by a clock that nobody sets, after the boot of the system.
    """
    boot = boot_id()
    try:
        fields = _process_fields(pid)
        return None if boot is None else "ended" if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    except (OSError, IndexError, ValueError):
        return None


def is_running(pid: int, identity: str | None, started: float) -> bool | None:
    """Return whether a process of this machine still runs; None where the system does not tell.

    Parameters
    ----------
    pid : int
        Its number, which another process may have by now.
    identity : str or None
        Its ``process_identity``.
    started : float
        Seconds since the epoch at which it had begun, by a clock that may have been set since.
    """
    if POSIX:
        try:
            os.kill(pid, 0)
        except (OSError, OverflowError):
            return False
    there = process_identity(pid)
    if identity is not None and there is not None:
        # Whatever has its number or its port now: it is the very process, or it is gone.
        return there == identity
    began = _process_start(pid)
    if began is not None and began < 0:
        return False
    return True if began is not None and began <= started + 5 else None


def port_open(host: str, port: int) -> bool:
    """Return whether something listens there."""
    with suppress(OSError), socket.create_connection((host, port), timeout=0.3):
        return True
    return False


def _process_fields(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


def _process_start(pid: int) -> float | None:
    """Return the start of a process in seconds since the epoch; -1 for a zombie, None where unknown."""
    try:
        fields = _process_fields(pid)
        boot = next(
            line
            for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines()
            if line.startswith("btime")
        )
        if fields[0] in "ZX":
            return -1.0
        return float(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, StopIteration, IndexError, ValueError, AttributeError):
        return None
