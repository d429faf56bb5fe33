"""What a job must know of each of its recordings, from an index that is kept beside the caches.

A recording that was closed is looked at again only when a file of it changed. The index may be lost or
damaged: then all are looked at.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from .dask_engine import Each
from .run_folder import RunFolder
from .storage import HEADER, KeptRuns

_STREAMS = ("scalars", "spans", "tensors", "moments")


@dataclass(frozen=True)
class JobRecording:
    """A recording, the ranks that have rows in it, its first step, and when it ended."""

    folder: RunFolder
    ranks: tuple[int, ...]
    first: int | None
    ended: float


def recordings(
    home: Path,
    folders: Sequence[RunFolder],
    each: Each = map,
    looked: Each = map,
) -> list[JobRecording]:
    """Return what is known of run folders below a home; ``each`` maps over all, ``looked`` over those that
    are not in the index.

    Raises ``ClientError`` for one of which a stream cannot be read.
    """
    file = KeptRuns("jobs", home)
    known = file.read(_known)
    keys = [str(folder.path.absolute()) for folder in folders]
    stamps = list(each(_stamp, folders))
    found = {
        key: JobRecording(folder, *known[key][1])
        for key, folder, stamp in zip(keys, folders, stamps, strict=True)
        if stamp and key in known and known[key][0] == stamp
    }
    fresh = [at for at, key in enumerate(keys) if key not in found]
    made = looked(_looked_at, [folders[at] for at in fresh])
    found |= {keys[at]: one for at, one in zip(fresh, made, strict=True)}
    told = {
        key: (stamp, (found[key].ranks, found[key].first, found[key].ended))
        for key, stamp in zip(keys, stamps, strict=True)
        if stamp
    }
    if any(keys[at] in told for at in fresh):
        others = {key: one for key, one in known.items() if os.path.exists(os.path.join(key, HEADER))}
        file.write(others | told)
    return [found[key] for key in keys]


def _known(path: str, told: Any) -> tuple[str, tuple[tuple[int, ...], int | None, float]]:
    stamp, (ranks, first, ended) = told
    return stamp, (tuple(map(int, ranks)), None if first is None else int(first), float(ended))


def _stamp(folder: RunFolder) -> str:
    """Return what changes with the files of a recording; nothing for one that may still grow."""
    if not folder.closed or folder.earlier:
        return ""
    count = newest = size = 0
    with suppress(OSError):
        places = [folder.path]
        for place in places:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False) and place is folder.path:
                        places.append(Path(entry.path))
                    else:
                        about = entry.stat()
                        count, size = count + 1, size + about.st_size
                        newest = max(newest, about.st_mtime_ns, about.st_ctime_ns)
        return f"{count} {size} {newest}"
    return ""


def _looked_at(folder: RunFolder) -> JobRecording:
    ranks: set[int] = set()
    firsts, ended = [], folder.ended
    for stream in _STREAMS:
        if (first := folder.first_step(stream)) is None:
            continue
        firsts.append(first)
        # Scalars are few; of the others one piece names nearly every rank, and all are not worth reading.
        ranks.update(*islice(folder.ranks(stream), None if stream == "scalars" else 1))
    if ended is None:
        times = [pc.max(batch["time"]).as_py() for batch in folder.batches("scalars", None, ["time"])]
        ended = max((time for time in times if time is not None), default=None)
    if ended is None:
        with suppress(OSError):
            ended = (folder.path / HEADER).stat().st_mtime
    return JobRecording(
        folder,
        tuple(sorted(ranks)) or (0,),
        min(firsts, default=None),
        folder.started if ended is None else ended,
    )
