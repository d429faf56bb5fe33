"""The raw-moment JSONL files of one run as rows of the stream ``moments``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....protocol import LAST_STEP, MOMENT_STATS, shown_text
from ...errors import ClientError
from ..rows.hidden import Hidden, PartlyHidden, layouts_of, newest, read_stat
from ..rows.import_folder import ImportedRows, trim_cache
from ..rows.pieces import Piece, Progress
from ..source import MomentRows
from ..trainermon.imported_folder import TrainerMonRows
from .imported_file import ImportedFile
from .ingest import bring_up_to_date
from .tree import StatisticsTree

_SCALED = ("dgrad", "residual_dgrad")


def rows_of(tree: StatisticsTree) -> MomentRows:
    """Return the rows of a run's files; they are read at the first refresh."""
    return TrainerMonRows(tree) if tree.layout == "trainermon" else JsonlRows(tree)


def supersede(
    files: Sequence[ImportedFile], pieces: Sequence[list[Piece]]
) -> tuple[dict[int, list[Hidden]], list[str]]:
    """Return by its place what of each file others hide, and sentences about it.

    Of two files with the same names at the same steps the one written to last counts, from its beginning;
    gaps in it leave the other's rows.
    """
    found: dict[int, list[Hidden]] = {}
    warnings: dict[str, None] = {}
    for stat in MOMENT_STATS:
        names = {at: here for at, of in enumerate(pieces) if (here := _names(of, stat))}
        if sum(map(len, names.values())) == len(frozenset[str]().union(*names.values())):
            continue
        layouts = {at: _layouts(pieces[at], stat) for at in names}
        # Newest last; of equals the one that began later.
        begun = {at: min(int(steps[0]) for steps in of.values()) for at, of in layouts.items()}
        writers = sorted(layouts, key=lambda at: (files[at].read.written, begun[at]))
        for number, older in enumerate(writers):
            for newer in writers[number + 1 :]:
                hidden, inside = _between(layouts[older], layouts[newer], stat)
                if hidden:
                    found.setdefault(older, []).extend(hidden)
                    warnings[_sentence(stat, files[older], files[newer], inside)] = None
    return found, list(warnings)


def _names(pieces: Sequence[Piece], stat: str) -> frozenset[str]:
    # Pieces that have the same names have one tuple of them.
    tuples = [piece.listed[stat].names for piece in pieces if stat in piece.listed]
    return frozenset[str]().union(*{id(names): names for names in tuples}.values())


_Layouts = dict[frozenset[str], NDArray[np.int64]]
"""The steps at which exactly these names were written."""


def _layouts(pieces: Sequence[Piece], stat: str) -> _Layouts:
    shared: dict[int, frozenset[str]] = {}
    found: dict[frozenset[str], list[NDArray[np.int64]]] = {}
    for piece in pieces:
        for names, steps in layouts_of(piece, stat) if stat in piece.listed else ():
            of = shared.setdefault(id(names), frozenset(names))
            found.setdefault(of, []).append(steps)
    return {names: np.unique(np.concatenate(steps)) for names, steps in found.items()}


def _between(older: _Layouts, newer: _Layouts, stat: str) -> tuple[list[Hidden], list[int]]:
    """Return what of the older is hidden, and the least and the largest of its steps."""
    hidden, inside = list[Hidden](), list[int]()
    for names, steps in newer.items():
        spans = _spans(steps)
        for own, others in older.items():
            one = Hidden(stat, own & names, spans)
            if one.names and (at := others[one.steps(others)]).size:
                hidden.append(one)
                inside += [int(at[0]), int(at[-1])]
    return hidden, inside


def _sentence(stat: str, older: ImportedFile, newer: ImportedFile, steps: list[int]) -> str:
    return (
        f"{stat}: {newer.source.name} was written to after {older.source.name} and has the same tensors, so "
        f"its rows count for steps {min(steps)} to {max(steps)}. The job was probably restarted with another "
        "number of processes."
    )


def _spans(steps: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Return a writer's ranges: steps without gaps over twice the usual distance, the last one open."""
    if len(steps) < 2:
        return ((int(steps[0]), LAST_STEP),)
    far = np.diff(steps)
    breaks = np.flatnonzero(far > 2 * np.median(far))
    firsts = [int(steps[0]), *(int(steps[at + 1]) for at in breaks)]
    lasts = [*(int(steps[at]) for at in breaks), LAST_STEP]
    return tuple(zip(firsts, lasts, strict=True))


class JsonlRows(ImportedRows):
    """Rows of a run's JSONL files, imported into run folders of the cache; new text is read as they grow."""

    def __init__(self, tree: StatisticsTree) -> None:
        super().__init__()
        self._tree = tree
        self._files: dict[str, ImportedFile] = {}
        self._unreadable: list[str] = []

    def refresh(self, progress: Progress | None = None) -> bool:
        """Read what was appended, and return whether there was any.

        Raises ``ClientError``: ``not-found`` where there is no file, ``unreadable`` where none may be read or
        none has raw moments.
        """
        first = not self._changes
        closed: list[OSError] = []
        sources = self._tree.files(closed)
        shut = [
            f"{shown_text(Path(error.filename).name, 200)} cannot be looked into: {error.strerror or error}. "
            "Its files are not read."
            for error in closed
        ]
        if shut and not sources:
            raise ClientError(shut[0], code="unreadable")
        if not sources and first:
            raise ClientError(
                f"{shown_text(self._tree.root.name, 200)} holds no .jsonl file of raw moments yet. Expected "
                "files such as grad_raw_moments_by_param/rank0.jsonl in it."
            )
        found = [self._files.get(str(source.path)) or ImportedFile(source) for source in sources]
        # What was read of a folder before it was closed stays.
        closed_folders = {Path(error.filename) for error in closed}
        unread = [file for file in self._files.values() if file.source.path.parent in closed_folders]
        files = sorted([*found, *unread], key=lambda file: file.source.order)
        self._files = {str(file.source.path): file for file in files}
        changed, unreadable = bring_up_to_date(found, progress)
        if unreadable and len(unreadable) == len(found):
            raise ClientError(unreadable[0], code="unreadable")
        unreadable = [*shut, *unreadable]
        if not changed and not first and unreadable == self._unreadable:
            return False
        self._unreadable = unreadable
        self._take_stock(files)
        if first:
            self._check(files)
            trim_cache()
        return True

    def close(self) -> None:
        super().close()
        self._files = {}

    def _take_stock(self, files: list[ImportedFile]) -> None:
        own = [newest([part.pieces for part in file.parts()]) for file in files]
        hidden, warnings = supersede(files, [[piece for part in parts for piece in part] for parts in own])
        counting = [
            [[PartlyHidden(piece, hidden[at]) if at in hidden else piece for piece in part] for part in parts]
            for at, parts in enumerate(own)
        ]
        warnings = [*_went_back(files), *warnings, *self._unreadable]
        warnings += [
            f"{file.source.name} was cut short or replaced while it was open, and was read anew."
            for file in files
            if file.replaced
        ]
        problems = [problem for file in files for problem in _problems(file)]
        warnings += problems[:20]
        left = sum(file.read.left_out for file in files) - len(problems[:20])
        if left > 0:
            warnings.append(f"{left} more lines were left out, in whole or in part.")
        unscaled = {
            stat
            for file, parts in zip(files, counting, strict=True)
            for part, pieces in zip(file.parts(), parts, strict=True)
            for stat in part.stretch.unscaled
            if any(np.isnan(read_stat(piece, stat, "loss_scale")["loss_scale"]).any() for piece in pieces)
        }
        warnings += [
            f"{stat}: the loss scale is not recorded, so the values may be multiplied by it; skewness and "
            "kurtosis are not touched by that."
            for stat in _SCALED
            if stat in unscaled
        ]
        self._count([piece for parts in counting for part in parts for piece in part], warnings)

    def _check(self, files: list[ImportedFile]) -> None:
        if self.stats():
            return
        problems = [problem for file in files for problem in _problems(file)]
        what = f" {problems[0]}" if problems else " They are empty so far."
        if problems or all(file.read.end for file in files):
            raise ClientError(
                f"{shown_text(self._tree.root.name, 200)} holds no raw-moment records.{what} Expected lines "
                'such as {"iter": 1, "stat": "grad_raw_moments_by_param", "values": '
                '{"decoder.layers.0.mlp.weight": {"count": 4.0, "sum_1": …}}}.',
                code="unreadable",
            )


def _problems(file: ImportedFile) -> list[str]:
    return [f"{file.source.name}, line {line}: {what}." for line, what in file.read.problems]


def _went_back(files: Sequence[ImportedFile]) -> list[str]:
    found = []
    for file in files:
        for stat in MOMENT_STATS:
            course = file.read.courses.get(stat)
            if course is not None and course.times:
                times = "" if course.times == 1 else f" (the last of {course.times} times)"
                found.append(
                    f"{stat}: the run went back from step {course.back_from} to {course.back_to}{times}; "
                    "older rows at or after that step are superseded."
                )
    return list(dict.fromkeys(found))
