"""Models that peft has wrapped, and those that it has merged."""

import pytest

from tests.adapters.model_zoo import MODELS, tiny_model
from tests.adapters.traced_and_hooked import check


@pytest.mark.slow
# What peft wraps is single modules: a Conv1D, a projection of several parts, one whose sum another module adds, and experts that it leaves alone.
@pytest.mark.parametrize(
    ("name", "attention"),
    [
        *((name, "eager") for name in ("gpt2", "bloom", "falcon, groups", "phi-3", "llama", "opt")),
        *((name, "eager") for name in ("mixtral", "gpt-oss", "deepseek v3", "llama 4")),
        ("llama", "sdpa"),
    ],
)
def test_what_peft_wraps_is_found_and_traced_with_what_it_adds(name: str, attention: str) -> None:
    # Here, because tests that need it not would wait for it too.
    import peft

    model = tiny_model(name, attention)
    wrapped = peft.get_peft_model(
        model,
        peft.LoraConfig(target_modules="all-linear", exclude_modules=["router"], init_lora_weights=False),
    )
    check(MODELS[name][2], wrapped.train(), model, attention, 2)
    merged = wrapped.merge_and_unload()
    check(MODELS[name][2], merged.eval(), merged, attention, 1)
