"""Runs as a kernel sees them: one object for a live run and for a recorded one."""

from .errors import ClientError

__all__ = ["ClientError"]
