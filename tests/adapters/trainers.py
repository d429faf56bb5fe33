"""A small model of Hugging Face, and a real Trainer of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers


class Windows(torch.utils.data.Dataset):
    def __init__(self, count: int = 24) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(9) * 7 + index) % 60
        return {"input_ids": ids, "labels": ids}


def gpt2(layers: int = 1, **more: Any) -> transformers.GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "n_positions": 16, "n_embd": 24, "n_layer": layers, "n_head": 4}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, **more)
    )


def train(
    model: Any, folder: Path, callbacks: Sequence[Any] = (), samples: int = 24, **arguments: Any
) -> list[float]:
    """Return the losses that a trainer logs."""
    usual = {"per_device_train_batch_size": 2, "save_strategy": "no", "report_to": []}
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(str(folder), **usual, disable_tqdm=True, use_cpu=True, **arguments),
        train_dataset=Windows(samples),
        eval_dataset=Windows(samples),
        callbacks=[*callbacks],
    )
    trainer.train()
    assert not any(module._forward_hooks for module in trainer.model.modules())
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
