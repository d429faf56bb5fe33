"""A training at full rate whose hub, relay, viewers, kernels and ranks are killed at random, whose disk is full and whose renames fail for moments: nothing is
lost in silence, and it trains the same.

The undisturbed run that it is compared with comes after and takes about as long again. A rank is ``bench.ranks.soak``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from websockets.exceptions import InvalidHandshake, WebSocketException
from websockets.sync.client import connect as open_socket
from websockets.typing import Subprotocol

from megalens.pictures.report import write_report
from megalens.protocol import MegalensError, decode_frame
from megalens.runs import connect, open_run
from megalens.runs.run_folder import RunFolder

from .common import ROOT, Measured, Row, benchmark, judged
from .live import call, free_port
from .recordings import joining

__all__ = ["soak", "watch"]

_KILLS = ("viewer", "viewer by the relay", "relay", "hub", "rank", "kernel", "renderer")
_FAULTS = ("full disk", "no descriptors", "second hub")
_PAUSE_SECONDS = (0.5, 3.0)
_FAULT_SECONDS = (0.5, 3.0)
_FULL_BYTES = 4096
_HANGS_SECONDS = 600
"""How fast the machine is decides nothing."""


@benchmark(
    "A soak with random kills",
    "1 minute",
    minutes=(10.0, 1.0, "how long it trains"),
    seed=(0, "of what is killed when"),
)
def soak(options: argparse.Namespace) -> Measured:
    """A training at full rate whose hub, relay, viewers, kernels and ranks are killed at random: nothing is lost in silence, and it trains the same."""
    disturbed, reference = options.folder / "disturbed", options.folder / "undisturbed"
    job = _Soak(disturbed, random.Random(options.seed))
    try:
        job.run(options.minutes)
    finally:
        job.close()
    losses = losses_of(disturbed)
    steps = max(losses)
    reference.mkdir()
    for rank in [_rank(rank, 0, reference, steps) for rank in (0, 1)]:
        rank.wait()
    same = losses_of(reference)
    lost = lost_rows(disturbed, job.lives)
    wrong = [step for step in same if losses.get(step) != same[step]] + sorted(set(losses) - set(same))
    kills, faults = (
        ", ".join(f"{counted[each]} of {each}" for each in names)
        for counted, names in ((job.kills, _KILLS), (job.faults, _FAULTS))
    )
    named = "rows lost with a killed hub or a full disk, by the steps that the status or run.json named"
    first = f"the first is step {wrong[0]}" if wrong else ""
    hubs = f"in {lost.named_steps} steps at {job.kills['hub']} kills"
    rows = [
        Row("steps trained", steps, "steps"),
        Row("kills", job.kills.total(), "", note=kills),
        Row("moments of other trouble", job.faults.total(), "", note=faults),
        judged("second hubs that were let into the run's folder", job.let_in, "", "0"),
        Row("rows that these steps give on both ranks", steps * ROWS_PER_STEP * 2, "rows"),
        judged(
            "steps whose loss is another one than undisturbed, in any bit", len(wrong), "steps", "0", first
        ),
        Row("rows in the recordings", lost.recorded, "rows"),
        Row("rows lost that the status counted", lost.counted, "rows"),
        Row(named, lost.named, "rows", note=hubs),
        judged("rows lost of which the status said nothing", lost.silent, "rows", "0", lost.example),
        Row("frames that the viewers received meanwhile", job.frames, "frames"),
        Row("reports that kernels drew meanwhile", job.reports, "reports"),
    ]
    how = (
        f"{options.minutes:g} minutes of the demo model in 2 data-parallel processes, QKV, MLP1 and MLP2 of all layers and both replicas traced at every step with Tile(96), recorded; "
        "one viewer at the hub, one behind the relay of a real Jupyter server, one kernel that draws reports of the run's folder. Every 0.5 to 3 s one of them is killed (SIGKILL): a "
        "viewer, the Jupyter server, the kernel or its engine, the "
        "hub (once in the life of a job: the tracer starts its own hub anew once), or one rank, after which the job is started again from its newest checkpoint; or the hub may for half a "
        "second to three write no file beyond 4 KiB, or open no file; or a second hub wants to go on with the folder of the live run. One rename in ten of a segment or a "
        "run.json fails with ESTALE, EEXIST or EIO, a third of these after it was done. Then "
        "the same number of steps without tracing and without kills. Losses are compared bit for bit, and the rows of all recordings with those that every step gives."
    )
    return Measured(rows, how)


class _Soak:
    """The job, its viewers and the Jupyter server, started again whenever they were killed."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.kills: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.let_in = 0
        self.frames = 0
        self.reports = 0
        self.lives = 0
        self._folder = folder
        self._rng = rng
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._others: dict[str, subprocess.Popen[Any]] = {}
        self._outputs: list[Path] = []
        self._hub_killed = False
        self._port = free_port()
        self._token = secrets.token_hex(16)
        folder.mkdir()

    def run(self, minutes: float) -> None:
        """Train and kill for so many minutes, then let the job end."""
        self._begin_job()
        for name in ("relay", "viewer", "viewer by the relay", "kernel"):
            self._start(name)
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            time.sleep(self._rng.uniform(*_PAUSE_SECONDS))
            for rank in self._ranks:
                if rank.poll() is not None:
                    raise RuntimeError(f"A rank ended by itself, with exit code {rank.returncode}.")
            name = self._rng.choice(
                [each for each in (*_KILLS, *_FAULTS) if each != "hub" or not self._hub_killed]
            )
            if name in _FAULTS:
                self._trouble(name)
            else:
                self._kill(name)
        (self._folder / "stop").touch()
        for rank in self._ranks:
            if rank.wait(_HANGS_SECONDS):
                raise RuntimeError(f"A rank ended with exit code {rank.returncode}.")
        # A hub stays for as long as somebody watches; then it closes the recording and ends.
        for process in self._others.values():
            process.kill()
            process.wait()
        self._wait(lambda: not list(self._runtime().glob("hub-*.json")), "the last hub to end", ends=True)

    def close(self) -> None:
        """End all that is left, and count what the viewers received."""
        for process in (*self._ranks, *self._others.values()):
            if process.poll() is None:
                process.kill()
                process.wait()
        for path in self._outputs:
            count = int((path.read_text(encoding="utf-8").split() or ["0"])[-1])
            if path.name.startswith("kernel"):
                self.reports += count
            else:
                self.frames += count

    def _trouble(self, name: str) -> None:
        self.faults[name] += 1
        hub = self._status()["hub"]
        if name == "second hub":
            entry = next(self._runtime().glob(f"hub-{hub}*.json"), None)
            folder = entry and json.loads(entry.read_text(encoding="utf-8"))["record"]
            if folder:
                command = ["megalens", "hub", "--resume", folder, "--first-step", "1", "--linger", "0"]
                second = subprocess.run(
                    [sys.executable, "-m", *command], capture_output=True, timeout=120, check=False
                )
                self.let_in += second.returncode != 2
            return
        kind, most = (
            (resource.RLIMIT_FSIZE, _FULL_BYTES) if name == "full disk" else (resource.RLIMIT_NOFILE, 3)
        )
        try:
            soft, hard = resource.prlimit(hub, kind)
            resource.prlimit(hub, kind, (most, hard))
            time.sleep(self._rng.uniform(*_FAULT_SECONDS))
            resource.prlimit(hub, kind, (soft, hard))
        except ProcessLookupError:
            # It was killed a moment ago.
            pass

    def _kill(self, name: str) -> None:
        if name == "renderer":
            kernel = self._others["kernel"].pid
            children = Path(f"/proc/{kernel}/task/{kernel}/children")
            engines = children.read_text().split() if children.exists() else []
            for engine in engines:
                with suppress(ProcessLookupError):
                    os.kill(int(engine), signal.SIGKILL)
                    self.kills[name] += 1
            return
        self.kills[name] += 1
        if name == "hub":
            self._hub_killed = True
            before = self._status()
            os.kill(before["hub"], signal.SIGKILL)
            self._wait(lambda: self._status()["run"] != before["run"], "a new hub")
        elif name == "rank":
            victim = self._rng.choice(self._ranks)
            for rank in (victim, *self._ranks):
                # What is left of the job would wait for the other; a launcher ends it.
                rank.kill()
                rank.wait()
            self._begin_job()
        else:
            self._others[name].kill()
            self._others[name].wait()
            self._start(name)

    def _begin_job(self) -> None:
        life = self.lives
        self.lives += 1
        self._hub_killed = False
        self._ranks = [_rank(rank, life, self._folder) for rank in (0, 1)]
        self._wait(lambda: (self._folder / f"status-{life}-0.json").exists(), "the training to begin")

    def _start(self, name: str) -> None:
        if name == "relay":
            command = [
                *("jupyter_server", f"--port={self._port}", "--no-browser", "--allow-root"),
                *("--ServerApp.port_retries=0", f"--ServerApp.root_dir={self._folder}"),
                f"--IdentityProvider.token={self._token}",
                "--ServerApp.jpserver_extensions={'megalens.server': True}",
            ]
            with open(self._folder / "jupyter.log", "ab") as log:
                self._others[name] = subprocess.Popen(
                    [sys.executable, "-m", *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
            return
        where: dict[str, Any] = {
            "viewer": {"kind": "hub"},
            "kernel": {
                "kind": "folder",
                "runs": self._folder / "runs",
                "report": self._folder / "report.html",
            },
        }.get(name, {"kind": "relay", "address": f"127.0.0.1:{self._port}", "token": self._token})
        path = self._folder / f"{name.partition(' ')[0]}-{len(self._outputs)}"
        self._outputs.append(path)
        with open(path, "wb") as out:
            self._others[name] = subprocess.Popen(call("soak:watch", **where), cwd=ROOT, stdout=out)

    def _status(self) -> dict[str, Any]:
        path = self._folder / f"status-{self.lives - 1}-0.json"
        return json.loads(path.read_text(encoding="utf-8"))

    def _runtime(self) -> Path:
        return Path(os.environ["MEGALENS_RUNTIME_DIR"])

    def _wait(self, test: Any, what: str, *, ends: bool = False) -> None:
        deadline = time.monotonic() + _HANGS_SECONDS
        while not test():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Waited {_HANGS_SECONDS} s for {what}.")
            for rank in self._ranks:
                if rank.poll() is not None and not ends:
                    raise RuntimeError(f"A rank ended by itself, with exit code {rank.returncode}.")
            if ends:
                for path in self._runtime().glob("hub-*.json"):
                    # One that was killed cannot take its file away.
                    if not Path(f"/proc/{json.loads(path.read_text(encoding='utf-8'))['pid']}").exists():
                        path.unlink()
            time.sleep(0.1)


def _rank(rank: int, life: int, folder: Path, steps: int | None = None) -> subprocess.Popen[bytes]:
    """Start a rank of the job; one that is disturbed, unless it trains so many steps and ends."""
    # Renames of its hub and of sealers fail now and then.
    faults = {"PYTHONPATH": f"{ROOT / 'bench' / 'soak_faults'}:{ROOT}"} if steps is None else {}
    command = call("ranks:soak", rank=rank, life=life, folder=folder, steps=steps)
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | faults)


_AGAIN_SECONDS = 0.3


def watch(kind: str, **where: str) -> None:
    """Watch until killed, by the ``hub``, the ``relay`` or a ``folder``; print how many frames came or reports were drawn, now and then."""
    ways: dict[str, Callable[..., Iterator[int]]] = {"hub": _by_hub, "relay": _by_relay, "folder": _by_folder}
    frames = 0
    while True:
        try:
            for count in ways[kind](**where):
                frames += count
                print(frames, flush=True)
        except (MegalensError, OSError, WebSocketException, InvalidHandshake, IndexError):
            # No hub or no server at the moment.
            pass
        time.sleep(_AGAIN_SECONDS)


def _by_hub() -> Iterator[int]:
    run = connect()
    try:
        before = 0
        while run.live:
            time.sleep(0.5)
            yield run.received_frames - before
            before = run.received_frames
    finally:
        run.close()


def _by_folder(runs: str, report: str) -> Iterator[int]:
    """Draw a report of the newest recording, as a kernel does while it grows."""
    newest = max(Path(runs).iterdir(), key=lambda each: each.stat().st_mtime)
    with open_run(newest) as run:
        write_report(run, report, [{"view": "trend", "flag": "MLP1_mat_mul", "layers": "0"}])
    yield 1


def _by_relay(address: str, token: str) -> Iterator[int]:
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(f"http://{address}/megalens/api/runs", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        live = [run["id"] for run in json.load(answer)["runs"] if run["state"] == "live"]
    with open_socket(
        f"ws://{address}/megalens/ws/runs/{live[0]}",
        additional_headers=headers,
        subprotocols=[Subprotocol("megalens.v2")],
        max_size=None,
    ) as socket:
        socket.send(joining("viewer"))
        for data in socket:
            if isinstance(data, bytes):
                decode_frame(data).table()
                yield 1


ROWS_PER_STEP = (3 + 1 + 1) * 4
"""Of one rank: query, key and value, and the two linear layers, of 4 layers."""
_GAP = re.compile(r"[Rr]ows of steps (\d+) to (\d+) may be")


class Lost(NamedTuple):
    """Rows of a soak by what is known of them: recorded, counted as dropped, in the gap of a hub that the status named or in steps that a recording says it lacks, or lost in silence."""

    recorded: int
    counted: int
    named: int
    named_steps: int
    silent: int
    example: str


def losses_of(folder: Path) -> dict[int, str]:
    """Return the loss of each step as written, bit for bit.

    Raises
    ------
    ValueError
        When a step that was trained again after a restart has another loss.
    """
    losses: dict[int, str] = {}
    for path in sorted(folder.glob("losses-*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            step, _, loss = line.partition(" ")
            if not loss:
                continue
            if losses.setdefault(int(step), loss) != loss:
                raise ValueError(
                    f"Step {step} was trained twice and has two losses: {losses[int(step)]} and {loss}."
                )
    return losses


def lost_rows(folder: Path, lives: int) -> Lost:
    """Compare the rows of all recordings with those that every step of the job gives, rank by rank: no status explains what another rank lost."""
    recorded: dict[tuple[int, int], set[tuple[object, ...]]] = defaultdict(set)
    lacking: list[range] = []
    for path in (folder / "runs").iterdir():
        run = RunFolder(path)
        lacking += [range(first, end + 1) for first, end in run.header.get("missing_steps", ())]
        table = run.read("tensors", columns=["rank", "step", "layer", "flag", "part"])
        for rank, step, *row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            # A step that was trained in two lives is in two recordings.
            recorded[rank, step].add(tuple(row))
    last = max(losses_of(folder))
    ranks = [_of_rank(folder, lives, rank, recorded, last, lacking) for rank in (0, 1)]
    counted, named, named_steps, silent, examples = zip(*ranks, strict=True)
    rows = sum(map(len, recorded.values()))
    told = "; ".join(filter(None, examples))
    return Lost(rows, sum(counted), sum(named), sum(named_steps), sum(silent), told)


def _of_rank(
    folder: Path,
    lives: int,
    rank: int,
    recorded: dict[tuple[int, int], set[tuple[object, ...]]],
    last: int,
    lacking: list[range],
) -> tuple[int, int, int, int, str]:
    """Return rows that were counted, rows and steps that were named, rows lost in silence, and an example of these."""
    missing = {
        step: lost for step in range(1, last + 1) if (lost := ROWS_PER_STEP - len(recorded[rank, step]))
    }
    counted = 0
    named = [*lacking]
    for life in range(lives):
        path = folder / f"status-{life}-{rank}.json"
        if path.exists():
            status = json.loads(path.read_text(encoding="utf-8"))["status"]
            counted += status["dropped"]["producer"]
            named += [
                range(int(first), int(end) + 1)
                for text in status.get("warnings", ())
                for first, end in _GAP.findall(text)
            ]
    near = {step: rows for step, rows in missing.items() if any(step in steps for steps in named)}
    in_gaps = sum(near.values())
    silent = {step: rows for step, rows in missing.items() if step not in near}
    unexplained = max(sum(silent.values()) - max(counted - in_gaps, 0), 0)
    steps = ", ".join(map(str, list(silent)[:8]))
    example = f"rank {rank}: {len(silent)} steps such as {steps}" if unexplained else ""
    return counted, max(in_gaps - counted, 0), len(near), unexplained, example
