"""One script, three times from one seed: by itself, before the witness, and traced."""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from . import scripts
from .compare_statistics import compare_statistics
from .compare_tensors import compare_tensors
from .job import SCRIPTS, Job, Script
from .traced import Recording, Traced
from .verdict import BAD, WRONG, Verdict, same
from .witness import Watched, Witness


@dataclass
class Trial:
    """What came of one script."""

    script: Script
    losses: int = 0
    losses_differ: str | None = None
    failed: str | None = None
    """What the traced run raised, where the plain one did not."""
    verdicts: list[Verdict] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong, twice there or missing in silence."""
        bad = any(
            verdict.counts[what].get(kind)
            for verdict in self.verdicts
            for what in [*verdict.counts]
            for kind in BAD
        )
        return not (bad or self.losses_differ or self.failed)


def all_scripts() -> dict[str, Script]:
    """Return every script of the folder ``scripts``."""
    for module in pkgutil.iter_modules(scripts.__path__):
        importlib.import_module(f"{scripts.__name__}.{module.name}")
    return SCRIPTS


def try_script(script: Script, *, raises: bool = False) -> Trial:
    """Run a script three times and compare. ``raises``: let what the traced run raises through."""
    plain = Job()
    with torch.random.fork_rng():
        _run(script, plain)
        witness = Witness()
        try:
            _run(script, witness)
        finally:
            witness.close()
        trial = Trial(script, len(plain.losses), _differ("the witness", plain, witness))
        with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
            traced = Traced(Path(folder))
            try:
                _run(script, traced)
                trial.recordings = traced.read()
            except Exception as error:
                if raises:
                    raise
                trial.failed = f"{type(error).__name__}: {error}"
            finally:
                traced.close()
    trial.losses_differ = trial.losses_differ or _differ("Megalens", plain, traced)
    trial.watched = witness.watched
    for watched, recording in zip(trial.watched, trial.recordings, strict=trial.failed is None):
        trial.verdicts.append(judge(watched, recording, stacks=script.stacks))
    return trial


def _run(script: Script, job: Job) -> None:
    torch.manual_seed(1)
    torch.compiler.reset()
    script.run(job)


def _differ(who: str, plain: Job, other: Job) -> str | None:
    """Return where losses are not equal to the bit."""
    if len(plain.losses) != len(other.losses):
        return f"{len(other.losses)} losses with {who}, {len(plain.losses)} without"
    for number, (a, b) in enumerate(zip(plain.losses, other.losses, strict=True)):
        if not torch.equal(a, b) and not (a.isnan().any() and b.isnan().any()):
            return f"loss {number} is {float(b)!r} with {who}, {float(a)!r} without"
    return None


def judge(watched: Watched, recording: Recording, *, stacks: bool) -> Verdict:
    """Compare a recording with what was seen of the same training in a plain run.

    ``stacks``: the model has several lists of layers, whose numbers in the recording are found by their
    values.
    """
    verdict = Verdict()
    compare_tensors(verdict, watched, recording, stacks)
    compare_statistics(verdict, watched, recording, stacks)
    for row, array in recording.arrays:
        if not same(np.asarray(row["values"], np.float32), torch.from_numpy(array.reshape(-1))):
            verdict.say(row["flag"], WRONG, "run.array gives other values than the row has")
    return verdict
