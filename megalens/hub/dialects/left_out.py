"""What was left out of a translation, and other things that the person must know: counted, and said in ``status``."""

from __future__ import annotations

from collections import Counter

from ...protocol import shown_text

__all__ = ["LeftOut"]

_MOST_REASONS = 12


class LeftOut:
    """Counts by reason."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()
        self._notes: dict[str, None] = {}
        self.rows = 0

    def leave_out(self, reason: str, *, lost: bool = True) -> None:
        """Count a message that was left out. One that is ``lost`` would have been rows; a repeat is not."""
        reason = shown_text(reason)
        if reason not in self._left_out and len(self._left_out) >= _MOST_REASONS:
            reason = "messages of other kinds"
        self._left_out[reason] += 1
        self.rows += lost

    def note(self, sentence: str) -> None:
        """Add a sentence, once."""
        if len(self._notes) < _MOST_REASONS:
            self._notes.setdefault(shown_text(sentence[:500]))

    def sentences(self) -> list[str]:
        """Return what the person reads."""
        counted = [f"Left out: {count} {reason}." for reason, count in self._left_out.items()]
        return [*self._notes, *(text[:500] for text in counted)]
