"""Traced values of many models of Hugging Face against plain hooks, in every way in which they are trained."""

import logging

import pytest

from tests.adapters.model_zoo import MODELS, WAYS, tiny_model
from tests.adapters.traced_and_hooked import check


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_traced_is_what_plain_hooks_see(name: str) -> None:
    model = tiny_model(name, "eager").eval()
    check(name, model, model, "eager", 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attention"), WAYS)
def test_it_is_the_same_over_micro_batches_and_with_checkpointing(name: str, attention: str) -> None:
    model = tiny_model(name, attention).train()
    check(name, model, model, attention, 2, gradients=True)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    check(name, model, model, attention, 2)
