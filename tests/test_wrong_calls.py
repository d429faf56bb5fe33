"""Calls as people get them wrong, and the sentence that each is answered with: what was expected, what came, what to try."""

import pytest
import torch
from recorded_run import write_run

import megalens
from megalens import MegalensError, Noise1, NoOp, Projection, Tile
from megalens.demo.model import GPT, GPTConfig
from megalens.hub import replay
from megalens.tracer.settings import TraceSettings

F = "MLP1_mat_mul"
MODEL = GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), 0.1)


def trace(model=MODEL, **options):
    return megalens.trace(model, **{"hub": None, **options})


def log(model=MODEL, optimizer=OPTIMIZER, **options):
    return megalens.log_statistics(model, optimizer, **{"hub": None, "jsonl": "statistics", **options})


OF_TRAINING = [
    (lambda: trace(OPTIMIZER), "The model must be a torch.nn.Module or a list of model chunks, got SGD."),
    (lambda: trace(flags={"MLP1": Tile(96)}), "There is no flag 'MLP1'. Choose one of QKV_mat_mul"),
    (lambda: trace(flags="MLP1"), "There is no flag 'MLP1'. Choose one of QKV_mat_mul"),
    (
        lambda: trace(flags={F: "Tile"}),
        f"flags['{F}'] must be a compressor such as Tile(96), True, False, None or a dict of settings, got 'Tile'.",
    ),
    (
        lambda: trace(flags={F: Tile}),
        f"flags['{F}'] must be a compressor such as Tile(96), True, False, None or a dict of settings (Tile(…), not the class), got <class",
    ),
    (
        lambda: trace(flags=[Tile(96)]),
        "flags=… must be a dict such as {'MLP1_mat_mul': Tile(96)}, or names of flags, got [Tile(",
    ),
    (
        lambda: trace(flags=5),
        "flags=… must be a dict such as {'MLP1_mat_mul': Tile(96)}, or names of flags, got 5.",
    ),
    (
        lambda: trace(flags={F: Tile("mean")}),
        "Tile(tiles=…) must be a whole number from 1 to 65536, got 'mean'.",
    ),
    (lambda: trace(flags={F: Tile(96, "meen")}), "'meen' is not known here. Known are data, mean"),
    (
        lambda: trace(flags={F: {"tiles": 96}}),
        f"flags['{F}'] has no setting 'tiles'. It takes compressor, layers",
    ),
    (
        lambda: trace(flags={F: {"compressor": {"tiles": 96}}}),
        f"flags['{F}']['compressor'] must be a compressor such as Tile(96), or {{'name': 'Tile', 'params': {{'tiles': 96}}}}, got",
    ),
    (lambda: trace(flags={F: {"every": 0}}), f"flags['{F}']['every'] must be a whole number from 1, got 0."),
    (lambda: trace(flags=F, layers="0-9"), "Layers 0-9 do not all exist here. This model has layers 0–1."),
    (
        lambda: trace(flags=F, layers="first"),
        "layers=… must be a layer, several layers, 'all' or ranges such as",
    ),
    (lambda: trace(flags=F, every="10"), "every=… must be a whole number from 1, got '10'."),
    (lambda: trace(flags=F, samples=0), "samples=… must be a whole number from 1 or 'all', got 0."),
    (
        lambda: trace(flags=F, phases="test"),
        "phases=… must be one or more of train, eval, generate, got 'test'.",
    ),
    (
        lambda: trace(flags={F: Projection("v.npy")}),
        "No folder is allowed for vectors. Pass vectors_folders=[…]",
    ),
    (
        lambda: trace(flags={"InputTokens": Tile()}),
        "InputTokens holds token ids, of which no average means anything.",
    ),
    (lambda: trace(first_step=0), "first_step=… must be a whole number from 1, got 0."),
    (
        lambda: trace(record="runs"),
        "record='runs' needs hub='spawn': it is the hub that this call starts which",
    ),
    (lambda: trace(record=5), "record=… must be a folder, got 5."),
    (
        lambda: trace(record_mode=0o050),
        "record_mode=… must be a mode of a folder that its owner may use, such as 0o750, got 40.",
    ),
    (lambda: trace(record_bytes="1 GB"), "record_bytes=… must be a whole number from 1, got '1 GB'."),
    (
        lambda: trace(hub="spwan"),
        "hub='spwan' is neither 'spawn' nor the runtime file of a running hub: there is no such",
    ),
    (
        lambda: trace(hub=5000),
        "hub=… must be 'spawn', None, (address, token), or the path of a hub's runtime file, got a int.",
    ),
    (lambda: trace(hub_port="5000"), "hub_port=… must be a port from 0 to 65535, got '5000'."),
    (lambda: trace(hub_host=5), "hub_host=… must be an address such as '127.0.0.1', got 5."),
    (lambda: trace(linger="long"), "linger=… must be seconds from 0, got 'long'."),
    (lambda: trace(name=5), "name=… must be text, got 5."),
    (
        lambda: trace(allow="pause"),
        "allow=… must be a list out of pause, watched, perturb, generate, got 'pause'.",
    ),
    (lambda: trace(allow=True), "allow=… must be a list out of pause, watched, perturb, generate, got True."),
    (
        lambda: trace(budget="much"),
        "A budget must be per cent of step time, above 0 and at most 100, such as '1%', got",
    ),
    (lambda: trace(tokenizer="gpt2"), "tokenizer must have a decode method that takes ids, got a str."),
    (lambda: trace(instruments="none"), "No installed package brings an instrument 'none'"),
    (lambda: trace(vectors_folders="vectors"), "vectors_folders=… must be a list of folders, got 'vectors'."),
    (lambda: trace(adapter="gpt2"), "adapter=… must be an Adapter, as of megalens.adapters, got 'gpt2'."),
    (lambda: trace(place=3), "place=… must be a megalens.tracer.Place, got 3."),
    (lambda: log(), "log_statistics(…) was not told what to log: give any of param, grad, activation"),
    (
        lambda: log(grad=1, jsonl=None),
        "With hub=None statistics go to files only, and there are none: give jsonl=…",
    ),
    (lambda: log(grad="1"), "grad=… must be a number of steps, 0 for off, got '1'."),
    (lambda: log(grad=1, jsonl=5), "jsonl=… must be a folder, got 5."),
    (lambda: log(optimizer=MODEL, grad=1), "optimizer must be what updates the model, got a GPT."),
    (lambda: trace().configure({F: "Tile"}), f"flags['{F}'] must be a compressor such as Tile(96), True"),
    (
        lambda: trace().configure(layers="0"),
        "layers are settings of flags, and none was named: tracer.configure(",
    ),
    (lambda: trace().wrap(MODEL), "wrap(…) must be given a torch.optim.Optimizer, got a GPT."),
    (lambda: trace().phase("test").__enter__(), "A phase must be one of train, eval, generate, got 'test'."),
    (lambda: trace().attach("x"), "attach(…) takes a megalens.tracer.Instrument, got 'x'."),
]

OF_A_RUN = [
    (
        lambda run: megalens.connect(5),
        "connect(…) takes a run's name, its id or a ws:// address, got 5. megalens.open(…)",
    ),
    (lambda run: megalens.connect("nobody"), "No live run is called 'nobody': none is live."),
    (lambda run: megalens.connect("ws://127.0.0.1:9"), "A token is needed for ws://127.0.0.1:9."),
    (lambda run: megalens.open("nowhere"), "nowhere does not exist. Give the folder of one recorded run"),
    (lambda run: megalens.open(__file__), "test_wrong_calls.py is a file of no kind that is known here."),
    (lambda run: megalens.open(5), "path=… must be the path of a folder or file, got 5."),
    (lambda run: run.tensors("MLP1"), "This run has no flag 'MLP1'. It has MLP1_mat_mul"),
    (
        lambda run: run.tensors(steps="x"),
        "steps=… must be a step, slice(10, 20), range(10, 20), or a list of steps",
    ),
    (lambda run: run.tensors(phase="test"), "phase=… must be one of train, eval, generate, got 'test'."),
    (lambda run: run.tensors(rank=-1), "rank=… must be a whole number from 0, got -1."),
    (lambda run: run.scalars(5), "names=… must be a name or a list of names, got 5."),
    (lambda run: run.moments("grads"), "stat must be one of param, grad, activation"),
    (lambda run: run.moments("grad"), "This run has no statistics of grad. It has no statistics at all; see"),
    (
        lambda run: run.table("tensor"),
        "stream=… must be one of tensors, moments, scalars, alarms, spans, memory, generations, tokens, lens, effects, audit",
    ),
    (
        lambda run: run.table("tensors", colour=1),
        "The stream tensors has no column 'colour' of text or whole numbers.",
    ),
    (lambda run: run.configure(), "No flag was named. Write run.configure(HiddenStates=Tile(96))"),
    (
        lambda run: run.configure(X="Tile"),
        "X=… must be a compressor such as Tile(96), True, False, None or a dict",
    ),
    (
        lambda run: run.configure({"X": 3}),
        "X=… must be a compressor such as Tile(96), True, False, None or a dict",
    ),
    (lambda run: run.configure("X"), "gpt-demo is a recorded run, so nothing of it can be changed."),
    (lambda run: run.wait(99), "This run is recorded and ends at step 5: step 99 will not come."),
    (lambda run: run.wait("x"), "step=… must be a whole number from 0, got 'x'."),
    (lambda run: run.heatmap("MLP1"), "This run has no flag 'MLP1'. It has MLP1_mat_mul"),
    (
        lambda run: run.heatmap(F, layers="x"),
        "heatmap(layers=…) must be text, 'all' or ranges such as '0-3,7', got 'x'.",
    ),
    (
        lambda run: run.trend(F, steps=[1, 5, 9]),
        "steps=… must be steps without a gap, such as range(10, 20), got",
    ),
    (lambda run: run.trend(F, statistic="median"), "trend(statistic=…) must be one of mean, std, rms"),
    (
        lambda run: run.statistics("kurtosis", "mean"),
        "stat='kurtosis' is a statistic, and statistic='mean' came beside it.",
    ),
    (lambda run: run.report("report"), "A report's name must end in .html, .ipynb or .md, got 'report'."),
    (lambda run: run.report("no/dir"), "A report's name must end in .html, .ipynb or .md, got 'dir'."),
    (lambda run: run.report("no/dir.html"), "There is no folder 'no' to write dir.html into. Make it first."),
    (lambda run: run.report(5), "path must be the name of a file, got 5."),
    (
        lambda run: run.report("r.html", views="heatmap"),
        "views must be a list of views, such as [run.heatmap(…), run",
    ),
    (
        lambda run: run.report("r.html", views=[5]),
        "views[0] must be a widget such as run.heatmap(…), a view's name, or",
    ),
    (
        lambda run: run.perturb({"system": "noise"}),
        "There is no kind of perturbation 'noise'. Choose one of noise1",
    ),
    (lambda run: run.perturb({"system": Noise1()}, steps=0), "steps=… must be a whole number from 1, got 0."),
    (lambda run: run.advance(0), "steps=… must be a whole number from 1, got 0."),
    (
        lambda run: serve(run, speed=-1),
        "speed=… must be a number from 0 (as fast as possible) below 1,000,000, got -1.",
    ),
    (
        lambda run: serve(run, speed="fast"),
        "speed=… must be a number from 0 (as fast as possible) below 1,000,000",
    ),
    (lambda run: serve(run, first=9), "first=… must be a step of the recording, at most 5, got 9."),
]


def serve(run, **options):
    return replay.serve(run.folder, **options).__enter__()


def names(case):
    return case[1][:50]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with megalens.open(write_run(tmp_path_factory.mktemp("runs") / "run", steps=5)) as opened:
        yield opened


@pytest.mark.parametrize(("call", "says"), OF_TRAINING, ids=map(names, OF_TRAINING))
def test_a_wrong_call_of_a_training_script_is_answered_in_its_own_words(call, says):
    with pytest.raises(MegalensError) as caught:
        call()
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(("call", "says"), OF_A_RUN, ids=map(names, OF_A_RUN))
def test_a_wrong_call_of_a_notebook_is_answered_in_its_own_words(run, call, says):
    with pytest.raises(MegalensError) as caught:
        call(run)
    assert str(caught.value).startswith(says)


def test_an_argument_that_there_is_not_is_named_whatever_else_is_wrong():
    with pytest.raises(TypeError, match="unexpected keyword argument 'gradd'"):
        log(gradd=1)


def test_settings_are_one_object_or_keywords_and_the_model_may_be_named():
    model = GPT(GPTConfig(vocabulary=32, layers=1, hidden=16, heads=2, sequence=8))
    settings = TraceSettings(hub=None, first_step=7)
    started = [
        megalens.trace(model, hub=None, first_step=7),
        megalens.trace(model=model, hub=None, first_step=7),
        megalens.trace(model, settings),
    ]
    assert {repr(tracer) for tracer in started} == {"<Tracer without a hub, step 6, flags []>"}
    with pytest.raises(TypeError, match=r"trace\(\) takes its settings by keyword, got 1 by position"):
        megalens.trace(model, "a name")


def test_flags_are_switched_by_names_by_true_and_by_settings_wherever_they_are_asked_for():
    asked = {"HiddenStates": NoOp(), F: True, "InputTokens": {"every": 3}}
    # Nobody listens there: what is asked for is accepted all the same.
    nowhere = ("127.0.0.1:9", "token")
    with trace(flags={**asked, "MLP2_mat_mul": False, "QKV_mat_mul": None}, every=2, hub=nowhere) as tracer:
        flags = tracer.config["flags"]
    assert {name: setting["every"] for name, setting in flags.items()} == {
        "HiddenStates": 2,
        F: 2,
        "InputTokens": 3,
    }
    assert flags[F]["compressor"]["name"] == "Tile"
    assert flags["InputTokens"]["compressor"]["name"] == "NoOp"
    other = trace(every=2)
    other.configure(asked, every=2)
    assert other.config["flags"] == flags
    third = trace()
    third.configure(**asked, every=2)
    assert third.config["flags"] == flags
    # True and mappings keep what is in force.
    third.configure(F, HiddenStates={"layers": 1})
    assert third.config["flags"] == {**flags, "HiddenStates": {**flags["HiddenStates"], "layers": "1"}}
    third.configure(HiddenStates=False, InputTokens=None)
    assert set(third.config["flags"]) == {F}
    for names in (F, [F], {F: True}):
        with trace(flags=names, every=2, hub=nowhere) as tracer:
            assert tracer.config["flags"] == third.config["flags"]
