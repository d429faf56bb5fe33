"""The callback inside of Hugging Face's own callback handler, traced to a real socket."""

from collections.abc import Callable

import pytest
import torch
import transformers

from megalens import Tile
from megalens.adapters import MegalensCallback
from tests.adapters.trainers import gpt2, train

pytestmark = pytest.mark.slow


@pytest.fixture
def sent(small_hub) -> Callable[[], list[dict]]:
    """Gives all rows that the producer sent before it said goodbye."""

    def rows() -> list[dict]:
        small_hub.next("goodbye")
        return [each.get() for each in (small_hub.rows, small_hub.scalars) for _ in range(each.qsize())]

    return rows


def test_a_trainers_steps_evaluations_and_logs_are_traced(small_hub, sent) -> None:
    from transformers.trainer_callback import (
        CallbackHandler,
        DefaultFlowCallback,
        TrainerControl,
        TrainerState,
    )

    model = gpt2()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    ids = torch.randint(0, 60, (2, 9))
    callback = MegalensCallback(
        flags={"HiddenStates": {"compressor": Tile(1), "phases": ["train", "eval"]}}, hub=small_hub.address
    )
    handler = CallbackHandler([DefaultFlowCallback(), callback], model, None, optimizer, None)

    class Arguments:
        """What the flow callback reads of TrainingArguments, which itself cannot be made without accelerate."""

        run_name = "trainer"
        logging_first_step = True
        logging_strategy = "steps"
        eval_strategy = "steps"
        save_strategy = "no"
        eval_delay = 0

    state = TrainerState(max_steps=9, logging_steps=1, eval_steps=2, save_steps=100)
    arguments, control = Arguments(), TrainerControl()
    # The order of calls in Trainer's inner loop, with two micro-batches a step.
    control = handler.on_train_begin(arguments, state, control)
    control = handler.on_epoch_begin(arguments, state, control)
    for step in range(1, 4):
        control = handler.on_step_begin(arguments, state, control)
        for part in range(2):
            model(ids, labels=ids).loss.backward()
            if part == 0:
                control = handler.on_substep_end(arguments, state, control)
        control = handler.on_pre_optimizer_step(arguments, state, control)
        optimizer.step()
        control = handler.on_optimizer_step(arguments, state, control)
        state.global_step = step
        control = handler.on_step_end(arguments, state, control)
        if control.should_evaluate:
            with torch.no_grad():
                model(ids)
            control = handler.on_prediction_step(arguments, state, control)
            control = handler.on_evaluate(arguments, state, control, {"eval_loss": 4.5})
        if step == 2:
            control = handler.on_save(arguments, state, control)
        control = handler.on_log(
            arguments, state, control, {"loss": 3.0 + step, "learning_rate": 0.1, "note": "text"}
        )
        model(ids)
    handler.on_train_end(arguments, state, control)
    assert not any(module._forward_hooks for module in model.modules())
    found = sent()
    traced = [(row["step"], row["phase"], row["micro_batch"]) for row in found if "flag" in row]
    assert traced == [
        (1, "train", 0),
        (1, "train", 1),
        (2, "train", 0),
        (2, "train", 1),
        (2, "eval", 0),
        (3, "train", 0),
        (3, "train", 1),
    ]
    numbers = [(row["step"], row["name"], row["value"]) for row in found if row.get("name") in ("loss", "lr")]
    saved = [(row["step"], row["detail"]) for row in found if row.get("action") == "checkpoint"]
    assert saved == [(2, '{"name": "checkpoint-2"}')]
    assert numbers == [(s, n, v) for s in (1, 2, 3) for n, v in (("loss", 3.0 + s), ("lr", 0.1))]


def test_what_a_trainer_evaluates_and_saves_are_spans(small_hub, sent, tmp_path) -> None:
    model = gpt2()
    callback = MegalensCallback(timeline="phases", hub=small_hub.address)
    state, ids = transformers.TrainerState(), torch.randint(0, 60, (2, 9))
    callback.on_train_begin(None, state, None, model=model)
    for step in range(1, 4):
        control = transformers.TrainerControl(should_evaluate=step == 1, should_save=step < 3)
        callback.on_step_begin(None, state, control)
        model(ids, labels=ids).loss.backward()
        callback.on_step_end(None, state, control)
        if control.should_evaluate:
            with torch.no_grad():
                model(ids)
            callback.on_evaluate(None, state, control)
        if control.should_save:
            torch.save(model.state_dict(), tmp_path / "model.pt")
            callback.on_save(None, state, control)
    callback.on_train_end(None, state, None)
    found = sent()
    said = [
        (row["step"], row["kind"], row["name"]) for row in found if row.get("kind") in ("user", "checkpoint")
    ]
    # What lies between two steps is of the second.
    assert said == [
        (2, "user", "evaluation"),
        (2, "checkpoint", "checkpoint"),
        (3, "checkpoint", "checkpoint"),
    ]


def test_a_trainer_that_goes_on_from_a_checkpoint_counts_on(small_hub) -> None:
    model = gpt2()
    callback = MegalensCallback(flags={"HiddenStates": Tile(1)}, hub=small_hub.address)
    state = transformers.TrainerState(global_step=10)
    callback.on_train_begin(None, state, None, model=model)
    callback.on_step_begin(None, state, None)
    model(torch.randint(0, 60, (2, 9)))
    callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    assert small_hub.rows.get(timeout=30)["step"] == 11


def test_an_event_that_is_unknown_is_ignored_and_other_names_are_not() -> None:
    callback = MegalensCallback(hub=None)
    assert callback.on_something_new(1, 2, 3, more=4) is None
    with pytest.raises(AttributeError):
        _ = callback.colour


@pytest.mark.parametrize("compiled", [False, True])
def test_a_real_trainer_is_traced_and_its_losses_do_not_change(small_hub, sent, tmp_path, compiled) -> None:
    def losses(*callbacks) -> list[float]:
        torch.compiler.reset()
        return train(
            gpt2(),
            tmp_path,
            callbacks,
            max_steps=4,
            per_device_eval_batch_size=2,
            gradient_accumulation_steps=2,
            logging_steps=1,
            # An evaluation is compiled once more, and is no other with this callback than without.
            eval_strategy="no" if compiled else "steps",
            eval_steps=2,
            **({"torch_compile": True, "torch_compile_backend": "aot_eager"} if compiled else {}),
        )

    plain = losses()
    traced = losses(MegalensCallback(flags={"MLP1_mat_mul": Tile(4)}, hub=small_hub.address))
    assert traced == plain
    assert len(plain) == 4
    found = sent()
    tensors = [(row["step"], row["micro_batch"], row["layer"]) for row in found if "flag" in row]
    assert tensors == [(step, part, 0) for step in (1, 2, 3, 4) for part in (0, 1)]
    losses = {row["step"]: row["value"] for row in found if row.get("name") == "loss"}
    assert list(losses.values()) == pytest.approx(plain)
