"""GPT models of Megatron-Core, complete or in the processes of a tensor- and pipeline-parallel job.

Messages of a job's processes that compute one model: small objects from rank 0, and everybody's status.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, distributed

from ...adapters import MegatronAdapter
from ...adapters.sizes import unwrapped
from ...tracer.errors import describe_error
from .errors import GenerationError
from .language_model import LanguageModel, PaddedPrompts, Reading, RereadingReading
from .texts import Texts

if TYPE_CHECKING:
    from .job import GenerationJob


_USUAL_SECONDS = 1800.0
_LONGER_SECONDS = 30.0
_MOST_HEARTBEAT_SECONDS = 20.0
_TEXT_BYTES = 1024
_WELL, _FAILED, _LOST = range(3)
_OF_COMMUNICATION = ("gloo", "nccl", "timed out", "timeout", "connection", "process group", "store")


class LostJobError(GenerationError):
    """The processes of a job cannot continue: one is gone, or they are out of step. Says which, and why."""


class JobControl:
    """A gloo group of all processes. All of them make it at the same point; each uses it in one thread.

    Messages are JSON in a tensor of bytes: nothing that comes is ever run. Each call waits for the others, a
    little longer than the job's own groups do, so that a process that waits for a failed one reports before
    it is given up.

    Attributes
    ----------
    rank, size : int
        Of this process, and how many there are.
    heartbeat_seconds : float
        The longest time between two messages of rank 0.
    job : GenerationJob or None
        What is written.
    lost : LostJobError or None
        Why no message can come any more.
    """

    def __init__(self) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        limit = _limit_seconds() + _LONGER_SECONDS
        self._group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=limit))
        self.heartbeat_seconds = min(limit / 4, _MOST_HEARTBEAT_SECONDS)
        self.job: GenerationJob | None = None
        self.lost: LostJobError | None = None
        self._heard: dict[str, Any] | None = None

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which the others follow."""
        return self.rank == 0

    def send(self, message: dict[str, Any]) -> None:
        """Send the others a message with a ``do``; raises ``LostJobError`` when one of them is gone."""
        data = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
        with self._together():
            distributed.broadcast(torch.tensor([len(data)]), 0, group=self._group)
            distributed.broadcast(data, 0, group=self._group)

    def receive(self) -> dict[str, Any]:
        """Return rank 0's next message; raises ``LostJobError`` when it is gone."""
        if self._heard is not None:
            message, self._heard = self._heard, None
            return message
        length = torch.zeros(1, dtype=torch.int64)
        with self._together():
            distributed.broadcast(length, 0, group=self._group)
            data = torch.zeros(int(length), dtype=torch.uint8)
            distributed.broadcast(data, 0, group=self._group)
        message = json.loads(data.numpy().tobytes())
        return dict(message)

    def expect(self, do: str) -> dict[str, Any]:
        """Return rank 0's next message of a kind.

        Raises ``GenerationError`` for another kind: rank 0 has ended the generation. Then :meth:`receive`
        returns that once more. Raises ``LostJobError`` as :meth:`receive`.
        """
        message = self.receive()
        if message["do"] != do:
            self._heard = message
            raise GenerationError("Rank 0 ended the generation.")
        return message

    def settle(self, error: Exception | None = None) -> None:
        """Exchange status with all processes; ``error`` is what went wrong here.

        Raises ``GenerationError`` in all processes when something went wrong in one, or ``LostJobError`` when
        that was in a collective operation, after which they are out of step, or when one is gone.
        """
        state = _WELL if error is None else _LOST if is_of_communication(error) else _FAILED
        text = b"" if error is None else describe_error(error).encode("utf-8", "replace")[: _TEXT_BYTES - 1]
        own = torch.zeros(_TEXT_BYTES, dtype=torch.uint8)
        own[: 1 + len(text)] = torch.frombuffer(bytearray([state, *text]), dtype=torch.uint8)
        every = [torch.empty_like(own) for _ in range(self.size)]
        with self._together():
            distributed.all_gather(every, own, group=self._group)
        failed = [(rank, each.numpy().tobytes()) for rank, each in enumerate(every) if int(each[0])]
        if not failed:
            return
        texts = [
            f"Rank {rank} failed: {data[1:].rstrip(bytes(1)).decode('utf-8', 'replace')}"
            for rank, data in failed[:4]
        ]
        if any(data[0] == _LOST for _, data in failed):
            raise self._lose(f"{' '.join(texts)} The processes cannot go on together: start the job again.")
        raise GenerationError(" ".join(texts))

    def begin_pass(self) -> None:
        """Begin a forward pass in all processes or none, with one answer to whether the job is cancelled.

        Raises ``GenerationError`` in all when a process is not ready, ``LostJobError`` as :meth:`settle`.
        """
        job = self.job
        if self.leads:
            message: dict[str, Any] = {"do": "pass", "cancelled": job is not None and job.asked_to_end}
            self.send(message)
        else:
            message = self.expect("pass")
        if job is not None:
            job.cancelled = message["cancelled"]
        self.settle()

    def tokens(self, ids: list[int]) -> list[int]:
        """Return rank 0's token ids instead of one's own; raises as :meth:`expect`."""
        if self.leads:
            self.send({"do": "tokens", "ids": ids})
            return ids
        return [int(each) for each in self.expect("tokens")["ids"]]

    def close(self) -> None:
        """Destroy the group. Safe twice."""
        group, self._group = self._group, None
        if group is not None:
            with contextlib.suppress(Exception):  # The job may be over.
                distributed.destroy_process_group(group)

    @contextlib.contextmanager
    def _together(self) -> Any:
        if self.lost is not None:
            raise self.lost
        if self._group is None:
            raise self._lose("The job is over.")
        try:
            yield
        except Exception as error:
            raise self._lose(
                f"A process of the job is gone, or does not answer: {describe_error(error)}"
            ) from error

    def _lose(self, text: str) -> LostJobError:
        self.lost = LostJobError(text)
        return self.lost


def _limit_seconds() -> float:
    """Return the timeout of the job's own groups."""
    backends = getattr(distributed.group.WORLD, "_get_backend", None)
    for kind in ("cpu", "cuda"):
        with contextlib.suppress(Exception):  # Not every job has both, and this is no public interface.
            assert backends is not None
            return float(backends(torch.device(kind)).options._timeout.total_seconds())
    return _USUAL_SECONDS


def is_of_communication(error: Exception) -> bool:
    """Return whether an error is a collective operation's, after which processes may be out of step."""
    if isinstance(error, distributed.DistError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in _OF_COMMUNICATION)


def is_megatron(model: Any) -> bool:
    """Return whether a model, or the list of its chunks, is a GPT model of Megatron-Core."""
    return MegatronAdapter().fits(model)


class MegatronLanguageModel(LanguageModel):
    """A GPT model of Megatron-Core: bare, or in its DDP or Float16Module.

    In a job of several processes each of them has a part, and a forward pass takes them all: each has to
    :meth:`join`, and does the same. Logits are gathered over the parts of the vocabulary and sent to every
    stage of the pipeline. Prompts of one length are read with Megatron-Core's cache of keys and values.
    Others are padded on the right, which works with any kind of attention, and reread in every pass.

    Parameters
    ----------
    model : torch.nn.Module or list of one
        This process's part.
    tokens : int, optional
        Token ids that the tokenizer has: the embedding may be padded to more.

    Raises
    ------
    GenerationError
        For interleaved pipeline stages, and for context parallelism.
    """

    def __init__(self, model: Any, texts: Texts, tokens: int | None = None) -> None:
        chunks = list(model) if isinstance(model, (list, tuple)) else [model]
        if len(chunks) != 1:
            raise GenerationError(
                "Text is written without interleaved pipeline stages: a process must hold 1 model chunk, "
                f"got {len(chunks)}."
            )
        self._gpt = cast("Any", unwrapped(chunks[0]))
        self._state = cast("Any", sys.modules.get("megatron.core.parallel_state"))
        self._parallel = self._state is not None and self._state.model_parallel_is_initialized()
        if self._parallel and self._state.get_context_parallel_world_size() > 1:
            raise GenerationError(
                "Text is written without context parallelism: its size must be 1, got "
                f"{self._state.get_context_parallel_world_size()}."
            )
        width = int(self._gpt.vocab_size)
        super().__init__(
            chunks[0],
            texts,
            vocabulary=width if tokens is None else min(tokens, width),
            context=int(self._gpt.max_sequence_length),
        )
        self._control: JobControl | None = None
        self._cut_sequence = False

    @property
    def alone(self) -> bool:  # type: ignore[override]
        """Whether this process computes a forward pass without others."""
        return self._control is None

    def join(self, control: JobControl) -> None:
        """Compute with the other processes, each reading what rank 0 reads, without sequence parallelism."""
        self._control = control
        self._cut_sequence = bool(self._gpt.config.sequence_parallel)
        self._set_cut_sequence(False)

    def leave(self) -> None:
        """Compute alone from now on. Safe twice."""
        self._control = None
        self._set_cut_sequence(self._cut_sequence)

    def begin(self, prompts: Sequence[Sequence[int]], tokens: int = 0) -> Reading:
        padded = PaddedPrompts.of(prompts, self.device)
        cache = None if padded.pads.any() else self._cache(len(prompts), padded.padded + tokens)
        if cache is None:
            return RereadingReading(self._read, padded)
        return _CachedReading(self._read, padded, cache)

    def agreed(self, tokens: Tensor) -> Tensor:
        if self._control is None:
            return tokens
        return torch.tensor(self._control.tokens(tokens.tolist()), device=tokens.device)

    def _cache(self, sequences: int, length: int) -> Any:
        """Return Megatron-Core's cache, or None where this version has none."""
        contexts = sys.modules.get("megatron.core.inference.contexts")
        kind = getattr(contexts, "StaticInferenceContext", None)
        if kind is None:
            return None
        cache = kind(sequences, length)
        # The logits of prompts are reported, too.
        cache.materialize_only_last_token_logits = False
        return cache

    def _set_cut_sequence(self, on: bool) -> None:
        if self._cut_sequence:
            utils = sys.modules["megatron.core.transformer.utils"]
            utils.set_model_to_sequence_parallel(self._gpt, on)

    # One forward pass, in all processes.

    def _read(self, ids: Tensor, indices: Tensor, cache: Any = None) -> Tensor:
        """Return logits ``[B, n, vocabulary]`` at indices ``[B, n]`` of ids ``[B, S]`` behind a cache."""
        control = self._control
        if control is None:
            return self._shared(self._stage(ids, cache), indices)
        control.begin_pass()
        failure: Exception | None = None
        output: Tensor | None = None
        try:
            output = self._stage(ids, cache)
        except Exception as error:
            # The others get it before anybody continues.
            failure = error
            self._hand_on_nothing(ids, error)
        control.settle(failure)
        return self._shared(output, indices)

    def _stage(self, ids: Tensor, cache: Any) -> Tensor:
        """Compute this pipeline stage: logits ``[B, S, vocabulary]`` in the last, else activations."""
        batch, length = ids.shape
        first = 0 if cache is None else int(cache.sequence_len_offset)
        positions = torch.arange(first, first + length, device=ids.device).expand(batch, length)
        if not self._gpt.pre_process:
            hidden = self._handed_on(ids)
            distributed.recv(hidden, self._state.get_pipeline_model_parallel_prev_rank())
            self._gpt.set_input_tensor(hidden)
        more = {} if cache is None else {"inference_context": cache}
        mask = _future(length, first, ids.device)
        # Of the complete vocabulary, of which each tensor-parallel process has a part.
        output: Tensor = self.module(ids, positions, mask, runtime_gather_output=True, **more)
        if not self._gpt.post_process:
            distributed.send(output.contiguous(), self._state.get_pipeline_model_parallel_next_rank())
        return output

    def _handed_on(self, ids: Tensor) -> Tensor:
        """Return a buffer for activations between stages: zeros ``[S, B, hidden]``."""
        config, (batch, length) = self._gpt.config, ids.shape
        kind = config.pipeline_dtype or config.params_dtype
        if config.fp32_residual_connection:
            kind = torch.float32
        return torch.zeros(length, batch, config.hidden_size, dtype=kind, device=ids.device)

    def _hand_on_nothing(self, ids: Tensor, error: Exception) -> None:
        """Keep the next stage from waiting for a failed one by dummy data, unless communication failed."""
        if not self._gpt.post_process and not is_of_communication(error):
            distributed.send(self._handed_on(ids), self._state.get_pipeline_model_parallel_next_rank())

    def _shared(self, output: Tensor | None, indices: Tensor) -> Tensor:
        """Return the complete logits of the last stage in all processes."""
        assert output is not None
        last = bool(self._gpt.post_process)
        if last:
            output = output.take_along_dim(indices[:, :, None], 1).float().contiguous()
        if not self._parallel:
            return output[..., : self.vocabulary].clone()
        width = int(self._gpt.vocab_size)
        logits = torch.empty(*indices.shape, width, dtype=torch.float32, device=indices.device)
        if last:
            logits.copy_(output[..., :width])
        if self._state.get_pipeline_model_parallel_world_size() > 1:
            source = self._state.get_pipeline_model_parallel_last_rank()
            distributed.broadcast(logits, source, group=self._state.get_pipeline_model_parallel_group())
        return logits[..., : self.vocabulary].contiguous()


class _CachedReading(Reading):
    """Prompts of one length, then token after token, with a cache of keys and values."""

    def __init__(self, read: Any, prompts: PaddedPrompts, cache: Any) -> None:
        self._read, self._ids, self._cache = read, prompts.ids, cache

    def prompts(self) -> Tensor:
        return self._next(self._ids)

    def next(self, tokens: Tensor) -> Tensor:
        return self._next(tokens[:, None])

    def _next(self, ids: Tensor) -> Tensor:
        batch, length = ids.shape
        logits: Tensor = self._read(
            ids, torch.arange(length, device=ids.device).expand(batch, length), self._cache
        )
        self._cache.sequence_len_offset += length
        self._cache.enable_decode_mode()
        return logits


def _future(length: int, first: int, device: torch.device) -> Tensor:
    """Return a causal mask, bool ``[1, 1, length, first + length]``; some attention makes its own."""
    mask = torch.ones(length, first + length, dtype=torch.bool, device=device)
    return mask.triu(1 + first)[None, None]


def vocabulary_of(tokenizer: Any) -> int | None:
    """Return a tokenizer's number of token ids, if it is known."""
    try:
        return len(tokenizer)
    except TypeError:
        size = getattr(tokenizer, "vocab_size", None)
        return size if isinstance(size, int) else None
