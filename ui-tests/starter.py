"""Starts the processes of the browser tests warm: JupyterLab, its kernels, trainings and their hubs find torch and the package imported.

Standard input has a line of JSON for each thing that is asked: ``{"id", "command", "environment"}`` starts Python with a command,
``{"id", "line"}`` writes to its standard input. Standard output tells ``{"id", "pid"}``, ``{"id", "line"}`` for each line that the process
writes, and ``{"id", "code"}`` at its end. What still runs when standard input closes is ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

import warm  # noqa: E402

_telling = threading.Lock()


def _tell(**what: Any) -> None:
    with _telling:
        print(json.dumps(what), flush=True)


def _follow(number: int, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        _tell(id=number, line=line.rstrip("\n"))


def _await(number: int, process: subprocess.Popen[str]) -> None:
    """Tell its end, also where a hub that it started still holds its output open."""
    _tell(id=number, code=process.wait())


def main() -> None:
    warm.install()
    processes: dict[int, subprocess.Popen[str]] = {}
    for text in sys.stdin:
        asked = json.loads(text)
        number = asked["id"]
        if "command" in asked:
            process = processes[number] = subprocess.Popen(
                [sys.executable, *asked["command"]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=asked["environment"],
                text=True,
                errors="replace",
            )
            _tell(id=number, pid=process.pid)
            for told in (_follow, _await):
                threading.Thread(target=told, args=(number, process), daemon=True).start()
        else:
            stdin = processes[number].stdin
            assert stdin is not None
            try:
                stdin.write(asked["line"] + "\n")
                stdin.flush()
            except BrokenPipeError:
                # It is ending; what it wrote, and how it ended, is told.
                pass
    for process in processes.values():
        process.terminate()


if __name__ == "__main__":
    main()
