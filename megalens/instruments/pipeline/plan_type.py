"""A plan of a pipeline's step: the operations of each stage in order, and its virtual stages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ...protocol import parse_json
from .errors import PipelineError

_MEMBERS = ("schedule", "stages", "chunks", "micro_batches", "placement", "order")
_MOST_BYTES = 1 << 30
_WORD = re.compile("([0-9]{1,9})([FBIW])([0-9]{1,9})")

PLACEMENTS = ("loop", "v", "two_way")


@dataclass(frozen=True)
class Placement:
    """Virtual stages on the stages of a pipeline, as in ``protocol/pipeline.schema.json``.

    ``kind`` is ``loop``, ``v`` or ``two_way``; there are P ``stages``, V ``chunks`` of a stage, M
    ``micro_batches`` of a step.
    """

    kind: str
    stages: int
    chunks: int
    micro_batches: int

    def __post_init__(self) -> None:
        if self.kind not in PLACEMENTS:
            raise PipelineError(
                f"placement must be one of {', '.join(PLACEMENTS)}, got {self.kind!r:.80}.", code="shape"
            )
        for name, most in (("stages", 1024), ("chunks", 64), ("micro_batches", 65536)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise PipelineError(f"{name} must be 1 to {most}, got {value!r:.80}.", code="shape")
        if self.kind == "two_way" and self.chunks != 2:
            raise PipelineError(
                f"Placement two_way has 2 chunks on each stage, got {self.chunks}.", code="shape"
            )
        if self.kind == "two_way" and self.micro_batches % 2:
            raise PipelineError(
                f"Placement two_way needs an even number of micro-batches, got {self.micro_batches}: half "
                "of them run each way.",
                code="shape",
            )

    @property
    def virtual_stages(self) -> int:
        return self.stages * self.chunks

    def stage_of(self, virtual: int) -> int:
        turn, at = divmod(virtual, self.stages)
        back = self.kind != "loop" and turn % 2 == 1
        return self.stages - 1 - at if back else at

    def held_by(self, stage: int) -> tuple[int, ...]:
        """Return a stage's virtual stages, by chunk."""
        return tuple(v for v in range(self.virtual_stages) if self.stage_of(v) == stage)

    def is_first(self, virtual: int) -> bool:
        """Whether a virtual stage takes the model's input."""
        return virtual == 0 or (self.kind == "two_way" and virtual == self.stages)

    def is_last(self, virtual: int) -> bool:
        """Whether a virtual stage gives the model's output."""
        return virtual == self.virtual_stages - 1 or (self.kind == "two_way" and virtual == self.stages - 1)

    def passing(self, virtual: int) -> range:
        """Return the micro-batches that pass a virtual stage."""
        if self.kind != "two_way":
            return range(self.micro_batches)
        half = self.micro_batches // 2
        return range(half) if virtual < self.stages else range(half, self.micro_batches)


# Whether a plan is right, before anything of it runs.
def needed_by(plan: Plan, each: Operation, split: set[tuple[int, int]]) -> list[Operation]:
    """Return what an operation waits for besides those before it on its stage.

    ``split`` are the virtual stages and micro-batches with a backward pass in two parts.
    """
    kind, virtual, number = each
    if kind == "F":
        return [] if plan.layout.is_first(virtual) else [Operation("F", virtual - 1, number)]
    if kind == "W":
        return [Operation("I", virtual, number)]
    needed = [Operation("F", virtual, number)]
    if not plan.layout.is_last(virtual):
        needed.append(Operation("I" if (virtual + 1, number) in split else "B", virtual + 1, number))
    return needed


def check_plan(plan: Plan) -> None:
    """Raise ``PipelineError`` for a wrong plan, naming operation, stage and micro-batch.

    Its code is ``unknown``, ``misplaced``, ``doubled``, ``missing``, ``order`` or ``cycle``.
    """
    indices: dict[Operation, int] = {}
    for stage in range(plan.layout.stages):
        _check_words(plan, stage, indices)
    for virtual in range(plan.layout.virtual_stages):
        for number in plan.layout.passing(virtual):
            _check_there(plan, virtual, number, indices)
    split = {(each.virtual, each.micro_batch) for each in indices if each.kind == "I"}
    for stage in range(plan.layout.stages):
        for each in plan.operations(stage):
            for needed in needed_by(plan, each, split):
                if needed.virtual == each.virtual and indices[needed] > indices[each]:
                    _wrong("order", each, stage, f"it stands before {needed}, which it waits for")
    _check_cycles(plan, split)


def _check_words(plan: Plan, stage: int, indices: dict[Operation, int]) -> None:
    layout = plan.layout
    operations = []
    for at, word in enumerate(plan.order[stage].split(" ") if plan.order[stage] else ()):
        try:
            each = Operation.of(word)
        except ValueError:
            raise PipelineError(
                "An operation of a plan must be a virtual stage, F, B, I or W, and a micro-batch, such as "
                f"5F2; got {word!r:.80} on stage {stage}.",
                code="unknown",
                operation=word[:80],
                stage=stage,
            ) from None
        kind, virtual, number = each
        if virtual >= layout.virtual_stages:
            _wrong("unknown", each, stage, f"virtual stages are 0 to {layout.virtual_stages - 1}")
        if number not in layout.passing(virtual):
            passing = layout.passing(virtual)
            _wrong(
                "unknown",
                each,
                stage,
                f"micro-batches {passing[0]} to {passing[-1]} pass virtual stage {virtual}",
            )
        if layout.stage_of(virtual) != stage:
            _wrong(
                "misplaced", each, stage, f"stage {layout.stage_of(virtual)} holds virtual stage {virtual}"
            )
        others = {"B": "IW", "I": "B", "W": "B"}.get(kind, "")
        # Plain tuples are equal to operations, and made in a fraction of the time.
        if each in indices or any((other, virtual, number) in indices for other in others):
            _wrong("doubled", each, stage, "this pass is in the plan already")
        indices[each] = at
        operations.append(each)
    plan.parsed[stage] = operations


def _check_there(plan: Plan, virtual: int, number: int, indices: dict[Operation, int]) -> None:
    def there(kind: str) -> bool:
        return (kind, virtual, number) in indices

    if not there("F"):
        lacks = "F"
    elif there("B") or (there("I") and there("W")):
        return
    else:
        lacks = "W" if there("I") else "I" if there("W") else "B"
    stage = plan.layout.stage_of(virtual)
    _wrong("missing", Operation(lacks, virtual, number), stage, "it is not in the plan")


def _check_cycles(plan: Plan, split: set[tuple[int, int]]) -> None:
    """Run the stages in turn, each as far as it comes: linear in the operations."""
    done: set[Operation] = set()
    at = [0] * plan.layout.stages
    waiting: dict[Operation, list[int]] = {}
    ready = list(range(plan.layout.stages))
    while ready:
        stage = ready.pop()
        operations = plan.operations(stage)
        while at[stage] < len(operations):
            each = operations[at[stage]]
            lacking = next((needed for needed in needed_by(plan, each, split) if needed not in done), None)
            if lacking is not None:
                waiting.setdefault(lacking, []).append(stage)
                break
            done.add(each)
            at[stage] += 1
            ready += waiting.pop(each, ())
    for stage, reached in enumerate(at):
        operations = plan.operations(stage)
        if reached < len(operations):
            each = operations[reached]
            lacking = next(needed for needed in needed_by(plan, each, split) if needed not in done)
            _wrong("cycle", each, stage, f"it waits for {lacking}, which waits for it")


def _wrong(code: str, each: Operation, stage: int, why: str) -> NoReturn:
    message = f"Operation {each} of the plan ({words_of(each)}) on stage {stage} is {_WORDS[code]}: {why}."
    raise PipelineError(message, code=code, operation=str(each), stage=stage, micro_batch=each.micro_batch)


_WORDS = {
    "unknown": "unknown",
    "misplaced": "misplaced",
    "doubled": "doubled",
    "missing": "missing",
    "order": "too early",
    "cycle": "in a circle",
}


def words_of(each: Operation) -> str:
    kind = {
        "F": "forward pass",
        "B": "backward pass",
        "I": "gradient of the input",
        "W": "gradients of the weights",
    }
    return f"{kind[each.kind]} of micro-batch {each.micro_batch} through virtual stage {each.virtual}"


class Operation(NamedTuple):
    """One pass of one micro-batch through one virtual stage: ``F``, ``B``, or ``I`` and ``W``."""

    kind: str
    virtual: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.virtual}{self.kind}{self.micro_batch}"

    @staticmethod
    def of(word: str) -> Operation:
        """Return the operation of a plan's word; raises ``ValueError``."""
        match = _WORD.fullmatch(word)
        if match is None:
            raise ValueError(word)
        return Operation(match[2], int(match[1]), int(match[3]))


@dataclass(frozen=True)
class Plan:
    """A ``Plan`` of ``protocol/pipeline.schema.json``, right if :func:`check_plan` accepts it.

    ``order`` has the operations by stage, separated by one space; ``parsed`` caches :meth:`operations`.
    """

    schedule: str
    layout: Placement
    order: tuple[str, ...]
    parsed: dict[int, list[Operation]] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(given: Any) -> Plan:
        """Return a plan from a mapping, JSON bytes, the path of a JSON file, or
        :func:`megalens.pipeline.plan`.

        Raises ``PipelineError`` (``shape``) when it is none.
        """
        if isinstance(given, Plan):
            return given
        if isinstance(own := getattr(given, "plan", None), (Plan, Mapping)):
            return Plan.of(own)
        if isinstance(given, (str, os.PathLike)):
            given = _read(Path(given))
        if isinstance(given, (bytes, bytearray)):
            try:
                given = parse_json(given)
            except ValueError as error:
                raise PipelineError(f"A plan must be JSON: {error}", code="shape") from error
        if not isinstance(given, Mapping):
            raise PipelineError(
                f"A plan must be an object with {', '.join(_MEMBERS)}, or the path of a JSON file with one, "
                f"got a {type(given).__name__}.",
                code="shape",
            )
        if set(given) != set(_MEMBERS):
            raise PipelineError(
                f"A plan must have {', '.join(_MEMBERS)}, got {', '.join(map(str, given)) or 'nothing'}.",
                code="shape",
            )
        order, name = given["order"], given["schedule"]
        if not isinstance(order, (list, tuple)) or not all(isinstance(each, str) for each in order):
            raise PipelineError("order must be a list of texts, one for each stage.", code="shape")
        if not isinstance(name, str) or len(name) > 100:
            raise PipelineError(
                f"schedule must be a name of at most 100 characters, got {name!r:.120}.", code="shape"
            )
        layout = Placement(given["placement"], given["stages"], given["chunks"], given["micro_batches"])
        if len(order) != layout.stages:
            raise PipelineError(
                f"order must have one text for each of {layout.stages} stages, got {len(order)}.",
                code="shape",
            )
        return Plan(name, layout, tuple(order))

    def operations(self, stage: int) -> list[Operation]:
        """Return a stage's operations in order, of a plan that :func:`check_plan` accepted."""
        found = self.parsed.get(stage)
        if found is None:
            # One pass in C over a text that was checked where it came from.
            words = _WORD.findall(self.order[stage])
            found = self.parsed[stage] = [Operation(kind, int(v), int(m)) for v, kind, m in words]
        return found

    def to_json(self) -> dict[str, Any]:
        layout = self.layout
        return {
            "schedule": self.schedule,
            "stages": layout.stages,
            "chunks": layout.chunks,
            "micro_batches": layout.micro_batches,
            "placement": layout.kind,
            "order": list(self.order),
        }


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise PipelineError(
                f"A plan has at most {_MOST_BYTES >> 20} MiB, and {path} is larger.", code="shape"
            )
        return path.read_bytes()
    except OSError as error:
        raise PipelineError(
            f"The plan {str(path)!r:.200} cannot be read: {error.strerror or error}. Give the path of a "
            "JSON file with a plan, or the name of an order.",
            code="shape",
        ) from error
