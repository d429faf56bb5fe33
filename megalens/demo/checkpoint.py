"""The model in a folder: its weights, and its sizes as JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import torch
from safetensors.torch import load, save

from ..protocol import MegalensError, is_whole, read_json_file
from ..protocol.outside import replace_file
from .model import GPT, GPTConfig

CONFIG = "megalens-demo.json"
"""What makes a folder one of these."""
_WEIGHTS = "model.safetensors"
_MOST = 1 << 20
_MOST_VALUES = 1 << 30


class CheckpointError(MegalensError):
    """A folder that holds no model of the demo."""


def save_checkpoint(model: GPT, folder: str | Path) -> None:
    """Write a model into a folder, which is made where it is missing. Whoever reads meanwhile has the old one
    or the new one of each file.

    Raises
    ------
    OSError
        When the folder cannot be written.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    replace_file(
        path / _WEIGHTS, save({name: each.contiguous() for name, each in model.state_dict().items()})
    )
    replace_file(path / CONFIG, json.dumps(dataclasses.asdict(model.config), indent=2).encode())


def load_checkpoint(folder: str | Path, device: torch.device | str = "cpu") -> GPT:
    """Return the model of a folder, in evaluation mode.

    Raises
    ------
    CheckpointError
        Saying what is wrong with the folder.
    """
    path = Path(folder)
    try:
        sizes = read_json_file(path / CONFIG, 64 << 10)
        model = GPT(_config(sizes))
        model.load_state_dict(load((path / _WEIGHTS).read_bytes()))
    except CheckpointError:
        raise
    except Exception as error:
        # torch lists every tensor that does not fit.
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise CheckpointError(
            f"{path.name} holds no checkpoint of the demo that can be read: {reason}"
        ) from error
    return model.to(device).eval()


def _config(sizes: object) -> GPTConfig:
    names = [each.name for each in dataclasses.fields(GPTConfig)]
    if not isinstance(sizes, dict) or sorted(sizes) != sorted(names):
        raise CheckpointError(f"{CONFIG} must have {', '.join(names)}, got {sizes!r:.200}.")
    for name, size in sizes.items():
        if not is_whole(size, 1) or size > _MOST:
            raise CheckpointError(f"{name} in {CONFIG} must be 1 to {_MOST}, got {size!r:.50}.")
    config = GPTConfig(**sizes)
    if config.hidden % config.heads:
        raise CheckpointError(
            f"hidden in {CONFIG} must be a multiple of heads, {config.heads}, got {config.hidden}."
        )
    largest = config.hidden * max(config.hidden * config.expansion, config.vocabulary, config.sequence)
    if largest * config.layers > _MOST_VALUES or config.sequence**2 * config.layers > _MOST_VALUES:
        raise CheckpointError(f"The sizes in {CONFIG} are those of a model that is too large for the demo.")
    return config
