"""Foreign hubs that a person connected to from the panel: a child process of the Jupyter server each."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from .child_process import RunProcess, end_process
from .errors import ServerError

DIALECTS = ("3606", "T1", "T2", "inference")
_MOST = 8
_START_SECONDS = 30
_END_SECONDS = 10


class Translations:
    """All translations of this server. Its methods await processes: call them in a worker thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the address of the foreign hub.
        self._all: dict[str, RunProcess] = {}
        self._closed = False

    def start(
        self, address: str, dialect: str, config: dict[str, Any] | None, prompts: list[str], tokens: int
    ) -> str:
        """Translate the hub at ``address``, unless that runs already, and return the id of the run.

        Raises ``ServerError``: 400 for what the dialect cannot do, 409 for too many, 502 when it ended at
        once.
        """
        with self._lock:
            self._all = {of: each for of, each in self._all.items() if each.process.poll() is None}
            found = self._all.get(address)
            if found is None:
                if self._closed or len(self._all) >= _MOST:
                    raise ServerError(
                        409, "refused", f"At most {_MOST} foreign hubs are followed at once. Leave one first."
                    )
                # A second connection would replace the first at the peer.
                found = self._all[address] = _launch(address, dialect, config, prompts, tokens)
        found.named.wait(_START_SECONDS)
        if found.run is None:
            found.process.terminate()
            code = found.process.wait()
            text = found.last_line(code).removeprefix("megalens connect: ")
            if code == 2:
                raise ServerError(400, "bad-parameter", text, "config")
            raise ServerError(502, "unreachable", text, "address")
        return found.run

    def stop(self, run_id: str) -> bool:
        """End the translation that makes a run, wait for it, and return whether there was one."""
        with self._lock:
            known = self._all.values()
            found = [each for each in known if each.run == run_id and each.process.poll() is None]
        for each in found:
            end_process(each.process, _END_SECONDS)
        return bool(found)

    def close(self) -> None:
        """End all of them for good. Safe twice."""
        with self._lock:
            self._closed = True
            running, self._all = [*self._all.values()], {}
        for each in running:
            each.process.terminate()
        for each in running:
            end_process(each.process, _END_SECONDS)


def _launch(
    address: str, dialect: str, config: dict[str, Any] | None, prompts: list[str], tokens: int
) -> RunProcess:
    command = [sys.executable, "-m", "megalens", "connect", address, f"--dialect={dialect}"]
    if config is not None:
        command.append(f"--config={json.dumps(config)}")
    if prompts:
        command += [f"--tokens={tokens}", *(f"--prompt={prompt}" for prompt in prompts)]
    # Closing its standard input ends it, so it ends with this server however that ends.
    command.append("--until-stdin-closes")
    try:
        return RunProcess(command)
    except (OSError, ValueError) as error:
        raise ServerError(500, "internal", "The translation could not be started.") from error
