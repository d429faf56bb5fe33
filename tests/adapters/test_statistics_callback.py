"""Statistics of a Hugging Face model, in a real trainer that clips."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import megalens
from megalens.adapters import MegalensCallback
from tests.adapters.trainers import Windows, gpt2, train

pytestmark = pytest.mark.slow

ALL = dict.fromkeys(("param", "grad", "activation", "dgrad", "residual", "residual_dgrad"), 1)


def keeper() -> Any:
    """Return a callback that keeps the gradients as backward passes leave them: a trainer calls nobody between those and clipping."""

    # The trainer's half of the library takes seconds to load.
    class Before(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.gradients: list[dict[str, torch.Tensor]] = []
            self._last: dict[str, torch.Tensor] = {}

        def on_train_begin(self, args, state, control, model=None, **_) -> None:
            for name, parameter in model.named_parameters():
                parameter.register_post_accumulate_grad_hook(
                    lambda p, name=name: self._last.update({name: p.grad.clone()})
                )

        def on_pre_optimizer_step(self, args, state, control, model=None, **_) -> None:
            self.gradients.append(dict(self._last))
            largest = max(float(p.grad.abs().max()) for p in model.parameters())
            assert largest < 1e-3

    return Before()


def records(folder: Path, stat: str) -> list[dict]:
    (file,) = folder.glob(f"training_stats/{stat}_raw_moments_by_*/rank0.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def raw(tensor: torch.Tensor) -> list[float]:
    x = tensor.detach().double().numpy().reshape(-1)
    return [len(x), *(float((x**power).sum()) for power in (1, 2, 3, 4))]


def near(values: dict[str, float], tensor: torch.Tensor) -> None:
    wanted = np.array(raw(tensor))
    found = np.array([values[name] for name in ("count", "sum_1", "sum_2", "sum_3", "sum_4")])
    size = np.sqrt(wanted[2] / wanted[0])
    assert np.all(np.abs(found - wanted) <= 1e-5 * wanted[0] * size ** np.arange(5)), (found, wanted)


def test_a_trainer_logs_gradients_before_it_clips_them_and_the_samples_it_consumed(tmp_path) -> None:
    def losses(*callbacks, folder: str) -> list[float]:
        return train(
            gpt2(2),
            tmp_path / folder,
            callbacks,
            max_steps=3,
            gradient_accumulation_steps=2,
            # Far below any gradient, so that clipping is seen.
            max_grad_norm=1e-3,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=2,
        )

    plain = losses(folder="plain")
    jsonl = tmp_path / "statistics"
    before = keeper()
    callback = MegalensCallback(statistics={**ALL, "jsonl": jsonl}, hub=None)
    assert losses(before, callback, folder="logged") == plain
    assert callback.tracer is None
    gradients = records(jsonl, "grad")
    assert [record["iter"] for record in gradients] == [1, 2, 3]
    assert [record["consumed_train_samples"] for record in gradients] == [4, 8, 12]
    for record, kept in zip(gradients, before.gradients, strict=True):
        assert record["gradient_stage"] == "pre_clip"
        assert record["values"].keys() == kept.keys()
        for name, gradient in kept.items():
            near(record["values"][name], gradient)
    # Two micro-batches of two samples of nine tokens; the evaluations between the steps are not in it.
    for record in records(jsonl, "residual"):
        assert record["values"].keys() == {
            "transformer.h/input0",
            "transformer.h.0/output0",
            "transformer.h.1/output0",
        }
        assert {values["count"] for values in record["values"].values()} == {2 * 2 * 9 * 24}


def test_the_last_step_of_an_epoch_with_fewer_micro_batches_has_its_gradients_before_clipping(
    tmp_path,
) -> None:
    before = keeper()
    callback = MegalensCallback(statistics={"grad": 1, "jsonl": tmp_path / "statistics"}, hub=None)
    # Four micro-batches an epoch: one step of three, and one of one.
    train(
        gpt2(2),
        tmp_path / "trained",
        (before, callback),
        samples=8,
        num_train_epochs=2,
        gradient_accumulation_steps=3,
        max_grad_norm=1e-3,
    )
    gradients = records(tmp_path / "statistics", "grad")
    assert [record["gradient_stage"] for record in gradients] == ["pre_clip"] * 4
    for record, kept in zip(gradients, before.gradients, strict=True):
        for name, gradient in kept.items():
            near(record["values"][name], gradient)


def test_a_loop_of_accelerate_logs_gradients_before_clipping_also_where_an_epoch_ends_early(tmp_path) -> None:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
    network = gpt2(2)
    batches = torch.utils.data.DataLoader(Windows(8), batch_size=2)
    network, optimizer, batches = accelerator.prepare(
        network, torch.optim.SGD(network.parameters(), 0.1), batches
    )
    kept = []
    with megalens.log_statistics(network, optimizer, grad=1, hub=None, jsonl=tmp_path) as logger:
        logger.tracer.wrap(optimizer)
        for batch in chain(batches, batches):
            with accelerator.accumulate(network):
                accelerator.backward(network(**batch).loss)
                if accelerator.sync_gradients:
                    kept.append({name: p.grad.clone() for name, p in network.named_parameters()})
                    accelerator.clip_grad_norm_(network.parameters(), 1e-3)
                optimizer.step()
                optimizer.zero_grad()
    gradients = records(tmp_path, "grad")
    assert len(kept) >= 2
    for record, before in zip(gradients, kept, strict=True):
        assert record["gradient_stage"] == "pre_clip"
        for name, gradient in before.items():
            near(record["values"][name], gradient)


@pytest.mark.parametrize("reentrant", [True, False])
def test_sites_of_a_hugging_face_model_are_those_of_its_modules(tmp_path, reentrant: bool) -> None:
    network = gpt2(2, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    ids = torch.arange(18).reshape(2, 9) % 60
    seen: dict[str, list[torch.Tensor]] = {}
    gradients: dict[str, list[torch.Tensor]] = {}
    wanted = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, (nn.Embedding, nn.Linear, transformers.pytorch_utils.Conv1D))
    }
    handles = []
    for name, module in wanted.items():

        def forward(module, args, output, name=name) -> None:
            seen[f"{name}/input0"], seen[f"{name}/output0"] = [args[0].detach()], [output.detach()]

        def backward(module, came, went, name=name) -> None:
            gradients[f"{name}/output0"] = [went[0]]
            if came[0] is not None:
                gradients[f"{name}/input0"] = [came[0]]

        handles += [module.register_forward_hook(forward), module.register_full_backward_hook(backward)]
    network(ids, labels=ids).loss.backward()
    for handle in handles:
        handle.remove()
    network.zero_grad()
    # The same again, computed twice and with a learning rate of nothing.
    network.gradient_checkpointing_enable({"use_reentrant": reentrant})
    optimizer = torch.optim.SGD(network.parameters(), 0.0)
    logger = megalens.log_statistics(network, optimizer, **ALL, hub=None, jsonl=tmp_path)
    with logger, logger.step():
        network.train()
        network(ids, labels=ids).loss.backward()
        optimizer.step()
    for stat, found in (("activation", seen), ("dgrad", gradients)):
        (record,) = records(tmp_path, stat)
        values = record["values"]
        expected = {
            name: tensors[0]
            for name, tensors in found.items()
            if tensors[0].is_floating_point() and name != "lm_head/output0"
        }
        assert values.keys() == expected.keys()
        for name, tensor in expected.items():
            near(values[name], tensor)
    (record,) = records(tmp_path, "param")
    assert record["values"].keys() == dict(network.named_parameters()).keys()
    assert "lm_head.weight" not in record["values"]
