"""A generation of our hub, reassembled from its rows: forward pass by forward pass."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import GENERATION_ENDED
from .peer_message import is_shape

TensorKey = tuple[int, str, str]
"""Layer, flag and part."""
_PassNumber = tuple[int, int]
_TOKEN = ("generation", "sequence", "position", "kind", "id", "text", "piece", "logit", "probability")
_READ = ("tensor_step", "tensor_pass")
_CANDIDATES = ("candidate_ids", "candidate_texts", "candidate_logits", "candidate_probabilities")
_Row = dict[str, Any]


@dataclass
class WrittenPass:
    """One forward pass.

    ``number`` counts from 0, the one that read the prompts. ``tokens`` are by sequence the rows of ``tokens``
    that were drawn from it, ``tensors`` float32 arrays by layer, flag and part.
    """

    number: int
    tokens: dict[int, _Row] = field(default_factory=dict)
    tensors: dict[TensorKey, np.ndarray[Any, Any]] = field(default_factory=dict)


class WrittenPasses:
    """Takes rows as they come, and gives the passes in order once all of their tensors are there.

    A tensor is waited for until the same one of a later pass has come: each process sends its own in order,
    and slow viewers are spared the oldest.

    Attributes
    ----------
    state, message : str
        Of the newest row of ``generations``.
    prompts : list of list of dict
        Rows of the prompts' tokens by sequence.
    padded : int
        Positions of the longest prompt.
    missing : set of TensorKey
        What was absent when its pass was given.
    broken : bool
        Whether rows of tokens are missing, as when the hub gave them up for a slow viewer.
    """

    def __init__(self, generation: int, expected: Collection[TensorKey]) -> None:
        self._generation = generation
        self._expected = set(expected)
        self._wanted = frozenset(expected)
        self._numbers: list[_PassNumber] = []
        self._passes: list[WrittenPass] = []
        self._tensors: dict[_PassNumber, dict[TensorKey, np.ndarray[Any, Any]]] = {}
        self._newest: dict[TensorKey, _PassNumber] = {}
        self._given = 0
        self._first_step = math.inf
        self.state = self.message = ""
        self.prompts: list[list[_Row]] = []
        self.padded = 0
        self.missing: set[TensorKey] = set()
        self.broken = False

    @property
    def started(self) -> bool:
        """Whether the prompts are complete."""
        return bool(self._passes) or (self.ended and all(self.prompts) and bool(self.prompts))

    @property
    def ended(self) -> bool:
        """Whether no more tokens come."""
        return self.state in GENERATION_ENDED

    @property
    def done(self) -> bool:
        """Whether every pass was given."""
        return self.ended and (self._given >= len(self._numbers) or not self.started)

    def take(self, stream: str, table: pa.Table) -> None:
        if stream == "generations":
            for row in table.to_pylist():
                if row["generation"] == self._generation:
                    self._state(row)
        elif stream == "tokens":
            lists = table.select(_CANDIDATES)
            for at, row in enumerate(table.select([*_TOKEN, *_READ]).to_pylist()):
                if row["generation"] != self._generation:
                    continue
                if row["kind"] != "prompt":
                    # Those of prompts are many, and not asked for.
                    row.update({name: lists.column(name)[at].as_py() for name in _CANDIDATES})
                self._token(row)
        elif stream == "tensors":
            self._take_tensors(table)

    def complete(self, *, give_up: bool = False) -> Iterator[WrittenPass]:
        """Yield the complete passes; with ``give_up`` the next one also without what has not come.

        Nothing waits for the missing tensors any more.
        """
        while self.started and self._given < len(self._numbers):
            number = self._numbers[self._given]
            there = self._tensors.get(number, {})
            late = {
                key for key in self._expected if key not in there and self._newest.get(key, number) <= number
            }
            # Tokens that were drawn from a pass come after it; a pass from which none was drawn is the last.
            drawn = self._given < len(self._passes) or self.ended
            if not drawn or (late and not give_up):
                return
            if late:
                self._expected -= late
                give_up = False
            self.missing |= self._wanted - there.keys()
            index, self._given = self._given, self._given + 1
            done = self._passes[index] if index < len(self._passes) else WrittenPass(index)
            done.tensors = there
            for old in [each for each in self._tensors if each <= number]:
                del self._tensors[old]
            yield done

    def _state(self, row: _Row) -> None:
        self.state, self.message = row["state"], row["message"]
        # It is said again as the text grows.
        if row["state"] == "running" and not self.prompts:
            self.padded, self._first_step = row["padded"], row["first_step"]
            self.prompts = [[] for _ in range(row["sequences"])]

    def _token(self, row: _Row) -> None:
        sequence = row["sequence"]
        if not 0 <= sequence < len(self.prompts):
            return
        prompt = self.prompts[sequence]
        read = (row["tensor_step"], row["tensor_pass"])
        if row["kind"] == "prompt":
            prompt.append(row)
            self._note_pass(0, read)
            return
        number = row["position"] - len(prompt)
        if not 0 <= number <= len(self._passes):
            self.broken = True
            return
        if number == len(self._passes):
            self._passes.append(WrittenPass(number))
        self._passes[number].tokens[sequence] = row
        if read[0] >= 0:
            self._note_pass(number + 1, read)

    def _note_pass(self, index: int, number: _PassNumber) -> None:
        if index == len(self._numbers):
            self._numbers.append(number)

    def _take_tensors(self, table: pa.Table) -> None:
        names = ("step", "micro_batch", "phase", "pass", "layer", "flag", "part", "shape")
        columns = {name: table.column(name).to_pylist() for name in names}
        lists = table.column("values").combine_chunks()
        oldest = self._numbers[self._given] if self._given < len(self._numbers) else (self._first_step, 0)
        for at in range(table.num_rows):
            row = {name: column[at] for name, column in columns.items()}
            number, key = (row["step"], row["micro_batch"]), (row["layer"], row["flag"], row["part"])
            if key not in self._wanted or (row["phase"], row["pass"]) != ("generate", "forward"):
                continue
            self._newest[key] = max(self._newest.get(key, number), number)
            values, shape = lists[at].values.to_numpy(zero_copy_only=False), row["shape"]
            if number < oldest or not is_shape(shape) or math.prod(shape) != values.size:
                continue
            self._tensors.setdefault(number, {})[key] = values.reshape(shape)
