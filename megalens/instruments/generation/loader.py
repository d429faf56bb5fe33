"""Models from folders: nothing is fetched, and no code of a folder is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ...demo.checkpoint import CONFIG, CheckpointError, load_checkpoint
from .errors import GenerationError
from .language_model import LanguageModel
from .of_model import as_language_model

__all__ = ["load_folder"]

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def load_folder(
    folder: str | Path, tokenizer: Any = None, *, device: torch.device | str | None = None
) -> LanguageModel:
    """Return the model of a folder, on the first GPU where there is one.

    Parameters
    ----------
    folder : str or path
        What ``save_pretrained`` of a causal model of Hugging Face wrote, with its tokenizer; or a checkpoint of :mod:`megalens.demo`.
    tokenizer : optional
        Instead of the folder's.
    device : torch.device or str, optional
        Where the model is put.

    Raises
    ------
    GenerationError
        When there is no folder or no model in it, its tokenizer is missing or of another vocabulary, or transformers is not installed.
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
            f"{path.name} holds no model: expected config.json with *.safetensors, as save_pretrained of Hugging Face writes them, or {CONFIG} of the demo."
        )
    return _hugging_face(path, tokenizer, device)


def _hugging_face(path: Path, tokenizer: Any, device: torch.device | str) -> LanguageModel:
    try:
        import transformers
    except ImportError as error:
        raise GenerationError(
            f"{path.name} holds a model of Hugging Face, and transformers is not installed. pip install transformers"
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
            f"The tokenizer of {path.name} is of another vocabulary than its model: it has {size} tokens, and the model {model.vocabulary}."
        )
    return model


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
