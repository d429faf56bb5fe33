"""Writing a run folder to other storage, as often as it is asked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from .errors import ClientError
from .storage import HEADER, Progress, in_parallel, listed, open_storage, own_files, stays, tried


class Upload:
    """Writes a run folder to an address, as often as it is asked, each file once it is as it stays.

    Parameters
    ----------
    folder : path
        The run folder, which may be growing.
    address : str
        The folder that is to hold it: ``s3://bucket/runs`` gets ``s3://bucket/runs/<name of the folder>``.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self.address = f"{address.rstrip('/')}/{folder.name}"
        self._storage, self._root = open_storage(self.address)
        self._sent: dict[str, tuple[int, int]] = {}

    def send(self, whole: bool = False, progress: Progress | None = None) -> int:
        """Send what is new and return its bytes: sealed segments, and with ``whole`` everything.

        A sealed segment that is there already, with the same size, is not sent again: another process, or
        this one before the network broke, did that. Raises ``ClientError`` (``unreadable``) where the storage
        fails; what was sent stays, and the next call goes on.
        """
        files = {
            name: path for name, path in own_files(self._folder) if whole or name == HEADER or stays(name)
        }
        stamps = {name: stamp for name, path in files.items() if (stamp := _stamp(path))}
        new = {name: stamp for name, stamp in stamps.items() if self._sent.get(name) != stamp}
        if not self._sent:
            there = listed(self._storage, self._root, self.address, missing=True)
            for name in [name for name in new if stays(name) and there.get(name, (-1,))[0] == new[name][0]]:
                self._sent[name] = new.pop(name)
        total = sum(size for size, _ in new.values())

        def put(name: str) -> int:
            try:
                self._try(partial(self._storage.put_file, str(files[name]), f"{self._root}/{name}"), name)
            except ClientError:
                if files[name].exists():
                    raise
                # Sealed meanwhile: the next call sends what it became.
                return 0
            self._sent[name] = new[name]
            return new[name][0]

        rows = sorted(new.keys() - {HEADER}, key=lambda name: new[name][0])
        sent = in_parallel(put, rows, total, progress, f"Sending to {self.address}")
        # The header after the rows: who reads it there finds all that it says.
        sent += in_parallel(put, [HEADER] if HEADER in new else [], total, progress, "")
        if whole:
            self._drop([name for name in self._sent if not stays(name) and name not in files])
        return sent

    def _drop(self, tails: list[str]) -> None:
        """Remove tails there whose rows are in the segments that they became."""
        for name in tails:
            with suppress(FileNotFoundError):
                self._try(partial(self._storage.rm_file, f"{self._root}/{name}"), name)
            del self._sent[name]

    def _try(self, work: Callable[[], Any], name: str) -> None:
        tried(work, f"{self.address}/{name}")


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        # Sealed meanwhile.
        return None
    return (status.st_size, status.st_mtime_ns)
