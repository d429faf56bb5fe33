"""What is known of a stretch of a source file: where it lies, its text, and what was left out of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import orjson

MOST_PROBLEMS = 50

Problem = tuple[int, str]
"""A line that is left out in full or in part: its number, counted from 1 in the stretch, and a sentence."""


@dataclass(frozen=True)
class Course:
    """How the steps of one stat went on in the order of the lines.

    ``times`` counts how often a step was not after the one before it, at last ``back_from`` one ``back_to``
    another.
    """

    first: int
    last: int
    times: int = 0
    back_from: int = 0
    back_to: int = 0

    def then(self, later: Course) -> Course:
        if later.first <= self.last:
            seam = Course(self.first, self.last, self.times + 1, self.last, later.first)
        else:
            seam = self
        last = later if later.times else seam
        return Course(self.first, later.last, seam.times + later.times, last.back_from, last.back_to)


@dataclass(frozen=True)
class Stretch:
    """Bytes ``begin`` to ``end`` of a file, and what was read of them.

    Attributes
    ----------
    crc : int
        Of the text: it tells whether the file is the same.
    inode, written : int
        Of the file when it was read; the time of its last change in nanoseconds.
    tail : str
        Digest of the last bytes before ``end``.
    lines : int
        Ends of lines.
    skipping : bool
        Whether ``end`` is inside a line that is too long to be read.
    problems : tuple
        The first of them; ``left_out`` counts all.
    courses : mapping
        By stat.
    unscaled : tuple of str
        The stats of which an unknown loss scale may be in some values.
    """

    begin: int = 0
    end: int = 0
    crc: int = 0
    inode: int = 0
    written: int = 0
    tail: str = ""
    lines: int = 0
    skipping: bool = False
    problems: tuple[Problem, ...] = ()
    left_out: int = 0
    courses: dict[str, Course] = field(default_factory=dict)
    unscaled: tuple[str, ...] = ()

    def then(self, later: Stretch) -> Stretch:
        """Return both as one; ``later`` begins where this ends, and its ``crc`` goes on with this one's."""
        if self.begin == self.end:
            return later
        problems = (*self.problems, *((self.lines + line, what) for line, what in later.problems))
        courses = {
            stat: self.courses[stat].then(course) if stat in self.courses else course
            for stat, course in later.courses.items()
        }
        return Stretch(
            begin=self.begin,
            end=later.end,
            crc=later.crc,
            inode=later.inode,
            written=later.written,
            tail=later.tail,
            lines=self.lines + later.lines,
            skipping=later.skipping,
            problems=problems[:MOST_PROBLEMS],
            left_out=self.left_out + later.left_out,
            courses=self.courses | courses,
            unscaled=tuple(dict.fromkeys((*self.unscaled, *later.unscaled))),
        )

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: bytes) -> Stretch:
        """Return what :meth:`to_json` gave; else raises ``ValueError``, ``TypeError`` or ``KeyError``."""
        members = orjson.loads(text)
        members["courses"] = {stat: Course(**each) for stat, each in members["courses"].items()}
        members["problems"] = tuple((int(line), str(what)) for line, what in members["problems"])
        return cls(**members)
