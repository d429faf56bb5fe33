"""The logit lens against the model's own modules, and against its own logits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from writers import Plain, byte_level, demo, writer

import megalens
from megalens.adapters import find_adapter
from megalens.demo.model import ByteTokenizer
from megalens.instruments.generation import GenerationError, LanguageModel
from megalens.instruments.generation.decoding import Decoding, GenerationPass
from megalens.instruments.generation.hidden import HiddenStates
from megalens.instruments.generation.language_model import Sampler, evaluating
from megalens.instruments.generation.lens import LensReader, Readout
from megalens.instruments.generation.of_model import as_language_model
from megalens.instruments.generation.token_rows import LocatedPass, PassCoordinates
from megalens.protocol.arrow_columns import arrow_batch
from megalens.protocol.streams import stream_schema
from megalens.tracer import Place

PROMPTS = [[5, 9, 3, 7, 11], [8, 2]]
TOKENS = 4
ENDS = {
    "GPT2": ("transformer.ln_f", "lm_head"),
    "Llama": ("model.norm", "lm_head"),
    "demo": ("norm", "head"),
    "plain": ("inner.norm", "inner.head"),
}


class Seen:
    """A text that is written while the lens looks: rows by sequence, position and layer, and what the model gave by sequence and position."""

    def __init__(self, model: LanguageModel, prompts=PROMPTS, tokens: int = TOKENS, count: int = 3) -> None:
        points = find_adapter(model.module).points(model.module)
        self.rows: dict[tuple[int, int, int], dict] = {}
        self.states: dict[tuple[int, int], Tensor] = {}
        self.logits: dict[tuple[int, int], Tensor] = {}
        self.texts = [list(prompt) for prompt in prompts]
        windows = [None]
        with HiddenStates(points) as hidden, evaluating(model.module):
            reader = LensReader(Readout(model.module, points), hidden, 7, model.texts, prompts, count)
            decoding = Decoding(
                model,
                prompts,
                Sampler(1.0, 0, 1.0, 0),
                tokens,
                before=lambda reading: windows.append(reading.window),
            )
            for step, done in enumerate(decoding, 1):
                self._keep(done, torch.stack([hidden.of(layer, windows[-1]) for layer in hidden.layers]))
                place = PassCoordinates(step, 0)
                for columns in reader.rows([LocatedPass(done, place, place)], [reader.states(windows[-1])]):
                    for row in arrow_batch(columns, stream_schema("lens")).to_pylist():
                        key = (row["sequence"], row["position"], row["layer"])
                        assert key not in self.rows
                        assert (row["generation"], row["step"]) == (7, step)
                        self.rows[key] = row

    def _keep(self, done: GenerationPass, states: Tensor) -> None:
        for row, pad in enumerate(done.pads.tolist()):
            for place in range(done.ids.shape[1]):
                if (position := done.offset + place - pad) >= 0:
                    self.states[row, position] = states[:, row, place].clone()
                    self.logits[row, position] = done.logits[row, place]
            if done.tokens is not None and done.wrote[row]:
                self.texts[row].append(int(done.tokens[row]))


@pytest.mark.parametrize("name", ENDS)
def test_each_layer_is_read_through_the_models_own_norm_and_output_layer(name: str) -> None:
    model = writer(name)
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    seen = Seen(model)
    norm, head = (model.module.get_submodule(path) for path in ENDS[name])
    # Padding is no position, and the last token was never read.
    read = {(row, at) for row, text in enumerate(seen.texts) for at in range(len(text) - 1)}
    assert set(seen.rows) == {(*place, layer) for place in read for layer in (0, 1)}
    for (sequence, position, layer), row in seen.rows.items():
        with torch.no_grad():
            scores = head(norm(seen.states[sequence, position][layer])).double()
        chances = scores.softmax(-1)
        best = chances.topk(3)
        token = seen.texts[sequence][position + 1]
        assert row["ids"] == best.indices.tolist()
        np.testing.assert_allclose(row["probabilities"], best.values, rtol=1e-4, atol=1e-6)
        assert row["texts"] == [model.texts.piece(each) for each in row["ids"]]
        assert row["token"] == token
        assert row["token_rank"] == int((chances > chances[token]).sum())
        assert row["token_probability"] == pytest.approx(float(chances[token]), rel=1e-4, abs=1e-7)
        assert row["entropy"] == pytest.approx(float(-(chances * chances.log()).nansum()), rel=1e-3, abs=1e-5)
    assert not any(each._forward_hooks for each in model.module.modules())
    assert all(torch.equal(value, before[key]) for key, value in model.module.state_dict().items())


@pytest.mark.parametrize("name", ENDS)
def test_of_the_last_layer_the_candidates_are_those_of_the_models_own_logits(name: str) -> None:
    seen = Seen(writer(name), count=5)
    for (sequence, position), logits in seen.logits.items():
        if (sequence, position, 1) not in seen.rows:
            continue
        row, best = seen.rows[sequence, position, 1], logits.softmax(-1).topk(5)
        assert row["ids"] == best.indices.tolist()
        np.testing.assert_allclose(row["probabilities"], best.values, rtol=1e-6)


def test_what_follows_the_last_position_is_not_known_where_nothing_is_written() -> None:
    rows = Seen(writer("demo"), tokens=0).rows
    assert {at for sequence, at, _ in rows if sequence == 0} == set(range(5))
    for (sequence, position, _), row in rows.items():
        last = position == len(PROMPTS[sequence]) - 1
        assert (row["token"] == -1) == (row["token_rank"] == -1) == np.isnan(row["token_probability"]) == last


def test_a_text_beyond_the_context_is_read_at_its_newest_position() -> None:
    model = writer("demo")
    seen = Seen(model, tokens=20)
    assert model.context == 16
    # Position 23 of the longer sequence, though the model sees 16 of them.
    assert max(position for sequence, position, _ in seen.rows if sequence == 0) == 23
    assert len(seen.rows) == 2 * (24 + 21)


def test_many_logits_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Seen(writer("GPT2")).rows
    monkeypatch.setattr("megalens.instruments.generation.lens._MOST_LOGITS", 3 * 300)
    parts = Seen(writer("GPT2")).rows
    assert list(parts) == list(whole)
    assert [row["ids"] for row in parts.values()] == [row["ids"] for row in whole.values()]


class Doubled(Plain):
    """Does more to its logits than a lens could know."""

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits."""
        return 2 * super().forward(ids)


def test_a_model_whose_logits_come_otherwise_is_said_and_not_read_wrongly() -> None:
    with pytest.raises(GenerationError, match="give other logits than its own"):
        Seen(as_language_model(Doubled(), ByteTokenizer()))


def test_what_cannot_be_read_says_why() -> None:
    model = demo()
    points = find_adapter(model).points(model)
    with pytest.raises(GenerationError, match="spread over several processes"):
        Readout(model, replace(points, place=Place(world_size=2, tp_size=2, tp_ranks=(0, 1))))
    del model.head
    with pytest.raises(GenerationError, match="The output layer of GPT was not found"):
        Readout(model, points)
    flags = {**points.flags, "HiddenStates": replace(points.flags["HiddenStates"], layers={})}
    with pytest.raises(GenerationError, match="are not all known"):
        Readout(model, replace(points, flags=flags))


@pytest.mark.parametrize(
    ("family", "option"),
    [("Cohere", {"logit_scale": 0.25}), ("Granite", {"logits_scaling": 3.0}), ("Gemma2", {"final_logit_softcapping": 2.0})],
)  # fmt: skip
def test_logits_that_a_family_scales_or_bounds_are_read_so(family: str, option: dict) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300, "pad_token_id": 0}  # fmt: skip
    config = getattr(transformers, f"{family}Config")(**sizes, **option)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    points = find_adapter(model).points(model)
    with HiddenStates(points) as hidden, torch.no_grad():
        logits = model(torch.tensor([[3, 5, 7]])).logits
        readout = Readout(model, points)
        assert not readout.differs(hidden.of(1), logits)
        assert readout.differs(hidden.of(0), logits)


def test_a_layer_that_is_not_called_has_no_hidden_states() -> None:
    model = nn.Sequential(demo())
    with (
        HiddenStates(find_adapter(model[0]).points(model[0])) as hidden,
        pytest.raises(LookupError, match="layer 1"),
    ):
        hidden.of(1)


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_folder")
class TestInALab:
    def test_a_generation_has_the_lens_of_every_position_that_was_read(self) -> None:
        with megalens.serve(writer("GPT2").module, byte_level(), linger=0.2) as lab:
            written = lab.generate(["The cat sat", "on"], 5, samples=2, lens=4, seed=1)
            table, tokens = written.lens(), written.tokens()
            for sequence in range(4):
                ids = tokens[tokens["sequence"] == sequence]["id"].tolist()
                rows = table[table["sequence"] == sequence]
                assert sorted(zip(rows["position"], rows["layer"], strict=True)) == [
                    (position, layer) for position in range(len(ids) - 1) for layer in (0, 1)
                ]
                last = rows[rows["layer"] == 1].sort_values("position")
                assert last["token"].tolist() == ids[1:]
                own = tokens[tokens["sequence"] == sequence].iloc[1:]
                # What the last layer says of a token is what the model said.
                np.testing.assert_allclose(last["token_probability"], own["probability"], rtol=1e-6)
                assert last["token_rank"].tolist() == own["rank"].tolist()
                assert {len(each) for each in last["ids"]} == {4}
            assert lab.generate("a", 2).lens().empty

    def test_the_text_goes_on_where_the_lens_cannot(self) -> None:
        with megalens.serve(Doubled(), ByteTokenizer(), linger=0.2) as lab:
            written = lab.generate("ab", 4, lens=2)
            assert written.state == "finished"
            assert len(written.tokens()) == 6
            assert "The logit lens cannot read this model" in written.message
            assert written.lens().empty

    def test_a_model_whose_output_layer_is_not_found_refuses_and_says_so_beforehand(self) -> None:
        class Headless(Plain):
            def __init__(self) -> None:
                super().__init__()
                self.inner.words = nn.ModuleList([self.inner.head])
                del self.inner.head
                self.inner.head = lambda states: self.inner.words[0](states)

        with megalens.serve(Headless(), ByteTokenizer(), linger=0.2) as lab:
            announced = {}
            lab._instrument.describe(announced)
            assert "The output layer of Headless was not found" in announced["generation"]["no_lens"]
            with pytest.raises(megalens.ProtocolError, match="was not found") as caught:
                lab.generate("ab", 4, lens=2)
            assert caught.value.field == "request.lens"
