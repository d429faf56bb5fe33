"""What is right, absent with a sentence, wrong, twice there, or missing in silence."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from .traced import FLAGS, Recording

RIGHT, ABSENT, WRONG, TWICE, SILENT = (
    "right",
    "absent with a sentence",
    "wrong",
    "twice there",
    "missing in silence",
)
STAGE = "right, of another stage"
"""A gradient as the optimizer took it, clipped, although it was there unclipped; its label says so."""
FIRST = "missing in silence in the first step only"
WATCHED = "absent with a sentence in the first step only"
BAD = (WRONG, TWICE, SILENT, FIRST)
_VALUES = {
    "values",
    "labels",
    "source_shape",
    "shape",
    "nan_count",
    "inf_count",
    "compression_error",
    "compressor",
}
_VALUES |= {
    "count",
    "mean",
    "m2",
    "m3",
    "m4",
    "min",
    "max",
    "negative_inf_count",
    "near_zero_count",
    "rounding",
}
_VALUES |= {"samples", "gradient_stage", "loss_scale", "stage"}


@dataclass
class Verdict:
    """Of one watched model: by flag or statistic, how many rows are what, with a sentence for each kind."""

    counts: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    sentences: dict[tuple[str, str], str] = field(default_factory=dict)

    def say(self, what: str, kind: str, sentence: str = "", rows: int = 1) -> None:
        self.counts[what][kind] += rows
        if sentence:
            self.sentences.setdefault((what, kind), sentence)

    def worst(self, what: str) -> str | None:
        """Return the worst that is said of a flag; None where there is nothing of it."""
        return next(
            (kind for kind in (*BAD, ABSENT, WATCHED, STAGE, RIGHT) if self.counts[what].get(kind)),
            None,
        )


def print_kinds(kinds: Sequence[str], models: Iterable[Sequence[Verdict]], where: str) -> None:
    """Print in how many models, of which each may have several verdicts, a flag has rows of a kind."""
    models = [*models]
    for kind in kinds:
        of = Counter(
            what
            for verdicts in models
            for what in {name for each in verdicts for name in each.counts if each.counts[name].get(kind)}
        )
        said = ", ".join(f"{what} {count}" for what, count in of.most_common()) or "none"
        print(f"{kind}, in how many {where}:", said)


def same(found: Any, expected: Tensor) -> bool:
    """Return whether values are equal to the bit, or to a millionth of the largest, non-finite ones in the
    same places.
    """
    a, b = np.asarray(found, np.float32).reshape(-1), expected.detach().float().reshape(-1).numpy()
    if a.size != b.size:
        return False
    if np.array_equal(a, b, equal_nan=True):
        return True
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return False
    most = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    return bool(np.all(np.abs(a[finite] - b[finite]) <= 1e-6 * most))


_WORDS = {
    "QKV_mat_mul": r"QKV|[Qq]ueries",
    "RawAttentionScore_mat_mul": r"RawAttention|[Pp]robabilities",
    "ContextLayer_mat_mul": r"ContextLayer|[Cc]ontext",
    "AttentionOutput_mat_mul": r"AttentionOutput|[Aa]ttention output",
    "MLP1_mat_mul": r"MLP1",
    "MLP2_mat_mul": r"MLP2",
    "HiddenStates": r"HiddenStates|[Hh]idden states",
    "InputTokens": r"InputTokens|[Ii]nput tokens",
    "grad": r"[Gg]radient",
    "param": r"[Pp]arameter|[Ww]eight",
    "activation": r"[Aa]ctivation",
    "dgrad": r"[Gg]radients? of activations|dgrad",
    "residual": r"[Rr]esidual",
    "residual_dgrad": r"[Rr]esidual",
}


_OF_ANYTHING = re.compile(r"inside of torch\.func|came into the model after tracing began")


def reason(what: str, recording: Recording, name: str = "") -> str | None:
    """Return the sentence that says why there is nothing: of the flag, or of tracing this model at all."""
    if what in FLAGS and recording.refused:
        return recording.refused
    if said := recording.refusals.get(what) or recording.reasons.get(what):
        return said
    return next(
        (
            each
            for each in recording.warnings
            if re.search(_WORDS[what], each) or (name and name in each) or _OF_ANYTHING.search(each)
        ),
        None,
    )


def once(verdict: Verdict, rows: Iterable[Mapping[str, Any]], of: str) -> None:
    """Check that no two rows have one key: all columns that are no values."""
    seen: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows:
        seen[
            tuple(
                (name, row[name]) for name in sorted(row) if name not in _VALUES and not name.endswith("time")
            )
        ] += 1
    for key, count in seen.items():
        if count > 1:
            named = dict(key)
            where = ", ".join(f"{name} {named[name]}" for name in named if name not in ("rank", "phase", of))
            verdict.say(named[of], TWICE, f"{count} rows of {where}", count - 1)
