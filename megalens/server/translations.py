"""Foreign hubs that a person connected to from the panel: a child process of the Jupyter server each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .child_process import end_process, start_process
from .errors import ServerError

DIALECTS = ("3606", "T1", "T2", "inference")
_RUN = re.compile(r"run ([A-Za-z0-9][A-Za-z0-9._-]{0,99})")
_MOST = 8
_START_SECONDS = 30
_END_SECONDS = 10


@dataclass(eq=False)
class _Translation:
    address: str
    process: subprocess.Popen[str]
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    run: str | None = None
    known: threading.Event = field(default_factory=threading.Event)


class Translations:
    """All translations of this server. Its methods await processes: call them in a worker thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[_Translation] = []
        self._closed = False

    def start(
        self, address: str, dialect: str, config: dict[str, Any] | None, prompts: list[str], tokens: int
    ) -> str:
        """Translate the hub at ``address``, unless that runs already, and return the id of the run.

        Raises ``ServerError``: 400 for what the dialect cannot do, 409 for too many, 502 when it ended at
        once.
        """
        with self._lock:
            self._all = [each for each in self._all if each.process.poll() is None]
            found = next((each for each in self._all if each.address == address), None)
            if found is None:
                if self._closed or len(self._all) >= _MOST:
                    raise ServerError(
                        409, "refused", f"At most {_MOST} foreign hubs are followed at once. Leave one first."
                    )
                # A second connection would replace the first at the peer.
                found = _launch(address, dialect, config, prompts, tokens)
                self._all.append(found)
        found.known.wait(_START_SECONDS)
        if found.run is None:
            found.process.terminate()
            code = found.process.wait()
            text = found.lines[-1] if found.lines else f"it ended with exit code {code} and wrote nothing"
            text = text.removeprefix("megalens connect: ").replace(str(Path.home()), "~")
            if code == 2:
                raise ServerError(400, "bad-parameter", text, "config")
            raise ServerError(502, "unreachable", text, "address")
        return found.run

    def stop(self, run_id: str) -> bool:
        """End the translation that makes a run, wait for it, and return whether there was one."""
        with self._lock:
            found = [each for each in self._all if each.run == run_id and each.process.poll() is None]
        for each in found:
            end_process(each.process, _END_SECONDS)
        return bool(found)

    def close(self) -> None:
        """End all of them for good. Safe twice."""
        with self._lock:
            self._closed = True
            running, self._all = self._all, []
        for each in running:
            each.process.terminate()
        for each in running:
            end_process(each.process, _END_SECONDS)


def _launch(
    address: str, dialect: str, config: dict[str, Any] | None, prompts: list[str], tokens: int
) -> _Translation:
    command = [sys.executable, "-m", "megalens", "connect", address, f"--dialect={dialect}"]
    if config is not None:
        command.append(f"--config={json.dumps(config)}")
    if prompts:
        command += [f"--tokens={tokens}", *(f"--prompt={prompt}" for prompt in prompts)]
    # Closing its standard input ends it, so it ends with this server however that ends.
    command.append("--until-stdin-closes")
    try:
        process = start_process(command)
    except (OSError, ValueError) as error:
        raise ServerError(500, "internal", "The translation could not be started.") from error
    translation = _Translation(address, process)
    threading.Thread(target=_read, args=(translation,), daemon=True).start()
    return translation


def _read(translation: _Translation) -> None:
    assert translation.process.stdout is not None
    with translation.process.stdout as output:
        for line in output:
            match = _RUN.fullmatch(line.strip())
            if match and translation.run is None:
                translation.run = match[1]
                translation.known.set()
            elif line.strip():
                translation.lines.append(line.strip()[:500])
    translation.known.set()
