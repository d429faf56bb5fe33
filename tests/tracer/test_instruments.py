"""Instruments of others: told of the steps, sent for, and kept from harming the training."""

from __future__ import annotations

import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from tracing_fixtures import hooks

import megalens
from megalens import Tile
from megalens.tracer import Instrument, TracerError, instruments

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"


class Diary(Instrument):
    """Writes down what it is told."""

    name = "diary"

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def attach(self, host) -> None:
        self.host = host

    def step_begins(self, step, untraced) -> None:
        self.told.append(("begins", step))

    def step_ends(self) -> None:
        self.told.append(("ends",))

    def step_abandoned(self) -> None:
        self.told.append(("abandoned",))

    def pause(self, phase) -> None:
        self.told.append(("pause", phase))

    def resume(self, training) -> None:
        self.told.append(("resume", training))

    def release(self, closing) -> None:
        self.told.append(("release", closing))

    def settings(self):
        return {"size": "small"}


class PassDiary(Diary):
    name, passes = "passes", True

    def forward_begins(self, chunk) -> None:
        self.told.append(("forward", chunk))

    def forward_ends(self, output) -> None:
        self.told.append(("forward ends",))

    def backward_begins(self, chunk) -> None:
        self.told.append(("backward", chunk))

    def backward_ends(self) -> None:
        self.told.append(("backward ends",))


def test_an_instrument_is_told_of_steps_phases_and_the_end_and_leaves_no_hook(gpt, ids, traced) -> None:
    diary = Diary()
    before = hooks(gpt)
    tracer = traced(gpt, instruments=[diary])
    # One counts passes until a step begins.
    assert hooks(gpt) == before + 1
    with tracer.step():
        gpt(ids)
        with tracer.phase("eval"):
            gpt(ids)
    tracer.close()
    assert diary.told == [("begins", 1), ("pause", "eval"), ("resume", True), ("ends",), ("release", True)]


def test_passes_are_told_to_those_who_ask_and_their_hooks_go_with_them(gpt, ids, traced) -> None:
    diary = PassDiary()
    before = hooks(gpt)
    tracer = traced(gpt)
    tracer.attach(diary)
    gpt.loss(ids).backward()
    with tracer.step():
        for _ in range(2):
            gpt.loss(ids).backward()
    once = [("forward", 0), ("forward ends",), ("backward", 0), ("backward ends",)]
    assert diary.told == [("begins", 1), *once, *once, ("ends",)]
    tracer.detach(diary)
    assert hooks(gpt) == before


def test_what_an_abandoned_step_gave_is_forgotten(gpt, ids, traced) -> None:
    diary = Diary()
    tracer = traced(gpt, instruments=[diary])
    handle = tracer.wrap(torch.optim.SGD(gpt.parameters(), 0.1))
    gpt(ids)
    handle.remove()
    assert diary.told == [("begins", 1), ("abandoned",)]


def test_an_instrument_that_fails_is_named_and_neither_the_step_nor_another_one_knows(
    gpt, ids, traced, small_hub
) -> None:
    class Broken(Instrument):
        name = "broken"

        def step_ends(self) -> None:
            raise RuntimeError("out of ink")

    diary = Diary()
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(2)}, instruments=[Broken(), diary])
    for _ in range(3):
        with tracer.step():
            gpt(ids)
    assert len(small_hub.next_rows(6)) == 6
    assert diary.told.count(("ends",)) == 3
    assert [text for text in tracer.status()["warnings"] if "broken failed: RuntimeError: out of ink" in text]


def test_settings_are_told_under_the_instruments_own_name(gpt, traced, small_hub) -> None:
    tracer = traced(gpt, instruments=[Diary()])
    assert tracer.status()["instruments"]["diary"] == {"size": "small"}
    assert small_hub.next("status")["instruments"]["diary"] == {"size": "small"}


def test_two_instruments_of_one_name_are_refused(gpt, traced) -> None:
    tracer = traced(gpt, instruments=[Diary()])
    with pytest.raises(
        TracerError, match=r"must have a name of its own, got .diary., which there is already"
    ):
        tracer.attach(Diary())


def test_a_stream_that_is_declared_wrongly_is_refused_with_its_field(gpt, traced) -> None:
    class Wrong(Instrument):
        name = "wrong"
        streams = {
            "wrong": {"title": "W", "doc": "", "fields": [{"name": "at", "type": "int64"}], "policy": {}}
        }

    with pytest.raises(TracerError, match="The streams of wrong are not declared well"):
        traced(gpt, instruments=[Wrong()])


def test_rows_that_do_not_fit_are_named_and_the_others_are_sent(gpt, ids, traced, small_hub) -> None:
    class Odd(Instrument):
        name = "odd"

        def attach(self, host) -> None:
            self.host = host

        def step_ends(self) -> None:
            self.host.send("scalars", {"step": ["one"]})

    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(2)}, instruments=[Odd()])
    with tracer.step():
        gpt(ids)
    assert len(small_hub.next_rows(2)) == 2
    tracer.close()
    assert [
        text for text in tracer.status()["warnings"] if "Rows of scalars of step 1 could not be sent" in text
    ]


def test_a_name_that_no_package_brings_is_an_error_that_lists_those_there_are(gpt) -> None:
    with pytest.raises(TracerError, match="No installed package brings an instrument 'nobodys'"):
        megalens.trace(gpt, hub=None, instruments=["nobodys"])


@pytest.fixture
def example_installed(monkeypatch):
    """The example package as if pip had installed it."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    declared = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    assert f'[project.entry-points."{instruments.GROUP}"]' in declared
    value = declared.partition("weight_norms = ")[2].partition("\n")[0].strip('"')
    entry = EntryPoint("weight_norms", value, instruments.GROUP)
    monkeypatch.setattr(
        instruments, "entry_points", lambda group: [entry] if group == instruments.GROUP else []
    )
    yield
    for name in [name for name in sys.modules if name.startswith("megalens_weight_norms")]:
        del sys.modules[name]


def test_an_installed_instrument_is_loaded_only_when_it_is_named(gpt, traced, example_installed) -> None:
    traced(gpt)
    assert "megalens_weight_norms" not in sys.modules
    tracer = traced(gpt, instruments={"weight_norms": {"every": 2}})
    assert tracer.status()["instruments"]["weight_norms"] == {"every": 2}
    with pytest.raises(TracerError, match="weight_norms could not be made: ValueError: every must be"):
        megalens.trace(gpt, hub=None, instruments={"weight_norms": {"every": 0}})


@pytest.mark.slow
def test_the_example_records_its_stream_with_a_real_hub_and_the_rows_are_there(
    gpt, ids, tmp_path, own_hub, example_installed
) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    weights = {name: p for name, p in gpt.named_parameters() if p.ndim > 1}
    expected = []
    with megalens.trace(
        gpt,
        record=tmp_path / "runs",
        linger=0.2,
        instruments=["weight_norms"],
        flags={"MLP1_mat_mul": Tile(2)},
    ) as tracer:
        own_hub.add(tracer.hub_pid)
        assert tracer.connected(30)
        for step in range(1, 4):
            with tracer.step():
                gpt.loss(ids).backward()
                optimizer.step()
                optimizer.zero_grad()
            expected += [
                {"step": step, "name": name, "value": pytest.approx(w.norm().item(), rel=1e-6)}
                for name, w in weights.items()
            ]
    folder = tmp_path / "runs" / tracer.run_id
    end = time.monotonic() + 30
    while '"finished"' not in (folder / "run.json").read_text(encoding="utf-8"):
        assert time.monotonic() < end, "the hub did not close the recording"
        time.sleep(0.05)
    run = megalens.open(folder)
    assert run.table("weight_norms").to_pylist() == expected
