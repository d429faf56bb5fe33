"""What a peer sends, as rows with their pass; with its request, its model, and its progress.

Rows of ``tensors`` from what a peer sent.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import (
    EMBEDDING,
    STREAMS,
    GenerationRequest,
    ProtocolError,
    Tile,
    compressor_from_setting,
    in_ranges,
    join_numbers,
    ranges_text,
    read_ranges,
    shown_text,
    stream_schema,
)
from ...protocol.messages_generated import Config, ConfigPatch, FlagSetting
from .dialect import Dialect, DialectError, Translation
from .peer_generation import PeerGeneration
from .peer_message import (
    MOST_LAYERS,
    BadMessage,
    PeerToken,
    TensorRow,
    read_candidates,
    read_prompts,
    read_update,
)
from .peer_request import asked_config, compressor_text, default_config, peer_request
from .step_counters import PassCounter, StageCounter

_MOST_REASONS = 12


class LeftOut:
    """What was left out of a translation, counted by reason, and notes for the person."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()
        self._notes: dict[str, None] = {}
        self.rows = 0

    def leave_out(self, reason: str, *, lost: bool = True) -> None:
        """Count a message that was left out. One that is ``lost`` would have been rows; a repeat is not."""
        reason = shown_text(reason)
        if reason not in self._left_out and len(self._left_out) >= _MOST_REASONS:
            reason = "messages of other kinds"
        self._left_out[reason] += 1
        self.rows += lost

    def note(self, sentence: str) -> None:
        """Add a sentence, once."""
        if len(self._notes) < _MOST_REASONS:
            self._notes.setdefault(shown_text(sentence[:500]))

    def sentences(self) -> list[str]:
        counted = [f"Left out: {count} {reason}." for reason, count in self._left_out.items()]
        return [*self._notes, *(text[:500] for text in counted)]


@dataclass(frozen=True)
class NumberedRow:
    """A row with its step and micro-batch."""

    row: TensorRow
    step: int
    micro_batch: int
    phase: str
    compressor: str
    source_shape: tuple[int, ...]


def tensors_table(rows: Sequence[NumberedRow]) -> pa.Table:
    """Return the rows as the stream has them; non-finite values are counted in what came."""
    values = [placed.row.values for placed in rows]
    sizes = [value.size for value in values]
    flat = np.concatenate([value.ravel() for value in values]) if rows else np.empty(0, np.float32)
    offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int32)
    columns = {
        "step": [placed.step for placed in rows],
        "micro_batch": [placed.micro_batch for placed in rows],
        "phase": [placed.phase for placed in rows],
        "pass": ["forward"] * len(rows),
        "rank": [0] * len(rows),
        "layer": [placed.row.layer for placed in rows],
        "flag": [placed.row.flag for placed in rows],
        "part": [placed.row.part for placed in rows],
        "compressor": [placed.compressor for placed in rows],
        "source_shape": [list(placed.source_shape) for placed in rows],
        "shape": [list(value.shape) for value in values],
        "labels": [placed.row.labels for placed in rows],
        "nan_count": [int(np.isnan(value).sum()) for value in values],
        "inf_count": [int(np.isinf(value).sum()) for value in values],
        **{name: [value] * len(rows) for name, value in STREAMS["tensors"].absent.items()},
    }
    schema = stream_schema("tensors")
    arrays = [
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, pa.float32()))
        if column.name == "values"
        else pa.array(columns[column.name], column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def note_table(step: int, who: str, action: str, detail: Mapping[str, Any]) -> pa.Table:
    """Return the row of ``audit`` that says what a run lacks, or how it ended."""
    text = json.dumps(detail, ensure_ascii=False)
    row = {"step": step, "time": time.time(), "who": who[:200], "action": action, "detail": text}
    return pa.Table.from_pylist([row], stream_schema("audit"))


class StandingConfig:
    """Selects of a peer's rows what viewers asked for. The peer reads its own configuration only once.

    ``config`` is the ``Config`` that is wanted, ``asked`` the one that was asked of the peer, which may be
    more.
    """

    def __init__(self, dialect: Dialect, config: Config, asked: Config) -> None:
        self._dialect = dialect
        self._asked = asked["flags"]
        self.config: Config = {"flags": dict(config["flags"])}
        self._pending: list[tuple[str, Config]] = []
        # Since which step: processes of a peer that are behind still send rows of the step before.
        self._since: list[tuple[int, dict[str, FlagSetting]]] = [(0, self.config["flags"])]

    @property
    def asked(self) -> dict[str, FlagSetting]:
        return self._asked

    def plan(self, change: str, patch: ConfigPatch) -> Config:
        """Check a viewer's patch, plan it for the next step and return the configuration after it.

        Raises ``ProtocolError`` (``refused``) for what only the peer could do.
        """
        for member in ("perturb", "mode", "budget"):
            if patch.get(member) is not None:
                raise ProtocolError(
                    "refused",
                    f"{member} cannot be asked of a foreign hub: its training is not ours.",
                    field=member,
                )
        flags = dict(self._pending[-1][1]["flags"] if self._pending else self.config["flags"])
        for name, setting in patch["flags"].items():
            if setting is None:
                flags.pop(name, None)
                continue
            self._check(name, setting)
            flags[name] = {"phases": [self._dialect.phase], "samples": None, **setting}
        after: Config = {"flags": flags}
        self._pending.append((change, after))
        return after

    def apply(self, step: int) -> list[tuple[str, Config]]:
        """Apply planned changes from ``step`` on, and return them with the configuration after each."""
        done, self._pending = self._pending, []
        if done:
            self.config = done[-1][1]
            self._since = [*self._since[-3:], (step, self.config["flags"])]
        return done

    def select(self, row: TensorRow, step: int) -> TensorRow | None:
        """Return the selected part of a row, or None when nobody asked for it."""
        flags = next((flags for since, flags in reversed(self._since) if since <= step), self._since[0][1])
        setting = flags.get(row.flag)
        if setting is None or (not self._dialect.generates and step % setting.get("every", 1)):
            return None
        if not in_ranges(row.layer, read_ranges(setting.get("layers", "all"), "layers")):
            return None
        samples = setting.get("samples")
        if samples is None or samples >= len(row.values):
            return row
        labels = row.labels[: samples * row.values[0].size] if row.labels else []
        return TensorRow(row.flag, row.part, row.layer, row.values[:samples], labels)

    def _check(self, name: str, setting: FlagSetting) -> None:
        field = f"flags.{name}"
        once = "Its configuration is read once, at the start"
        asked = self._asked.get(name)
        if asked is None:
            raise ProtocolError(
                "refused",
                f"The peer was not asked for {name} when it started. {once}; connect again with it when "
                "the peer starts again.",
                field=field,
            )
        was = compressor_from_setting(asked["compressor"])
        if compressor_from_setting(setting["compressor"], f"{field}.compressor") != was:
            raise ProtocolError(
                "refused",
                f"The peer's compressor cannot change while it runs. {once}: {was}.",
                field=f"{field}.compressor",
                expected=str(was),
            )
        if setting.get("passes", ["forward"]) != ["forward"]:
            raise ProtocolError(
                "refused", "A foreign hub sends forward passes only.", field=f"{field}.passes"
            )
        if self._dialect.phase not in setting.get("phases", ["train"]):
            raise ProtocolError(
                "refused",
                f"All that this peer sends is of the phase {self._dialect.phase}.",
                field=f"{field}.phases",
            )


class PeerRows:
    """Reads the ``start`` and the updates of one peer; ``left_out`` takes what has no pass.

    Raises ``DialectError`` or ``ProtocolError`` for what such a peer cannot do, before anything is sent.
    """

    def __init__(self, dialect: Dialect, plan: Translation, left_out: LeftOut) -> None:
        config = plan.config or default_config(dialect)
        asked = asked_config(dialect, config)
        self.request = peer_request(dialect, asked)
        if dialect.generates and not plan.prompts:
            raise DialectError(
                "bad-parameter", "An inference hub sends nothing unless it generates: give --prompt."
            )
        self.standing = StandingConfig(dialect, config, asked)
        self.dialect = dialect
        self._plan = plan
        self._left_out = left_out
        self._counter = StageCounter(dialect, config["flags"]) if dialect.by_layer else PassCounter(dialect)
        compressors = {
            flag: compressor_from_setting(setting["compressor"]) for flag, setting in asked["flags"].items()
        }
        self._pixels = {flag: tile.tiles for flag, tile in compressors.items() if isinstance(tile, Tile)}
        self._missing = dict.fromkeys(config["flags"])
        self._heard: set[int] = set()
        self._batch: int | None = None
        self.started = self.done = False
        self.layers = 0
        self.generation: PeerGeneration | None = None
        if dialect.generates:
            attention = "RawAttentionScore_mat_mul" in config["flags"]
            asked_for = GenerationRequest(plan.prompts, tokens=plan.tokens, attention=attention)
            self.generation = PeerGeneration(asked_for, f"translation of {plan.address}"[:200])

    def sentences(self, *, ended: bool) -> list[str]:
        """Return what the person must know of the order of updates and, at the end, of what never came."""
        sentences = []
        if self._counter.behind:
            sentences.append(
                f"A layer was {self._counter.behind} times behind the one after it: the peer lost updates "
                "or sends late, so steps of layers may not belong together."
            )
        if self._counter.ahead:
            sentences.append(
                "The connection was made in mid-step, and stages of the pipeline were counted "
                f"{self._counter.ahead} times a pass too far until that showed: steps before that may hold "
                "two passes."
            )
        if ended and self._missing:
            sentences.append(f"Asked for, but nothing of it came: {', '.join(self._missing)}.")
        silent = set(range(self.layers)) - self._heard
        if ended and self._heard and silent:
            sentences.append(f"Nothing came of layers {ranges_text(join_numbers(silent))}.")
        return sentences

    def interrupt(self) -> None:
        """Note that updates may have been lost before what comes next."""
        self._counter.interrupt()

    def start(self, message: Mapping[str, Any]) -> list[tuple[TensorRow, int, int]]:
        """Take a ``start``, and return what it contains as :meth:`update` does; raises ``BadMessage``."""
        layers = message.get("num_layers")
        if type(layers) is not int or not 0 < layers <= MOST_LAYERS:
            raise BadMessage("start messages without a number of layers")
        if self.generation is not None:
            if self.generation.started:
                raise BadMessage("start messages in a generation that has started")
            prompts = read_prompts(message.get("prompts"), len(self._plan.prompts))
            self.generation.start(prompts)
        self.started = True
        self.layers = max(self.layers, layers)
        if self.generation is not None:
            row = _input_tokens(prompts)
            self._missing.pop(row.flag, None)
            return [(row, 1, 0)]
        batch = message.get("micro_batch_size")
        if type(batch) is int and batch > 0:
            self._batch = batch
        return []

    def update(self, message: Mapping[str, Any]) -> list[tuple[TensorRow, int, int]]:
        """Return the rows of an update, each with its step and micro-batch; raises ``BadMessage``."""
        if self.generation is not None and message.get("update_type") == self.dialect.candidates:
            self._end_pass(self.generation, message)
            return []
        rows = read_update(self.dialect, message, self._pixels, self._batch)
        first = rows[0]
        if self.started and first.layer >= self.layers:
            raise BadMessage("updates of a layer that the model does not have")
        if first.flag not in self.standing.asked:
            raise BadMessage(f"updates of {first.flag} that were not asked for")
        number = self._pass_of(first)
        if number is None:
            reason, lost = self._counter.unnumbered
            self._left_out.leave_out(reason, lost=lost)
            return []
        step, micro_batch = divmod(number, self._plan.micro_batches)
        if self._plan.most_steps is not None and step >= self._plan.most_steps:
            most = self._plan.most_steps * self._plan.micro_batches
            self.done = self._counter.all_past(most, self.layers)
            return []
        if self.generation is not None and first.flag != "MLP2_Plot":
            self.generation.go_on((step + 1, micro_batch))
        self._missing.pop(first.flag, None)
        self._heard.add(first.layer)
        # Where no start was seen, the model is as deep as what came from it.
        self.layers = max(self.layers, first.layer + 1)
        return [(row, step + 1, micro_batch) for row in rows]

    def numbered(self, row: TensorRow, step: int, micro_batch: int) -> NumberedRow | None:
        """Return the selected part of a row with its numbers, or None when nobody wants it."""
        stored = self.standing.select(row, step)
        if stored is None:
            return None
        tiles = row.values.shape[-1] if row.values.ndim else 0
        text = "Unknown()"
        if self.dialect.full_shape or self.dialect.generates or self._batch is not None:
            text = compressor_text(self.dialect, row.flag, self.standing.config, tiles)
        else:
            self._left_out.note(
                "No start with a batch size came, so someone else's request is in force: with how many "
                "tiles is not known, and shapes are a guess."
            )
        return NumberedRow(stored, step, micro_batch, self.dialect.phase, text, tuple(row.values.shape))

    def _end_pass(self, generation: PeerGeneration, message: Mapping[str, Any]) -> None:
        """Take the candidates, which end a forward pass."""
        if not generation.started:
            raise BadMessage("updates of candidates before the prompts")
        candidates, sampled = read_candidates(message, len(self._plan.prompts))
        assert isinstance(self._counter, PassCounter)
        step, micro_batch = divmod(self._counter.end_pass(), self._plan.micro_batches)
        if self._plan.most_steps is not None and step >= self._plan.most_steps:
            self.done = True
        else:
            generation.take(candidates, sampled, (step + 1, micro_batch))

    def _pass_of(self, row: TensorRow) -> int | None:
        if isinstance(self._counter, PassCounter) and row.flag == "MLP2_Plot":
            return max(self._counter.newest, 0)
        return self._counter.pass_of(row.layer, row.flag, row.values)


def _input_tokens(prompts: list[list[PeerToken]]) -> TensorRow:
    ids = np.array([[token.id for token in tokens] for tokens in prompts], np.float32)
    return TensorRow("InputTokens", "ids", EMBEDDING, ids, [token.text for each in prompts for token in each])
