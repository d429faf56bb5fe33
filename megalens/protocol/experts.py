"""Parts of tensors that are of one expert of a mixture."""

from __future__ import annotations

__all__ = ["EXPERT", "expert_of_part", "expert_part"]

EXPERT = "expert"


def expert_part(expert: int) -> str:
    """Return the name of the part that is of one expert, counted from 0: ``expert3``."""
    return f"{EXPERT}{expert}"


def expert_of_part(part: str) -> int | None:
    """Return the expert that a part is of; None where it is of none."""
    number = part.removeprefix(EXPERT)
    return (
        int(number)
        if number != part and number.isdecimal() and number.isascii() and len(number) < 10
        else None
    )
