"""TrainerMon's CSV files as TensorBoard's events: one file for each rank and kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path

from ...client.moments import find_trees
from ...client.moments.trainermon.csv_table import read_csv_table
from ...client.moments.trainermon.files import KINDS
from ...protocol import MegalensError, is_whole
from .config import STAMP, ConfigValueError, read_time
from .event_files import EventFile

__all__ = ["csv2tensorboard_by_step"]

_OPS = ("norm", "min", "max", "zeros", "nans", "id", "mean")
_MOST_PROCESSES = 128
_Told = Callable[[str], object]


def csv2tensorboard_by_step(
    monitor_path: str | Path,
    time_start: str | None = None,
    time_end: str | None = None,
    process_num: int = 1,
    data_type_list: Sequence[str] | None = None,
    output_dirpath: str | Path | None = None,
    *,
    tell: _Told = print,
) -> Path:
    """Write what TrainerMon wrote as CSV files as numbers over steps, and return the folder: ``rank0/actv/events.out.tfevents…`` and so on.

    Tags are ``vp{chunk}:{name}[:micro{n}]/{op}``. Where two files have the same step of a tag, the one of the later folder counts, and it is told.

    Parameters
    ----------
    monitor_path : path
        The output folder, with one folder for each rank and start.
    time_start, time_end : str, optional
        Folders from this time to that, both with it, such as ``Nov21_12-20-04``. None: all.
    process_num : int
        1 to 128 processes.
    data_type_list : list of str, optional
        Which kinds; None: all eight.
    output_dirpath : path, optional
        None: ``{now}-csv2tensorboard_by_step`` below ``monitor_path``.
    tell : callable
        Takes sentences on what was left out.

    Raises
    ------
    ConfigValueError
        When an argument is wrong.
    MegalensError
        When there is nothing to read, the packages that write are not installed, or a file cannot be written.
    """
    if not is_whole(process_num, 1) or process_num > _MOST_PROCESSES:
        raise ConfigValueError(f"process_num must be 1 to {_MOST_PROCESSES}, got {process_num!r:.50}.")
    kinds = [*KINDS] if data_type_list is None else data_type_list
    if not isinstance(kinds, (list, tuple)) or not all(kind in KINDS for kind in kinds):
        raise ConfigValueError(
            f"data_type_list must be a list of any of {', '.join(KINDS)}, got {data_type_list!r:.200}."
        )
    given = {"time_start": time_start, "time_end": time_end}
    first, last = (None if text is None else read_time(text, name) for name, text in given.items())
    if first is not None and last is not None and first > last:
        raise ConfigValueError(f"time_start must not be after time_end, got {time_start} and {time_end}.")
    parts = _parts(Path(monitor_path), kinds, first, last)
    if not parts:
        raise MegalensError(f"{monitor_path} holds no files of TrainerMon of these kinds and times.")
    name = f"{datetime.now().strftime(STAMP)}-csv2tensorboard_by_step"
    out = Path(monitor_path) / name if output_dirpath is None else Path(output_dirpath)
    # Here, so that what is missing is said before processes start.
    EventFile(out)
    places = [out / f"rank{rank}" / kind for rank, kind in parts]
    for problem in _mapped(process_num, places, [*parts.values()]):
        tell(problem)
    return out


def _parts(
    folder: Path, kinds: Sequence[str], first: datetime | None, last: datetime | None
) -> Mapping[tuple[int, str], list[Path]]:
    """Return the files of each rank and kind, those of earlier folders first."""
    found: dict[tuple[int, str], list[tuple[datetime, str, Path]]] = {}
    trees = [tree for tree in find_trees(folder) if tree.layout == "trainermon"]
    for file in (file for tree in trees for file in tree.files()):
        try:
            begun = read_time(file.path.parent.name.partition("-rank")[0], "folder")
        except MegalensError:
            continue
        inside = (first is None or first <= begun) and (last is None or begun <= last)
        if file.kind in kinds and inside:
            found.setdefault((file.rank, file.kind), []).append((begun, file.path.name, file.path))
    return {key: [path for *_, path in sorted(files)] for key, files in sorted(found.items())}


def _mapped(processes: int, places: list[Path], files: list[list[Path]]) -> Iterable[str]:
    if processes == 1 or len(places) == 1:
        several = list(map(_write, places, files))
    else:
        with ProcessPoolExecutor(min(processes, len(places)), get_context("spawn")) as pool:
            several = list(pool.map(_write, places, files))
    return [problem for problems in several for problem in problems]


def _write(folder: Path, files: Sequence[Path]) -> list[str]:
    """Write one rank's files of one kind; what was left out, in sentences."""
    problems: list[str] = []
    steps: dict[int, dict[str, float]] = {}
    twice: set[Path] = set()
    for path in files:
        table, wrong = read_csv_table(path)
        problems += wrong
        if not {"name", "step"} <= {*table.column_names}:
            continue
        there = [op for op in _OPS if op in table.column_names]
        for row in table.select(
            [c for c in ("vpp_stage", "name", "step", "micro_step", *there) if c in table.column_names]
        ).to_pylist():
            micro = "" if row.get("micro_step") is None else f":micro{row['micro_step']}"
            place = f"vp{row.get('vpp_stage') or 0}:{row['name']}{micro}"
            of_step = steps.setdefault(row["step"], {})
            for op in there:
                if row[op] is not None:
                    twice |= {path} if f"{place}/{op}" in of_step else set()
                    of_step[f"{place}/{op}"] = row[op]
    problems += [
        f"{path.name} has steps that were there before: the later ones count." for path in sorted(twice)
    ]
    try:
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        file = EventFile(folder)
        for step in sorted(steps):
            file.scalars(step, steps[step])
        file.close()
    except OSError as error:
        raise MegalensError(f"Files in {folder} cannot be written: {error.strerror or error}.") from error
    return problems
