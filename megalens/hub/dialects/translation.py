"""What a translation is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocol.messages_generated import Config
from .dialect import Dialect

__all__ = ["Translation"]


@dataclass(frozen=True)
class Translation:
    """One translation.

    Attributes
    ----------
    address : str
        The foreign hub, ``ws://host:port`` with a path or without.
    dialect : Dialect or None
        What it speaks; made out where that is possible when None.
    config : dict or None
        The ``Config`` to ask for; the dialect's own when None.
    name : str
        Name of the run.
    micro_batches : int
        Forward passes that make one step.
    wait_seconds : float
        How long a peer that cannot be reached is tried again.
    most_steps : int or None
        Steps after which the translation ends.
    prompts : tuple of str
        What to generate from, for an inference hub.
    tokens : int
        How many tokens to generate.
    """

    address: str
    dialect: Dialect | None = None
    config: Config | None = None
    name: str = "foreign"
    micro_batches: int = 1
    wait_seconds: float = 10.0
    most_steps: int | None = None
    prompts: tuple[str, ...] = field(default=())
    tokens: int = 10
