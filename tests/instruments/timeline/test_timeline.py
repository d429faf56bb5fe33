"""Spans of one process, beside clocks and counts of the test's own."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, dataloader
from tracing_fixtures import hooks

from megalens import trace
from megalens.instruments.timeline import modules
from megalens.instruments.timeline.rows import SlowRanks
from megalens.instruments.timeline.spans import Spans
from megalens.instruments.timeline.spans import work as work_of
from megalens.instruments.timeline.step_clock import clock_number
from megalens.protocol import ProtocolError
from megalens.runs import open_run
from megalens.tracer import TracerError

STEPS, MICRO_BATCHES, WORK = 3, 2, 0.004
LAYERS = ["token_embedding", "position_embedding", "blocks.0", "blocks.1", "final_norm", "head"]


class Slow(nn.Module):
    """Takes a time that the test knows, in both directions."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.seen: list[tuple[str, int, int]] = []

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter_ns()
        output = self.inner(ids)
        time.sleep(WORK)
        self.seen.append(("forward", began, time.perf_counter_ns()))
        return output


def torchs_own() -> tuple:
    return (
        torch.save,
        torch.serialization.save,
        dataloader._BaseDataLoaderIter.__next__,
    )


def train(model, ids, tracer, steps: int = STEPS) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batches = iter(DataLoader([ids] * steps, batch_size=None))
    losses = []
    for _ in range(steps):
        batch = next(batches)
        with tracer.step():
            for _ in range(MICRO_BATCHES):
                loss = model(batch).logsumexp(-1).mean()
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
            with tracer.span("tidy"):
                pass
    return losses


def recorded(model, ids, folder, own_hub, timeline, steps: int = STEPS, work=train) -> pandas.DataFrame:
    with trace(model, record=folder, linger=0.1, timeline=timeline) as tracer:
        own_hub.add(tracer.hub_pid)
        work(model, ids, tracer, steps)
    return open_run(tracer.folder).table("spans").to_pandas()


pytestmark = pytest.mark.slow


def test_phases_of_each_step_are_where_a_clock_beside_them_saw_them(gpt, ids, tmp_path, own_hub) -> None:
    model = Slow(gpt)
    began = time.perf_counter_ns()
    rows = recorded(model, ids, tmp_path, own_hub, "phases")
    assert set(rows["rank"]) == {0}
    assert set(rows["stage"]) == {-1}
    assert rows["start"].min() > began
    assert (rows["end"] >= rows["start"]).all()
    assert rows["end"].max() < time.perf_counter_ns()
    counts = dict.fromkeys(("forward", "backward"), MICRO_BATCHES)
    counts |= dict.fromkeys(("step", "optimizer", "data", "user"), 1)
    for step in range(1, STEPS + 1):
        mine = rows[rows["step"] == step].set_index("kind")
        assert Counter(mine.index) == counts
        assert mine.loc["optimizer", "name"] == "AdamW"
        assert mine.loc["user", "name"] == "tidy"
        whole = mine.loc["step"]
        # The batch came before the step that it is of.
        assert mine.loc["data", "end"] <= whole["start"]
        inside = mine.drop(index=["step", "data"])
        assert (inside["start"] >= whole["start"]).all()
        assert (inside["end"] <= whole["end"]).all()
        assert list(mine.loc["forward", "micro_batch"]) == [0, 1]
        assert list(mine.loc["backward", "micro_batch"]) == [0, 1]
    forward = rows[rows["kind"] == "forward"].sort_values("start")
    further = []
    for (_, start, end), span in zip(model.seen, forward.itertuples(), strict=True):
        # The model's own clock is inside of the pass.
        assert span.start <= start
        assert end <= span.end
        further.append(span.end - span.start - (end - start))
    # And not far, but where the system takes the processor between the two.
    assert np.median(further) < 50e6


@pytest.mark.parametrize("granularity", ["layers", "operations"])
def test_layers_and_operations_lie_in_the_passes_that_they_are_of(
    gpt, ids, tmp_path, own_hub, granularity
) -> None:
    wanted = [
        name
        for name, module in gpt.named_modules()
        if name
        and (
            next(module.children(), None) is None
            if granularity == "operations"
            else name.count(".") == name.startswith("blocks") * 1 and name != "blocks"
        )
    ]
    called: set[str] = set()
    for name in wanted:
        gpt.get_submodule(name).register_forward_hook(lambda *_, name=name: called.add(name))
    rows = recorded(gpt, ids, tmp_path, own_hub, granularity)
    named = rows[rows["name"].isin(wanted)]
    assert set(named["name"]) == called
    for _, step in rows.groupby("step"):
        for kind in ("forward", "backward"):
            passes = step[(step["kind"] == kind) & (step["name"] == "")]
            assert len(passes) == MICRO_BATCHES
            for each in passes.itertuples():
                inside = step[
                    (step["kind"] == kind) & (step["name"] != "") & (step["micro_batch"] == each.micro_batch)
                ]
                assert Counter(inside["name"]) == dict.fromkeys(called, 1)
                assert (inside["start"] >= each.start).all()
                assert (inside["end"] <= each.end).all()
    order = named[(named["step"] == 1) & (named["micro_batch"] == 0)].sort_values("start")
    blocks = [name for name in order["name"] if name in ("blocks.0", "blocks.1")]
    assert granularity == "operations" or blocks == ["blocks.0", "blocks.1", "blocks.1", "blocks.0"]


def test_sums_are_those_of_the_single_spans(gpt, ids, tmp_path, own_hub) -> None:
    model = Slow(gpt)
    rows = recorded(model, ids, tmp_path, own_hub, {"granularity": "steps", "every": 2}, steps=4)
    assert set(rows["step"]) == {2, 4}
    for step, mine in rows.groupby("step"):
        sums = mine.set_index("kind")
        assert sums["count"].to_dict() == {
            "step": 1,
            "data": 1,
            "optimizer": 1,
            "user": 1,
            "forward": MICRO_BATCHES,
            "backward": MICRO_BATCHES,
        }
        seen = [end - start for _, start, end in model.seen][MICRO_BATCHES * (step - 1) :][:MICRO_BATCHES]
        spent = sums.loc["forward", "end"] - sums.loc["forward", "start"]
        assert 0 <= spent - sum(seen) < 50e6
        assert spent < sums.loc["step", "end"] - sums.loc["step", "start"]


def test_a_slow_rank_has_the_steps_after_it_timed_by_phases_and_then_sums_go_on(
    gpt, ids, tmp_path, own_hub, monkeypatch
) -> None:
    alarm = {**dict.fromkeys(("rule", "direction", "stat", "name", "statistic", "sentence", "samples"), "x")}
    alarm |= {"step": 3, "time": 0.0, "rank": 0, "stage": -1, "micro_batch": -1, "severity": "warning"}
    alarm |= {"value": 2.0, "expected": 1.0, "place": 0, "cause": 0}

    trained = threading.Event()

    def found(self, rank, stage, step, ns):
        assert ns > 0
        # Found once the step is over: the next one's end sees it first.
        assert step < 3 or trained.wait(30)
        return [alarm] if step == 3 else []

    monkeypatch.setattr(SlowRanks, "take", found)

    def work(model, ids, tracer, steps):
        train(model, ids, tracer, 3)
        trained.set()
        # The producer's thread finds it out when it has the step.
        until = time.monotonic() + 30
        while not tracer.instrument("timeline")._slow:
            assert time.monotonic() < until
            time.sleep(0.01)
        train(model, ids, tracer, 6)

    settings = {"granularity": "steps", "around": 2}
    rows = recorded(gpt, ids, tmp_path, own_hub, settings, work=work)
    single = rows[rows["kind"] == "forward"].groupby("step")["count"].max() == 1
    assert [step for step, one in single.items() if one] == [5, 6]
    assert sorted(single.index) == list(range(1, 10))


def test_it_is_switched_on_and_off_between_steps_and_leaves_nothing(gpt, ids, tmp_path, own_hub) -> None:
    before, own = hooks(gpt), torchs_own()

    def work(model, ids, tracer, steps):
        train(model, ids, tracer, 1)
        assert (hooks(gpt), torchs_own()) == (before, own)
        tracer.configure(timeline="operations")
        train(model, ids, tracer, 1)
        assert hooks(gpt) > before
        assert not set(torchs_own()) & set(own)
        tracer.configure(timeline="off")
        train(model, ids, tracer, 1)
        assert (hooks(gpt), torchs_own()) == (before, own)

    rows = recorded(gpt, ids, tmp_path, own_hub, None, work=work)
    assert set(rows["step"]) == {2}
    assert (hooks(gpt), torchs_own()) == (before, own)


def test_losses_are_the_same_with_and_without_it(gpt, ids, tmp_path, own_hub) -> None:
    state = {name: value.clone() for name, value in gpt.state_dict().items()}
    losses = []
    for timeline in (None, "operations"):
        gpt.load_state_dict(state)
        with trace(gpt, record=tmp_path, linger=0.1, timeline=timeline) as tracer:
            own_hub.add(tracer.hub_pid)
            losses.append(train(gpt, ids, tracer))
    assert losses[0] == losses[1]


def test_passes_of_an_evaluation_are_no_spans(gpt, ids, tmp_path, own_hub) -> None:
    def work(model, ids, tracer, steps):
        with tracer.step():
            with tracer.phase("eval"), torch.no_grad():
                for batch in DataLoader([ids] * 3, batch_size=None):
                    model(batch)
            model(ids).sum().backward()

    rows = recorded(gpt, ids, tmp_path, own_hub, "layers", work=work)
    assert Counter(rows[rows["name"] == ""]["kind"]) == {"step": 1, "forward": 1, "backward": 1}


def test_evaluation_and_sample_text_are_one_span_each_and_what_a_checkpoint_saves_is_a_part_of_it(
    gpt, ids, tmp_path, own_hub
) -> None:
    def work(model, ids, tracer, steps):
        with tracer.step():
            model(ids).sum().backward()
            with tracer.span("all", kind="checkpoint"):
                torch.save(model.state_dict(), tmp_path / "all.pt")
        with tracer.phase("eval"), torch.no_grad():
            model(ids)
            with tracer.phase("generate"):
                model(ids)
        torch.save({}, tmp_path / "else.pt")
        with tracer.step():
            with tracer.phase("generate"), torch.no_grad():
                model(ids)
            model(ids).sum().backward()

    rows = recorded(gpt, ids, tmp_path, own_hub, "phases", work=work)
    own = rows[rows["kind"].isin(["user", "checkpoint"])]
    assert sorted(zip(own["step"], own["kind"], own["name"], strict=True)) == [
        (1, "checkpoint", "all"),
        (2, "checkpoint", ""),
        (2, "user", "evaluation"),
        (2, "user", "sample text"),
    ]
    done = work_of(Spans.of(pyarrow.Table.from_pandas(rows, preserve_index=False)))
    text = own[own["name"] == "sample text"].iloc[0]
    whole = rows[(rows["kind"] == "step") & (rows["step"] == 2)].iloc[0]
    # Of the two the one inside of the step is taken off it.
    alone = (whole["end"] - whole["start"]) - (text["end"] - text["start"])
    saved = own[(own["name"] == "")].iloc[0]
    assert done.step[0, 1] == alone + saved["end"] - saved["start"]
    assert done.paused[0, 0] == 0 < text["end"] - text["start"] < done.paused[0, 1]


def test_what_raises_in_a_pass_leaves_the_next_step_right(gpt, ids, tmp_path, own_hub) -> None:
    def work(model, ids, tracer, steps):
        def fail(*_):
            raise ValueError("on purpose")

        handle = gpt.blocks[1].register_forward_pre_hook(fail)
        with pytest.raises(ValueError, match="on purpose"), tracer.step():
            model(ids)
        handle.remove()
        with tracer.step():
            model(ids).sum().backward()

    rows = recorded(gpt, ids, tmp_path, own_hub, "layers", work=work)
    last = rows[rows["step"] == rows["step"].max()]
    assert Counter(last[last["name"] == "blocks.1"]["kind"]) == {"forward": 1, "backward": 1}
    assert Counter(last[last["name"] == ""]["kind"]) == {"step": 1, "forward": 1, "backward": 1}


@pytest.mark.parametrize(
    ("timeline", "error", "said"),
    [
        (
            "fine",
            ProtocolError,
            "granularity must be one of off, steps, phases, layers, operations, got 'fine'",
        ),
        ({"every": 0}, ProtocolError, "every must be a whole number of steps from 1, got 0"),
        ({"around": -1}, ProtocolError, "around must be a whole number of steps from 0, got -1"),
        ({"often": 1}, TracerError, "timeline=… must be one of"),
        (7, TracerError, "timeline=… must be one of"),
    ],
)
def test_wrong_settings_are_named(gpt, timeline, error, said) -> None:
    with pytest.raises(error, match=said):
        trace(gpt, timeline=timeline, hub=None)


def test_a_span_of_a_kind_that_there_is_not_is_refused(gpt) -> None:
    tracer = trace(gpt, hub=None)
    with (
        pytest.raises(TracerError, match="kind=… must be one of user, data"),
        tracer.span("x", kind="collective"),
    ):
        pass


def test_processes_of_a_machine_have_one_clock_and_those_of_another_boot_or_time_namespace_another(
    monkeypatch,
) -> None:
    code = "from megalens.instruments.timeline.step_clock import clock_number as number; print(number())"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(other.stdout) == clock_number() > 0
    numbers = {clock_number()}
    monkeypatch.setattr(Path, "read_text", lambda path: "another boot\n")
    numbers.add(clock_number())
    monkeypatch.setattr(os, "stat", lambda path, **more: SimpleNamespace(st_ino=17, st_mode=0))
    numbers.add(clock_number())
    assert len(numbers) == 3

    def fails(path) -> str:
        raise OSError("no such file")

    monkeypatch.setattr(Path, "read_text", fails)
    assert clock_number() == 0


def test_hooks_of_modules_do_nothing_in_steps_that_are_not_timed(
    gpt, ids, tmp_path, own_hub, monkeypatch
) -> None:
    waited_for: list[int] = []
    own = modules.when_backpropagated

    def noted(output, call) -> None:
        waited_for.append(1)
        own(output, call)

    monkeypatch.setattr(modules, "when_backpropagated", noted)
    counts = []
    for every in (1, 2):
        waited_for.clear()
        rows = recorded(
            gpt, ids, tmp_path / str(every), own_hub, {"granularity": "layers", "every": every}, 4
        )
        assert sorted(set(rows["step"])) == list(range(every, 5, every))
        counts.append(len(waited_for))
    assert counts[0] == 2 * counts[1] > 0
