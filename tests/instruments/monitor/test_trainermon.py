"""``megalens.TrainerMon`` beside the files that msProbe's own class wrote of the same trainings."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from event_files import events_of
from PIL import Image
from torch import nn

import megalens
from megalens.instruments.monitor.trainermon import writing
from megalens.instruments.monitor.trainermon.trainermon import StructureWritten

FIXTURES = Path(__file__).parents[4] / "shared" / "fixtures" / "trainermon"
needs_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason="TrainerMon's own output is not there")
OPS = ["min", "max", "norm", "zeros", "nans", "mean"]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp, self.act = nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU()

    def forward(self, x):
        return x + self.act(self.mlp(self.norm(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.final_norm, self.output_layer = nn.LayerNorm(8), nn.Linear(8, 11, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.output_layer(self.final_norm(x))


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    return tmp_path / "out"


def train(tmp_path, config, steps=3, parts=2, between=lambda step: None, start=0):
    """The fixtures' training, with a monitor or without; losses, and the monitor once all is written."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    monitor = None
    if config is not None:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        monitor = megalens.TrainerMon(path)
        monitor.set_monitor(model=model, optimizer=optimizer, grad_acc_steps=parts, start_iteration=start)
    generator, losses = torch.Generator().manual_seed(1), []
    for step in range(steps):
        for _ in range(parts):
            ids = torch.randint(0, 11, (4, 5), generator=generator)
            labels = torch.randint(0, 11, (4, 5), generator=generator)
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten()) / parts
            loss.backward()
            losses.append(loss.item())
        between(step)
        optimizer.step()
        optimizer.zero_grad()
    if monitor is not None:
        monitor.close()
    return losses, monitor


def files_of(folder):
    return {path.name: path.read_text().splitlines() for path in folder.rglob("*.csv")}


def same_files(ours, theirs):
    """Hold files against files, character by character but for the last decimal: the model itself computes in float32, another way on another processor."""
    assert ours.keys() == theirs.keys()
    for name, lines in theirs.items():
        assert len(ours[name]) == len(lines), name
        for line, wanted in zip(ours[name], lines, strict=True):
            for cell, other in zip(line.split(","), wanted.split(","), strict=True):
                assert cell == other or ("." in cell and abs(float(cell) - float(other)) < 1.5e-6), (
                    name,
                    line,
                )


ALL = {
    "targets": {}, "xy_distribution": True, "wg_distribution": True, "mv_distribution": True, "param_distribution": True,
    "ops": OPS, "step_count_per_record": 2,
}  # fmt: skip


@needs_fixtures
def test_every_file_is_the_one_that_it_writes(tmp_path, place):
    train(tmp_path, ALL)
    same_files(files_of(place), files_of(FIXTURES / "full"))


@needs_fixtures
def test_gradients_of_each_micro_batch_too(tmp_path, place):
    targets = {"layers.0.mlp": {}}
    config = {"targets": targets, "wg_distribution": True, "monitor_mbs_grad": True, "ops": ["norm"]}
    train(tmp_path, config, steps=2)
    same_files(files_of(place), files_of(FIXTURES / "mbs"))


@needs_fixtures
def test_the_structure_of_modules_is_written_and_ends_the_training(tmp_path, place):
    with pytest.raises(StructureWritten, match="exit after first monitor step when print model struct"):
        train(tmp_path, {"targets": {}, "print_struct": True})
    name = "module_struct/rank0/module_struct.json"
    assert (place / name).read_bytes() == (FIXTURES / "struct" / name).read_bytes()


@pytest.mark.parametrize("more", [{}, {"format": "tensorboard", "ur_distribution": True}])
def test_training_is_the_same_to_the_last_bit(tmp_path, more):
    assert train(tmp_path, None)[0] == train(tmp_path, ALL | more)[0]


def steps_of(place):
    return sorted(int(path.stem.rpartition("-")[2]) for path in place.rglob("grad_reduced_*.csv"))


def test_a_step_is_collected_from_the_first_on_at_each_interval_so_often(tmp_path, place):
    config = {"targets": {}, "wg_distribution": True, "start_step": 1, "step_interval": 2, "collect_times": 2}
    train(tmp_path, config, steps=8, parts=1)
    assert steps_of(place) == [1, 3]
    train(tmp_path, {"targets": {}, "wg_distribution": True}, steps=1, parts=1, start=100)
    assert steps_of(place) == [1, 3, 100]


@pytest.mark.parametrize(
    ("first", "then", "steps"),
    [
        ({"dynamic_on": False}, {}, []),
        ({"dynamic_on": True, "collect_times": 2, "start_step": 5}, {}, [1, 2]),
        ({"dynamic_on": False}, {2: {"dynamic_on": True, "collect_times": 2}}, [3, 4]),
        ({"dynamic_on": True, "collect_times": 4}, {2: {"dynamic_on": True, "collect_times": 3}}, [1, 2, 3, 4, 5]),
        ({"dynamic_on": True, "collect_times": 4}, {2: {"dynamic_on": True, "collect_times": 0}}, [1, 2, 3]),
        (
            {"dynamic_on": True, "collect_times": 2},
            {4: {"dynamic_on": True, "collect_times": 2}},
            [1, 2, 5, 6],
        ),
        ({"dynamic_on": True, "collect_times": 9}, {2: "{bad", 3: {"dynamic_on": True, "eps": 1}}, [1, 2, 3, 4, 5, 6, 7]),
    ],
    ids=["never", "from the start", "switched on", "changed", "changed to none", "again", "broken"],
)  # fmt: skip
def test_it_is_started_and_stopped_by_editing_the_file(tmp_path, place, monkeypatch, first, then, steps):
    monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    common = {"targets": {}, "wg_distribution": True}
    path = tmp_path / "config.json"

    def between(step):
        if step in then:
            new = then[step]
            path.write_text(new if isinstance(new, str) else json.dumps(common | new))
            os.utime(path, (step + 1, step + 1))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(tmp_path, common | first, steps=8, parts=1, between=between)
    assert steps_of(place) == steps
    assert len([*place.glob("*-rank0-*")]) == (1 if steps else 0)
    if "{bad" in then.values():
        assert any("what was in force stays" in str(each.message) for each in said)
    elif steps:
        assert json.loads(path.read_text())["dynamic_on"] is False


def test_its_numbers_can_be_asked_for(tmp_path):
    _, monitor = train(tmp_path, ALL | {"collect_times": 3}, steps=2)
    reduced, unreduced = monitor.generate_wgrad_metrics()
    assert reduced.keys() == {name.replace("acc_grad", "post_grad") for name in unreduced}
    assert {*reduced["0:embedding.weight/rank0/post_grad"]} == {*OPS}


def test_a_tensor_that_is_not_finite_is_written_as_it_is(tmp_path, place):
    torch.manual_seed(0)
    model = nn.Linear(2, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = megalens.TrainerMon({"param_distribution": True, "targets": {}, "ops": OPS})
    monitor.set_monitor(model=model, optimizer=optimizer)
    with torch.no_grad():
        model.weight[0, 0], model.bias[1] = float("inf"), float("nan")
    optimizer.step()
    monitor.close()
    (text,) = (path.read_text() for path in place.rglob("param_origin_*.csv"))
    weight, bias = (line.split(",") for line in text.splitlines()[1:])
    assert weight[4:9] == ["inf", "inf", "0.0", "0", "inf"]
    assert bias[3:9] == ["nan", "nan", "nan", "0.0", "1", "nan"]


def test_it_says_once_from_where_modules_are_called(tmp_path, place):
    train(tmp_path, {"targets": {}, "stack_info": True}, steps=2)
    (path,) = place.rglob("stack_info.csv")
    rows = {row["module_name"]: row["stack_info"] for row in csv.DictReader(path.open())}
    assert next(iter(rows)) == "0:embedding"
    assert {"0:", "0:layers.1.mlp", "0:output_layer"} <= rows.keys()
    assert "in forward, \n x = self.embedding(ids) \n" in rows["0:embedding"]
    assert rows["0:embedding"].index("in forward") < rows["0:embedding"].index("in train")


def test_names_are_squashed_and_targets_chosen_as_it_does(tmp_path, place):
    config = {
        "targets": {"layers.1.mlp": {}},
        "wg_distribution": True,
        "xy_distribution": True,
        "squash_name": True,
    }
    train(tmp_path, config, steps=1, parts=1)
    names = {
        kind: [row["name"] for row in csv.DictReader(next(place.rglob(f"{kind}_0-0.csv")).open())]
        for kind in ("actv", "grad_reduced")
    }
    # A name that begins with layers has no dot before it.
    assert names == {
        "actv": ["layers.1.mlp.input", "layers.1.mlp.output"],
        "grad_reduced": ["layers.1.mlp.weight", "layers.1.mlp.bias"],
    }


def test_an_unwritable_folder_is_said_once_and_the_training_goes_on(tmp_path, place):
    place.write_text("a file where the folder is to be")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        losses, _ = train(tmp_path, ALL)
    assert losses == train(tmp_path, None)[0]
    assert len([each for each in said if "cannot be written" in str(each.message)]) == 1


def test_what_is_kept_in_memory_is_a_table(tmp_path, place):
    _, monitor = train(tmp_path, ALL | {"format": "api"}, steps=2)
    table = monitor.table("grad_reduced")
    assert list(table.columns) == ["vpp_stage", "name", "step", *OPS, "shape", "dtype"]
    assert table["step"].value_counts().to_dict() == {0: 12, 1: 12}
    assert not place.exists()


@needs_fixtures
def test_its_rules_find_what_it_found_with_the_same_words_and_places(tmp_path, place, capsys):
    rules = [{"rule_name": "AnomalyNan"}, {"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}]
    config = ALL | {
        "ops": ["norm", "max"],
        "step_count_per_record": 1,
        "alert": {"rules": rules, "dump": True},
    }
    train(tmp_path, config, steps=2, parts=1)
    ours = json.loads((place / "anomaly_detected/rank0/anomaly.json").read_text())
    theirs = json.loads((FIXTURES / "alert/anomaly_detected/rank0/anomaly.json").read_text())
    # Their third step was disturbed.
    wanted = {key: value for key, value in theirs.items() if value["step"] < 2}
    said = capsys.readouterr().out
    assert {**ours}.keys() == wanted.keys()
    for key, value in wanted.items():
        number = re.compile(r"\d+\.\d+|\d+e-\d+")
        assert number.sub("", ours[key]["message"]) == number.sub("", value["message"])
        assert [float(x) for x in number.findall(ours[key]["message"])] == pytest.approx(
            [float(x) for x in number.findall(value["message"])], rel=1e-4
        )
        assert {**ours[key], "message": ""} == {**value, "message": ""}
        assert ours[key]["message"] in said
    assert [*ours] == [*wanted]


def test_attention_kernels_and_routers_are_measured_by_its_definitions(tmp_path, place):
    """Its worked examples: scores [[1, 2, 3], [4, 5, 6], [7, 8, 9]], diag(3, 2, 1), logits that are all the same."""

    class Attention(nn.Module):
        def forward(self, query, key):
            return query

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.core, self.proj, self.router = (
                Attention(),
                nn.Linear(3, 3, bias=False),
                nn.Linear(3, 2, bias=False),
            )

        def forward(self):
            scores = torch.arange(1.0, 10).reshape(3, 3)
            self.core(3**0.5 * torch.eye(3).reshape(3, 1, 1, 3), scores.T.reshape(3, 1, 1, 3))
            return self.router(self.proj(torch.ones(4, 3)))

    model = Whole()
    with torch.no_grad():
        model.proj.weight.copy_(torch.diag(torch.tensor([3.0, 2, 1])))
        model.router.weight.copy_(torch.tensor([[1.0, 0, 1], [1, 0, 1]]))
    targets = {
        "attention_hook": ["0:core"],
        "linear_hook": [],
        "moe_router_weight_hook": ["0:router"],
        "moe_router_logit_hook": ["0:router"],
    }
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    monitor = megalens.TrainerMon({"l2_targets": targets, "recording_l2_features": True})
    monitor.set_monitor(model=model, optimizer=optimizer, grad_acc_steps=2)
    for _ in range(2):
        model()
    optimizer.step()
    monitor.close()
    files = {path.name: path.read_text().splitlines() for path in place.rglob("*.csv")}
    header, *attention = files["attention_hook_0-0.csv"]
    assert header == "vpp_stage,name,step,micro_step,entropy,softmax_max"
    assert [line.split(",")[:4] for line in attention] == [["0", "core.attention", "0", at] for at in "01"]
    for line in attention:
        assert list(map(float, line.split(",")[4:])) == pytest.approx([0.4715, 0.7988], abs=5e-5)
    header, proj, router = files["linear_hook_0-0.csv"]
    assert header == "vpp_stage,name,step,sr,kernel_norm"
    assert [proj.split(",")[1], router.split(",")[1]] == ["proj.linear", "router.linear"]
    assert list(map(float, proj.split(",")[3:])) == pytest.approx([14**0.5 / 3, 3], rel=2e-3)
    assert files["moe_router_weight_hook_0-0.csv"][1] == "0,router.moe_router,0,1.0"
    assert files["moe_router_logit_hook_0-0.csv"][2] == "0,router.moe_router,0,1,0.693147"


def test_files_of_tensorboard_have_the_numbers_of_the_tables_and_pictures_of_the_updates(tmp_path, place):
    features = {"recording_l2_features": True, "l2_targets": {"linear_hook": []}, "mg_direction": True}
    config = {
        **ALL,
        **features,
        "targets": {"layers.0.mlp": {}},
        "all_xy": False,
        "step_count_per_record": 10,
    }
    train(tmp_path, config)
    tables = next(place.iterdir())
    train(tmp_path, {**config, "format": "tensorboard", "ur_distribution": True})
    (folder,) = (each for each in place.iterdir() if each != tables)
    numbers, pictures = events_of(folder)
    assert [path.name for path in folder.iterdir() if "tfevents" not in path.name] == []
    tasks = {
        "grad_unreduced": "acc_grad",
        "grad_reduced": "post_grad",
        "other": "mg_direction",
        "linear_hook": "sr",
    }
    expected = {}
    for path in tables.glob("*.csv"):
        kind = path.stem.rpartition("_")[0]
        for row in csv.DictReader(path.open()):
            micro = f":{row['micro_step']}" if "micro_step" in row else ""
            tag = f"{row['vpp_stage']}:{row['name']}{micro}/rank0/{tasks.get(kind, kind)}"
            for op in (*OPS, "sr", "kernel_norm"):
                if op in row:
                    expected[f"{tag}_{op}", int(row["step"])] = float(row[op])
    assert numbers.keys() == expected.keys()
    # The spectral norm starts anywhere.
    exact = [key for key in expected if "/sr_" not in key[0]]
    assert [numbers[key] for key in exact] == pytest.approx(
        [expected[key] for key in exact], abs=1e-6, nan_ok=True
    )
    assert {"0:layers.0.mlp.input:1/rank0/actv_norm", "0:layers.0.mlp.linear/rank0/sr_sr"} < {
        tag for tag, _ in numbers
    }
    # The state of the step before: none of the first.
    assert pictures.keys() == {
        (f"0:layers.0.mlp.{name}/adam_{which}", step)
        for name in ("weight", "bias")
        for which in ("update", "ratio")
        for step in (1, 2)
    }
    first, second = (pictures["0:layers.0.mlp.weight/adam_update", step] for step in (1, 2))
    seen = Image.open(io.BytesIO(second.encoded_image_string))
    assert (seen.width, seen.height) == (second.width, second.height)
    # A column a step, 8 pixels wide: the first is as it was, but for the scale of its colours.
    assert Image.open(io.BytesIO(first.encoded_image_string)).getpixel((40 + 12, 40 + 4)) == (255, 255, 255)
    assert len({seen.getpixel((40 + 12, 40 + 8 * row + 4)) for row in range(30)}) > 1


def test_without_its_packages_tensorboard_is_refused_with_what_installs_them(tmp_path, place, monkeypatch):
    for missing in ("tensorboardX.event_file_writer", "PIL.Image"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(megalens.MegalensError, match=r"pip install 'megalens\[tensorboard\]'"):
                megalens.TrainerMon({"targets": {}, "wg_distribution": True, "format": "tensorboard"})
    # While it runs, what was in force goes on.
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    monkeypatch.setenv("DYNAMIC_MONITOR", "true")
    config = {"targets": {}, "wg_distribution": True, "dynamic_on": True, "collect_times": 5}
    path = tmp_path / "config.json"

    def between(step):
        if step == 2:
            path.write_text(json.dumps({**config, "format": "tensorboard"}))
            os.utime(path, (1, 1))

    with pytest.warns(UserWarning, match="what was in force stays.*pip install 'megalens"):
        train(tmp_path, config, steps=6, parts=1, between=between)
    assert steps_of(place) == [1, 2, 3, 4, 5]


def test_pictures_of_updates_end_where_they_are_switched_off(tmp_path, place, monkeypatch):
    monkeypatch.setenv("DYNAMIC_MONITOR", "true")
    config = {
        "targets": {"layers.0.mlp": {}},
        "wg_distribution": True,
        "dynamic_on": True,
        "format": "tensorboard",
    }
    path = tmp_path / "config.json"

    def between(step):
        if step == 3:
            path.write_text(json.dumps({**config, "ur_distribution": False}))
            os.utime(path, (1, 1))

    train(tmp_path, {**config, "ur_distribution": True}, steps=6, parts=1, between=between)
    (folder,) = place.iterdir()
    numbers, pictures = events_of(folder)
    assert {step for _, step in numbers} == {1, 2, 3, 4, 5}
    assert {step for _, step in pictures} == {1, 2, 3}


@pytest.mark.slow
def test_pictures_that_take_long_cost_no_numbers(tmp_path, place, monkeypatch):
    drawn, turns = writing.histogram_picture, threading.Semaphore(0)
    # In the time of a step three of the eight pictures that it asks for can be drawn, however fast the machine is.
    monkeypatch.setattr(writing, "histogram_picture", lambda given: turns.acquire() and drawn(given))
    config = {"targets": {"layers.0.": {}}, "wg_distribution": True, "ops": ["norm"], "format": "tensorboard"}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(
            tmp_path,
            {**config, "ur_distribution": True},
            steps=120,
            parts=1,
            between=lambda step: turns.release(3 if step < 119 else 1000),
        )
    (folder,) = place.iterdir()
    numbers, pictures = events_of(folder)
    assert {step for tag, step in numbers if "post_grad" in tag} == {*range(120)}
    assert not [each for each in said if "not written" in str(each.message)]
    # Eight pictures of four parameters a step would be 952: those of each come in turn.
    tags = [tag for tag, _ in pictures]
    assert len({*tags}) == 8
    assert max(map(tags.count, tags)) - min(map(tags.count, tags)) <= 1
    assert len(pictures) < 400
