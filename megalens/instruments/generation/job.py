"""One generation: queued, running or ended.

One perturbation with several settings: the points of a request, and the text under each.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...protocol import PERTURBATIONS, ProtocolError
from ...protocol.errors import must_be
from ...protocol.messages_generated import Perturb
from ...protocol.requests import GenerationRequest
from ...tracer.perturb import PerturbPlan, install_perturbations, perturb_plan
from ...tracer.points import ModelPoints
from .decoding import Decoding, GenerationPass
from .errors import GenerationError
from .hidden import no_attention
from .language_model import LanguageModel, Sampler
from .lens import no_lens

if TYPE_CHECKING:
    from ...tracer import Tracer


# A perturbation that is on for some passes outside of every step: armed and disarmed here, carried out as
# every other.
@dataclass
class PassClock:
    """The pass number that seeds a perturbation, so that the same request draws the same random numbers."""

    step: int = 0
    phase: str = "generate"
    micro_batch: int = 0

    def count(self, reading: object = None) -> None:
        """Count a pass that is about to begin."""
        self.micro_batch += 1


def generation_perturb(setting: Perturb, points: ModelPoints, folders: Sequence[Path]) -> PerturbPlan:
    """Return the plan of a generation's perturbation, which lasts as long as that, whatever its phases.

    Raises ``ProtocolError`` as :func:`megalens.tracer.perturb.perturb_plan`, with a field below ``perturb``.
    """
    asked = copy.deepcopy(setting)
    for site in asked["sites"].values():
        site["phases"] = ["generate"]
    return perturb_plan(asked, points, folders)


@contextlib.contextmanager
def perturbed(points: ModelPoints, plan: PerturbPlan, warn: Callable[[str], None]) -> Iterator[PassClock]:
    """Perturb the passes inside; afterwards the model is as before, bit by bit.

    ``warn`` takes a sentence about what could not be perturbed. Yields the clock on which passes are to be
    counted.
    """
    clock = PassClock()
    installed = install_perturbations(points, plan, clock, warn)
    try:
        yield clock
    finally:
        installed()


class SweepPoint(NamedTuple):
    """One setting of a sweep.

    Attributes
    ----------
    setting : str
        What is set, as people wrote it.
    value : float
        The same as a number; NaN where it is none.
    perturb : dict
        The ``Perturb`` object.
    """

    setting: str
    value: float
    perturb: Perturb


def sweep_points(request: GenerationRequest) -> list[SweepPoint]:
    """Return the points of a request's sweep in order, not checked against the model."""
    sweep, perturb = request.sweep, request.perturb
    if sweep is None or perturb is None:
        return []
    (name,) = perturb["sites"]
    points = []
    for value in sweep["values"]:
        changed: Any = copy.deepcopy(perturb)
        site = changed["sites"].pop(name)
        if sweep["over"] == "coefficient":
            kind = PERTURBATIONS.get(site["kind"]["name"])
            member = "rate" if kind is not None and "coefficient" not in kind.properties else "coefficient"
            site["kind"]["params"] = {**site["kind"].get("params", {}), member: value}
        elif sweep["over"] == "layers":
            site["layers"] = value
        changed["sites"][value if sweep["over"] == "site" else name] = site
        number = _number(value)
        points.append(SweepPoint(value if isinstance(value, str) else f"{number:g}", number, changed))
    return points


def first_differences(
    write: Callable[..., Decoding],
    prompts: Sequence[Sequence[int]],
    clean: Sequence[Sequence[int]],
    ends: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Write until every text differs from the clean one; return each first different position, or -1.

    ``write`` starts with the seed of the clean text and takes ``ends``, whether to write nothing more;
    ``ends`` is whether to stop before.
    """
    found = [-1] * len(clean)
    at = [len(prompt) for prompt in prompts]

    def over() -> bool:
        return ends() or -1 not in found

    try:
        for done in write(ends=over):
            tokens = [] if done.tokens is None else done.tokens.tolist()
            for row, token in enumerate(tokens):
                if done.wrote[row] and found[row] < 0:
                    if at[row] >= len(clean[row]) or clean[row][at[row]] != token:
                        found[row] = at[row]
                    at[row] += 1
            if over():
                return found
    except GenerationError:
        # Logits that are no numbers end the text at its next position.
        return [position if first < 0 else first for first, position in zip(found, at, strict=True)]
    # Where the clean text continues, it differs there.
    lengths = map(len, clean)
    return [
        position if first < 0 and position < length else first
        for first, position, length in zip(found, at, lengths, strict=True)
    ]


def _number(value: float | str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf


_MESSAGE = 1000

MOST_TOKENS = 1 << 20
_FIELD = "request"


# What a schema cannot check of a request: whether this model can do it.
def checked_jobs(
    message: Mapping[str, Any], model: LanguageModel, tracer: Tracer, who: str
) -> list[GenerationJob]:
    """Return the jobs of a request, without numbers: one, or the clean one before the perturbed one.

    Raises ``ProtocolError`` with the field at fault.
    """
    if tracer.points.place.world_size > 1 and model.alone:
        raise ProtocolError(
            "refused",
            "This model is trained by several processes, of which one alone cannot compute a forward pass.",
            field=_FIELD,
        )
    request = GenerationRequest.from_message(message, _FIELD)
    prompts = [_prompt(number, text, request, model) for number, text in enumerate(request.prompts)]
    if model.vocabulary is not None:
        for index, token in enumerate(request.stop_tokens or ()):
            if token >= model.vocabulary:
                field = f"{_FIELD}.stop_tokens.{index}"
                raise must_be("A stop token", f"0 to {model.vocabulary - 1}", token, field)
    for member, asked, reason in (
        ("attention", request.attention, no_attention(tracer.points)),
        ("lens", request.lens, no_lens(model.module, tracer.points)),
    ):
        if asked and reason:
            raise ProtocolError("bad-parameter", reason, field=f"{_FIELD}.{member}")
    if request.perturb is None:
        return [GenerationJob(0, request, prompts, who)]
    perturb = _perturb(request.perturb, tracer)
    for number, point in enumerate(sweep_points(request)):
        _perturb(point.perturb, tracer, f"{_FIELD}.sweep.values.{number}")
    control = GenerationJob(0, replace(request, perturb=None, sweep=None), prompts, who, paired=True)
    return [control, GenerationJob(0, request, prompts, who, control=control, perturb=perturb, paired=True)]


def _prompt(number: int, text: str, request: GenerationRequest, model: LanguageModel) -> list[int]:
    field = f"{_FIELD}.prompts.{number}"
    try:
        ids = model.texts.encode(text)
    except GenerationError as error:
        raise ProtocolError("bad-parameter", f"Prompt {number}: {error}", field=field) from error
    if model.vocabulary is not None and not all(0 <= token < model.vocabulary for token in ids):
        wrong = next(token for token in ids if not 0 <= token < model.vocabulary)
        raise ProtocolError(
            "bad-parameter",
            f"Token ids of prompt {number} must be 0 to {model.vocabulary - 1}, got {wrong}: the tokenizer "
            "is of another vocabulary than the model.",
            field=field,
            expected=f"0 to {model.vocabulary - 1}",
            got=str(wrong),
        )
    if model.context is None:
        return ids
    if len(ids) > model.context:
        raise must_be(
            f"Prompt {number}", f"1 to {model.context} tokens, the model's context", len(ids), field
        )
    left = model.context - len(ids)
    if request.tokens > left and not model.slides:
        what = (
            f"tokens after prompt {number}, which has {len(ids)} of the {model.context} that the model can "
            "read,"
        )
        raise must_be(what, f"0 to {left}", request.tokens, f"{_FIELD}.tokens")
    return ids


def _perturb(setting: Perturb, tracer: Tracer, field: str | None = None) -> PerturbPlan:
    """Return the plan of a perturbation; an error names ``field``, or its wrong part."""
    if "perturb" not in tracer.controls:
        raise ProtocolError(
            "refused",
            "The script does not allow perturbations. It would with allow=['perturb'].",
            field=f"{_FIELD}.perturb",
        )
    try:
        return generation_perturb(setting, tracer.points, tracer.folders)
    except ProtocolError as error:
        where = field or f"{_FIELD}.{error.field or 'perturb'}"
        raise ProtocolError(
            error.code, error.message, field=where, expected=error.expected, got=error.got
        ) from error


@dataclass(eq=False)
class GenerationJob:
    """A request with its number and state. One thread at a time changes it: the requesting one, then the
    running one.

    ``control`` is, under a perturbation, the generation without it; of such a pair (``paired``) no other
    armed perturbation applies. ``cancelled`` says that it ends now, ``asked_to_end`` that somebody asked for
    that: several processes agree on it in their next forward pass; one alone has no need to. ``shared``:
    several processes write it. ``state`` is that of the stream ``generations``; ``texts`` are prompt and
    written tokens of each sequence; ``progress`` is a sentence while it runs.
    """

    number: int
    request: GenerationRequest
    prompts: Sequence[Sequence[int]]
    who: str
    control: GenerationJob | None = None
    perturb: PerturbPlan | None = None
    paired: bool = False
    cancelled: bool = False
    asked_to_end: bool = False
    shared: bool = False
    state: str = "queued"
    first_step: int = -1
    last_step: int = -1
    tokens: int = 0
    message: str = ""
    texts: list[list[int]] = field(default_factory=list)
    progress: str = ""
    _began: float | None = None
    _seconds: float = 0.0
    _sent: bool = False

    @property
    def sequences(self) -> list[Sequence[int]]:
        """Token ids of each sequence's prompt."""
        return [prompt for prompt in self.prompts for _ in range(self.request.samples)]

    def begin(self, step: int) -> None:
        """Mark it as running, with its first pass in ``step``."""
        self.state, self.first_step = "running", step
        self.texts = [list(prompt) for prompt in self.sequences]
        self._began = time.monotonic()

    def end(self, state: str, message: str = "") -> None:
        """Mark it as ended, with a reason."""
        self.state, self.progress = state, ""
        if self._began is not None:
            self._seconds = time.monotonic() - self._began
        self.add_message(message)

    def add_message(self, message: str) -> None:
        """Add a sentence to its message for people."""
        if message not in self.message:
            self.message = f"{self.message} {message}".strip()[:_MESSAGE]

    def cancel(self) -> None:
        """End it after the current pass. Any thread."""
        self.asked_to_end = True
        self.cancelled = self.cancelled or not self.shared

    def decoding(self, model: LanguageModel, **more: Any) -> Decoding:
        """Start writing with its seed; ``more`` is for :class:`Decoding`."""
        request = self.request
        sampler = Sampler(request.temperature, request.top_k, request.top_p, request.seed, model.device)
        stop_tokens = model.end_tokens if request.stop_tokens is None else request.stop_tokens
        stop = request.stop or model.stop
        if request.tokens:
            self.add_message(model.said(sampler))
        return Decoding(
            model, self.sequences, sampler, request.tokens, stop=stop, stop_tokens=stop_tokens, **more
        )

    def passed(self, done: GenerationPass, step: int) -> None:
        """Add what a pass wrote, which was in ``step``."""
        self.last_step = step
        self.tokens += sum(done.wrote)
        if done.tokens is not None:
            for text, token, wrote in zip(self.texts, done.tokens.tolist(), done.wrote, strict=True):
                if wrote:
                    text.append(token)

    def row(self, step: int, place: int = 0) -> dict[str, list[Any]]:
        """Return its current row of ``generations`` at ``step``; only the first has the request."""
        runs = self.first_step >= 0
        request, self._sent = "" if self._sent else json.dumps(self.request.to_message()), True
        values = {
            "step": step,
            "time": time.time(),
            "generation": self.number,
            "state": self.state,
            "who": self.who,
            "place": place,
            "control": self.control.number if self.control is not None else 0,
            "sequences": self.request.sequences if runs else 0,
            "padded": max(map(len, self.prompts)) if runs else 0,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "tokens": self.tokens,
            "seconds": self._seconds,
            "request": request,
            "message": f"{self.message} {self.progress}".strip(),
        }
        return {name: [value] for name, value in values.items()}
