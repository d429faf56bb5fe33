"""The callback inside of Hugging Face's own callback handler, traced to a real socket."""

import queue
import threading

import pytest
import torch
import transformers
from websockets.sync.server import serve

from megalens import Tile
from megalens.adapters import MegalensCallback
from megalens.protocol import SUBPROTOCOL, decode_frame, decode_message, encode_message

pytestmark = pytest.mark.slow


@pytest.fixture
def rows():
    """A server that takes one producer, and the address and rows of it."""
    found: queue.Queue[dict] = queue.Queue()

    def handle(ws) -> None:
        for data in ws:
            if isinstance(data, bytes):
                for row in decode_frame(data).table().to_pylist():
                    found.put(row)
            elif decode_message(data)["type"] == "join":
                hello = {
                    "type": "hello",
                    "protocol": SUBPROTOCOL,
                    "run": {"id": "a", "name": "a", "started": 1},
                    "seq": 0,
                    "model": None,
                    "layout": None,
                    "flags": [],
                    "compressors": [],
                    "config": {"flags": {}},
                    "limits": {"max_message_bytes": 1, "viewer_queue_bytes": 1, "backlog_bytes": 1},
                    "versions": {},
                }
                ws.send(encode_message(hello))
        # Everything that was sent before the producer closed has been read.
        found.put(None)

    server = serve(handle, "127.0.0.1", 0, subprotocols=[SUBPROTOCOL], compression=None)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.address = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
    yield found
    server.shutdown()
    thread.join(10)


def test_a_trainers_steps_evaluations_and_logs_are_traced(rows) -> None:
    from transformers.trainer_callback import (
        CallbackHandler,
        DefaultFlowCallback,
        TrainerControl,
        TrainerState,
    )

    config = transformers.GPT2Config(
        vocab_size=60, n_positions=16, n_embd=24, n_layer=1, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    ids = torch.randint(0, 60, (2, 9))
    callback = MegalensCallback(
        flags={"HiddenStates": {"compressor": Tile(1), "phases": ["train", "eval"]}}, hub=(rows.address, "t")
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
    found = list(iter(lambda: rows.get(timeout=30), None))
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


def test_what_a_trainer_evaluates_and_saves_are_spans(rows, tmp_path) -> None:
    config = transformers.GPT2Config(vocab_size=60, n_positions=16, n_embd=24, n_layer=1, n_head=4)
    model = transformers.GPT2LMHeadModel(config)
    callback = MegalensCallback(timeline="phases", hub=(rows.address, "t"))
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
    found = list(iter(lambda: rows.get(timeout=30), None))
    said = [
        (row["step"], row["kind"], row["name"]) for row in found if row.get("kind") in ("user", "checkpoint")
    ]
    # What lies between two steps is of the second.
    assert said == [
        (2, "user", "evaluation"),
        (2, "checkpoint", "checkpoint"),
        (3, "checkpoint", "checkpoint"),
    ]


def test_a_trainer_that_goes_on_from_a_checkpoint_counts_on(rows) -> None:
    config = transformers.GPT2Config(vocab_size=60, n_positions=16, n_embd=24, n_layer=1, n_head=4)
    model = transformers.GPT2LMHeadModel(config)
    callback = MegalensCallback(flags={"HiddenStates": Tile(1)}, hub=(rows.address, "t"))
    state = transformers.TrainerState(global_step=10)
    callback.on_train_begin(None, state, None, model=model)
    callback.on_step_begin(None, state, None)
    model(torch.randint(0, 60, (2, 9)))
    callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    assert rows.get(timeout=30)["step"] == 11


def test_an_event_that_is_unknown_is_ignored_and_other_names_are_not() -> None:
    callback = MegalensCallback(hub=None)
    assert callback.on_something_new(1, 2, 3, more=4) is None
    with pytest.raises(AttributeError):
        _ = callback.colour


@pytest.mark.parametrize("compiled", [False, True])
def test_a_real_trainer_is_traced_and_its_losses_do_not_change(rows, tmp_path, compiled) -> None:
    class Windows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 24

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            ids = (torch.arange(9) * 7 + index) % 60
            return {"input_ids": ids, "labels": ids}

    def train(*callbacks) -> list[float]:
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=60, n_positions=16, n_embd=24, n_layer=1, n_head=4, bos_token_id=0, eos_token_id=0
        )
        arguments = transformers.TrainingArguments(
            str(tmp_path),
            max_steps=4,
            per_device_train_batch_size=2,
            per_device_eval_batch_size=2,
            gradient_accumulation_steps=2,
            logging_steps=1,
            # An evaluation is compiled once more, and is no other with this callback than without.
            eval_strategy="no" if compiled else "steps",
            eval_steps=2,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            **({"torch_compile": True, "torch_compile_backend": "aot_eager"} if compiled else {}),
        )
        torch.compiler.reset()
        trainer = transformers.Trainer(
            transformers.GPT2LMHeadModel(config),
            arguments,
            train_dataset=Windows(),
            eval_dataset=Windows(),
            callbacks=list(callbacks),
        )
        trainer.train()
        assert not any(module._forward_hooks for module in trainer.model.modules())
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    plain = train()
    traced = train(MegalensCallback(flags={"MLP1_mat_mul": Tile(4)}, hub=(rows.address, "t")))
    assert traced == plain
    assert len(plain) == 4
    found = list(iter(lambda: rows.get(timeout=30), None))
    tensors = [(row["step"], row["micro_batch"], row["layer"]) for row in found if "flag" in row]
    assert tensors == [(step, part, 0) for step in (1, 2, 3, 4) for part in (0, 1)]
    losses = {row["step"]: row["value"] for row in found if row.get("name") == "loss"}
    assert list(losses.values()) == pytest.approx(plain)
