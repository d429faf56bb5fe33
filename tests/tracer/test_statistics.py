"""Statistics of the very tensors of a training, held against numpy in float64 and seen through a real socket."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import megalens
from megalens.adapters import Adapter
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer import TracerError

ALL = dict.fromkeys(("param", "grad", "activation", "dgrad", "residual", "residual_dgrad"), 1)
CPU_SCALE = 1024.0


def expected(*arrays: Tensor) -> dict[str, float]:
    """Moments of all values together, by the definitions."""
    x = np.concatenate([array.detach().double().numpy().reshape(-1) for array in arrays])
    finite = x[np.isfinite(x)]
    d = finite - finite.mean()
    return {
        "count": len(finite),
        "mean": finite.mean(),
        "m2": (d**2).sum(),
        "m3": (d**3).sum(),
        "m4": (d**4).sum(),
        "min": finite.min(),
        "max": finite.max(),
        "nan_count": np.isnan(x).sum(),
        "inf_count": np.isinf(x).sum(),
    }


def same(row: dict, *arrays: Tensor) -> None:
    """Hold a row against the values that it is of."""
    wanted = expected(*arrays)
    std = math.sqrt(wanted["m2"] / wanted["count"])
    # A third moment is what is left of values that cancel: its size is that of n times the deviation cubed.
    slack = {"m3": 1e-5 * wanted["count"] * std**3, "mean": 1e-7 * std}
    for name, value in wanted.items():
        near = pytest.approx(value, rel=1e-5 if name == "m4" else 1e-6, abs=slack.get(name, 0.0))
        assert row[name] == near, (row["stat"], row["name"], name)


@pytest.fixture
def logged(small_hub):
    """Begins to log to the small hub, and gives the rows by statistic, name and step once all is over."""
    loggers = []
    announced: list[dict] = []

    def begin(model: nn.Module, optimizer=None, **options):
        logger = megalens.log_statistics(model, optimizer, hub=small_hub.address, **options)
        loggers.append(logger)
        # What is sent before there is a hub is given up.
        assert logger.tracer.connected(20)
        return logger

    def rows() -> dict[tuple[str, str, int], dict]:
        for logger in loggers:
            logger.close()
        loggers.clear()
        while (message := small_hub.messages.get(timeout=20))["type"] != "goodbye":
            if message["type"] == "announce":
                announced.append(message)
        found = {}
        while not small_hub.moments.empty():
            row = small_hub.moments.get()
            key = (row["stat"], row["name"], row["step"])
            assert key not in found, f"{key} came twice"
            found[key] = row
        return found

    begin.rows, begin.announced = rows, announced
    yield begin
    for logger in loggers:
        logger.close()


class Seen:
    """What a model's modules were given and gave, and the gradients there, hooked apart from the logger."""

    def __init__(self, model: nn.Module, wanted: Callable[[str, nn.Module], bool]) -> None:
        self.values: dict[str, list[Tensor]] = {}
        self.gradients: dict[str, list[Tensor]] = {}
        self._handles = []
        for name, module in model.named_modules():
            if wanted(name, module):
                self._handles.append(module.register_forward_hook(self._hook(name)))
                self._handles.append(module.register_full_backward_hook(self._backward(name)))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _hook(self, name: str):
        def hook(module, args, output):
            self.values.setdefault(f"{name}/input0", []).append(args[0].detach().clone())
            self.values.setdefault(f"{name}/output0", []).append(output.detach().clone())

        return hook

    def _backward(self, name: str):
        def hook(module, came, went):
            if came[0] is not None:
                self.gradients.setdefault(f"{name}/input0", []).append(came[0].clone())
            self.gradients.setdefault(f"{name}/output0", []).append(went[0].clone())

        return hook


def projects(name: str, module: nn.Module) -> bool:
    return isinstance(module, (nn.Linear, nn.Embedding))


def test_all_six_statistics_are_those_of_the_tensors_themselves(gpt, ids, logged, small_hub) -> None:
    optimizer = torch.optim.AdamW(gpt.parameters(), 0.01)
    logger = logged(gpt, optimizer, **ALL, samples=lambda: 77)
    sites = Seen(gpt, projects)
    layers = Seen(gpt, lambda name, module: name in ("blocks.0", "blocks.1"))
    with logger.step():
        gpt.loss(ids).backward()
        gradients = {name: p.grad.clone() for name, p in gpt.named_parameters()}
        nn.utils.clip_grad_norm_(gpt.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
    parameters = {name: p.detach().clone() for name, p in gpt.named_parameters()}
    rows = logged.rows()
    assert logged.announced[-1]["statistics"] == ALL
    for name in parameters:
        same(rows.pop(("param", name, 1)), parameters[name])
        same(rows.pop(("grad", name, 1)), gradients[name])
    for name, values in sites.values.items():
        # Ids are no values, logits are left out.
        if values[0].is_floating_point() and name != "head/output0":
            same(rows.pop(("activation", name, 1)), *values)
    for name, values in sites.gradients.items():
        if name != "head/output0":
            same(rows.pop(("dgrad", name, 1)), *values)
    for stat, found in (("residual", layers.values), ("residual_dgrad", layers.gradients)):
        same(rows.pop((stat, "blocks/input0", 1)), *found["blocks.0/input0"])
        for layer in (0, 1):
            same(rows.pop((stat, f"blocks.{layer}/output0", 1)), *found[f"blocks.{layer}/output0"])
    assert rows == {}


def test_rows_say_step_samples_and_stage_and_come_at_their_intervals(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, param=2, grad=3, activation=0, residual=None, samples=3)
    for _ in range(6):
        with logger.step():
            gpt.loss(ids).backward()
            optimizer.step()
    rows = logged.rows()
    steps = {(stat, step) for stat, _, step in rows}
    assert steps == {("param", 2), ("param", 4), ("param", 6), ("grad", 3), ("grad", 6)}
    row = rows["grad", "blocks.0.mlp.fc1.weight", 6]
    assert {
        key: row[key] for key in ("samples", "rank", "stage", "rounding", "gradient_stage", "loss_scale")
    } == {
        "samples": 18,
        "rank": 0,
        "stage": -1,
        "rounding": 0.0,
        "gradient_stage": "pre_clip",
        "loss_scale": 1.0,
    }
    assert rows["param", "blocks.0.mlp.fc1.weight", 2]["gradient_stage"] == ""


def test_nothing_is_installed_while_everything_is_off(gpt, ids, logged) -> None:
    def hooks() -> int:
        of_modules = sum(
            len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in gpt.modules()
        )
        return of_modules + sum(len(p._post_accumulate_grad_hooks or ()) for p in gpt.parameters())

    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer)
    assert (hooks(), len(optimizer._optimizer_step_pre_hooks)) == (0, 0)
    with logger.step():
        gpt.loss(ids).backward()
        assert hooks() == 0
    logger.close()
    seldom = logged(gpt, optimizer, activation=2, grad=2, dgrad=2)
    before = hooks()
    with seldom.step():
        gpt.loss(ids).backward()
        # No hook on modules inside of the model in a step that is not logged.
        assert hooks() == before
    with seldom.step():
        assert hooks() > before
        gpt.loss(ids).backward()
    assert hooks() == before
    seldom.close()
    assert (hooks(), len(optimizer._optimizer_step_pre_hooks)) == (0, 0)


@pytest.mark.parametrize("passes", [(2, 2, 2), (3, 1, 2), (1, 4, 1)])
def test_accumulated_micro_batches_are_one_tensor_and_gradients_those_of_the_last_pass(
    gpt, ids, logged, passes
) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1, activation=1, dgrad=1)
    kept = []
    for count in passes:
        seen = Seen(gpt, lambda name, module: name == "blocks.1.mlp.fc1")
        with logger.step():
            for at in range(count):
                gpt.loss(ids[at % 3 :]).backward()
            gradients = {name: p.grad.clone() for name, p in gpt.named_parameters()}
            nn.utils.clip_grad_norm_(gpt.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
        kept.append((seen.values, seen.gradients, gradients))
        seen.remove()
    rows = logged.rows()
    for step, (values, back, gradients) in enumerate(kept, start=1):
        same(rows["activation", "blocks.1.mlp.fc1/input0", step], *values["blocks.1.mlp.fc1/input0"])
        same(rows["dgrad", "blocks.1.mlp.fc1/output0", step], *back["blocks.1.mlp.fc1/output0"])
        stage = rows["grad", "positions.weight", step]["gradient_stage"]
        if step > 1 and passes[step - 1] < passes[step - 2]:
            # Fewer passes than the step before: clipping came first.
            assert stage == "pre_step"
        else:
            assert stage == "pre_clip"
            same(rows["grad", "positions.weight", step], gradients["positions.weight"])


def test_fewer_passes_without_clipping_are_still_before_it(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1)
    for count in (3, 1):
        optimizer.zero_grad()
        with logger.step():
            for _ in range(count):
                gpt.loss(ids).backward()
            optimizer.step()
    gradient = gpt.norm.weight.grad.clone()
    rows = logged.rows()
    assert rows["grad", "norm.weight", 2]["gradient_stage"] == "pre_clip"
    same(rows["grad", "norm.weight", 2], gradient)


def test_evaluation_is_not_counted(gpt, ids, logged) -> None:
    logger = logged(gpt, activation=1)
    seen = []
    with logger.step():
        with torch.no_grad():
            gpt.loss(ids)
        with logger.tracer.phase("eval"):
            gpt.loss(ids)
        handle = gpt.blocks[0].mlp.fc1.register_forward_hook(lambda m, a, out: seen.append(out.detach()))
        gpt.loss(ids).backward()
        handle.remove()
        with torch.no_grad():
            gpt.loss(ids)
    rows = logged.rows()
    same(rows["activation", "blocks.0.mlp.fc1/output0", 1], *seen)


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_checkpointing_computes_twice_is_counted_once(gpt, ids, logged, reentrant: bool) -> None:
    whole, cut = gpt, GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))
    cut.load_state_dict(gpt.state_dict())
    for block in cut.blocks:
        block.attention.forward = _checkpointed(block.attention.forward, reentrant)
        block.forward = _checkpointed(block.forward, reentrant)
    found = []
    for model in (whole, cut):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        logger = logged(model, optimizer, **ALL)
        for _ in range(2):
            with logger.step():
                for part in (ids, ids[:1]):
                    model.loss(part).backward()
                with torch.no_grad():
                    model.loss(ids)
                optimizer.step()
                optimizer.zero_grad()
        found.append(logged.rows())
    plain, again = found
    assert again.keys() == plain.keys()
    for key, row in again.items():
        for column in ("count", "mean", "m2", "m4", "min", "max"):
            assert row[column] == pytest.approx(plain[key][column], rel=1e-5, abs=1e-12), (key, column)


def _checkpointed(forward, reentrant: bool):
    return lambda *args: checkpoint(forward, *args, use_reentrant=reentrant)


def test_a_gradient_that_is_nan_is_counted(gpt, ids, logged) -> None:
    logger = logged(gpt, torch.optim.SGD(gpt.parameters(), 0.1), grad=1)
    with logger.step():
        (gpt(ids).sum() * math.nan).backward()
    row = logged.rows()["grad", "norm.weight", 1]
    assert (row["count"], row["nan_count"], row["inf_count"]) == (0, 16, 0)
    assert math.isnan(row["mean"])


def test_a_gradient_scaler_is_divided_out_and_skipped_steps_have_no_gradients(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=CPU_SCALE, growth_interval=1)
    logger = logged(gpt, optimizer, grad=1, dgrad=1, residual_dgrad=1, loss_scale=scaler)
    gradients, scales = [], []
    for step in range(1, 4):
        with logger.step():
            loss = gpt.loss(ids) * (math.inf if step == 2 else 1.0)
            scaler.scale(loss).backward()
            scales.append(scaler.get_scale())
            scaler.unscale_(optimizer)
            gradients.append(gpt.head.weight.grad.clone())
            nn.utils.clip_grad_norm_(gpt.parameters(), 0.01)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    rows = logged.rows()
    assert scales == [CPU_SCALE, 2 * CPU_SCALE, CPU_SCALE]
    assert sorted(step for stat, name, step in rows if (stat, name) == ("grad", "head.weight")) == [1, 3]
    for step in (1, 3):
        row = rows["grad", "head.weight", step]
        assert (row["gradient_stage"], row["loss_scale"]) == ("pre_clip", scales[step - 1])
        same(row, gradients[step - 1])
    for stat, name in (("dgrad", "blocks.0.mlp.fc1/output0"), ("residual_dgrad", "blocks.1/output0")):
        assert [rows[stat, name, step]["loss_scale"] for step in (1, 2, 3)] == scales
        assert rows[stat, name, 1]["gradient_stage"] == "backward"
        # The same data, and the weights hardly changed: without the scale the size is the same.
        assert rows[stat, name, 3]["max"] == pytest.approx(rows[stat, name, 1]["max"], rel=0.2)


def test_a_scale_that_nobody_told_of_is_said_to_be_unknown(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1, dgrad=1)
    with logger.step(), torch.autocast("cpu", torch.float16):
        (gpt.loss(ids) * 64).backward()
        optimizer.step()
    rows = logged.rows()
    assert rows["grad", "head.weight", 1]["gradient_stage"] == "pre_step"
    row = rows["dgrad", "head/input0", 1]
    assert row["gradient_stage"] == "backward_scaled"
    assert math.isnan(row["loss_scale"])


def test_losses_are_the_same_to_the_last_bit(ids, logged) -> None:
    def losses(log: bool) -> list[float]:
        torch.manual_seed(0)
        model = GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        logger = logged(model, optimizer, **ALL) if log else None
        found = []
        for _ in range(5):
            with logger.step() if logger else torch.enable_grad():
                loss = model.loss(ids)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            found.append(loss.item())
        return found

    assert losses(True) == losses(False)


def test_tied_and_shared_modules_are_counted_once(logged, ids) -> None:
    class Twice(nn.Module):
        """One linear map that is used twice, and a head that is the embedding."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 8)
            self.first = self.second = nn.Linear(8, 8)
            self.lm_head = nn.Linear(8, 50, bias=False)
            self.lm_head.weight = self.embedding.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.lm_head(self.second(self.first(self.embedding(tokens))))

    model = Twice()
    logger = logged(model, torch.optim.SGD(model.parameters(), 0.1), param=1, grad=1, activation=1)
    seen = []
    model.first.register_forward_hook(lambda m, args, out: seen.append(args[0].detach()))
    with logger.step():
        model(ids).sum().backward()
    gradient = model.embedding.weight.grad.clone()
    rows = logged.rows()
    names = {
        stat: sorted(name for s, name, _ in rows if s == stat) for stat in ("param", "grad", "activation")
    }
    assert names["param"] == names["grad"] == ["embedding.weight", "first.bias", "first.weight"]
    assert names["activation"] == ["embedding/output0", "first/input0", "first/output0", "lm_head/input0"]
    same(rows["activation", "first/input0", 1], *seen)
    same(rows["grad", "embedding.weight", 1], gradient)


def test_a_tracer_that_is_there_carries_the_statistics_beside_its_flags(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags=["HiddenStates"])
    with megalens.log_statistics(gpt, None, residual=1, tracer=tracer) as logger:
        with tracer.step():
            gpt.loss(ids).backward()
        assert small_hub.moments.get(timeout=20)["name"] == "blocks.0/output0"
        assert small_hub.rows.get(timeout=20)["flag"] == "HiddenStates"
        with pytest.raises(TracerError, match="logged already"):
            megalens.log_statistics(gpt, None, residual=1, tracer=tracer)
        with pytest.raises(TracerError, match="name are settings of a tracer"):
            megalens.log_statistics(gpt, None, tracer=tracer, name="x")
    assert logger.tracer is tracer
    with tracer.step():
        gpt.loss(ids).backward()
    # The tracer goes on without.
    assert {small_hub.rows.get(timeout=20)["step"] for _ in range(3)} == {1, 2}
    tracer.close()
    assert small_hub.moments.qsize() == 2


def test_a_step_that_ends_with_the_optimizers_is_logged_too(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, param=1, grad=1)
    logger.tracer.wrap(optimizer)
    for _ in range(2):
        gpt.loss(ids).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = gpt.head.weight.detach().clone()
    rows = logged.rows()
    assert {step for _, _, step in rows} == {1, 2}
    same(rows["param", "head.weight", 2], weights)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grad": 1.5}, "grad takes a number of steps"),
        ({"param": True}, "param takes a number of steps"),
        ({"loss_scale": "x"}, "loss_scale takes a GradScaler"),
        ({"samples": 1.5}, "samples takes how many"),
    ],
)
def test_a_wrong_argument_is_named(gpt, options: dict, words: str) -> None:
    with pytest.raises(TracerError, match=words):
        megalens.log_statistics(gpt, None, hub=None, **options)


def test_a_model_that_no_adapter_knows_has_everything_but_the_residual_stream(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(
        TracerError, match=r"residual stream of this model is not known\. Megalens does not know"
    ):
        megalens.log_statistics(model, None, residual=1, hub=None)
    known = Adapter(layer="{i}")
    options = {"hub": None, "jsonl": tmp_path, "adapter": known}
    with megalens.log_statistics(model, None, residual=1, **options) as logger, logger.step():
        model(torch.ones(2, 3))
    (file,) = tmp_path.rglob("rank0.jsonl")
    assert sorted(json.loads(file.read_text())["values"]) == [
        "0/output0",
        "1/output0",
        "2/output0",
        "layers/input0",
    ]


def test_a_fault_of_the_loggers_own_does_not_reach_the_training(gpt, ids, logged) -> None:
    logger = logged(gpt, None, param=1, samples=lambda: int("x"), activation=1)
    with logger.step():
        gpt.loss(ids).backward()
    rows = logged.rows()
    assert rows["param", "head.weight", 1]["samples"] == -1
    assert any("samples could not be read" in text for text in logger.tracer.status()["warnings"])


@pytest.mark.slow
def test_a_compiled_model_has_its_parameters_and_gradients_and_the_rest_is_said(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, **ALL)
    loss = torch.compile(gpt.loss, backend="aot_eager")
    for _ in range(2):
        optimizer.zero_grad()
        with logger.step():
            loss(ids).backward()
            gradient = gpt.blocks[0].mlp.fc1.weight.grad.clone()
            nn.utils.clip_grad_norm_(gpt.parameters(), 0.01)
            optimizer.step()
    rows = logged.rows()
    assert {stat for stat, _, _ in rows} == {"param", "grad"}
    assert rows["grad", "blocks.0.mlp.fc1.weight", 2]["gradient_stage"] == "pre_clip"
    same(rows["grad", "blocks.0.mlp.fc1.weight", 2], gradient)
    assert any("Nothing could be measured inside" in text for text in logger.tracer.status()["warnings"])
