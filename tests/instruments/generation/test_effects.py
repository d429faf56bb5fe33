"""What a perturbation changed, against the model's own forward passes and the definitions in numpy."""

import math

import numpy as np
import pytest
import torch
from perturbing import snapshot
from torch import Tensor, nn
from writers import byte_level, demo, hugging_face, writer

import megalens
from megalens.adapters import find_adapter
from megalens.instruments.generation.effects import (
    Effect,
    EffectReader,
    effect_columns,
    first_difference,
    kl_divergence,
)
from megalens.instruments.generation.job import PassClock, generation_perturb, perturbed
from megalens.instruments.generation.language_model import evaluating
from megalens.protocol.arrow_columns import arrow_batch
from megalens.protocol.streams import stream_schema

TEXTS = [[5, 9, 3, 7, 11, 2, 4], [8, 2, 6]]
STEERED = {
    "sites": {
        "calculation": {
            "kind": {"name": "add_vector", "params": {"vectors": "v.safetensors", "coefficient": 60.0}},
            "layers": "1",
        }
    }
}
VECTOR = np.random.default_rng(0).normal(size=32).astype(np.float32)
NOISE = {"sites": {"system": {"kind": {"name": "noise1", "params": {"coefficient": 0.5}}}}}


def points_of(model: nn.Module):
    return find_adapter(model).points(model)


@pytest.fixture
def effects_of(tmp_path):
    """Returns, of each setting, the effects on each sequence."""
    megalens.save_direction(tmp_path / "v.safetensors", VECTOR)

    def read(name: str, *settings: dict, texts=TEXTS) -> list[list[Effect]]:
        model = writer(name)
        points = points_of(model.module)
        found: list[list[Effect]] = [[] for _ in settings]

        def armed(number: int):
            return perturbed(points, generation_perturb(settings[number], points, [tmp_path]), pytest.fail)

        with evaluating(model.module):
            reader = EffectReader(model, points, texts)
            for number, first, effects in reader.compare(len(settings), armed):
                assert first == len(found[number])
                found[number] += effects
        return found

    return read


def by_hand(model: nn.Module, text: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Logits and each layer's hidden states of one text that is not padded."""
    states: list[Tensor] = []
    layers = [found[0].module for _, found in sorted(points_of(model).flags["HiddenStates"].layers.items())]
    handles = [
        layer.register_forward_hook(lambda m, a, y: states.append((y[0] if isinstance(y, tuple) else y)[0]))
        for layer in layers
    ]
    with torch.no_grad():
        output = model(torch.tensor([text]))
    for handle in handles:
        handle.remove()
    return getattr(output, "logits", output)[0], states


@pytest.mark.parametrize("name", ["GPT2", "Llama", "demo", "plain"])
def test_effects_are_those_of_the_definitions_whatever_the_padding(effects_of, name: str) -> None:
    ((first, second),) = effects_of(name, STEERED)
    model = writer(name).module.eval()
    points = points_of(model)
    for effect, text in ((first, TEXTS[0]), (second, TEXTS[1])):
        logits, states = by_hand(model, text)
        # The same vector in every position, added without the perturbation.
        (mlp,) = points.sites["calculation"].layers[1]
        step = torch.from_numpy(60 * VECTOR / np.linalg.norm(VECTOR))
        handle = mlp.register_forward_hook(lambda m, a, y, step=step: y + step)
        noisy, moved = by_hand(model, text)
        handle.remove()
        p, q = (each.double().softmax(-1).numpy() for each in (logits, noisy))
        np.testing.assert_allclose(effect.kl, (p * np.log(p / q)).sum(-1), rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(effect.changed, p.argmax(-1) != q.argmax(-1))
        assert effect.changed.any()
        expected = [
            np.linalg.norm((b - a).numpy(), axis=-1) / np.linalg.norm(a.numpy(), axis=-1)
            for a, b in zip(states, moved, strict=True)
        ]
        np.testing.assert_allclose(effect.distance, expected, rtol=1e-3, atol=1e-6)
        # What comes before the perturbed layer is as it was.
        assert not effect.distance[0].any()


@pytest.mark.parametrize("name", ["GPT2", "demo"])
def test_what_changes_nothing_has_no_effect_and_the_same_seed_has_the_same(effects_of, name: str) -> None:
    nothing = {"sites": {"system": {"kind": {"name": "noise1", "params": {"coefficient": 0}}}}}
    other = {**NOISE, "seed": 5}
    none, one, same, another = effects_of(name, nothing, NOISE, NOISE, other)
    for effect in none:
        assert not effect.kl.any()
        assert not effect.changed.any()
        assert not effect.distance.any()
    for first, second, third in zip(one, same, another, strict=True):
        assert np.array_equal(first.kl, second.kl)
        assert np.array_equal(first.distance, second.distance)
        assert not np.array_equal(first.kl, third.kl)
        assert (first.kl > 0).all()


def test_many_sequences_are_read_in_groups(effects_of, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [TEXTS[0]] * 3
    (whole,) = effects_of("demo", STEERED, texts=texts)
    # Two sequences of seven tokens and 256 logits.
    monkeypatch.setattr("megalens.instruments.generation.effects._MOST_VALUES", 2 * 7 * 256)
    monkeypatch.setattr("megalens.instruments.generation.effects._MOST_AT_ONCE", 3 * 256)
    first, second = effects_of("demo", STEERED, NOISE, texts=texts)
    assert len(first) == len(second) == 3
    for a, b in zip(whole, first, strict=True):
        np.testing.assert_allclose(b.kl, a.kl, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(b.distance, a.distance, rtol=1e-5, atol=1e-9)


def test_tokens_that_are_impossible_and_logits_that_are_no_numbers() -> None:
    clean = torch.tensor([[0.0, -math.inf, 0.0]], dtype=torch.float64)
    assert float(kl_divergence(clean, clean)) == 0
    assert float(kl_divergence(clean, torch.tensor([[0.0, 5.0, 0.0]], dtype=torch.float64))) > 1
    assert math.isinf(kl_divergence(clean, torch.tensor([[0.0, 0.0, -math.inf]], dtype=torch.float64)))
    assert math.isnan(kl_divergence(clean, torch.tensor([[math.nan, 0.0, 0.0]], dtype=torch.float64)))


@pytest.mark.parametrize(
    ("clean", "other", "at"),
    [
        ([1, 2, 3], [1, 2, 3], -1),
        ([1, 2, 3], [1, 5, 3], 1),
        ([1, 2, 3], [1, 2], 2),
        ([1], [1, 2], 1),
        ([], [], -1),
    ],
)
def test_the_first_difference_of_two_texts(clean, other, at: int) -> None:
    assert first_difference(clean, other) == at


def test_rows_fit_their_stream_and_say_nothing_where_nothing_is_known() -> None:
    effect = Effect(np.array([0.5, 1.5]), np.array([True, False]), np.array([[0.1, 0.3], [0.2, 0.6]]))
    columns = effect_columns(
        [effect], [0, 3], first=4, divergence=[7], positions=True,
        generation=2, control=1, point=-1, setting="", value=math.nan, step=9,
    )  # fmt: skip
    rows = arrow_batch(columns, stream_schema("effects")).to_pylist()
    by = {(row["position"], row["layer"]): row for row in rows}
    assert len(rows) == len(by) == 9
    assert {(row["sequence"], row["generation"], row["control"], row["step"]) for row in rows} == {
        (4, 2, 1, 9)
    }
    assert (by[0, -1]["kl"], by[0, -1]["changed"], by[1, 3]["distance"]) == (0.5, 1, 0.6)
    assert math.isnan(by[0, -1]["distance"])
    assert math.isnan(by[0, 0]["kl"])
    whole = by[-1, -1]
    assert (whole["kl"], whole["changed"], whole["divergence"]) == (1, 0.5, 7)
    assert by[-1, 0]["distance"] == pytest.approx(0.2)
    assert [row["divergence"] for key, row in by.items() if key != (-1, -1)] == [-1] * 8
    few = effect_columns([effect], [0, 3], first=0, divergence=[7], positions=False, step=9)
    assert few["position"].tolist() == [-1] * 3


def test_the_perturbation_counts_its_own_passes() -> None:
    clock = PassClock()
    clock.count()
    assert (clock.step, clock.phase, clock.micro_batch) == (0, "generate", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_folder")
def test_a_lab_says_what_a_perturbation_changed_and_leaves_the_model_as_it_was() -> None:
    model = hugging_face("GPT2").eval()
    ids = torch.tensor([[4, 8, 15, 16, 23]])
    with torch.no_grad():
        before, clean = snapshot(model), model(ids).logits
    with megalens.serve(model, byte_level(), flags=["HiddenStates"], linger=0.2) as lab:
        written, again = (
            lab.generate(["The cat sat", "on"], 6, perturb=megalens.Noise1(0.5), seed=3) for _ in range(2)
        )
        table = written.effects()
        for number in (0, 1):
            own, control = (each.tokens(number)["id"].tolist() for each in (written, written.control))
            rows = table[table["sequence"] == number]
            # Every position at which the clean text was read, of the logits and of two layers; then all of them together.
            assert len(rows) == 3 * (len(control) - 1) + 3
            whole = rows[(rows["position"] == -1) & (rows["layer"] == -1)].iloc[0]
            assert whole["divergence"] == first_difference(control, own) >= 0
            each = rows[(rows["position"] >= 0) & (rows["layer"] == -1)]
            assert whole["kl"] == pytest.approx(each["kl"].mean())
            assert whole["changed"] == pytest.approx(each["changed"].mean())
            # The same request draws the same, whatever was written in between.
            assert again.tokens(number)["id"].tolist() == own
        assert set(table["control"]) == {written.control.number}
        assert again.effects()["kl"].dropna().tolist() == table["kl"].dropna().tolist()
        # What was computed beside is no step of the run, and is not traced.
        rows = lab.run.tensors("HiddenStates", phase="generate").to_pylist()
        assert {row["step"] for row in rows} == set(range(1, 4 * 6 + 1))
    with torch.no_grad():
        assert snapshot(model) == before
        assert torch.equal(model(ids).logits, clean)


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_folder")
def test_effects_of_a_text_beyond_the_context_are_of_what_is_read_at_once() -> None:
    with megalens.serve(demo(), linger=0.2) as lab:
        written = lab.generate("The cat", 20, perturb=megalens.Offset(3.0))
        assert sorted(set(written.effects()["position"])) == [-1, *range(16)]
        assert "Effects are of the first 16 positions" in written.message
