"""The JavaScript side of a benchmark: a Node process that runs a way when it is asked for by name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["NodeSide", "node_version"]


class NodeSide:
    """Keep a Node script that answers every line of its input with one line of JSON.

    Parameters
    ----------
    script : Path
        The script.
    arguments : str
        Its arguments.
    """

    def __init__(self, script: Path, *arguments: str) -> None:
        self._node = subprocess.Popen(
            ["node", str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, way: str) -> dict[str, Any]:
        """Run a way once and return its ``ms`` and ``sums``.

        Raises
        ------
        RuntimeError
            When the script ended instead of answering.
        """
        asked, answered = self._node.stdin, self._node.stdout
        assert asked is not None
        assert answered is not None
        asked.write(way + "\n")
        asked.flush()
        line = answered.readline()
        if not line:
            raise RuntimeError(f"The JavaScript side ended while it ran {way}. Run `npm ci` and try again.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> NodeSide:
        """Return this side."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the script; raise when it did not end well by itself."""
        try:
            if error is None:
                assert self._node.stdin is not None
                self._node.stdin.close()
                if self._node.wait(timeout=30) != 0:
                    raise RuntimeError(f"The JavaScript side ended with {self._node.returncode}.")
        finally:
            self._node.kill()
            self._node.wait()


def node_version() -> str:
    """Return what ``node --version`` says."""
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
