"""What a kernel asks of the training beyond looking, over a real hub."""

import pytest
from live_run import WAIT, eventually, tensors_frame

from megalens.protocol import BitFlip, Noise1, ProtocolError, Tile
from megalens.runs import ClientError, open_run
from megalens.runs.controls import build_patch, build_perturb
from megalens.runs.status import RunStatus

ALL = ("pause", "watched", "perturb")


def changes(run):
    return [
        row for row in run.audit().to_pylist() if row["action"] not in ("connect", "announce", "disconnect")
    ]


@pytest.fixture
def allowed(live):
    """A run whose script allows everything."""

    return lambda controls=ALL: live(controls=controls)


@pytest.mark.slow
def test_a_run_waits_steps_and_goes_on_and_every_change_is_audited(allowed, attach):
    training = allowed()
    training.step(5)
    run = attach()
    assert set(run.controls) == set(ALL)
    assert run.mode == {}
    assert run.pause(timeout=WAIT) == 6
    assert run.mode == {"paused": True}
    assert run.advance(3, timeout=WAIT) == 6
    assert run.watched_only(timeout=WAIT) == 6
    assert run.mode == {"paused": True, "while_watched": True}
    assert "trains only while somebody watches" in repr(run)
    run.watched_only(False, timeout=WAIT)
    assert run.resume(timeout=WAIT) == 6
    assert run.mode == {}
    assert run.perturbation is None
    assert run.perturb({"system": Noise1(0.5)}, layers=[1, 2], seed=7, steps=50, timeout=WAIT) == 6
    assert run.perturbation == {
        "sites": {"system": {"kind": {"name": "noise1", "params": {"coefficient": 0.5}}, "layers": "1-2"}},
        "seed": 7,
        "steps": 50,
        "until": 55,
    }
    assert "PERTURBED: system noise1(0.5) layers 1-2 until step 55" in repr(run)
    assert run.disarm(timeout=WAIT) == 6
    assert run.perturbation is None
    assert run.budget("1%", timeout=WAIT) == 6
    assert (
        run.configure(HiddenStates=Tile(8), passes=["forward", "backward"], replicas="all", timeout=WAIT) == 6
    )
    setting = run.config["HiddenStates"]
    assert (setting["passes"], setting["replicas"]) == (["forward", "backward"], "all")
    eventually(lambda: len(changes(run)) == 9, "a row of audit for each change")


@pytest.mark.slow
def test_what_the_script_does_not_allow_is_refused_and_a_budget_is_not(allowed, attach):
    allowed(("pause",))
    run = attach()
    for ask, field in (
        (lambda: run.watched_only(timeout=WAIT), "mode.while_watched"),
        (lambda: run.perturb({"system": "noise1"}, timeout=WAIT), "perturb"),
    ):
        with pytest.raises(ProtocolError) as caught:
            ask()
        assert (caught.value.code, caught.value.field) == ("refused", field)
    run.pause(timeout=WAIT)
    run.budget(0.5, timeout=WAIT)
    assert run.mode == {"paused": True}


@pytest.mark.slow
def test_sites_say_what_they_can_and_a_wrong_one_is_named(allowed, attach):
    allowed()
    run = attach()
    assert run.sites["weight"]["reason"] == "They are sharded."
    for sites, layers, field in (
        ({"elsewhere": "noise1"}, None, "perturb.sites.elsewhere"),
        ({"weight": "noise1"}, None, "perturb.sites.weight"),
        ({"system": "noise1"}, "3-9", "perturb.sites.system.layers"),
    ):
        with pytest.raises(ProtocolError) as caught:
            run.perturb(sites, layers=layers, timeout=WAIT)
        assert caught.value.field == field
    assert run.perturbation is None


@pytest.mark.slow
def test_gradients_and_replicas_are_told_apart_live_and_recorded(live, attach, tmp_path):
    training = live("--record", tmp_path / "runs")
    run = attach()
    training.send(tensors_frame(1, layers=(0, 1)))
    training.send(tensors_frame(1, layers=(0,), side="backward", rank=4))
    training.send(tensors_frame(2, layers=(0,)))
    run.wait(2, timeout=WAIT)

    def look(run):
        assert run.tensors("HiddenStates", steps=1).num_rows == 3
        assert run.tensors("HiddenStates", steps=1, pass_="backward")["rank"].to_pylist() == [4]
        assert run.tensors("HiddenStates", steps=1, rank=0)["layer"].to_pylist() == [0, 1]
        with pytest.raises(ClientError) as caught:
            run.tensors(pass_="sideways")
        assert caught.value.field == "pass_"

    look(run)
    training.finish()
    training.process.terminate()
    training.process.wait(WAIT)
    look(open_run(tmp_path / "runs"))


@pytest.mark.slow
def test_every_rank_that_was_heard_of_is_a_row_and_a_silent_one_is_said(live, attach):
    training = live()
    run = attach()
    assert list(run.ranks.columns) == ["rank", "name", "state", "step", "seconds"]
    training.step()
    eventually(lambda: len(run.ranks) == 1, "the state of a rank")
    assert run.ranks["rank"].tolist() == [0]


def test_a_recorded_run_is_asked_for_nothing(tmp_path):
    from recorded_run import write_run

    run = open_run(write_run(tmp_path / "run", steps=3))
    for ask in (run.pause, run.resume, run.advance, run.watched_only, run.disarm, lambda: run.budget("1%")):
        with pytest.raises(ClientError) as caught:
            ask()
        assert caught.value.code == "recorded"
    assert (run.controls, run.sites, run.mode, run.perturbation) == ([], {}, {}, None)
    assert len(run.ranks) == 0
    assert repr(run.status).startswith("finished at step 3")


def test_a_perturbation_is_written_in_several_ways():
    flip = {"name": "bit_flip", "params": {"rate": 0.25, "bit": 3}}
    for given in (BitFlip(0.25, 3), flip, {"kind": BitFlip(0.25, 3)}, {"kind": flip}):
        assert build_perturb({"system": given}) == {"sites": {"system": {"kind": flip}}}
    named = build_perturb({"system": {"kind": "noise2", "layers": range(1, 3), "phases": "generate"}})
    assert named["sites"]["system"] == {
        "kind": {"name": "noise2", "params": {"coefficient": 0.05}},
        "layers": "1-2",
        "phases": ["generate"],
    }
    peers = {
        "weight_perturbation": "True",
        "weight_perturbation_fn": "noise1",
        "weight_perturbation_coef": 0.1,
        "system_perturbation": False,
    }
    assert build_perturb(peers, layers=0, phases="train", seed=3) == {
        "sites": {
            "weight": {
                "kind": {"name": "noise1", "params": {"coefficient": 0.1}},
                "phases": ["train"],
                "layers": "0",
            }
        },
        "seed": 3,
    }
    assert build_perturb({"weight_perturbation": False}) is None


@pytest.mark.parametrize(
    ("sites", "more", "field"),
    [
        ({}, {}, "sites"),
        ("noise1", {}, "sites"),
        ({"system": 0.1}, {}, "sites.system"),
        ({"system": {"layers": "0"}}, {}, "sites.system"),
        ({"system": {"kind": Noise1(), "strength": 2}}, {}, "sites.system"),
        ({"system": "noise9"}, {}, "sites.system.name"),
        ({"system": Noise1()}, {"layers": "x"}, "layers"),
        ({"system": Noise1()}, {"phases": "sleep"}, "phases"),
        ({"system": Noise1()}, {"phases": 3}, "phases"),
        ({"system": Noise1()}, {"seed": -1}, "seed"),
        ({"system": Noise1()}, {"steps": 0}, "steps"),
        ({"system": Noise1()}, {"steps": True}, "steps"),
        ({"weight_perturbation": "maybe"}, {}, "disturbance_configs.weight_perturbation"),
    ],
)
def test_a_wrong_perturbation_is_named_before_anything_is_sent(sites, more, field):
    with pytest.raises((ClientError, ProtocolError)) as caught:
        build_perturb(sites, **more)
    assert (caught.value.code, caught.value.field) == ("bad-parameter", field)


@pytest.mark.parametrize(
    ("more", "field"),
    [({"passes": "both"}, "passes"), ({"passes": []}, "passes"), ({"replicas": 2}, "replicas")],
)
def test_wrong_passes_and_replicas_are_named(more, field):
    with pytest.raises(ClientError) as caught:
        build_patch({}, {"HiddenStates": True}, **more)
    assert (caught.value.code, caught.value.field) == ("bad-parameter", field)


def test_a_status_is_a_dictionary_that_reads_well():
    message = {
        "type": "status",
        "state": "paused",
        "step": 1300,
        "probes": {
            "fired": 11,
            "expected": 12,
            "missing": ["MLP1_mat_mul layer 2"],
            "reasons": [{"reason": "it was not called", "missing": ["MLP1_mat_mul layer 2"]}],
        },
        "compiled": {"times": 2, "again": 1},
        "overhead": {"percent": 0.42, "low": 0.4, "high": 0.45, "training": 0.3, "hub": 0.12},
        "budget": {
            "limit": 1,
            "state": "inside",
            "percent": 0.81,
            "low": 0.5,
            "high": 1.1,
            "steps": 400,
            "gave_up": ["Only every second of the chosen steps is traced."],
        },
        "bytes_per_step": 49152,
        "nonfinite": {"count": 3, "first": {"step": 7, "layer": 1, "flag": "HiddenStates"}},
        "dropped": {"producer": 0, "viewer": 5, "recorder": 0},
        "perturbed_steps": 12,
        "armed_steps": 4,
        "ranks": [
            {"rank": 0, "state": "paused", "step": 1300, "seconds": 0.1},
            {
                "rank": 3,
                "name": "rank 3 (tp 1, pp 1) on node-1",
                "state": "silent",
                "step": 1299,
                "seconds": 2.5,
            },
        ],
        "viewers": 2,
        "recording": {"state": "on", "bytes": 3 << 20},
        "warnings": ["The hub was restarted at step 812."],
    }
    status = RunStatus(message)
    assert status == message
    assert status["probes"]["expected"] == 12
    assert repr(status).splitlines() == [
        "paused at step 1\u202f300",
        "  probes: 11 of 12 fired",
        "    not MLP1_mat_mul layer 2: it was not called",
        "  compiled with probes: 2 times, of that again: once",
        "  tracing costs 0.42 % (0.4 to 0.45) of step time, by its own clocks (training 0.3, hub 0.12)",
        "  budget of 1 %, inside: 0.81 % (0.5 to 1.1) over 400 steps",
        "    Only every second of the chosen steps is traced.",
        "  sends 48 KiB a step",
        "  not finite: 3 values, first at step 7 in HiddenStates layer 1",
        "  rows given up: 5 by the viewer",
        "  perturbed: 12 steps so far, 4 by what is armed now",
        "  ranks: 2",
        "  rank 3 (tp 1, pp 1) on node-1: silent for 2.5 s, at step 1\u202f299",
        "  viewers: 2",
        "  recording: on, 3 MiB",
        "  note: The hub was restarted at step 812.",
    ]
    assert repr(RunStatus({"type": "status", "state": "waiting", "step": 0})) == "waiting at step 0"
