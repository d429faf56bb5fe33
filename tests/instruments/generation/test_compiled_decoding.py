"""A model that writes text by compiled forward passes, beside plain hooks on the same model uncompiled."""

import copy

import pytest
import torch
from torch import Tensor
from transformers import StaticCache
from writers import demo, hugging_face

import megalens
from megalens import NoOp
from megalens.demo.model import GPT, ByteTokenizer, GPTConfig
from megalens.instruments.generation.hidden import HiddenStates
from megalens.runs import open_run
from megalens.tracer.graph_probes import GraphProbes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PROMPT = torch.tensor([[5, 9, 3, 7], [8, 2, 4, 6]])
TOKENS = 5


@pytest.fixture(autouse=True)
def _afresh():
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()


def written(model, decode, around) -> list[Tensor]:
    """Write a text greedily: the prompt in one pass, each token in one compiled pass that reads the keys and values before it."""
    cache = StaticCache(config=model.config, max_cache_len=16)
    ids, texts, at = PROMPT, [], 0
    with torch.no_grad():
        for step in range(TOKENS):
            places = torch.arange(at, at + ids.shape[1])
            at += ids.shape[1]
            with around():
                call = decode if step else model
                logits = call(
                    input_ids=ids, past_key_values=cache, position_ids=places[None], cache_position=places
                ).logits
            ids = logits[:, -1:].argmax(-1)
            texts.append(ids)
    return texts


def test_each_token_of_a_compiled_decode_step_is_traced(tmp_path, runtime_folder) -> None:
    model = hugging_face("Llama").eval()
    plain = copy.deepcopy(model)
    seen: list[tuple[int, Tensor]] = []
    for layer, block in enumerate(plain.model.layers):
        block.register_forward_hook(
            lambda module, given, output, layer=layer: seen.append((layer, output.detach().clone()))
        )
    expected = written(plain, plain, torch.no_grad)
    flags = {"HiddenStates": NoOp(), "MLP2_mat_mul": NoOp()}
    tracer = megalens.trace(
        model, flags=flags, samples="all", phase="generate", compiled=True, record=tmp_path, linger=0.1
    )
    decode = torch.compile(model, fullgraph=True, backend="aot_eager")
    texts = written(model, decode, tracer.step)
    times = tracer.status()["compiled"]
    tracer.close()
    assert [each.tolist() for each in texts] == [each.tolist() for each in expected]
    # The code of the first token is that of all.
    assert times == {"times": 1, "again": 0}
    run = open_run(tracer.folder)
    rows = run.tensors("HiddenStates").to_pandas().sort_values(["step", "layer"])
    assert list(rows["phase"].unique()) == ["generate"]
    assert len(rows) == len(seen) == 2 * TOKENS
    for row, (layer, state) in zip(rows.itertuples(), seen, strict=True):
        assert row.layer == layer
        torch.testing.assert_close(torch.tensor(row.values), state.flatten())
    assert len(run.tensors("MLP2_mat_mul").to_pandas()) == 2 * TOKENS


def test_hidden_states_of_a_compiled_pass_are_kept_after_the_next_one() -> None:
    from megalens.adapters import find_adapter

    model = demo().eval()
    plain = copy.deepcopy(model)
    seen: list[Tensor] = []
    for block in plain.blocks:
        block.register_forward_hook(lambda module, given, output: seen.append(output.detach().clone()))
    points = find_adapter(model).points(model)
    probes = GraphProbes(points, print)
    run = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad(), HiddenStates(points) as hidden:
        for ids in (PROMPT, PROMPT.flip(0)):
            plain(ids)
            run(ids)
            states = [hidden.of(layer) for layer in hidden.layers]
            torch.testing.assert_close(states, seen[-len(states) :])
            run(ids.flip(1))
            torch.testing.assert_close(states, seen[-len(states) :])
    probes.close()


def test_a_compiled_model_in_training_writes_between_two_steps(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "rt"))
    torch.manual_seed(5)
    model = GPT(GPTConfig(layers=1, hidden=32, heads=2, sequence=48))
    plain = copy.deepcopy(model).eval()
    model.compile(backend="aot_eager", dynamic=True)
    flags, phases = {"HiddenStates": NoOp()}, ["train", "generate"]
    options = {"samples": "all", "tokenizer": ByteTokenizer(), "linger": 0.2, "allow": ["generate"]}
    ids = torch.randint(256, (2, 24))
    with (
        megalens.trace(model, flags=flags, phases=phases, **options) as tracer,
        megalens.connect(tracer.run_id) as run,
    ):
        assert tracer.connected(30)
        waiting = run.generate("A list", 6, temperature=0, lens=3, wait=False)
        for _ in range(2):
            with tracer.step():
                model.loss(ids).backward()
        written = waiting.wait(60)
        tokens = written.tokens()
        lens = written.lens()
        tensors = run.tensors("HiddenStates", phase="generate").to_pandas()
    wanted = plain.generate(ByteTokenizer().tensor("A list"), 6, temperature=1e-6)
    assert tokens["id"].tolist() == wanted[0].tolist()
    assert sorted(lens["layer"].unique()) == [0]
    seen: list[Tensor] = []
    plain.blocks[0].register_forward_hook(lambda module, given, output: seen.append(output.detach()))
    plain(wanted[:, :-1])
    rows = tensors[tensors["layer"] == 0].sort_values("micro_batch")
    states = torch.cat([torch.tensor(row.values).reshape(-1, 32) for row in rows.itertuples()])
    torch.testing.assert_close(states, seen[0][0], rtol=1e-3, atol=1e-5)
