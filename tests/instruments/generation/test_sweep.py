"""A perturbation with other settings, one after another, against each of them by itself."""

import math
import re

import numpy as np
import pytest
import torch
from live_run import eventually
from perturbing import snapshot
from writers import byte_level, demo, hugging_face, writer

import megalens
from megalens.adapters import find_adapter
from megalens.instruments.generation import LanguageModel
from megalens.instruments.generation.effects import first_difference
from megalens.instruments.generation.job import (
    GenerationJob,
    first_differences,
    generation_perturb,
    perturbed,
    sweep_points,
)
from megalens.instruments.generation.language_model import evaluating
from megalens.protocol import ProtocolError
from megalens.protocol.requests import GenerationRequest

SYSTEM = {"kind": {"name": "noise1", "params": {"coefficient": 0.5}}, "layers": "1"}


def request_of(site: dict = SYSTEM, over: str = "coefficient", values=(0.0,), **more) -> GenerationRequest:
    return GenerationRequest.from_message(
        {
            "prompts": ["The cat sat", "on"],
            "perturb": {"sites": {"system": site}, "seed": 3},
            "sweep": {"over": over, "values": list(values)},
            **more,
        }
    )


@pytest.mark.parametrize(
    ("site", "over", "values", "expected"),
    [
        (SYSTEM, "coefficient", [0, 0.25], [("0", 0, 0), ("0.25", 0.25, 0.25)]),
        ({"kind": {"name": "bit_flip", "params": {"bit": 3}}}, "coefficient", [0.5], [("0.5", 0.5, 0.5)]),
        (SYSTEM, "layers", ["0", "0-1"], [("0", 0, "0"), ("0-1", math.nan, "0-1")]),
        (SYSTEM, "site", ["weight"], [("weight", math.nan, "weight")]),
    ],
)  # fmt: skip
def test_a_point_sets_one_thing_of_the_perturbation_and_leaves_the_rest(site, over, values, expected) -> None:
    request = request_of(site, over, values)
    points = sweep_points(request)
    assert [point.setting for point in points] == [setting for setting, _, _ in expected]
    np.testing.assert_array_equal([point.value for point in points], [value for _, value, _ in expected])
    for point, (_, _, wanted) in zip(points, expected, strict=True):
        ((name, now),) = point.perturb["sites"].items()
        assert point.perturb["seed"] == 3
        params = {**site["kind"]["params"]}
        if over == "coefficient":
            params["rate" if site["kind"]["name"] == "bit_flip" else "coefficient"] = wanted
        assert now["kind"] == {"name": site["kind"]["name"], "params": params}
        assert now.get("layers") == (wanted if over == "layers" else site.get("layers"))
        assert name == (wanted if over == "site" else "system")
    # The request itself stays as it is.
    assert request.perturb["sites"] == {"system": site}
    assert sweep_points(GenerationRequest(("a",))) == []


def texts_of(model: LanguageModel, request: GenerationRequest, setting=None) -> list[list[int]]:
    """The whole texts of a request, under a perturbation."""
    job = GenerationJob(1, request, [model.texts.encode(text) for text in request.prompts], "")
    job.begin(0)
    points = find_adapter(model.module).points(model.module)
    nothing = {"sites": {"system": {"kind": {"name": "noise1", "params": {"coefficient": 0}}}}}
    plan = generation_perturb(setting or nothing, points, ())
    with evaluating(model.module), perturbed(points, plan, pytest.fail) as clock:
        for done in job.decoding(model, before=clock.count):
            job.passed(done, 0)
    return job.texts


@pytest.mark.parametrize("name", ["demo", "Llama"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_texts_are_written_until_they_differ_and_first_where_the_whole_ones_do(
    name: str, temperature: int
) -> None:
    model = writer(name)
    request = request_of(values=[0.0, 0.01, 0.3, 3.0, 1000.0], tokens=9, temperature=temperature, stop=["a"])
    clean = texts_of(model, request)
    job = GenerationJob(1, request, [model.texts.encode(text) for text in request.prompts], "")
    points = find_adapter(model.module).points(model.module)
    found = set()
    for point in sweep_points(request):
        whole = texts_of(model, request, point.perturb)
        plan = generation_perturb(point.perturb, points, ())
        passes = []
        with evaluating(model.module), perturbed(points, plan, pytest.fail) as clock:

            def before(reading, clock=clock, passes=passes) -> None:
                clock.count()
                passes.append(reading)

            at = first_differences(
                lambda ends: job.decoding(model, ends=ends, before=before), job.sequences, clean
            )
        expected = [first_difference(one, two) for one, two in zip(clean, whole, strict=True)]
        assert at == expected
        if -1 not in at:
            # Not a pass more than it takes to see it, up to the one that is going on.
            lengths = [position - len(prompt) + 1 for position, prompt in zip(at, job.sequences, strict=True)]
            assert len(passes) <= max(lengths) + 1
        found.update(at)
    assert -1 in found
    assert len(found) > 2


def test_logits_that_are_no_numbers_end_the_text_there() -> None:
    model = writer("demo")
    request = request_of({"kind": {"name": "offset", "params": {"coefficient": 1e6}}}, tokens=3)
    clean = texts_of(model, request)
    job = GenerationJob(1, request, [model.texts.encode(text) for text in request.prompts], "")
    handle = model.module.head.register_forward_hook(lambda m, a, y: y * torch.nan)
    with evaluating(model.module):
        at = first_differences(lambda ends: job.decoding(model, ends=ends), job.sequences, clean)
    handle.remove()
    assert at == [len(prompt) for prompt in job.sequences]


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_folder")
class TestInALab:
    def test_each_point_is_what_a_generation_of_its_own_would_be_and_the_model_is_as_before(self) -> None:
        model = hugging_face("Llama").eval()
        ids = torch.tensor([[4, 8, 15, 16, 23]])
        with torch.no_grad():
            before, clean = snapshot(model), model(ids).logits
        values = [0.0, 0.3, 2.0]
        with megalens.serve(model, byte_level(), flags=["HiddenStates"], linger=0.2) as lab:
            swept = lab.generate(
                ["The cat sat", "on"], 6, perturb=megalens.Noise1(0.3), seed=2, sweep={"coefficient": values}
            )
            table = swept.effects()
            points = table[table["point"] >= 0]
            # One row of the logits and one of each of two layers, for each of two sequences.
            assert len(points) == 3 * 3 * 2
            assert set(points["position"]) == {-1}
            assert points.groupby("point")["setting"].first().tolist() == ["0", "0.3", "2"]
            assert points.groupby("point")["value"].first().tolist() == values
            nothing = points[points["point"] == 0]
            assert nothing["kl"].fillna(0).eq(0).all()
            assert nothing["distance"].fillna(0).eq(0).all()
            assert set(nothing["divergence"]) == {-1}
            for value, number in ((0.3, 1), (2.0, 2)):
                alone = lab.generate(
                    ["The cat sat", "on"], 6, perturb=megalens.Noise1(value), seed=2
                ).effects()
                alone = alone[alone["position"] == -1]
                point = points[points["point"] == number]
                columns = ["sequence", "layer", "kl", "changed", "distance", "divergence"]
                np.testing.assert_array_equal(point[columns].values, alone[columns].values)
            steps = {row["step"] for row in lab.run.tensors("HiddenStates", phase="generate").to_pylist()}
            # Six passes of each of the two texts of three generations.
            assert steps == set(range(1, 6 * 6 + 1))
        with torch.no_grad():
            assert snapshot(model) == before
            assert torch.equal(model(ids).logits, clean)

    def test_layers_and_sites_and_a_vectors_coefficient_are_swept(self, tmp_path) -> None:
        megalens.save_direction(tmp_path / "v.safetensors", np.ones(32))
        with megalens.serve(demo(), vectors_folders=[tmp_path], linger=0.2) as lab:
            layers = lab.generate(
                "ab", 3, perturb=megalens.Noise1(1.0), sweep={"layers": ["0", "1", "0-1"]}
            ).effects()
            first = layers[(layers["point"] == 1) & (layers["layer"] == 0)].iloc[0]
            assert first["distance"] == 0
            assert layers[layers["point"] == 2]["setting"].iloc[0] == "0-1"
            sites = lab.generate(
                "ab", 3, perturb=megalens.Noise1(0.1), sweep={"site": ["weight", "calculation"]}
            ).effects()
            assert sites[sites["point"] >= 0]["setting"].unique().tolist() == ["weight", "calculation"]
            vector = megalens.AddVector("v.safetensors")
            steered = lab.generate("ab", 3, perturb=vector, sweep={"coefficient": [-8, 0, 8]}).effects()
            point = steered[(steered["point"] >= 0) & (steered["layer"] == 1)]
            assert (point["distance"] > 0).tolist() == [True, False, True]

    def test_a_sweep_tells_how_far_it_is_and_ends_between_two_points(self, monkeypatch) -> None:
        monkeypatch.setattr("megalens.instruments.generation.writing._REPORT_SECONDS", 0)
        with megalens.serve(demo(), linger=0.2) as lab:
            swept = lab.generate(
                "The cat", 60, perturb=megalens.Noise1(1e-9), sweep={"coefficient": [1e-9] * 200}, wait=False
            )

            def told() -> int:
                found = re.search(r"Point (\d+) of 200\.", swept.message)
                return int(found[1]) if found else 0

            # Others may come before anybody looks.
            eventually(lambda: told() >= 3 or swept.over, "the third point is done")
            swept.cancel()
            assert swept.wait(20).state == "cancelled"
            points = swept.effects()["point"].max()
            assert 2 <= points < 199
            assert "Point" not in swept.message
            # What was asked for next is done.
            assert lab.generate("a", 2).state == "finished"

    @pytest.mark.parametrize(
        ("perturb", "sweep", "field", "says"),
        [
            (megalens.Noise1(1.0), {"coefficient": [1, -1]}, "values.1", "must be a number from 0 to 1e"),
            (megalens.Noise1(1.0), {"layers": ["0", "0-7"]}, "values.1", "layers 0–1"),
            (megalens.Noise1(1.0), {"site": ["nowhere"]}, "values.0", "There is no site"),
            (megalens.AddVector("no.npy"), {"coefficient": [1]}, "perturb.sites.system.kind.params.vectors", "No folder is allowed"),
        ],
    )  # fmt: skip
    def test_a_point_that_cannot_be_done_is_named_before_anything_is_written(
        self, perturb, sweep, field, says
    ) -> None:
        with megalens.serve(demo(), linger=0.2) as lab:
            with pytest.raises(ProtocolError, match=says) as caught:
                lab.generate("ab", 3, perturb=perturb, sweep=sweep)
            assert caught.value.field.endswith(field)
            assert lab.generations == []
