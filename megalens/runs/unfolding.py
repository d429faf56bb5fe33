"""How much a file may unfold to: a few bytes of a compressed one can stand for any number."""

from __future__ import annotations

from .errors import ClientError

__all__ = ["check_rows", "check_unfolded"]

# A recorder's row group holds 16 MiB and at most one frame more, so that a recording of nothing but zeros is within these too.
_ANY_BYTES = 128 * 1024 * 1024
_TIMES = 64
_ANY_ROWS = 2_000_000
_ROWS_A_BYTE = 32


def check_unfolded(name: str, unfolded: int, stored: int) -> None:
    """Refuse what unfolds to more than 128 MiB and to more than 64 times what is stored of it.

    Raises
    ------
    ClientError
        ``unreadable``, saying both.
    """
    if unfolded > max(_ANY_BYTES, _TIMES * stored):
        raise _refused(
            name,
            f"{stored:,} bytes of it unfold to {unfolded:,}, and at most {_TIMES} times as many are read",
        )


def check_rows(name: str, rows: int, stored: int) -> None:
    """Refuse a file that says that it has more rows than it can have.

    Raises
    ------
    ClientError
        ``unreadable``, saying how many.
    """
    if rows < 0 or rows > max(_ANY_ROWS, _ROWS_A_BYTE * stored):
        raise _refused(name, f"it says that it has {rows:,} rows in {stored:,} bytes")


def _refused(name: str, why: str) -> ClientError:
    return ClientError(f"Could not read the run folder. {name}: {why}.", code="unreadable")
