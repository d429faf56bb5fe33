"""A generation on MegatronApp's inference hub becomes a run of ours."""

import asyncio
import json
import math

import pytest
from peers import Peer, say, t1_layer, update, values
from translation import plan, translate

from megalens.hub.dialects.dialect import DIALECTS, DialectError, Translation
from megalens.hub.dialects.translator import Translator

CANDIDATES = 20
NEEDED = {
    1: {"QKV_mat_mul"},
    2: {"RawAttentionScore_mat_mul"},
    4: {"MLP1_mat_mul"},
    5: {"MLP2_mat_mul"},
    7: {"MLP2_mat_mul", "MLP2_Plot"},
}


def tokens(seed, count):
    return [
        {"id": 100 * seed + n, "token": f"Ġ{seed}.{n}", "logit": -float(n), "probability": 1 / (n + 2)}
        for n in range(count)
    ]


def generation(prompts, passes=3, layers=2, prompt_length=4):
    batch = len(prompts)
    flat = [{"id": 7 * b + s, "token": f"t{b}{s}"} for b in range(batch) for s in range(prompt_length)]
    yield {"type": "start", "prompts": flat, "num_layers": layers}
    for n in range(passes):
        length = prompt_length if n == 0 else 1
        for layer in range(1, layers + 1):
            yield from t1_layer(n, layer, batch=batch, positions=length, qkv=96, mlp=64)
            keys = prompt_length + n
            yield update(2, layer, [2, length, keys], values((n, layer, 2), batch, 2, length, keys))
        yield {
            "type": "update",
            "update_type": 6,
            "result": [t for b in range(batch) for t in tokens(10 * n + b, CANDIDATES)],
            "sampled": [tokens(10 * n + b, 2)[1] for b in range(batch)],
        }
    for layer in range(1, layers + 1):
        yield update(
            7,
            layer,
            [batch, prompt_length + passes - 1],
            values(("pca", layer), batch, prompt_length + passes - 1, 2),
        )
    yield {"type": "finish", "text": [f"{prompt} and so on" for prompt in prompts], "segments": []}


def generate(tmp_path, script, dialect="inference", **changes):
    async def run():
        async with Peer(script) as peer:
            chosen = {"config": None, "prompts": ("To be", "Or not"), "tokens": 3, **changes}
            outcome = await translate(tmp_path, plan(peer, dialect, **chosen))
            outcome.peer = peer
            return outcome

    return asyncio.run(run())


async def answer(peer, socket, message):
    if message["type"] == "ping":
        await say(socket, {"type": "pong"})
    elif message["type"] == "generate":
        on = {name for name, value in message["visualization_flags"].items() if value == "True"}
        for each in generation(message["prompts"]):
            # The candidates come always, the projection only where MLP2 is on too.
            needed = NEEDED.get(each.get("update_type"), set())
            if needed <= on:
                await say(socket, each)
    else:
        await socket.send("Value Error!")


@pytest.mark.parametrize("named", [True, False])
def test_a_generation_is_recorded_with_its_candidates(tmp_path, named):
    out = generate(tmp_path, answer, dialect="inference" if named else None)
    assert out.error is None
    assert out.run.header["origin"]["name"] == "inference"
    assert out.translator.text == ["To be and so on", "Or not and so on"]
    assert {row["phase"] for row in out.rows()} == {"generate"}
    # The first pass is the prompt, each later one a position.
    assert [(r["step"], r["shape"]) for r in out.rows("MLP1_mat_mul") if r["layer"] == 0] == [
        (1, [2, 4, 64]),
        (2, [2, 1, 64]),
        (3, [2, 1, 64]),
    ]
    assert [r["shape"] for r in out.rows("RawAttentionScore_mat_mul") if r["layer"] == 1] == [
        [2, 2, 4, 4],
        [2, 2, 1, 5],
        [2, 2, 1, 6],
    ]
    prompt = out.rows("InputTokens")[0]
    assert (prompt["step"], prompt["shape"], prompt["labels"][:5]) == (
        1,
        [2, 4],
        ["t00", "t01", "t02", "t03", "t10"],
    )
    assert out.said == []
    request = out.peer.of("generate")[0]
    assert (request["prompts"], request["tokens_to_generate"]) == (["To be", "Or not"], 3)
    assert request["visualization_flags"]["RawAttentionScore_mat_mul"] == "True"
    assert request["visualization_flags"]["MLP2_Plot"] == "False"


@pytest.mark.parametrize("flags", [None, ["MLP1_mat_mul"], []])
def test_prompts_and_candidates_become_tokens(tmp_path, flags):
    """With tensors, with some, and with none of them: a pass is told by its candidates."""
    config = None if flags is None else no_op()
    for flag in flags or ():
        tile = {"name": "Tile", "params": {"tiles": 64}}
        config["flags"][flag] = {"samples": None, "compressor": tile}
    out = generate(tmp_path, answer, config=config)
    rows = out.run.read("tokens").to_pylist()
    second = [row for row in rows if row["sequence"] == 1]
    assert [(row["kind"], row["position"], row["text"]) for row in second] == [
        *(("prompt", at, f"t1{at}") for at in range(4)),
        *(("generated", 4 + n, f" {10 * n + 1}.1") for n in range(3)),
    ]
    places = [(row["step"], row["tensor_step"], row["tensor_pass"], row["tensor_offset"]) for row in second]
    assert places == [
        *((1, 1, 0, at) for at in range(4)),
        (1, 2, 0, 0),
        (2, 3, 0, 0),
        # Nobody read the last one.
        (3, -1, -1, -1),
    ]
    prompt, token = second[0], second[5]
    assert (prompt["rank"], prompt["candidate_ids"]) == (-1, [])
    assert math.isnan(prompt["probability"])
    # Decoded from the bytes for which the characters of the vocabulary stand.
    assert (token["id"], token["piece"], token["text"], token["rank"]) == (1101, "Ġ11.1", " 11.1", 1)
    assert (token["logit"], token["probability"]) == pytest.approx((-1, 1 / 3))
    assert token["candidate_ids"] == [1100 + n for n in range(CANDIDATES)]
    assert token["candidate_texts"][:2] == ["Ġ11.0", "Ġ11.1"]
    assert token["candidate_probabilities"][:2] == pytest.approx([1 / 2, 1 / 3])
    # The peer does not tell them.
    assert token["candidate_sampled"] == []
    assert math.isnan(token["entropy"])
    assert math.isnan(token["sampled_probability"])


def states(out):
    return out.run.read("generations").to_pylist()


def test_a_generation_says_how_it_stands(tmp_path):
    out = generate(tmp_path, answer)
    rows = states(out)
    assert [row["state"] for row in rows] == ["queued", "running", "finished"]
    assert json.loads(rows[0]["request"])["prompts"] == ["To be", "Or not"]
    assert "without a seed" in rows[1]["message"]
    last = rows[2]
    assert (last["sequences"], last["padded"], last["first_step"], last["last_step"], last["tokens"]) == (
        2,
        4,
        1,
        3,
        6,
    )


def test_what_is_left_of_a_longer_prompt_is_told_from_what_was_generated(tmp_path):
    pieces = {0: ["To", " be", " or"], 1: ["Or", " not", " to", " be", "!"]}

    async def script(peer, socket, message):
        def token(text):
            return {"id": 5, "token": text, "logit": 0.5, "probability": 0.5}

        flat = [token(text) for each in pieces.values() for text in each[:2]]
        await say(socket, {"type": "start", "prompts": flat, "num_layers": 1})
        for n in (2, 3, 4):
            taken = [token(pieces[0][2] if n == 2 else " x"), token(pieces[1][n])]
            await say(socket, {"type": "update", "update_type": 6, "result": taken, "sampled": taken})
        await say(socket, {"type": "finish", "text": ["", ""]})

    out = generate(tmp_path, script, config=no_op(), prompts=("To be", "Or not to be"), tokens=1)
    kinds = [(row["kind"], row["text"]) for row in out.run.read("tokens").to_pylist() if row["sequence"] == 1]
    assert kinds == [*(("prompt", text) for text in pieces[1][:4]), ("generated", "!")]


def test_a_projection_that_was_asked_for_belongs_to_the_last_pass(tmp_path):
    config = {"flags": {"MLP2_Plot": {"samples": None, "compressor": {"name": "NoOp"}}}}
    out = generate(tmp_path, answer, config=config)
    assert [(r["step"], r["layer"], r["shape"]) for r in out.rows("MLP2_Plot")] == [
        (3, 0, [2, 6, 2]),
        (3, 1, [2, 6, 2]),
    ]


def no_op(*flags):
    return {"flags": {flag: {"samples": None, "compressor": {"name": "NoOp"}} for flag in flags}}


def test_passes_are_told_without_asking_for_the_candidates(tmp_path):
    """They end a pass, so they are asked for always and shown when wanted."""
    out = generate(tmp_path, answer, config=no_op("RawAttentionScore_mat_mul"))
    assert [row["step"] for row in out.rows() if row["layer"] == 0] == [1, 2, 3]
    assert {row["flag"] for row in out.rows()} == {"RawAttentionScore_mat_mul"}
    # Nor is it said of them that nobody asked.
    assert out.said == []
    assert out.audit("drop") == []


@pytest.mark.parametrize("others", [{}, {"MLP1_mat_mul": 8}])
def test_a_projection_is_sent_with_what_it_needs(tmp_path, others):
    """The hub sends none unless MLP2 is on, which shares its compressor with MLP1."""
    config = no_op("MLP2_Plot")
    for flag, tiles in others.items():
        config["flags"][flag] = {"samples": None, "compressor": {"name": "Tile", "params": {"tiles": tiles}}}
    out = generate(tmp_path, answer, config=config)
    assert [row["layer"] for row in out.rows("MLP2_Plot")] == [0, 1]
    assert "MLP2_mat_mul" not in {row["flag"] for row in out.rows()}
    request = out.peer.of("generate")[0]
    assert request["visualization_flags"]["MLP2_mat_mul"] == "True"
    assert request["compressor_config"]["MLP"]["pixels"] == others.get("MLP1_mat_mul", 64)


@pytest.mark.parametrize("missing", [2, 7])
def test_a_flag_that_never_came_is_named_at_the_end(tmp_path, missing):
    async def withhold(peer, socket, message):
        for each in generation(message["prompts"]):
            if each.get("update_type") != missing:
                await say(socket, each)

    flags = {2: "RawAttentionScore_mat_mul", 7: "MLP2_Plot"}
    out = generate(tmp_path, withhold, config=no_op(*flags.values()))
    said = f"Asked for, but nothing of it came: {flags[missing]}."
    assert said in out.said
    assert said in out.audit("drop")[0]["warnings"]


@pytest.mark.parametrize("code", [None, 1011])
def test_what_the_hub_refuses_is_said(tmp_path, code):
    async def refuse(peer, socket, message):
        if code is None:
            await socket.send("temperature must be a positive number less than or equal to 100.0")
        else:
            await socket.close(code, "error in fragmented message")

    out = generate(tmp_path, refuse)
    assert isinstance(out.error, DialectError)
    assert out.error.code == "refused"
    assert ("temperature must be" if code is None else "error in fragmented message") in str(out.error)
    assert out.audit("end") == [{"reason": str(out.error)}]
    assert [(row["state"], row["message"]) for row in states(out)][1:] == [("failed", str(out.error))]
    assert out.run.closed


def test_an_inference_hub_needs_a_prompt():
    with pytest.raises(DialectError, match="--prompt"):
        Translator(Translation("ws://127.0.0.1:1", DIALECTS["inference"]))
