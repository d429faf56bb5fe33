"""What the hub refuses of a patch before a producer sees it, with the field at fault."""

import pytest
from hub_process import announce

from megalens.hub.control_check import check_controls, check_patch
from megalens.protocol import ProtocolError

TILE = {"name": "Tile", "params": {"tiles": 8}}
NOISE = {
    "name": "noise1",
    "title": "Noise",
    "description": "Adds noise.",
    "schema": {
        "type": "object",
        "required": ["coefficient"],
        "properties": {"coefficient": {"type": "number", "minimum": 0}},
    },
}
SITES = [{"name": "system", "title": "Between layers", "layers": [1, 2, 3, 4], "kinds": [NOISE]}]
COEFFICIENT = "perturb.sites.system.kind.params.coefficient"


def hidden(compressor=TILE, **setting):
    return {"flags": {"HiddenStates": {"compressor": compressor, **setting}}}


def instrument(settings, name="monitor"):
    return {"instruments": {name: settings}}


def perturb(layers="3-4", kind="noise1", params=None, name="system", **more):
    kind = {"name": kind, "params": {"coefficient": 0.1} if params is None else params}
    return {"perturb": {"sites": {name: {"kind": kind, "layers": layers}}, **more}}


def check(patch):
    job, patch = announce(), {"flags": {}, **patch}
    check_patch(patch, job["flags"], job["compressors"], ["monitor"])
    check_controls(patch, ["perturb", "pause"], SITES)


@pytest.mark.parametrize(
    ("patch", "code", "field"),
    [
        ({"flags": {"Nothing": None}}, "unknown-flag", "flags.Nothing"),
        (hidden(layers="3-9"), "unknown-layer", "flags.HiddenStates.layers"),
        (hidden(layers="4-2"), "unknown-layer", "flags.HiddenStates.layers"),
        (
            {"flags": {"RawAttentionScore_mat_mul": {"compressor": TILE}}},
            "unavailable-flag",
            "flags.RawAttentionScore_mat_mul",
        ),
        (hidden({"name": "Zip"}), "unknown-compressor", "flags.HiddenStates.compressor.name"),
        (
            hidden({"name": "Tile", "params": {"tiles": 0}}),
            "bad-parameter",
            "flags.HiddenStates.compressor.params.tiles",
        ),
        (instrument({}, "nothing"), "bad-parameter", "instruments.nothing"),
        (instrument({"a": {"b": {"c": {"d": {"e": {}}}}}}), "bad-parameter", "instruments"),
        (instrument({"a": "x" * 70_000}), "bad-parameter", "instruments"),
        ({"mode": {"while_watched": True}}, "refused", "mode.while_watched"),
        (perturb(name="weight"), "bad-parameter", "perturb.sites.weight"),
        (perturb(layers="4-9"), "unknown-layer", "perturb.sites.system.layers"),
        (perturb(kind="noise9"), "bad-parameter", "perturb.sites.system.kind.name"),
        (perturb(params={}), "bad-parameter", COEFFICIENT),
        (perturb(params={"coefficient": -1}), "bad-parameter", COEFFICIENT),
        (perturb(until=7), "bad-parameter", "perturb.until"),
    ],
)
def test_what_is_wrong_with_a_patch_is_named(patch, code, field):
    with pytest.raises(ProtocolError) as caught:
        check(patch)
    assert (caught.value.code, caught.value.field) == (code, field)


def test_what_a_job_has_and_allows_passes():
    for patch in (hidden(layers="1-4"), instrument({"muted": []}), perturb(), {"mode": {"steps": 3}}):
        check(patch)
