"""Megalens in a Hugging Face ``Trainer``: one callback. The model is a small GPT-2 with random weights; nothing is downloaded.

``Trainer`` itself needs ``pip install transformers accelerate``.
"""

import tempfile

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from megalens import Tile
from megalens.adapters import MegalensCallback
from megalens.demo import load_corpus


class Bytes(Dataset[dict[str, Tensor]]):
    """Windows of the demo's text, one byte a token."""

    def __init__(self, length: int = 128) -> None:
        self.length = length
        self.ids = torch.frombuffer(bytearray(load_corpus().train), dtype=torch.uint8).long()

    def __len__(self) -> int:
        return len(self.ids) // self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        window = self.ids[index * self.length : (index + 1) * self.length]
        return {"input_ids": window, "labels": window}


def main(steps: int = 100) -> None:
    """Train for some steps."""
    torch.manual_seed(0)
    # Attention probabilities exist only with attn_implementation="eager".
    config = GPT2Config(
        vocab_size=256,
        n_positions=128,
        n_embd=128,
        n_layer=4,
        n_head=4,
        attn_implementation="eager",
        bos_token_id=None,
        eos_token_id=None,
    )
    flags = {"HiddenStates": Tile(96), "RawAttentionScore_mat_mul": Tile(32, "max")}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=16,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        Trainer(
            GPT2LMHeadModel(config),
            arguments,
            train_dataset=Bytes(),
            callbacks=[MegalensCallback(name="gpt2", flags=flags)],
        ).train()


if __name__ == "__main__":
    main()
