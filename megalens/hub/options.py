"""What a hub is started with, and the id of its run."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from ..protocol import MegalensError

_MIB = 1024 * 1024
_MOST_LETTERS = 40


class HubError(MegalensError, RuntimeError):
    """The hub cannot do what it was asked. The text is one sentence or two for a person."""


@dataclass(frozen=True)
class HubOptions:
    """Settings of one hub process.

    Attributes
    ----------
    name : str
        Run name until a producer announces its own.
    port : int
        0 takes any free one.
    record : Path or None
        Folder in which the run folder is made; no recording when None.
    record_bytes : int or None
        What the recording may take; its oldest steps are given up for newer ones. No bound when None.
    record_mode : int or None
        Permissions of the run folder; its owner's alone, or its group's as of ``make_run_folder``, when None.
    resume : Path or None
        Run folder whose recording goes on, instead of ``record``.
    first_step : int
        With ``resume`` the step from which on its training goes on.
    linger : float
        Seconds without a viewer after which a hub whose producers are done ends.
    parent_pid : int or None
        Process whose end counts as the loss of the producer that never came.
    viewer_queue_bytes : int
        Bound of what waits for one viewer.
    backlog_bytes : int
        Bound of the ``tensors`` frames stored for viewers that come later.
    join_seconds : float
        How long a client may take to send ``join``.
    """

    name: str = "run"
    host: str = "127.0.0.1"
    port: int = 0
    record: Path | None = None
    record_bytes: int | None = None
    record_mode: int | None = None
    resume: Path | None = None
    first_step: int = 1
    linger: float = 10.0
    parent_pid: int | None = None
    viewer_queue_bytes: int = 32 * _MIB
    backlog_bytes: int = 64 * _MIB
    join_seconds: float = 10.0


def new_run_id(name: str) -> str:
    """Return a unique id, which names the run folder too: start time, safe part of the name, random end."""
    words = re.sub(r"[^A-Za-z0-9._]+", "-", "" if name == HubOptions.name else name)[:_MOST_LETTERS].strip(
        "-."
    )
    return "-".join(
        filter(None, (time.strftime("%Y%m%d-%H%M%S", time.gmtime()), words, secrets.token_hex(4)))
    )
