"""The kernel's half of the views."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from recorded_run import RUN_ID

import megalens
from megalens.pictures.widgets import VIEW_MIME, Heatmap, History, Scalars, Statistics, Trend, WidgetError
from megalens.protocol import LAST_STEP, option_name, python_name, view_defaults, view_fields
from megalens.runs import Run
from megalens.slices import named

RUN = {"id": "r1", "name": "gpt-demo", "folder": None}


@pytest.mark.parametrize(
    ("kind", "view"),
    [
        (Heatmap, "heatmap"),
        (Trend, "trend"),
        (Scalars, "scalars"),
        (History, "history"),
        (Statistics, "statistics"),
    ],
)
def test_every_option_of_the_contract_is_an_attribute_of_the_widget(kind, view):
    options = {} if view in ("scalars", "statistics") else {"flag": "MLP1_mat_mul"}
    widget = kind(RUN, options)
    found = {name: getattr(widget, python_name(name)) for name in view_fields(view)}
    assert found == {**view_defaults(view), **options}


def test_setting_an_attribute_changes_the_options_and_the_other_way_round():
    widget = Heatmap(RUN, {"flag": "MLP1_mat_mul"})
    widget.step = 12
    widget.layers = "0-1"
    assert widget.options["step"] == 12
    assert widget.options["layers"] == "0-1"
    seen = []
    widget.observe(lambda change: seen.append(change["new"]), "scale")
    widget.options = {**widget.options, "scale": "own"}
    assert widget.scale == "own"
    assert seen == ["own"]


def test_what_the_browser_changes_arrives_in_the_attributes():
    widget = Trend(RUN, {"flag": "MLP1_mat_mul"})
    widget.set_state({"options": {**widget.options, "statistic": "max", "steps": [3.0, 9]}})
    assert widget.statistic == "max"
    assert widget.steps == range(3, 10)
    assert widget.options["steps"] == [3, 9]
    assert widget.get_state(["options"])["options"]["statistic"] == "max"


@pytest.mark.parametrize(
    ("steps", "held", "shown"),
    [
        (5, [5, 5], range(5, 6)),
        (range(2, 9), [2, 8], range(2, 9)),
        (slice(2, 9), [2, 8], range(2, 9)),
        (slice(2, None), [2, LAST_STEP], slice(2, None)),
        ([3, 4, 5], [3, 5], range(3, 6)),
        (np.arange(3, 6), [3, 5], range(3, 6)),
        (None, None, None),
    ],
)
def test_steps_of_a_view_are_one_stretch_and_can_be_given_again(steps, held, shown):
    widget = Trend(RUN, {"flag": "X", "steps": steps})
    assert (widget.options["steps"], widget.steps) == (held, shown)
    assert shown is None or f"steps={shown}" in repr(widget)
    widget.steps = widget.steps
    assert widget.options["steps"] == held


def test_what_an_older_view_wrote_for_steps_is_read_with_a_warning():
    for pair in ([2, 8], (2, 8)):
        with pytest.warns(DeprecationWarning, match=r"slice\(2, 9\)"):
            assert Trend(RUN, {"flag": "X", "steps": pair}).options["steps"] == [2, 8]
    with pytest.raises(WidgetError, match="steps without a gap") as caught:
        Trend(RUN, {"flag": "X", "steps": [2, 8, 9]})
    assert caught.value.field == "steps"


def test_people_may_write_layers_steps_and_names_in_their_own_way():
    assert Heatmap(RUN, {"flag": "X", "layers": 3}).layers == "3"
    assert Heatmap(RUN, {"flag": "X", "layers": range(1, 5)}).layers == "1-4"
    assert Heatmap(RUN, {"flag": "X", "layers": [7, 1, 2, 3]}).layers == "1-3,7"
    assert Heatmap(RUN, {"flag": "X", "step": np.int64(3), "color_range": np.array([0, 1.5])}).step == 3
    assert Heatmap(RUN, {"flag": "X", "layers": np.array([1, 2])}).layers == "1-2"
    assert Scalars(RUN, {"names": "loss"}).names == ["loss"]
    assert Trend(RUN, {"flag": "X", "positions": range(0, 16)}).positions == "0-15"
    assert Statistics(RUN, {"by": "layer"}).by == ["layer"]
    assert Statistics(RUN, {"by": ("layer", "role")}).by == ["layer", "role"]
    assert Statistics(RUN, {"by": ()}).by == []
    filtered = Statistics(RUN, {"where": {"layer": range(4), "expert": 7, "role": "output", "name": "mlp"}})
    assert filtered.where == {"layer": "0-3", "expert": "7", "role": ["output"], "name": "mlp"}
    assert Statistics(RUN, {"runs": "other"}).runs == ["other"]


def test_the_pass_is_called_pass_with_an_underscore_where_python_keeps_the_word():
    widget = Heatmap(RUN, {"flag": "X", "pass": "backward"})
    assert widget.pass_ == "backward"
    assert repr(widget) == "Heatmap(gpt-demo: flag='X', pass_='backward')"
    widget.pass_ = "forward"
    assert widget.options["pass"] == "forward"
    with pytest.raises(WidgetError, match=r"pass_=….*forward, backward"):
        widget.pass_ = "sideways"


@pytest.mark.parametrize(
    ("make", "field", "says"),
    [
        (lambda: Heatmap(RUN, {"flag": "X", "layers": "first"}), "layers", "got 'first'"),
        (lambda: Heatmap(RUN, {"flag": "X", "layers": []}), "layers", r"got \[\]"),
        (lambda: Heatmap(RUN, {"flag": None}), "flag", "must be text"),
        (lambda: Heatmap(RUN, {"flag": "X", "sample": -1}), "sample", "from 0"),
        (lambda: Trend(RUN, {"flag": "X", "statistic": "median"}), "statistic", "one of mean, std"),
        (lambda: Trend(RUN, {"flag": "X", "steps": 5.5}), "steps", "must be a step, slice"),
        (lambda: Scalars(RUN, {"smoothing": "much"}), "smoothing", "got 'much'"),
        (lambda: Scalars(RUN, {"colour": "red"}), "colour", "no option 'colour'"),
        (lambda: Statistics(RUN, {"by": "laer"}), "by.0", r"at most 4 of name, layer.*got \['laer'\]"),
        (lambda: Statistics(RUN, {"by": ["layer", "layer"]}), "by", "none twice"),
        (lambda: Statistics(RUN, {"where": {"layer": "some"}}), "where.layer", r"where.layer=….*got 'some'"),
        (
            lambda: Statistics(RUN, {"where": {"role": "in"}}),
            "where.role.0",
            r"any of input, output, got \['in'\]",
        ),
        (lambda: Statistics(RUN, {"where": {"laer": 3}}), "where", "dict with any of name, layer"),
        (lambda: Statistics(RUN, {"where": None}), "where", "a dict .*got None"),
        (lambda: Statistics(RUN, {"series": 0}), "series", "from 1 to 500"),
        (lambda: Statistics(RUN, {"mixed": "yes"}), "mixed", "True or False"),
    ],
)
def test_a_wrong_argument_is_named(make, field, says):
    with pytest.raises(WidgetError, match=says) as caught:
        make()
    assert caught.value.field == field


def test_a_wrong_attribute_is_refused_and_nothing_changes():
    widget = Heatmap(RUN, {"flag": "X"})
    with pytest.raises(WidgetError):
        widget.transform = "square"
    assert widget.transform == "linear"
    assert widget.options["transform"] == "linear"


def test_the_facade_takes_exactly_the_options_of_the_contract():
    from megalens.api.notebook import NotebookRun

    for method, view in (
        (NotebookRun.heatmap, "heatmap"),
        (NotebookRun.trend, "trend"),
        (NotebookRun.scalars_view, "scalars"),
        (NotebookRun.history, "history"),
        (NotebookRun.statistics, "statistics"),
    ):
        parameters = {name: p for name, p in inspect.signature(method).parameters.items() if name != "self"}
        assert tuple(parameters) == tuple(python_name(name) for name in view_fields(view))
        given = {
            option_name(name): p.default
            for name, p in parameters.items()
            if p.default is not inspect.Parameter.empty
        }
        if view == "statistics":
            # A statistic's name may stand for `stat`, so that both are told apart; an absent filter matches everything.
            given |= {"statistic": given["statistic"] or "l2", "where": given["where"] or {}}
        # A signature holds no list, which anybody could change.
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        assert given == view_defaults(view)


def test_a_statistic_may_stand_where_what_was_measured_does(run):
    both = [run.statistics(stat="kurtosis", by="layer"), run.statistics("grad", "kurtosis", by=["layer"])]
    assert both[0].options == both[1].options
    assert (both[0].stat, both[0].statistic, both[0].kind) == ("grad", "kurtosis", "lines")
    assert run.statistics("residual").statistic == "l2"
    with pytest.raises(
        WidgetError, match=r"'kurtosis' is a statistic, and statistic='l2' came beside it.*param, grad"
    ):
        run.statistics("kurtosis", "l2")
    with pytest.raises(WidgetError, match=r"statistics\(stat=…\) must be one of param, grad"):
        run.statistics("gradients")


def test_a_history_shows_its_map_and_the_chosen_tensor(run):
    bundle = run.history("MLP1_mat_mul", layer=2, step=30)._repr_mimebundle_()
    assert bundle[VIEW_MIME]["options"]["layer"] == 2
    assert bundle["text/html"].count("<svg") == 2
    assert "MLP1 output, rms of layers 0 to 3, steps 1 to 40." in bundle["text/html"]
    assert "MLP1 output, mean of 16 tiles, layer 2, step 30." in bundle["text/html"]
    assert bundle["text/plain"] == "History(gpt-demo: flag='MLP1_mat_mul', layer=2, step=30)"


def test_the_bundle_holds_the_view_for_every_kind_of_reader(run):
    bundle = run.heatmap("MLP1_mat_mul", layers="0-3", step=30)._repr_mimebundle_()
    view = bundle[VIEW_MIME]
    assert view["format"] == 1
    assert view["run"]["id"] == RUN_ID
    assert view["options"]["step"] == 30
    assert set(bundle) == {VIEW_MIME, "text/html", "text/plain"}
    assert bundle["text/html"].count("<svg") == 1
    assert "data:image/png;base64," in bundle["text/html"]
    assert "MLP1 output, mean of 16 tiles, layers 0 to 3, step 30." in bundle["text/html"]
    assert bundle["text/plain"] == "Heatmap(gpt-demo: flag='MLP1_mat_mul', layers='0-3', step=30)"


def test_the_bundle_holds_no_token_and_no_absolute_path(run, folder):
    widgets = [
        run.heatmap("MLP1_mat_mul"),
        run.trend("MLP1_mat_mul"),
        run.scalars_view(),
        run.heatmap("HiddenStates"),
    ]
    text = json.dumps([widget._repr_mimebundle_() for widget in widgets])
    for secret in (str(folder.parent), "/home/", "token", "wandaq"):
        assert secret not in text.replace("tokens", "")


def test_a_folder_below_the_notebook_is_named_relative_to_it(run, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert run.trend("MLP1_mat_mul").run["folder"] == RUN_ID
    monkeypatch.chdir("/")
    assert run.trend("MLP1_mat_mul").run["folder"] is None
    monkeypatch.chdir(Path(__file__).parent)
    assert run.trend("MLP1_mat_mul").run["folder"] is None


def test_a_view_with_nothing_to_show_says_so_in_the_bundle(run):
    bundle = run.heatmap("HiddenStates")._repr_mimebundle_()
    assert "This run holds no train step of Layer output." in bundle["text/html"]


def test_a_flag_that_the_run_does_not_have_is_refused_at_the_call(run):
    for call in (run.heatmap, run.trend, run.history, lambda flag: run.view("heatmap", flag=flag)):
        with pytest.raises(WidgetError, match=r"no flag 'NoSuchFlag'\. It has MLP1_mat_mul, ") as caught:
            call("NoSuchFlag")
        assert caught.value.field == "flag"


def test_completion_offers_what_is_public_and_nothing_else(run):
    from IPython.core.completer import Completer

    completer = Completer(namespace={"run": run, "megalens": megalens})

    def offered(text):
        found = (each.rpartition(".")[2] for each in completer.attr_matches(text))
        return {name for name in found if not name.startswith("_")}

    public = {name for kind in (type(run), Run) for name in dir(kind) if not name.startswith("_")}
    # Slices bring the rest.
    assert offered("run.") == public | {*named("run"), *named("notebook")}
    assert {"alarms", "generate", "pipeline_metrics"} <= offered("run.")
    assert {"array", "configure", "folder", "heatmap", "moments", "report", "table"} <= public
    assert offered("megalens.") == {*megalens.__all__} - {"__version__"}
    assert "tensors" in run.table._ipython_key_completions_()


def test_the_run_in_the_notebook_is_the_run_with_views(run):
    assert run.id == RUN_ID
    assert run.tensors("MLP1_mat_mul", steps=3).num_rows == 4
    assert {"heatmap", "tensors", "configure"} <= set(dir(run))
    with pytest.raises(AttributeError):
        run.no_such_thing  # noqa: B018


@pytest.mark.slow
def test_a_run_in_a_cell_shows_itself_at_a_glance_and_elsewhere_in_words(run, monkeypatch):
    from megalens.api import notebook

    assert run._repr_mimebundle_() == {"text/plain": repr(run)}
    monkeypatch.setattr(notebook, "_in_cell", lambda: True)
    bundle = run._repr_mimebundle_()
    assert bundle["text/plain"] == repr(run)
    assert bundle[VIEW_MIME]["options"] == {"view": "overview", "names": None, "steps": None}
    assert "<svg" in bundle["text/html"]
    assert "Out of the ordinary." in bundle["text/html"]


@pytest.mark.parametrize("given", ["run", "inner", "folder"])
def test_show_takes_a_run_or_where_it_is(run, folder, given):
    shown = megalens.show({"run": run, "inner": run.run, "folder": folder}[given], names=["loss"])
    assert (shown.run["id"], shown.names) == (RUN_ID, ["loss"])


def test_neither_ipywidgets_nor_the_painter_is_loaded_before_a_view_is_made():
    code = (
        "import sys, megalens; megalens.open; "
        "print([name for name in ('ipywidgets', 'py_mini_racer', 'torch', 'jupyter_server', 'nbformat') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_any_view_is_made_by_its_name(run):
    assert run.view("heatmap", flag="MLP1_mat_mul", pass_="backward").options == (
        run.heatmap("MLP1_mat_mul", pass_="backward").options
    )
    assert run.view("moments", stat="kurtosis").options == run.statistics(stat="kurtosis").options
    with pytest.raises(WidgetError, match="no option 'colour'"):
        run.view("scalars", colour="red")


def test_a_view_of_another_package_is_a_widget_whose_options_the_browser_checks(run):
    widget = run.view("weight_norms", relative=True)
    assert widget.options == {"view": "weight_norms", "relative": True}
    assert widget.relative is True
    bundle = widget._repr_mimebundle_()
    assert bundle[VIEW_MIME]["options"] == widget.options
    assert bundle[VIEW_MIME]["run"]["id"] == RUN_ID
    assert bundle["text/plain"] == "OtherView(gpt-demo: view='weight_norms', relative=True)"
    widget.set_state({"options": {"view": "weight_norms", "relative": False}})
    assert widget.relative is False
    with pytest.raises(AttributeError):
        widget.colour  # noqa: B018
    with pytest.raises(WidgetError, match="names must be what JSON can hold, got"):
        run.view("weight_norms", names={1, 2})


@pytest.mark.parametrize(
    ("views", "field", "says"),
    [
        (lambda run: [run.scalars_view(), run.view("weight_norms")], "views[1].view", "got 'weight_norms'"),
        (
            lambda run: ["scalar"],
            "views[0].view",
            "one of overview, heatmap, trend, scalars, history, distribution, statistics",
        ),
        (lambda run: run.scalars_view(), "views", "must be a list of views"),
        (lambda run: {"view": "scalars"}, "views", "must be a list of views"),
    ],
)
def test_views_that_no_report_can_hold_are_refused_by_name(run, tmp_path, views, field, says):
    from megalens.pictures.report import ReportError

    with pytest.raises(ReportError, match=says) as caught:
        run.report(tmp_path / "report.html", views(run))
    assert caught.value.field == field
    assert list(tmp_path.iterdir()) == []


def test_help_and_completion_show_every_argument_with_its_type():
    from megalens.api.notebook import NotebookRun

    shown = inspect.signature(NotebookRun.heatmap)
    assert str(shown.parameters["layers"]) == "layers: 'Layers' = '0'"
    assert shown.parameters["scale"].annotation == "Literal['shared', 'own']"
    assert shown.parameters["flag"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert shown.parameters["step"].kind is inspect.Parameter.KEYWORD_ONLY
    assert [
        name
        for name, p in inspect.signature(NotebookRun.statistics).parameters.items()
        if p.kind is not p.KEYWORD_ONLY
    ] == [
        "self",
        "stat",
        "statistic",
        "kind",
    ]
    for method in (
        NotebookRun.heatmap,
        NotebookRun.trend,
        NotebookRun.scalars_view,
        NotebookRun.history,
        NotebookRun.statistics,
    ):
        text = inspect.getdoc(method)
        for name in inspect.signature(method).parameters:
            assert name == "self" or f"\n{name} : " in text
        assert "WidgetError" in text
