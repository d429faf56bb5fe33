"""Renames as on a network file system, of which ``bench.soak`` has the hub and its sealers suffer: of those in run folders one in ten fails."""

import errno
import os
import random
from typing import Any

_replace = os.replace
_CODES = (errno.ESTALE, errno.EEXIST, errno.EIO)


def _failing(source: Any, target: Any, **folders: Any) -> None:
    name = os.path.basename(os.fspath(target))
    # A hub that cannot begin a recording says so and ends, and so does the training.
    goes_on = name.endswith(".parquet") or (name == "run.json" and os.path.exists(target))
    if goes_on and random.random() < 0.1:
        code = random.choice(_CODES)
        if random.random() < 0.3:
            # A server that did it, and whose answer was lost.
            _replace(source, target, **folders)
        raise OSError(code, os.strerror(code), os.fspath(target))
    _replace(source, target, **folders)


os.replace = _failing
