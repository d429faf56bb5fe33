"""``python -m tests.corpus.families``: every architecture that transformers lists and a small config
builds, traced, and compared with what is seen inside of its attention function.
"""

from __future__ import annotations

import argparse
import copy
import gc
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .family_hooks import show_family
from .family_models import KINDS, NotBuiltError, architectures, build, inputs
from .job import Job
from .traced import FLAGS, Recording, Traced, quietly
from .verdict import ABSENT, BAD, RIGHT, SILENT, TWICE, WRONG, Verdict, once, print_kinds, reason, same
from .witness import Pass, Witness

LIKELY, UNKNOWN = "likely", "not comparable"
"""``likely``: equal up to a rotation, a norm, a scale or a gate after it, or a module gives it. ``not
comparable``: something else lies between it and what was seen.
"""


@dataclass
class Family:
    """What came of one architecture."""

    kind: str
    model_type: str
    verdict: Verdict = field(default_factory=Verdict)
    failed: str | None = None
    refused: str | None = None
    recording: Recording | None = None
    attentions: tuple[int, int] = (0, 0)
    """How many attentions to its own sequence the model has, and how many of them are layers of the
    recording.
    """

    @property
    def outcome(self) -> str:
        kinds = {kind for counts in self.verdict.counts.values() for kind, count in counts.items() if count}
        if self.failed or kinds & {*BAD}:
            return "failed" if self.failed else "wrong" if kinds & {WRONG, TWICE} else "silent"
        if self.refused or not kinds & {RIGHT, LIKELY, UNKNOWN}:
            return "refused"
        partly = kinds & {ABSENT, UNKNOWN} or self.attentions[0] != self.attentions[1]
        return "partly known" if partly else "whole"


def try_family(kind: str, model_type: str, class_name: str) -> Family:
    """Train one step of a small model, seen by plain hooks and traced; raises ``NotBuiltError``."""
    family = Family(kind, model_type)
    model = build(model_type, class_name)
    batch = inputs(model, kind)
    plain = Job()
    try:
        _run(plain, copy.deepcopy(model), batch)
    except Exception as error:
        raise NotBuiltError(f"does not run: {type(error).__name__}: {str(error)[:120]}") from error
    witness = Witness()
    try:
        _run(witness, copy.deepcopy(model), batch)
    finally:
        witness.close()
    with tempfile.TemporaryDirectory(prefix="corpus-", ignore_cleanup_errors=True) as folder:
        traced = Traced(Path(folder))
        try:
            _run(traced, model, batch)
            (family.recording,) = traced.read()
        except Exception as error:
            family.failed = f"{type(error).__name__}: {error}"
        finally:
            traced.close()
    if family.recording is None:
        return family
    if not all(torch.equal(a, b) for a, b in zip(plain.losses, traced.losses, strict=True)):
        family.failed = "the loss is another one with Megalens"
    family.refused = family.recording.refused
    _judge(family, witness.watched[0].steps[2].passes[0], family.recording)
    return family


def _run(job: Job, model: Any, batch: Mapping[str, Any]) -> None:
    torch.manual_seed(1)
    job.show(lambda: show_family(model))
    job.watch(model)
    for _ in range(2):
        with job.step():
            output = model(**batch)
            first = next(
                each for each in output.values() if isinstance(each, Tensor) and each.is_floating_point()
            )
            loss = first.float().square().mean()
            loss.backward()
            model.zero_grad()
            job.loss(loss)


# Comparison


def _judge(family: Family, seen: Pass, recording: Recording) -> None:
    verdict = family.verdict
    once(verdict, recording.rows, "flag")
    rows = [row for row in recording.rows if row["step"] == 2 and row["pass"] == "forward"]
    inside = _Inside(seen)
    layers: dict[int, dict[tuple[str, str], Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        layers[row["layer"]][row["flag"], row["part"]] = row
    used: set[int] = set()
    for number in sorted(layers):
        attention = inside.attention_of(layers[number], used)
        used.add(attention)
        for (flag, part), row in layers[number].items():
            kind, sentence = inside.compare(flag, part, row, attention)
            verdict.say(flag, kind, f"layer {number} {part}: {sentence}" if sentence else "")
    own = {
        number
        for number, each in inside.attentions.items()
        if "q" in each and each["q"].shape[2] == each["k"].shape[2]
    }
    family.attentions = len(own), len(own & used)
    for flag in FLAGS:
        if not any(row["flag"] == flag for row in rows) and inside.has(flag):
            sentence = reason(flag, recording)
            verdict.say(flag, ABSENT if sentence else SILENT, sentence or "")


class _Inside:
    """What was seen of one pass."""

    def __init__(self, seen: Pass) -> None:
        self.attentions: dict[int, dict[str, Tensor]] = defaultdict(dict)
        self.given: list[Tensor] = []
        self.gives: list[Tensor] = []
        self.activated: list[Tensor] = []
        self.softmaxes: list[Tensor] = []
        for (flag, number, part), tensors in seen.values.items():
            if flag == "attention":
                self.attentions[number][part] = tensors[0]
            elif flag in ("given", "gives"):
                (self.given if flag == "given" else self.gives).extend(tensors)
            elif flag == "activation":
                self.activated.extend(tensors)
            elif flag == "softmax":
                self.softmaxes.extend(tensors)

    def has(self, flag: str) -> bool:
        """Return whether the model has such a tensor, as far as was seen."""
        if flag in ("QKV_mat_mul", "ContextLayer_mat_mul", "AttentionOutput_mat_mul"):
            return bool(self.attentions or self.softmaxes)
        if flag == "RawAttentionScore_mat_mul":
            return bool(self.softmaxes)
        return flag == "HiddenStates" or (flag.startswith("MLP") and bool(self.activated))

    def attention_of(self, rows: Mapping[tuple[str, str], Mapping[str, Any]], used: set[int]) -> int:
        """Return the number of the attention of which most is recorded as this layer's; −1 where there is
        none.
        """

        def agreeing(number: int) -> int:
            said = [
                self.compare(flag, part, row, number)[0]
                for (flag, part), row in rows.items()
                if flag in _OF_ATTENTION
            ]
            return 2 * said.count(RIGHT) + said.count(LIKELY)

        left = [number for number in sorted(self.attentions) if number not in used]
        best = max(left, key=agreeing, default=-1)
        return best if best >= 0 and agreeing(best) else -1

    def compare(self, flag: str, part: str, row: Mapping[str, Any], number: int) -> tuple[str, str]:
        """Return what a row is, with a sentence where it is not right."""
        values = np.asarray(row["values"], np.float32)
        seen = self.attentions.get(number, {})
        if flag == "QKV_mat_mul" and part in seen:
            return _projected(values, part, seen)
        if flag == "ContextLayer_mat_mul" and "context" in seen:
            context = seen["context"]
            if same(values, context):
                return RIGHT, ""
            if _gated(values, context) and any(same(values, each) for each in self.given):
                return LIKELY, ""
            return _otherwise(values, context.reshape(-1), "the attention's result")
        if flag == "RawAttentionScore_mat_mul":
            known = [seen["weights"]] if "weights" in seen else self.softmaxes
            return (
                (RIGHT, "") if any(same(values, each) for each in known) else (WRONG, "no softmax gave this")
            )
        if flag == "MLP1_mat_mul" and part in ("", "gate"):
            return (
                (RIGHT, "")
                if any(same(values, each) for each in self.activated)
                else self._given_by_module(values)
            )
        if flag == "MLP1_mat_mul":
            if any(same(values, each) for each in self.activated):
                return WRONG, "what is called up is activated"
            return LIKELY, ""
        if flag in ("MLP2_mat_mul", "HiddenStates", "AttentionOutput_mat_mul"):
            return self._given_by_module(values)
        return RIGHT, ""

    def _given_by_module(self, values: np.ndarray) -> tuple[str, str]:
        if any(same(values, each) for each in self.gives):
            return RIGHT, ""
        return UNKNOWN, "no module gives this"


_OF_ATTENTION = ("QKV_mat_mul", "ContextLayer_mat_mul", "RawAttentionScore_mat_mul")


def _projected(values: np.ndarray, part: str, seen: Mapping[str, Tensor]) -> tuple[str, str]:
    """Compare what a projection gave as q, k or v with what the attention was given: ``[B, H, S, d]``."""
    expected = seen[part].transpose(1, 2).float()
    if same(values, expected):
        return RIGHT, ""
    given = _fewer_heads(values, expected)
    if given is None:
        if _without_position(values, expected):
            return LIKELY, ""
        return _otherwise(values, _all_values(seen), "what the attention was given")
    if same(given.numpy(), expected):
        return RIGHT, ""
    if _turned(given, expected):
        return LIKELY, ""
    for other in "qkv":
        instead = seen[other].transpose(1, 2).float()
        found = None if other == part else _fewer_heads(values, instead)
        if found is not None and (same(found.numpy(), instead) or _turned(found, instead)):
            return WRONG, f"the attention was given this as {other}"
    return _otherwise(values, _all_values(seen), "what the attention was given")


def _gated(values: np.ndarray, context: Tensor) -> bool:
    """Return whether values may be a context times a gate between 0 and 1, or after a norm without weights."""
    if values.size != context.numel():
        return False
    given, own = context.float().flatten(2), torch.from_numpy(values).view(*context.shape[:2], -1)
    gate = own / given
    small = given.abs() < 1e-4 * given.abs().max()
    return bool(((gate >= 0) & (gate <= 1) | small).all()) or _parallel(given, own)


def _fewer_heads(values: np.ndarray, expected: Tensor) -> Tensor | None:
    """Return recorded values as ``[B, S, H, d]``; keys of groups repeated as they may be before the
    attention is called.
    """
    batch, length, heads, size = expected.shape
    own = values.size // (batch * length * size)
    if not own or own * batch * length * size != values.size or heads % own:
        return None
    return torch.from_numpy(values).view(batch, length, own, size).repeat_interleave(heads // own, 2)


def _without_position(values: np.ndarray, expected: Tensor) -> bool:
    """Return whether values are the first features of each head: latent attention adds to them what knows
    the position.
    """
    batch, length, heads, size = expected.shape
    own = values.size // (batch * length * heads)
    return 0 < own < size and same(values, expected[..., :own])


def _turned(given: Tensor, expected: Tensor) -> bool:
    """Return whether ``expected`` may be ``given`` after rotary positions, a norm without weights, or a
    scale.

    At the first position nothing is rotated: there both have one direction, in each head or over all of
    them, or a head has the same values in another order (pairs that are rotated may first be brought beside
    each other). Elsewhere the lengths of heads have one ratio to each other at each position, or there is a
    norm.
    """
    a, b = given[:, 0], expected[:, 0]
    ways = (
        (a, b),
        (a.flatten(1), b.flatten(1)),
        (_centred(a), _centred(b)),
        (_centred(a.flatten(1)), _centred(b.flatten(1))),
    )
    if not any(_parallel(x, y) for x, y in (*ways, (a.sort(-1)[0], b.sort(-1)[0]))):
        return False
    lengths = given.norm(dim=-1), expected.norm(dim=-1)
    ratio = lengths[1] / lengths[0].clamp_min(1e-12)
    same_ratio = ((ratio.amax(-1) - ratio.amin(-1)) / ratio.amax(-1)).max() < 1e-3
    return bool(same_ratio or _constant(lengths[1]) or _constant(expected.flatten(2).norm(dim=-1)))


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def _constant(lengths: Tensor) -> bool:
    return bool((lengths.max() - lengths.min()) / lengths.max() < 1e-3)


def _parallel(a: Tensor, b: Tensor) -> bool:
    return bool(torch.all(torch.cosine_similarity(a, b, dim=-1) > 0.9999))


def _all_values(seen: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([seen[part].float().reshape(-1) for part in "qkv" if part in seen])


def _otherwise(values: np.ndarray, among: Tensor, what: str) -> tuple[str, str]:
    """Say whether values are there in another order, which is wrong, or are not those that were seen at
    all.
    """
    known = np.sort(among.float().numpy().reshape(-1))
    found = values[np.isfinite(values)]
    at = np.clip(np.searchsorted(known, found), 1, len(known) - 1)
    near = np.minimum(np.abs(known[at] - found), np.abs(known[at - 1] - found)) <= 1e-6 * np.abs(found).clip(
        1e-3
    )
    if near.mean() > 0.5:
        return WRONG, f"{near.mean():.0%} of the values are among {what}, in another order"
    return UNKNOWN, f"something else lies between it and {what}"


# The program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.families", description=__doc__)
    parser.add_argument("models", nargs="*", help="model types, such as llama; all when absent")
    parser.add_argument("--kinds", nargs="*", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--sentences", action="store_true", help="also print why what is absent is absent")
    arguments = parser.parse_args()
    began = time.monotonic()
    families: list[Family] = []
    not_built: Counter[str] = Counter()
    with quietly():
        for kind, model_type, class_name in architectures(tuple(arguments.kinds)):
            if arguments.models and model_type not in arguments.models:
                continue
            try:
                families.append(family := try_family(kind, model_type, class_name))
            except NotBuiltError as error:
                not_built[str(error) if arguments.models else str(error).partition(":")[0]] += 1
                continue
            _print(family, arguments.sentences)
            family.recording = None
            gc.collect()
    _sum_up(families, not_built)
    print(f"in {time.monotonic() - began:.0f} s")
    return int(any(each.outcome in ("wrong", "silent", "failed") for each in families))


def _print(family: Family, sentences: bool) -> None:
    said = [f"{family.kind:8}{family.model_type:28}{family.outcome:14}"]
    for flag, counts in family.verdict.counts.items():
        worst = next((kind for kind in (*BAD, UNKNOWN, ABSENT) if counts.get(kind)), None)
        if worst:
            said.append(f"{flag.removesuffix('_mat_mul')} {worst}")
    if family.attentions[0] != family.attentions[1]:
        said.append(f"{family.attentions[1]} of {family.attentions[0]} attentions")
    print(said[0], ", ".join(said[1:]))
    shown = (*BAD, *((ABSENT, UNKNOWN) if sentences else ()))
    for (flag, kind), sentence in family.verdict.sentences.items():
        if kind in shown:
            print(f"      {kind}: {flag}: {sentence.partition(' Its modules are:')[0][:300]}")
    if family.failed or (sentences and family.refused):
        print(f"      {(family.failed or family.refused or '').partition(' Its modules are:')[0][:400]}")
    sys.stdout.flush()


def _sum_up(families: Sequence[Family], not_built: Counter[str]) -> None:
    outcomes = Counter(each.outcome for each in families)
    print(
        f"\n{len(families)} architectures: "
        + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    )
    print(
        f"not built: {not_built.total()}, for example:",
        ", ".join(f"{count} {why}" for why, count in not_built.most_common(8)),
    )
    print_kinds((*BAD, UNKNOWN, ABSENT), ([each.verdict] for each in families), "architectures")


if __name__ == "__main__":
    sys.exit(main())
