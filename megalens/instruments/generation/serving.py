"""``megalens.serve``: a model that writes text while it is watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...api.trace import trace
from ...demo.model import CONFIG, CheckpointError, load_checkpoint
from ...tracer.errors import TracerError
from ...tracer.points import IAdapter
from . import GenerationInstrument, LanguageModel, as_language_model
from .errors import GenerationError
from .hidden import AttentionAdapter
from .lab import Lab, MegatronLab, joined_control

_HUB_SECONDS = 30.0

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


# Models from folders: nothing is fetched, and no code of a folder is run.
def load_folder(
    folder: str | Path, tokenizer: Any = None, *, device: torch.device | str | None = None
) -> LanguageModel:
    """Return the model of a folder, on ``device`` or the first GPU where there is one.

    The folder is the ``save_pretrained`` of a causal model of Hugging Face with its tokenizer, which
    ``tokenizer`` replaces; or a checkpoint of :mod:`megalens.demo`. Raises ``GenerationError`` when there is
    no folder or no model in it, its tokenizer is missing or of another vocabulary, or transformers is not
    installed.
    """
    path = Path(folder)
    if not path.is_dir():
        found = "is a file" if path.exists() else "is not there"
        raise GenerationError(f"A model is loaded from a local folder, and {str(folder)!r:.200} {found}.")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if (path / CONFIG).exists():
        try:
            return as_language_model(load_checkpoint(path, device), tokenizer)
        except CheckpointError as error:
            raise GenerationError(str(error)) from error
    if not (path / "config.json").exists() or not any(any(path.glob(each)) for each in _WEIGHTS):
        raise GenerationError(
            f"{path.name} holds no model: expected config.json with *.safetensors, as save_pretrained of "
            f"Hugging Face writes them, or {CONFIG} of the demo."
        )
    return _hugging_face(path, tokenizer, device)


def _hugging_face(path: Path, tokenizer: Any, device: torch.device | str) -> LanguageModel:
    try:
        import transformers
    except ImportError as error:
        raise GenerationError(
            f"{path.name} holds a model of Hugging Face, and transformers is not installed. pip install "
            "transformers"
        ) from error
    own: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if tokenizer is None:
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, **own)
        except Exception as error:
            raise GenerationError(
                f"The tokenizer of {path.name} cannot be loaded: {_reason(error)}"
            ) from error
    try:
        module: Any = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype="auto", weights_only=True, **own
        )
    except Exception as error:
        raise GenerationError(f"The model of {path.name} cannot be loaded: {_reason(error)}") from error
    module.to(device)
    model = as_language_model(module, tokenizer)
    size = getattr(tokenizer, "vocab_size", None)
    if model.vocabulary is not None and isinstance(size, int) and size > model.vocabulary:
        raise GenerationError(
            f"The tokenizer of {path.name} is of another vocabulary than its model: it has {size} tokens, "
            f"and the model {model.vocabulary}."
        )
    return model


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def serve(
    model: Any,
    tokenizer: Any = None,
    *,
    name: str | None = None,
    flags: Mapping[str, Any] | Iterable[str] | None = None,
    layers: str | int | Iterable[int] = "all",
    samples: int | str | None = "all",
    record: str | Path | None = None,
    record_bytes: int | None = None,
    record_mode: int | None = None,
    hub: Any = "spawn",
    adapter: IAdapter | None = None,
    vectors_folders: Sequence[str | Path] = (),
    perturb: bool = True,
    linger: float = 10.0,
    hub_host: str = "127.0.0.1",
    hub_port: int = 0,
) -> Lab:
    """Serve a model to whoever wants to see it write text: a live run, found like any run, that answers
    ``generate``.

    In a job of several processes that hold a model of Megatron-Core together each of them calls it, and
    waits: ``lab.wait()``. Rank 0 is asked, and ends it.

    Parameters
    ----------
    model : torch.nn.Module, LanguageModel or path
        A causal model of Hugging Face or of :mod:`megalens.demo`, any causal module that gives logits for
        ids, or the folder of a checkpoint of the first two.
    tokenizer : optional
        With ``encode(text)`` and ``decode(ids)``. A folder has its own.
    name : str, optional
        Name of the run; the folder's when absent, or the model's class.
    flags, layers, samples, record, record_bytes, record_mode, hub, adapter, vectors_folders
        As :func:`megalens.trace` takes them. All sequences of a batch are traced unless ``samples`` says
        otherwise.
    linger, hub_host, hub_port
        As :func:`megalens.trace` takes them.
    perturb : bool
        Whether viewers may perturb the model while it writes.

    Returns
    -------
    Lab
        Close it, or use ``with``.

    Raises
    ------
    GenerationError
        When the model cannot write text, or the folder holds none.
    TracerError
        As of :func:`megalens.trace`, also where there is no hub: nobody could ask.
    ProtocolError
        When a flag setting is wrong, with the field at fault.
    """
    if hub is None:
        raise TracerError(
            "hub=None: a lab needs a hub, through which it is asked. Leave it out to start one."
        )
    writer = _writer(model, tokenizer)
    if name is None:
        name = Path(model).resolve().name if isinstance(model, (str, Path)) else type(writer.module).__name__
    # Before the points are found: the other processes change the model, too.
    control = joined_control(writer)
    instrument = GenerationInstrument(writer, own_steps=True)
    tracer = trace(
        writer.module,
        name=name,
        flags=flags,
        layers=layers,
        samples=samples,
        record=record,
        record_bytes=record_bytes,
        record_mode=record_mode,
        hub=hub,
        tokenizer=_PieceDecoder(writer),
        adapter=AttentionAdapter(adapter),
        vectors_folders=vectors_folders,
        linger=linger,
        allow=("generate", "perturb") if perturb else ("generate",),
        instruments=[instrument],
        phase="generate",
        hub_host=hub_host,
        hub_port=hub_port,
    )
    # A client may send requests at once.
    if control is None or control.leads:
        tracer.connected(_HUB_SECONDS)

    def connect() -> Any:
        from ...api.notebook import connect

        return connect(tracer.run_id)

    if control is None:
        return Lab(tracer, instrument, connect)
    return MegatronLab(tracer, instrument, connect, control)


def _writer(model: Any, tokenizer: Any) -> LanguageModel:
    if isinstance(model, (str, Path)):
        return load_folder(model, tokenizer)
    return as_language_model(model, tokenizer)


class _PieceDecoder:
    def __init__(self, model: LanguageModel) -> None:
        self._piece = model.texts.piece

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(self._piece, ids))
