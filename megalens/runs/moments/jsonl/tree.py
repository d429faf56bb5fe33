"""Finding the files of statistics below a path: raw moments as JSONL, and the output of TrainerMon."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ....protocol import RAW_MOMENTS_FOLDER, shown_text
from ...errors import ClientError
from ..trainermon.files import csv_kind, rank_of_folder

_KIND = re.compile(r".+_by_(param|layer|item)")
_RANK = re.compile(r"rank(\d{1,9})")
_BETWEEN = ("tensorboard", "tb")
_MOST_FOLDERS = 100_000
_SNIFF_BYTES = 1 << 20
_WANTED = (
    "Give a .jsonl file of raw moments, a training_stats folder (with folders such as "
    "grad_raw_moments_by_param in it), an output folder of TrainerMon, a folder that holds such folders, "
    "or the folder of a recorded run."
)


@dataclass(frozen=True)
class StatisticsFile:
    """One file: its path, what was measured by its folder's or own name, and its rank (-1: unknown)."""

    path: Path
    kind: str
    rank: int

    @property
    def name(self) -> str:
        """Its name as printable text."""
        return shown_text(self.path.name, 200)

    @property
    def order(self) -> tuple[str, int, str]:
        """Sort key among the files of its run."""
        return str(self.path.parent), self.rank, self.path.name


@dataclass(frozen=True)
class StatisticsTree:
    """The files of one run.

    Attributes
    ----------
    label : str
        The run's name: the folder above ``training_stats``, leaving out a level ``tensorboard`` or ``tb``.
    root : Path
        The folder (or the one file) that its files are in.
    layout : str
        ``raw`` moments, or ``trainermon``.
    within : Path, optional
        Folder out of which no link may lead: files elsewhere are none of the run's.
    """

    label: str
    root: Path
    layout: str = "raw"
    within: Path | None = None

    @property
    def id(self) -> str:
        """The run's id: the same for the same folder on the same machine."""
        return "statistics-" + hashlib.blake2b(os.fsencode(self.root), digest_size=8).hexdigest()

    def told(self) -> dict[str, str | None]:
        """Return what another process makes it of: ``StatisticsTree.of(**told)``."""
        return {name: None if value is None else str(value) for name, value in vars(self).items()}

    @classmethod
    def of(cls, label: str, root: str, layout: str, within: str | None) -> StatisticsTree:
        return cls(label, Path(root), layout, None if within is None else Path(within))

    def files(self, closed: list[OSError] | None = None) -> list[StatisticsFile]:
        """Return the files that are there now; a running job may add some.

        ``closed`` takes the error of each folder that may not be read, with its path as ``filename``: only
        its files are left out. Raises ``ClientError``, ``not-found`` or ``unreadable``, about the folder
        itself.
        """
        found = self._all(closed)
        if self.within is not None:
            found = [file for file in found if file.path.resolve().is_relative_to(self.within)]
        return sorted(found, key=lambda file: file.order)

    def _all(self, closed: list[OSError] | None) -> list[StatisticsFile]:
        if self.layout == "trainermon":
            return list(_csv_files(self.root, closed))
        if _is_file(self.root):
            return [_file(self.root)]
        found = []
        for entry in _entries(self.root):
            if _KIND.fullmatch(entry.name) and _is_folder(entry):
                try:
                    found += [_file(Path(inner.path)) for inner in _listed(entry.path) if _is_jsonl(inner)]
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if closed is not None:
                        closed.append(error)
            elif _is_jsonl(entry):
                found.append(_file(Path(entry.path)))
        return found


def find_trees(path: str | os.PathLike[str], closed: list[OSError] | None = None) -> list[StatisticsTree]:
    """Return the runs below a path, by label.

    The path is a ``.jsonl`` file, a ``training_stats`` folder or one with folders such as
    ``grad_raw_moments_by_param``, a folder of loose files, an output folder of TrainerMon or of one of its
    ranks, or a folder with any number of these at any depth. ``closed`` is as for
    :meth:`StatisticsTree.files`. Raises ``ClientError``: ``not-found`` where there is nothing of the kind,
    ``unreadable`` where nothing that was found may be read.
    """
    closed = [] if closed is None else closed
    chosen = Path(path).expanduser()
    chosen = Path(os.path.abspath(chosen))
    if _is_file(chosen):
        if chosen.suffix != ".jsonl":
            raise ClientError(
                f"{shown_text(chosen.name, 200)} is no .jsonl file. {_WANTED}", code="unreadable"
            )
        return [StatisticsTree(_label(chosen, None), chosen)]
    if not chosen.exists():
        raise ClientError(f"{shown_text(chosen.name or str(chosen), 200)} does not exist. {_WANTED}")
    if rank_of_folder(chosen) is not None and any(_csv_files(chosen, closed)):
        return [StatisticsTree(_label(chosen, None), chosen, "trainermon")]
    roots = [chosen] if _is_home(chosen) else list(_homes(chosen, closed))
    if not roots and _loose(chosen):
        roots = [chosen]
    if not roots and closed:
        raise _closed(Path(closed[0].filename), closed[0])
    if not roots:
        jsonl = any(_is_jsonl(entry) for entry in _entries(chosen))
        what = "holds .jsonl files, but none of raw moments" if jsonl else "holds no raw-moment statistics"
        raise ClientError(f"{shown_text(chosen.name or str(chosen), 200)} {what}. {_WANTED}")
    if len(roots) == 1:
        return [StatisticsTree(_label(roots[0], None), roots[0], _layout(roots[0]))]
    labels = [_label(root, chosen) for root in roots]
    seen: dict[str, int] = {}
    trees = []
    for label, root in zip(labels, roots, strict=True):
        seen[label] = seen.get(label, 0) + 1
        numbered = f"{label} #{seen[label]}" if labels.count(label) > 1 else label
        trees.append(StatisticsTree(numbered, root, _layout(root)))
    return trees


def holds_statistics(path: Path) -> bool:
    """Whether there are raw-moment files at or below a path."""
    try:
        return bool(find_trees(path))
    except ClientError:
        return False


def _file(path: Path) -> StatisticsFile:
    match = _RANK.search(path.stem)
    return StatisticsFile(path, path.parent.name, int(match[1]) if match else -1)


def _is_home(folder: Path) -> bool:
    return (
        folder.name == RAW_MOMENTS_FOLDER
        or any(_KIND.fullmatch(entry.name) and _is_folder(entry) for entry in _entries(folder))
        or _layout(folder) == "trainermon"
    )


def _layout(folder: Path) -> str:
    return "trainermon" if any(_csv_files(folder, [])) else "raw"


def _csv_files(folder: Path, closed: list[OSError] | None) -> Iterator[StatisticsFile]:
    """Yield TrainerMon's files in the folder of one rank, or in the folders right below."""
    own = rank_of_folder(folder)
    ranks = {folder: own} if own is not None else {}
    if own is None:
        entries = _entries(folder)
        ranks = {
            Path(entry.path): rank
            for entry in entries
            if (rank := rank_of_folder(entry.name)) is not None and _is_folder(entry)
        }
    for home, rank in ranks.items():
        try:
            for entry in _listed(home):
                if (kind := csv_kind(entry.name)) is not None and entry.is_file():
                    yield StatisticsFile(Path(entry.path), kind, rank)
        except FileNotFoundError:
            continue
        except OSError as error:
            if closed is not None:
                closed.append(error)


def _homes(folder: Path, closed: list[OSError]) -> Iterator[Path]:
    """Yield the folders that have what a run logged; those that may not be read are left out and noted."""
    for looked, (at, folders, _) in enumerate(os.walk(folder, onerror=closed.append)):
        if looked > _MOST_FOLDERS:
            raise ClientError(
                f"{shown_text(folder.name, 200)} holds more than {_MOST_FOLDERS} folders. Give one further "
                "down, nearer to the runs.",
                code="unreadable",
            )
        here = Path(at)
        if (
            here.name == RAW_MOMENTS_FOLDER
            or any(_KIND.fullmatch(name) for name in folders)
            or (any(rank_of_folder(name) is not None for name in folders) and _layout(here) == "trainermon")
        ):
            folders.clear()
            yield here
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def _loose(folder: Path) -> bool:
    return any(_is_jsonl(entry) and _looks_right(Path(entry.path)) for entry in _entries(folder))


def _looks_right(path: Path) -> bool:
    """Whether the first line may be a record: other data sets in JSONL must not be read in full."""
    try:
        with path.open("rb") as file:
            start = file.read(_SNIFF_BYTES).lstrip()
    except OSError:
        return False
    line = start.partition(b"\n")[0]
    return start.startswith(b"{") and (b'"values"' in line or len(line) == len(start) >= _SNIFF_BYTES)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return _listed(folder)
    except OSError as error:
        raise _closed(folder, error) from error


def _listed(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise _closed(path, error) from error


def _closed(path: Path, error: OSError) -> ClientError:
    return ClientError(
        f"{shown_text(path.name, 200)} cannot be looked into: {error.strerror or error}. It must be a "
        "folder that you may read.",
        code="unreadable",
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link to an unreadable folder; opening it reports that.
        return True


def _is_jsonl(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.name.endswith(".jsonl") and entry.is_file()
    except OSError:
        # The same: reading it reports that.
        return True


def _label(root: Path, typed: Path | None) -> str:
    home = root
    for folder in (root, *root.parents):
        if folder.name == RAW_MOMENTS_FOLDER:
            home = folder.parent
            break
    else:
        home = root.parent / root.stem if root.suffix == ".jsonl" else root
    while home.name in _BETWEEN and home.parent != home:
        home = home.parent
    if typed is not None and home.is_relative_to(typed) and home != typed:
        return shown_text(home.relative_to(typed).as_posix(), 200)
    return shown_text(home.name or str(home), 200)
