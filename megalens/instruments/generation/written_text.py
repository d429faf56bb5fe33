"""A text that a model wrote, with all of its data, from the streams of a live or recorded run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol import GENERATION_ENDED, parse_json, shown_text
from ...protocol.messages_generated import GenerateRequest
from ...runs.errors import ClientError, as_int
from ...runs.query import LayerChoice, Query
from ...runs.run_words import check_flag
from .text_array import generation_array

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame

    from ...runs.run import Run

_SHOWN_CHARACTERS = 400


class Generation:
    """One generation of a run. Made by ``run.generate(…)`` and ``run.generation(number)``.

    Everything is read from the run when it is asked for. ``number`` counts from 1.
    """

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self.number = number
        """Number of the generation in its run."""

    # State.

    @property
    def state(self) -> str:
        """``queued``, ``running``, ``finished``, ``cancelled`` or ``failed``."""
        return str(self._newest["state"])

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.state in GENERATION_ENDED

    @property
    def place(self) -> int:
        """Position in the queue, counted from 1; 0 when it does not wait."""
        return int(self._newest["place"])

    @property
    def message(self) -> str:
        """Why it failed, or how it differs from the request."""
        return str(self._newest["message"])

    @property
    def seconds(self) -> float:
        """Seconds that it ran so far."""
        return float(self._newest["seconds"])

    @property
    def control(self) -> Generation | None:
        """The clean generation with the same seed, of one under a perturbation."""
        number = int(self._newest["control"])
        return self._of(number) if number else None

    @property
    def request(self) -> GenerateRequest:
        """The complete request."""
        text = next((text for text in self._states["request"].to_pylist() if text), "{}")
        return parse_json(text)  # type: ignore[no-any-return]

    @property
    def prompts(self) -> list[str]:
        """The text that each sequence goes on from."""
        request = self.request
        samples = int(request.get("samples", 1))
        return [prompt for prompt in request["prompts"] for _ in range(samples)]

    # What was written.

    @property
    def texts(self) -> list[str]:
        """What the model wrote, of each sequence, without its prompt."""
        table = self._rows("tokens")
        written = table.filter(pc.equal(table["kind"], "generated")).sort_by("position")
        texts: dict[int, list[str]] = {number: [] for number in range(len(self.prompts))}
        for sequence, text in zip(written["sequence"].to_pylist(), written["text"].to_pylist(), strict=True):
            texts.setdefault(sequence, []).append(text)
        return ["".join(texts[sequence]) for sequence in sorted(texts)]

    @property
    def text(self) -> str:
        """What the model wrote after its first prompt."""
        return self.texts[0]

    def tokens(self, sequence: int | None = None) -> DataFrame:
        """Return one row for each position, in order: the columns of the stream ``tokens``.

        Parameters
        ----------
        sequence : int, optional
            One row of the batch, counted from 0; all when absent.
        """
        return self._rows("tokens", sequence).sort_by(_by("sequence", "position")).to_pandas()

    def lens(self, sequence: int | None = None, layers: LayerChoice = None) -> DataFrame:
        """Return each layer's predictions at each position: the stream ``lens``. Empty unless asked for."""
        rows = self._rows("lens", sequence, layers)
        return rows.sort_by(_by("sequence", "position", "layer")).to_pandas()

    def effects(self, sequence: int | None = None, layers: LayerChoice = None) -> DataFrame:
        """Return the perturbation's effects against the control, the stream ``effects``; else empty."""
        rows = self._rows("effects", sequence, layers)
        return rows.sort_by(_by("point", "sequence", "position", "layer")).to_pandas()

    def array(
        self, flag: str, layer: int, sequence: int = 0, *, part: str | None = None
    ) -> NDArray[np.float32]:
        """Return a traced tensor of every position, put together from the passes that computed it.

        Parameters
        ----------
        flag : str
            Trace point by name.
        layer : int
            Layer, counted from 0.
        sequence : int
            Row of the batch, counted from 0.
        part : str, optional
            Named part; the first that there is when absent.

        Returns
        -------
        numpy.ndarray
            float32 ``[positions, features]``, of attention probabilities ``[heads, queries, keys]``. NaN
            where a position was not traced: the last token, which the model has not read, and what was left
            out of the trace. :class:`Peaks` joins queries and keys of long texts, of more than 256 positions
            where nothing was said: a cell then has the largest value of a power of two of positions, as many
            as make the last position the last cell; ``NoOp`` keeps each.

        Raises
        ------
        ClientError
            When this generation has no rows of it, or of several kinds, or of tokens without their positions.
        """
        flags = self._run.flags
        check_flag(flags, flag)
        rows = self._rows("tokens", sequence).select(
            ["generation", "position", "tensor_step", "tensor_pass", "tensor_offset"]
        )
        number = as_int(layer, "layer", -1)
        return generation_array(self._run, rows.to_pandas(), flags[flag], number, sequence, part)

    # While it runs.

    def wait(
        self, timeout: float | None = None, *, progress: Callable[[int, int], object] | None = None
    ) -> Generation:
        """Wait until nothing more will come, and return this.

        Parameters
        ----------
        timeout : float, optional
            Seconds; for ever when absent.
        progress : callable, optional
            Called with (tokens so far, tokens at most) as they come; raise from it to stop waiting.

        Raises
        ------
        ClientError
            ``timeout``, ``failed`` with the reason, or ``closed`` when the run ended first.
        """
        reported = -1

        def done() -> bool:
            nonlocal reported
            newest = self._newest
            if progress is not None and int(newest["tokens"]) != reported:
                reported = int(newest["tokens"])
                request = self.request
                progress(reported, int(request.get("tokens", 0)) * int(newest["sequences"]))
            return newest["state"] in GENERATION_ENDED

        if not self._run._await("generations", done, timeout):
            live = self._run.live
            message = (
                f"did not end within {timeout:g} s"
                if live and timeout is not None
                else "did not end before its run"
            )
            raise ClientError(
                f"Generation {self.number} {message}; it is {self.state}.",
                code="timeout" if live else "closed",
            )
        if self.state == "failed":
            raise ClientError(f"Generation {self.number} failed. {self.message}", code="failed")
        return self

    def cancel(self, timeout: float = 30.0) -> None:
        """End it where it is. What was written stays. Safe twice, and when it is over."""
        if not self.over:
            self._run._request({"type": "cancel", "id": "-", "generation": self.number}, timeout)

    def __repr__(self) -> str:
        newest = self._newest
        head = f"<Generation {self.number} of {self._run.name}: {newest['state']}, {newest['tokens']} tokens>"
        lines = [
            f"{prompt}│{text}"[:_SHOWN_CHARACTERS]
            for prompt, text in zip(self.prompts, self.texts, strict=False)
        ]
        return shown_text("\n".join([head, *lines, *([self.message] if self.message else [])]))

    def _of(self, number: int) -> Generation:
        return type(self)(self._run, number)

    @property
    def _states(self) -> pa.Table:
        rows = self._rows("generations")
        if rows.num_rows == 0:
            raise ClientError(
                f"{self._run.name} has no generation {self.number}. It has {_numbers(self._run) or 'none'}.",
                code="not-found",
                field="generation",
            )
        return rows

    @property
    def _newest(self) -> dict[str, Any]:
        # Rows come meanwhile: what is asked for twice differs.
        states = self._states
        return states.slice(states.num_rows - 1).to_pylist()[0]  # type: ignore[no-any-return]

    def _rows(self, stream: str, sequence: int | None = None, layers: LayerChoice = None) -> pa.Table:
        where: list[tuple[str, str | int]] = [("generation", self.number)]
        if sequence is not None:
            where.append(("sequence", as_int(sequence, "sequence")))
        query = Query.of(layers=layers)
        return self._run._read(stream, Query(layers=query.layers, where=tuple(where)))


def generations_of(run: Run) -> list[int]:
    """Return the numbers of all generations that a run has, ascending."""
    numbers: Iterable[int] = pc.unique(run._read("generations", Query())["generation"]).to_pylist()
    return sorted(numbers)


def _numbers(run: Run) -> str:
    numbers = generations_of(run)
    return (
        f"1 to {numbers[-1]}"
        if numbers == list(range(1, len(numbers) + 1)) and numbers
        else ", ".join(map(str, numbers[:20]))
    )


def _by(*columns: str) -> list[tuple[str, str]]:
    return [(column, "ascending") for column in columns]
