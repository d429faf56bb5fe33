"""What a peer sends, as rows with their pass: what it was asked for, what it said of its model, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...protocol import EMBEDDING, GenerationRequest, Tile, compressor_from_setting, join_numbers, ranges_text
from .dialect import Dialect
from .errors import DialectError
from .left_out import LeftOut
from .pass_counter import PassCounter
from .peer_generation import PeerGeneration
from .peer_message import MOST_LAYERS, BadMessage, TensorRow, read_update
from .peer_request import asked_config, compressor_text, default_config, peer_request
from .peer_token import PeerToken, read_candidates, read_prompts
from .rows import PlacedRow
from .stage_counter import StageCounter
from .standing_config import StandingConfig
from .translation import Translation

__all__ = ["PeerRows"]


class PeerRows:
    """Reads the ``start`` and the updates of one peer.

    Parameters
    ----------
    dialect : Dialect
        What it speaks.
    plan : Translation
        What is asked.
    left_out : LeftOut
        Where it is told what has no place.

    Raises
    ------
    DialectError, ProtocolError
        For what such a peer cannot do, before anything is sent.
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
        """Return what the person must know of the order in which updates came and, once it has ended, of what never came."""
        said = []
        if self._counter.behind:
            said.append(
                f"A layer was {self._counter.behind} times behind the one after it: the peer lost updates or sends late, so steps of layers may not belong together."
            )
        if self._counter.ahead:
            said.append(
                f"The connection was made in mid-step, and stages of the pipeline were counted {self._counter.ahead} times a pass too far until that showed: steps before that may hold two passes."
            )
        if ended and self._missing:
            said.append(f"Asked for, but nothing of it came: {', '.join(self._missing)}.")
        silent = set(range(self.layers)) - self._heard
        if ended and self._heard and silent:
            said.append(f"Nothing came of layers {ranges_text(join_numbers(silent))}.")
        return said

    def interrupt(self) -> None:
        """Take note that updates may have been lost before what comes next."""
        self._counter.interrupt()

    def start(self, message: Mapping[str, Any]) -> list[tuple[TensorRow, int, int]]:
        """Take a ``start``, and return what it holds as :meth:`update` does.

        Raises
        ------
        BadMessage
            When it does not say how many layers the model has, its prompts cannot be read, or it comes again in a generation.
        """
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
        """Return the rows of an update, each with its step and micro-batch.

        Raises
        ------
        BadMessage
            When it is not what the dialect says, or nobody asked for it.
        """
        if self.generation is not None and message.get("update_type") == self.dialect.candidates:
            self._end_pass(self.generation, message)
            return []
        rows = read_update(self.dialect, message, self._pixels, self._batch)
        first = rows[0]
        if self.started and first.layer >= self.layers:
            raise BadMessage("updates of a layer that the model does not have")
        if first.flag not in self.standing.asked:
            raise BadMessage(f"updates of {first.flag} that were not asked for")
        number = self._place(first)
        if number is None:
            reason, lost = self._counter.unplaced
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

    def placed(self, row: TensorRow, step: int, micro_batch: int) -> PlacedRow | None:
        """Return what is kept of a row in its place, or None when nobody wants it."""
        kept = self.standing.keep(row, step)
        if kept is None:
            return None
        tiles = row.values.shape[-1] if row.values.ndim else 0
        text = "Unknown()"
        if self.dialect.full_shape or self.dialect.generates or self._batch is not None:
            text = compressor_text(self.dialect, row.flag, self.standing.config, tiles)
        else:
            self._left_out.note(
                "No start with a batch size came, so someone else's request is in force: with how many tiles is not known, and shapes are a guess."
            )
        return PlacedRow(kept, step, micro_batch, self.dialect.phase, text, tuple(row.values.shape))

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

    def _place(self, row: TensorRow) -> int | None:
        if isinstance(self._counter, PassCounter) and row.flag == "MLP2_Plot":
            return max(self._counter.newest, 0)
        return self._counter.place(row.layer, row.flag, row.values)


def _input_tokens(prompts: list[list[PeerToken]]) -> TensorRow:
    ids = np.array([[token.id for token in tokens] for tokens in prompts], np.float32)
    return TensorRow("InputTokens", "ids", EMBEDDING, ids, [token.text for each in prompts for token in each])
