"""Patches of the settings, as a viewer sends them: through the hub's checks and the tracer's."""

from random import Random
from typing import Any

from megalens.hub.control_check import check_controls, check_patch
from megalens.protocol import ProtocolError, compressor_from_setting, decode_message, encode_message
from megalens.protocol.contract import contract_json
from tests.fuzz.mutate import instance, json_text, mutated_tree, schema_words
from tests.fuzz.surface import Surface
from tests.fuzz.surfaces.messages import message_seeds

_SCHEMA = contract_json("messages.schema.json")
_WORDS = [*schema_words(_SCHEMA), "Tile", "Projection", "tiles", "reduction", "vectors", "MLP1_mat_mul"]
_HELLO: dict[str, Any] = next(
    seed for seed in message_seeds() if seed and seed["type"] == "hello" and seed["flags"]
)
_FLAG = next(flag["name"] for flag in _HELLO["flags"] if flag["layers"])
_COMPRESSORS = (
    *(
        {"name": "Tile", "params": {"tiles": 8, "reduction": "mean"}},
        {"name": "NoOp"},
        {"name": "Empty", "params": {}},
    ),
    {"name": "Projection", "params": {"vectors": "v.npy"}},
)


def _mutate(chance: Random, seed: Any) -> str:
    patch = seed["patch"] if seed else instance(chance, _SCHEMA["$defs"]["ConfigPatch"], _SCHEMA["$defs"])
    if seed is None:
        compressor = chance.choice(_COMPRESSORS)
        patch["flags"] = {_FLAG: {"samples": 1, "every": 2, "layers": "1-2", "compressor": compressor}}
        patch.pop("perturb", None)
    if chance.random() < 0.8:
        patch = mutated_tree(chance, patch, _WORDS)
    return json_text(chance, {"type": "configure", "id": "a", "patch": patch})


def _run(text: str) -> None:
    try:
        message = decode_message(text, ("configure",))
        patch = message["patch"]
        check_patch(patch, _HELLO["flags"], _HELLO["compressors"])
        check_controls(patch, ["perturb", "pause", "watched"], _HELLO.get("sites", []))
        for name, setting in patch["flags"].items():
            if setting is not None:
                str(compressor_from_setting(setting["compressor"], f"flags.{name}"))
    except ProtocolError as error:
        encode_message(error.to_message()).encode("utf-8")
        raise


SURFACE = Surface(
    lambda: [None, *(seed for seed in message_seeds() if seed and seed["type"] == "configure")],
    _mutate,
    _run,
    (ProtocolError,),
)
