"""A script as users write it: a Trainer with the callback, started by torchrun."""

import os
import sys

import torch
import transformers

from megalens import Tile
from megalens.adapters import MegalensCallback


class Windows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(9) * 7 + index) % 60
        return {"input_ids": ids, "labels": ids}


def main() -> None:
    folder = sys.argv[1]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=60, n_positions=16, n_embd=24, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    flags = {"HiddenStates": {"compressor": Tile(1), "replicas": "all"}}
    callback = MegalensCallback(statistics={"grad": 1}, flags=flags, layers="1", record=f"{folder}/runs")
    arguments = transformers.TrainingArguments(
        f"{folder}/trained",
        max_steps=3,
        per_device_train_batch_size=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    seen: list[float] = []
    model = transformers.GPT2LMHeadModel(config)

    def see(module, args, output) -> None:
        output = output[0] if isinstance(output, tuple) else output
        seen.append(float(output.detach().double().mean()))

    model.transformer.h[1].register_forward_hook(see)
    transformers.Trainer(model, arguments, train_dataset=Windows(), callbacks=[callback]).train()
    with open(f"{folder}/seen-{os.environ['RANK']}.txt", "w") as file:
        file.write("\n".join(map(repr, seen)))


main()
