"""Perturbations as data, and the peers' dictionary that means the same."""

import math

import pytest
from jsonschema import Draft202012Validator

from megalens.protocol import (
    PERTURBATIONS,
    AddVector,
    BitFlip,
    Noise1,
    Noise2,
    Offset,
    ProtocolError,
    check_message,
    perturb_from_disturbance,
    perturbation_from_setting,
    perturbation_infos,
)

FULL = {
    "weight_perturbation": True,
    "weight_perturbation_fn": "noise1",
    "weight_perturbation_coef": 0.01,
    "calculation_perturbation": "True",
    "calculation_perturbation_fn": "noise2",
    "calculation_perturbation_coef": 0.05,
    "system_perturbation": "false",
    "system_perturbation_fn": "noise1",
    "system_perturbation_coef": 0.01,
}


@pytest.mark.parametrize("info", perturbation_infos(), ids=lambda info: info["name"])
def test_the_schema_that_a_form_is_built_from_admits_the_defaults_and_names_them_all(info) -> None:
    Draft202012Validator.check_schema(info["schema"])
    properties = info["schema"]["properties"]
    # The name of a file has none.
    needed = {name: "a.npy" for name, spec in properties.items() if "default" not in spec}
    assert info["schema"]["required"] == list(needed)
    defaults = needed | {name: spec["default"] for name, spec in properties.items() if "default" in spec}
    Draft202012Validator(info["schema"]).validate(defaults)
    made = perturbation_from_setting({"name": info["name"], "params": needed})
    assert made == PERTURBATIONS[info["name"]](**needed)
    assert made.to_setting() == {"name": info["name"], "params": defaults}


def test_what_adds_to_a_layer_is_not_offered_for_weights() -> None:
    kinds = {site: [info["name"] for info in perturbation_infos(site)] for site in ("weight", "system")}
    assert kinds["weight"] == ["noise1", "noise2", "bit_flip", "offset"]
    assert kinds["system"] == [*kinds["weight"], "add_vector"] == list(PERTURBATIONS)


def test_parameters_are_read_and_given_back() -> None:
    for kind in (
        Noise1(0.5),
        Noise2(0.1),
        BitFlip(0.25, 31),
        BitFlip(0, "any"),
        Offset(-1.0, 0.5),
        AddVector("a.npy", -3.0, False),
    ):
        assert perturbation_from_setting(kind.to_setting()) == kind


@pytest.mark.parametrize(
    ("setting", "field", "says"),
    [
        ({"name": "gamma"}, "k.name", "Choose one of noise1, noise2, bit_flip, offset"),
        ({"name": ["noise1"]}, "k.name", "Choose one of"),
        ({"name": "noise1", "params": {"sigma": 1}}, "k.params.sigma", "It takes coefficient"),
        ({"name": "noise1", "params": {"coefficient": -1}}, "k.params.coefficient", "from 0 to 1e+06"),
        ({"name": "noise2", "params": {"coefficient": True}}, "k.params.coefficient", "a number"),
        ({"name": "noise2", "params": {"coefficient": "0.1"}}, "k.params.coefficient", "got '0.1'"),
        ({"name": "offset", "params": {"coefficient": math.nan}}, "k.params.coefficient", "got nan"),
        ({"name": "offset", "params": {"coefficient": 10**400}}, "k.params.coefficient", "got 1000"),
        ({"name": "offset", "params": {"coefficient": -math.inf}}, "k.params.coefficient", "got -inf"),
        ({"name": "offset", "params": {"fraction": 1.5}}, "k.params.fraction", "from 0 to 1"),
        ({"name": "bit_flip", "params": {"bit": 64}}, "k.params.bit", "'any' or a whole number from 0 to 63"),
        ({"name": "bit_flip", "params": {"bit": 1.0}}, "k.params.bit", "got 1.0"),
        ({"name": "bit_flip", "params": {"bit": True}}, "k.params.bit", "got True"),
        ({"name": "bit_flip", "params": {"bit": [1]}}, "k.params.bit", "got [1]"),
        ({"name": "add_vector"}, "k.params.vectors", "add_vector needs vectors: File in an allowed folder"),
        (
            {"name": "add_vector", "params": {"vectors": ""}},
            "k.params.vectors",
            "text of 1 to 1000 characters",
        ),
        (
            {"name": "add_vector", "params": {"vectors": "a", "normalise": 1}},
            "k.params.normalise",
            "must be true or false, got 1",
        ),
    ],
)
def test_a_wrong_parameter_is_named(setting: dict, field: str, says: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        perturbation_from_setting(setting, "k")
    assert (caught.value.code, caught.value.field) == ("bad-parameter", field)
    assert says in caught.value.message
    check_message(caught.value.to_message())


def test_the_peers_dictionary_is_taken_with_texts_and_booleans() -> None:
    perturb = perturb_from_disturbance(FULL, phases=["generate"], seed=3, steps=20)
    assert perturb == {
        "sites": {
            "weight": {
                "kind": {"name": "noise1", "params": {"coefficient": 0.01}},
                "phases": ["generate"],
            },
            "calculation": {
                "kind": {"name": "noise2", "params": {"coefficient": 0.05}},
                "phases": ["generate"],
            },
        },
        "seed": 3,
        "steps": 20,
    }
    check_message({"type": "configure", "id": "1", "patch": {"flags": {}, "perturb": perturb}})


@pytest.mark.parametrize(
    "configs", [{}, {"weight_perturbation": False}, {"system_perturbation": "FALSE"}], ids=str
)
def test_a_dictionary_with_all_off_means_none(configs: dict) -> None:
    assert perturb_from_disturbance(configs) is None


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"weight_perturbation_fn": ...}, "weight_perturbation_fn", "is missing"),
        ({"weight_perturbation_coef": ...}, "weight_perturbation_coef", "is missing"),
        ({"weight_perturbation_fn": "noise3"}, "weight_perturbation_fn", "noise1 or noise2"),
        ({"weight_perturbation_fn": ["noise1"]}, "weight_perturbation_fn", "noise1 or noise2"),
        ({"weight_perturbation_coef": "much"}, "weight_perturbation_coef", "got 'much'"),
        ({"weight_perturbation_coef": math.inf}, "weight_perturbation_coef", "got inf"),
        ({"weight_perturbation_coef": math.nan}, "weight_perturbation_coef", "got nan"),
        ({"weight_perturbation_coef": 10**400}, "weight_perturbation_coef", "got 1000"),
        ({"weight_perturbation": 1}, "weight_perturbation", "is no switch"),
        ({"wait_perturbation": True}, "wait_perturbation", "is no key"),
    ],
)
def test_a_wrong_entry_of_the_dictionary_is_named(change: dict, field: str, says: str) -> None:
    configs = {key: value for key, value in (FULL | change).items() if value is not ...}
    with pytest.raises(ProtocolError) as caught:
        perturb_from_disturbance(configs)
    assert (caught.value.code, caught.value.field) == ("bad-parameter", f"disturbance_configs.{field}")
    assert says in caught.value.message
    check_message(caught.value.to_message())


def test_what_is_no_dictionary_is_refused() -> None:
    with pytest.raises(ProtocolError, match="must be a dictionary, got 'all'"):
        perturb_from_disturbance("all")  # type: ignore[arg-type]
