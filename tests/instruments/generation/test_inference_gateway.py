"""Our lab, served to clients that speak MegatronApp's dialect of inference: its front end's messages, answered as it expects."""

import asyncio
import json
import math
from contextlib import asynccontextmanager, contextmanager

import numpy as np
import pyarrow as pa
import pytest
import torch
from translation import WAIT, plan, translate
from viewer import watch
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from writers import loud

import megalens
from megalens.adapters import find_adapter
from megalens.demo.model import GPT, GPTConfig
from megalens.hub.dialects.client_generate import _CANDIDATES, WrittenPasses
from megalens.hub.dialects.generation_writer import plane
from megalens.hub.dialects.inference_gateway import InferenceGateway
from megalens.hub.discovery import find_hub
from megalens.instruments.generation import as_language_model
from tests.adapters.model_zoo import tiny_model

pytestmark = pytest.mark.slow
LAYERS, HEADS, HIDDEN = 2, 2, 32
ALL = (
    "QKV_mat_mul",
    "RawAttentionScore_mat_mul",
    "ContextLayer_mat_mul",
    "MLP1_mat_mul",
    "MLP2_mat_mul",
    "MLP2_Plot",
    "Result",
)
PROMPTS = ["To be", "Or not to be"]
PADDING = {"id": -1, "token": ""}


def small():
    torch.manual_seed(0)
    return loud(GPT(GPTConfig(layers=LAYERS, hidden=HIDDEN, heads=HEADS, sequence=64)), 4)


@contextmanager
def serving(model, folder, tokenizer=None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGALENS_RUNTIME_DIR", str(folder))
        lab = megalens.serve(model, tokenizer, name="lab", linger=0.1)
        lab.tracer.connected(timeout=WAIT)
        entry = find_hub(lab.tracer.run_id)
    try:
        yield lab, entry
    finally:
        lab.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with serving(small(), tmp_path_factory.mktemp("rt")) as (lab, entry):
        lab.entry = entry
        yield lab


@asynccontextmanager
async def served(entry, **options):
    gateway = InferenceGateway(entry, 0, **options)
    ready = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(gateway.run(ready.set_result))
    done, _ = await asyncio.wait([ready, task], timeout=WAIT, return_when=asyncio.FIRST_COMPLETED)
    if task in done:
        task.result()
    try:
        yield f"ws://127.0.0.1:{ready.result()}"
    finally:
        task.cancel()
        await asyncio.wait([task])


def client(address, **options):
    return connect(address, max_size=None, ping_interval=None, **options)


def request(flags=(), **changes):
    """What the front end sends: every flag as text, and both compressors."""
    return json.dumps(
        {
            "type": "generate",
            "prompts": PROMPTS,
            "tokens_to_generate": 3,
            "visualization_flags": {name: str(name in flags) for name in ALL},
            "disturbance_configs": {},
            "compressor_config": {
                "QKV": {"pixels": 96, "method": "data.mean(dim=-1)"},
                "MLP": {"pixels": 8, "method": "data.mean(dim=-1)"},
            },
            **changes,
        }
    )


async def read(socket, kind):
    """Return the next message of a type, and those before it."""
    before = []
    while True:
        message = json.loads(await asyncio.wait_for(socket.recv(), WAIT))
        if message["type"] == kind:
            return message, before
        before.append(message)


async def generated(socket, *flags, **changes):
    """Ask, and return everything up to ``finish``."""
    await socket.send(request(flags, **changes))
    last, before = await read(socket, "finish")
    return [*before, last]


def ask(lab, *flags, **changes):
    async def run():
        async with served(lab.entry) as address, client(address) as socket:
            return await generated(socket, *flags, **changes)

    return asyncio.run(run())


def updates(messages, number, layer=None):
    return [
        message
        for message in messages
        if message.get("update_type") == number and layer in (None, message.get("layer_id"))
    ]


def tokens_of(messages):
    """The ids of each text, and how many of them are padding or prompt."""
    flat = [token["id"] for token in messages[0]["prompts"]]
    length = len(flat) // len(PROMPTS)
    texts = [flat[at : at + length] for at in range(0, len(flat), length)]
    for update in updates(messages, 6):
        for text, token in zip(texts, update["sampled"], strict=True):
            text.append(token["id"])
    return texts, length


def test_a_generation_is_told_pass_by_pass_in_the_order_of_the_dialect(lab):
    messages = ask(lab, *ALL)
    start, *between, finish = messages
    # Padded to the longest, so that prompt b has its token t at b * S + t.
    assert start["num_layers"] == LAYERS
    assert [token["token"] for token in start["prompts"]] == [*[""] * 7, *PROMPTS[0], *PROMPTS[1]]
    assert start["prompts"][0] == PADDING
    order = [(each["update_type"], each.get("layer_id")) for each in between]
    one_pass = [(number, layer) for layer in (1, 2) for number in (1, 2, 4, 5)] + [(6, None)]
    assert order == [*one_pass * 3, (7, 1), (7, 2)]
    assert [each["args"] for each in updates(between, 4, 1)] == [[12], [1], [1]]
    assert [len(each["result"]) for each in updates(between, 1, 1)] == [2 * 12 * 96, 2 * 96, 2 * 96]
    assert [each["args"] for each in updates(between, 2, 1)] == [[2, 12, 12], [2, 1, 13], [2, 1, 14]]
    # The last token that was drawn was never read.
    assert {tuple(each["args"]) for each in updates(between, 7)} == {(2, 14)}
    texts, _ = tokens_of(messages)
    assert finish["segments"][0][:5] == list(PROMPTS[0])
    assert len(finish["segments"][0]) == 5 + 3
    assert bytes(texts[0][7:]).decode("utf-8", "ignore").startswith(PROMPTS[0])
    assert finish["text"][0].startswith(PROMPTS[0])
    assert "logprobs" not in finish


def test_vectors_and_attention_are_those_of_the_model_where_the_client_cuts_them(lab):
    messages = ask(lab, *ALL, tokens_to_generate=4)
    texts, length = tokens_of(messages)
    model = lab.model.eval()
    for sequence, text in enumerate(texts):
        pad = text.count(-1)
        ids = torch.tensor([text[pad:-1]])
        seen = {}
        block = model.blocks[1]
        hooks = [
            module.register_forward_hook(lambda _, __, out, name=name, seen=seen: seen.setdefault(name, out))
            for name, module in (
                ("qkv", block.attention.qkv),
                ("mlp2", block.mlp.fc2),
                ("attention", block.attention.scores),
            )
        ]
        with torch.no_grad():
            model(ids)
        for hook in hooks:
            hook.remove()
        tiles = seen["mlp2"][0].unflatten(-1, (8, HIDDEN // 8)).mean(-1).numpy()
        passes = updates(messages, 5, 2)
        first = np.array(passes[0]["result"]).reshape(len(PROMPTS), length, 8)[sequence]
        assert not first[:pad].any()
        later = [np.array(each["result"]).reshape(len(PROMPTS), 1, 8)[sequence] for each in passes[1:]]
        assert np.allclose(np.concatenate([first[pad:], *later]), tiles, atol=1e-5)
        # Each third is what the client colours it as: a tile is a feature here.
        thirds = np.array(updates(messages, 1, 2)[0]["result"]).reshape(len(PROMPTS), length, 96)[sequence]
        wanted = seen["qkv"][0, : length - pad].numpy()
        assert np.allclose(thirds[pad:], wanted, atol=1e-5)
        # Rows of later passes are below those of the first, as the client puts them.
        size = length + 3
        stitched = np.zeros((HEADS, size, size))
        at = 0
        for each in updates(messages, 2, 2):
            heads, queries, keys = each["args"]
            values = np.array(each["result"]).reshape(len(PROMPTS), heads, queries, keys)[sequence]
            stitched[:, at : at + queries, :keys] = values
            at += queries
        assert np.allclose(stitched[:, pad:, pad:], seen["attention"][0].numpy(), atol=1e-5)
        assert not stitched[:, :pad].any()
        assert not stitched[:, :, :pad].any()


def test_twenty_candidates_a_prompt_are_of_the_models_own_distribution(lab):
    messages = ask(lab, temperature=0.5, top_k=5, logprobs=True)
    texts, _ = tokens_of(messages)
    finish = messages[-1]
    first = updates(messages, 6)[0]
    assert len(first["result"]) == 2 * 20
    for sequence, text in enumerate(texts):
        ids = [each for each in text if each >= 0]
        with torch.no_grad():
            chances = lab.model.eval()(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
        after_prompt = chances[len(PROMPTS[sequence]) - 1].exp()
        candidates = first["result"][20 * sequence : 20 * sequence + 20]
        assert [each["id"] for each in candidates] == after_prompt.topk(20).indices.tolist()
        assert candidates[0]["probability"] == pytest.approx(after_prompt.max().item(), abs=1e-5)
        # Only the first five could be drawn, which changes nothing about the probabilities.
        assert first["sampled"][sequence]["id"] in [each["id"] for each in candidates[:5]]
        wanted = [chances[at - 1, ids[at]].item() for at in range(1, len(ids))]
        assert finish["logprobs"][sequence] == pytest.approx(wanted, abs=1e-4)


def test_a_prompt_is_only_read_where_no_token_is_asked_for(lab):
    messages = ask(lab, "MLP1_mat_mul", tokens_to_generate=0, logprobs=True)
    assert [message.get("update_type", message["type"]) for message in messages] == ["start", 4, 4, "finish"]
    assert messages[-1]["text"] == PROMPTS
    assert [len(each) for each in messages[-1]["logprobs"]] == [4, 11]


def test_a_text_that_is_over_keeps_its_place(tmp_path):
    model = small()
    writer = as_language_model(model)
    greedy = {"prompts": ["a", "b"], "tokens_to_generate": 6, "top_k": 1}
    with serving(writer, tmp_path / "rt") as (lab, entry):
        lab.entry = entry
        before, _ = tokens_of(ask(lab, **greedy))
        stop = next(each for each in before[0][1:] if each not in before[1])
        writer._end_tokens = frozenset([stop])
        messages = ask(lab, "MLP2_mat_mul", "MLP2_Plot", **greedy)
    ended = before[0][1:].index(stop) + 1
    candidates = updates(messages, 6)
    assert len(candidates) == 6
    assert [each["sampled"][0]["id"] for each in candidates] == [
        *before[0][1 : ended + 1],
        *[-1] * (6 - ended),
    ]
    assert all(len(each["result"]) == 40 for each in candidates)
    assert [each["sampled"][1]["id"] for each in candidates] == before[1][1:]
    points = np.array(updates(messages, 7)[0]["result"], float).reshape(2, 6, 2)
    assert np.isnan(points[0, ended:]).all()
    assert np.isfinite(points[0, :ended]).all()
    assert np.isfinite(points[1]).all()


def test_points_are_standardised_vectors_on_their_principal_axes():
    random = np.random.default_rng(0)
    vectors = np.zeros((50, 4), np.float32)
    along = random.normal(size=50)
    # One feature is large and follows another, one is constant, one is noise.
    vectors[:, 0], vectors[:, 1] = 1000 * along, along
    vectors[:, 2], vectors[:, 3] = 7, random.normal(size=50)
    points = plane(vectors)
    standard = (along - along.mean()) / along.std()
    assert np.allclose(np.abs(points[:, 0]), np.abs(standard) * math.sqrt(2), atol=0.5)
    assert points[:, 0].var() >= points[:, 1].var() > 0
    assert np.allclose(points.mean(axis=0), 0, atol=1e-5)
    assert plane(vectors[:1]).tolist() == [[0, 0]]
    assert plane(vectors[:, :1])[:, 1].tolist() == [0] * 50
    vectors[3, 3] = np.nan
    assert np.isnan(plane(vectors)).all()


def test_pings_are_answered_while_it_generates(lab):
    async def run():
        async with served(lab.entry) as address, client(address) as socket:
            await socket.send(request(tokens_to_generate=40))
            await read(socket, "start")
            await socket.send('{"type": "ping"}')
            _, before = await read(socket, "pong")
            assert "finish" not in [message["type"] for message in before]
            await read(socket, "finish")

    asyncio.run(run())


def test_one_connection_generates_again_and_again(lab):
    async def run():
        async with served(lab.entry) as address, client(address) as socket:
            same = [(await generated(socket, random_seed=7))[-1]["text"] for _ in range(2)]
            other = [(await generated(socket, tokens_to_generate=8))[-1]["text"] for _ in range(2)]
            assert same[0] == same[1]
            # Without a seed every request draws anew.
            assert other[0] != other[1]
            # What is asked meanwhile waits.
            for prompt in ("a", "b", "c"):
                await socket.send(request(prompts=[prompt]))
            texts = [(await read(socket, "finish"))[0]["text"][0] for _ in range(3)]
            assert [text[0] for text in texts] == ["a", "b", "c"]

    asyncio.run(run())


def test_two_clients_at_once_are_served_one_after_another(lab):
    async def run():
        async with served(lab.entry) as address, client(address) as one, client(address) as two:
            both = await asyncio.gather(
                generated(one, "MLP1_mat_mul", prompts=["one"]),
                generated(two, "QKV_mat_mul", prompts=["two"]),
            )
            for messages, word, number in zip(both, ("one", "two"), (4, 1), strict=True):
                assert messages[-1]["text"][0].startswith(word)
                assert {each["update_type"] for each in messages[1:-1]} == {number, 6}

    asyncio.run(run())


def perturbed(function="noise1", coefficient=0.5):
    return {
        "system_perturbation": True,
        "system_perturbation_fn": function,
        "system_perturbation_coef": coefficient,
    }


class Letters:
    """A tokenizer for any vocabulary of 64 tokens."""

    vocab_size = 64

    def encode(self, text):
        return [ord(letter) % 48 + 3 for letter in text]

    def decode(self, ids):
        return "".join(chr(65 + token % 26) for token in ids)


# Where the tensors of the others are, test_model_matrix.py shows; here they differ by what is sent of them.
FAMILIES = ["gpt2", "phi-3", "falcon, one key", "deepseek v3", "glm-4-moe"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_attention_and_mlp_is_sent_in_every_pass_of_every_request(family, tmp_path):
    model = tiny_model(family, "eager").eval()
    model.generation_config.eos_token_id = None
    first = set(find_adapter(model).points(model).flags["MLP1_mat_mul"].layers)
    with serving(model, tmp_path / "rt", Letters()) as (_, entry):

        async def run():
            async with served(entry) as address, client(address) as socket:
                return [await generated(socket, *ALL, compressor_config=TILES) for _ in range(3)]

        for messages in asyncio.run(run()):
            assert [message for message in messages if message["type"] == "error"] == []
            order = [(each["update_type"], each.get("layer_id")) for each in messages[1:-1]]
            one_pass = [
                (number, layer + 1)
                for layer in range(2)
                for number in (1, 2, 4, 5)
                if number != 4 or layer in first
            ]
            assert order == [*[*one_pass, (6, None)] * 3, (7, 1), (7, 2)]
            vectors = updates(messages, 1)
            assert [len(each["result"]) for each in vectors] == [2 * 12 * 96] * 2 + [2 * 96] * 4
            # Each third holds something: queries, keys and values.
            thirds = np.array(vectors[-1]["result"]).reshape(2, 3, 32)
            assert np.abs(thirds).max(-1).all()


TILES = {
    "QKV": {"pixels": 96, "method": "data.mean(dim=-1)"},
    "MLP": {"pixels": 64, "method": "data.mean(dim=-1)"},
}


def test_a_text_that_is_said_to_run_once_more_goes_on():
    passes = WrittenPasses(1, [])

    def state(state):
        return pa.table(
            {
                "generation": [1],
                "state": [state],
                "message": [""],
                "sequences": [1],
                "padded": [1],
                "first_step": [3],
            }
        )

    def token(kind, position, step):
        lists = {name: [[]] for name in _CANDIDATES}
        values = {"generation": 1, "sequence": 0, "position": position, "kind": kind, "id": 7, "text": "a"}
        values |= {"piece": "a", "logit": 0.0, "probability": 0.5, "tensor_step": step, "tensor_pass": 0}
        return pa.table({**{name: [value] for name, value in values.items()}, **lists})

    passes.take("generations", state("running"))
    passes.take("tokens", token("prompt", 0, 3))
    passes.take("tokens", token("generated", 1, 4))
    passes.take("generations", state("running"))
    passes.take("tokens", token("generated", 2, -1))
    passes.take("generations", state("finished"))
    assert [sorted(done.tokens) for done in passes.complete()] == [[0], [0]]
    assert not passes.broken


def test_a_perturbation_is_done_to_what_it_was_asked_with(lab):
    async def run():
        greedy = {"top_k": 1, "tokens_to_generate": 8}
        async with served(lab.entry) as address, client(address) as socket:
            clean = await generated(socket, **greedy)
            noisy = await generated(socket, "MLP2_mat_mul", disturbance_configs=perturbed(), **greedy)
            again = await generated(socket, **greedy)
            assert noisy[-1]["text"] != clean[-1]["text"]
            # What is sent is of the perturbed one, all of it, and nothing is left of it afterwards.
            assert len(updates(noisy, 5)) == LAYERS * 8
            assert again[-1] == clean[-1]

    asyncio.run(run())


REFUSED = {
    "no prompts": ({"prompts": []}, "1 to 128 texts, got 0"),
    "129 prompts": ({"prompts": ["a"] * 129}, "1 to 128 texts, got 129"),
    "an empty prompt": ({"prompts": ["a", ""]}, "Prompt 1 must be"),
    "a prompt that is none": ({"prompts": [3]}, "prompts"),
    "prompts that are none": ({"prompts": None}, "prompts"),
    "no tokens": ({"tokens_to_generate": 0}, "1 or more where logprobs is false"),
    "half a token": ({"tokens_to_generate": 1.5}, "tokens_to_generate must be"),
    "tokens without end": ({"tokens_to_generate": 10**30}, "tokens"),
    "cold": ({"temperature": 0}, "temperature must be more than 0"),
    "hot": ({"temperature": 101}, "temperature must be"),
    "no number": ({"temperature": True}, "temperature must be"),
    "two ways to cut": ({"top_k": 5, "top_p": 0.5}, "cannot both be set"),
    "too many": ({"top_k": 1001}, "top_k must be"),
    "beams": ({"beam_width": 2}, "Beam search is not offered"),
    "an old word": ({"max_len": 3}, "tokens_to_generate"),
    "a word for a switch": ({"logprobs": "True"}, "logprobs must be"),
    "flags": ({"visualization_flags": ["MLP1_mat_mul"]}, "visualization_flags must be"),
    "a flag": ({"visualization_flags": {"MLP1_mat_mul": 1}}, "visualization_flags.MLP1_mat_mul"),
    "python": (
        {"compressor_config": {"MLP": {"method": "__import__('os').getpid()"}}},
        "compressor_config.MLP.method",
    ),
    "thirds": ({"compressor_config": {"QKV": {"pixels": 95}}}, "a multiple of 3"),
    "a lot": ({"compressor_config": {"MLP": {"pixels": 10**9}}}, "compressor_config.MLP.pixels"),
    "noise": ({"disturbance_configs": perturbed("noise3")}, "noise3"),
    "a coefficient": ({"disturbance_configs": perturbed(coefficient="much")}, "system_perturbation_coef"),
}


def test_what_cannot_be_is_an_error_that_the_front_end_shows_and_nothing_runs(lab):
    async def run():
        viewer = await watch(lab.entry)
        async with served(lab.entry) as address, client(address) as socket:
            for name, (changes, said) in REFUSED.items():
                await socket.send(request(**{"prompts": ["odd"], **changes}))
                error, before = await read(socket, "error")
                assert before == [], name
                assert set(error) == {"type", "message"}
                assert said in error["message"], (name, error)
            for garbage in ("{half", "[]", b"\xff\xfe", "[" * 3000, '{"type": 3}', '{"type": "run"}'):
                await socket.send(garbage)
                await read(socket, "error")
            assert (await generated(socket, prompts=["even"]))[-1]["text"][0].startswith("even")
        rows = await rows_of(
            viewer, "generations", lambda rows: any("even" in row["request"] for row in rows)
        )
        assert not any("odd" in row["request"] for row in rows)
        viewer.socket.transport.abort()

    asyncio.run(run())


async def rows_of(viewer, stream, until=lambda rows: bool(rows)):
    """The rows of a stream that a viewer was sent, once they are what is waited for."""
    async with asyncio.timeout(WAIT):
        while True:
            rows = [
                row for frame in viewer.frames if frame.stream == stream for row in frame.table().to_pylist()
            ]
            if until(rows):
                return rows
            await viewer.wait("status")


def test_who_goes_takes_what_was_asked_along(lab):
    async def run():
        viewer = await watch(lab.entry)
        async with served(lab.entry) as address:
            gone = await client(address)
            # The demo's model goes on beyond its context, so this would take long.
            await gone.send(request(tokens_to_generate=100_000))
            await read(gone, "start")
            await gone.send(request(prompts=["never"]))
            gone.transport.abort()
            async with client(address) as socket:
                assert (await generated(socket, prompts=["next"]))[-1]["text"][0].startswith("next")
            rows = await rows_of(
                viewer, "generations", lambda rows: any(row["state"] == "cancelled" for row in rows)
            )
            assert not any("never" in row["request"] for row in rows)
        viewer.socket.transport.abort()

    asyncio.run(run())


def test_as_many_prompts_as_there_may_be_are_answered(lab):
    messages = ask(lab, "MLP1_mat_mul", prompts=[chr(97 + n % 26) for n in range(128)], tokens_to_generate=1)
    assert len(messages[-1]["text"]) == 128
    assert len(updates(messages, 6)[0]["result"]) == 128 * 20


@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({"Origin": "http://localhost:5173"}, True),
        ({"Origin": "http://lab.example.org"}, False),
        ({"Origin": "https://example.org"}, False),
        ({"Origin": "null"}, False),
        ({"Host": "rebound.example.org"}, False),
    ],
)
def test_only_pages_of_this_machine_may_generate(lab, headers, taken):
    async def run():
        async with served(lab.entry) as address:
            if taken:
                async with client(address, additional_headers=headers):
                    return
            with pytest.raises(InvalidStatus) as caught:
                await client(address, additional_headers=headers)
            assert caught.value.response.status_code == 403

    asyncio.run(run())


def test_a_host_that_names_no_machine_is_refused(lab):
    async def run():
        for host in ("0.0.0.0", "::", ""):
            with pytest.raises(megalens.MegalensError, match="under which clients find this machine"):
                async with served(lab.entry, host=host):
                    pass

    asyncio.run(run())


def newest(rows):
    """The rows of the newest generation."""
    last = max((row["generation"] for row in rows), default=0)
    return [row for row in rows if row["generation"] == last]


def test_what_is_served_is_read_back_as_it_was(lab, tmp_path):
    """Our lab, served in the dialect, translated by our own client of it, recorded by another hub."""

    async def run():
        viewer = await watch(lab.entry)
        async with served(lab.entry) as address:
            out = await translate(
                tmp_path, plan(address, "inference", config=None, prompts=tuple(PROMPTS), tokens=3)
            )
        count = 5 + 12 + 2 * 3
        ours = await rows_of(viewer, "tokens", lambda rows: len(newest(rows)) == count)
        viewer.socket.transport.abort()
        return out, newest(ours)

    out, ours = asyncio.run(run())
    assert out.error is None
    assert out.said == []
    read = {(row["sequence"], row["position"]): row for row in out.run.read("tokens").to_pylist()}
    assert len(read) == len(ours)
    first = min(row["step"] for row in ours)
    for row in ours:
        back = read[row["sequence"], row["position"]]
        same = ("kind", "id", "piece", "tensor_pass", "tensor_offset")
        assert [back[name] for name in same] == [row[name] for name in same]
        assert back["step"] == row["step"] - first + 1
        if row["kind"] == "generated":
            assert back["candidate_ids"] == row["candidate_ids"]
            assert back["probability"] == pytest.approx(row["probability"])
    assert out.steps("MLP1_mat_mul", 1) == [(1, 0), (2, 0), (3, 0)]
