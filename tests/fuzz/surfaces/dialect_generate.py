"""What a client of ``megalens serve-inference`` asks for, and rows of a producer on their way to it."""

import json
from random import Random
from typing import Any

import pyarrow as pa

from megalens.hub.dialects.client_generate import WrittenPasses, read_generate
from megalens.hub.dialects.generation_writer import GenerationWriter
from megalens.hub.dialects.peer_message import BadMessage, read_message
from megalens.protocol import ProtocolError, check_message, stream_schema
from tests.fuzz.mutate import json_text, mutated_tree
from tests.fuzz.surface import Surface

_PARTS = {"QKV_mat_mul": "qkv", "RawAttentionScore_mat_mul": [""], "MLP1_mat_mul": [""], "MLP2_mat_mul": [""]}
_FLAGS = [*_PARTS, "MLP2_Plot", "Result"]
_NOISE = {"weight_perturbation": True, "weight_perturbation_fn": "noise1", "weight_perturbation_coef": 0.1}
_WORDS = (
    *("prompts", "tokens_to_generate", "temperature", "top_k", "top_p", "random_seed", "logprobs", "QKV"),
    *("MLP", "pixels", "method", "visualization_flags", "compressor_config", "disturbance_configs", "noise2"),
)
_SHAPES = ([2, 2, 2], [2, 1, 2], [2, 2, 2, 2], [2, 2, 1, 3], [0], [2, -1], [2, 2, 9], [1 << 30, 1 << 30], [])


def _request(**changes: Any) -> dict[str, Any]:
    tile = {"pixels": 6, "method": "data.mean(dim=-1)"}
    return {
        "type": "generate",
        "prompts": ["ab", "c"],
        "tokens_to_generate": 2,
        "logprobs": True,
        "visualization_flags": dict.fromkeys(_FLAGS, "True"),
        "compressor_config": {"QKV": tile, "MLP": tile},
        **changes,
    }


def _seeds() -> list[Any]:
    return [
        _request(),
        _request(disturbance_configs=_NOISE, temperature=0.5, random_seed=3),
        _request(top_k=5, stop_token=3, no_log=True),
        _request(top_p=0.5, compressor_config={}),
    ]


def _mutate(chance: Random, seed: Any) -> Any:
    wrong = chance.random() < 0.5
    text = json_text(chance, mutated_tree(chance, seed, _WORDS)) if wrong else json.dumps(seed)
    return {"request": text, "seed": chance.randrange(1 << 30)}


def _run(given: Any) -> bool:
    try:
        asked = read_generate(read_message(given["request"]))
    except BadMessage:
        return False
    message = {"type": "generate", "id": "x", "request": asked.request}
    check_message(message)
    if asked.plot is False and given["seed"] % 3:
        return True
    chance = Random(given["seed"])
    keys = [(layer, flag, part) for flag in asked.tiles for layer in (0, 1) for part in _PARTS[flag]]
    passes = WrittenPasses(1, keys)
    writer = GenerationWriter(asked, 2, {flag: [*_PARTS[flag]] for flag in asked.tiles})
    texts = []
    for stream, rows in _frames(chance, keys):
        passes.take(stream, pa.Table.from_pylist(rows, stream_schema(stream)))
        if passes.started and not texts:
            texts.append(writer.start(passes.prompts, passes.padded))
        for done in passes.complete(give_up=chance.random() < 0.3):
            texts += writer.updates(done)
    if texts:
        texts += [*writer.projection(), writer.finish()]
    for text in texts:
        assert len(text) < 1_000_000
        # What a browser reads: no bare words.
        json.loads(text.encode("utf-8"), parse_constant=_no_constants)
    return True


def _no_constants(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def _frames(chance: Random, keys: list[Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    frames = [("generations", [_plain("generations", state="running", sequences=2, padded=2, first_step=1)])]
    prompts = [(0, 0, 0), (0, 1, 1), (1, 0, 1)]
    frames.append(("tokens", [_token(chance, row, at, "prompt", 1, offset) for row, at, offset in prompts]))
    for step in (1, 2):
        frames.append(
            ("tokens", [_token(chance, row, 2 - row + step - 1, "generated", step + 1, 0) for row in (0, 1)])
        )
        rows = [_tensor(chance, key, step, 2 if step == 1 else 1) for key in keys]
        frames.append(("tensors", rows))
    frames.append(("generations", [_plain("generations", state="finished")]))
    if chance.random() < 0.3:
        chance.shuffle(frames)
    if chance.random() < 0.3:
        del frames[chance.randrange(len(frames))]
    return frames


def _token(chance: Random, sequence: int, position: int, kind: str, step: int, offset: int) -> dict[str, Any]:
    odd = chance.random() < 0.1
    count = chance.choice((0, 3, 25)) if kind == "generated" else 0
    values = [chance.choice((0.5, float("nan"), float("-inf"), 0.0)) for _ in range(count)]
    return _plain(
        "tokens",
        sequence=chance.choice((-1, 2, sequence)) if odd else sequence,
        position=chance.choice((-1, 9, position)) if odd else position,
        kind=kind,
        tensor_step=chance.choice((-1, step)) if odd else step,
        tensor_offset=offset,
        probability=chance.choice((0.5, 0.0, float("nan"))),
        piece="\u2028</script>",
        candidate_ids=[*range(count)],
        candidate_texts=["a"] * count,
        candidate_logits=values,
        candidate_probabilities=values,
    )


def _tensor(chance: Random, key: Any, step: int, positions: int) -> dict[str, Any]:
    layer, flag, part = key
    shape = [2, 2, positions, step + 1] if flag.startswith("Raw") else [2, positions, 2]
    if chance.random() < 0.1:
        shape = chance.choice(_SHAPES)
    size = 1
    for each in shape:
        size *= each
    values = [chance.choice((0.5, float("nan"), float("inf"), 1e30))] * (size if 0 <= size < 1000 else 3)
    phase = "train" if chance.random() < 0.05 else "generate"
    return _plain(
        "tensors",
        **{"step": step, "layer": layer, "flag": flag, "part": part, "shape": shape, "values": values},
        **{"phase": phase, "pass": "forward"},
    )


def _plain(stream: str, **values: Any) -> dict[str, Any]:
    """A row with something in every column."""
    row: dict[str, Any] = {}
    for field in stream_schema(stream):
        kind = field.type
        row[field.name] = [] if pa.types.is_list(kind) else "" if pa.types.is_string(kind) else 0
    return {**row, "step": 1, "generation": 1, **values} if "generation" in row else {**row, **values}


SURFACE = Surface(_seeds, _mutate, _run, (ProtocolError,))
