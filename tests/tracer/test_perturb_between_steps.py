"""Which passes of a traced training a perturbation touches."""

import torch

ARM = {"flags": {}, "perturb": {"sites": {"system": {"kind": {"name": "noise1"}}}, "steps": 2}}


def test_a_pass_between_steps_is_left_as_it_is_and_the_last_step_is_the_one_that_was_said(
    gpt, ids, traced
) -> None:
    tracer = traced(gpt, allow=["perturb"])
    plain = gpt(ids)
    first = tracer.configure(ARM)
    changed = []
    for _ in range(first + 2):
        with tracer.step():
            changed.append(not torch.equal(gpt(ids), plain))
        assert torch.equal(gpt(ids), plain)
    assert changed == [step in (first, first + 1) for step in range(1, first + 3)]
    assert tracer.status()["perturbed_steps"] == 2
    assert "perturb" not in tracer.config


def test_what_a_step_does_not_reach_is_named(gpt, ids, traced) -> None:
    tracer = traced(gpt, allow=["perturb"])
    tracer.configure(ARM)
    with tracer.step():
        gpt.blocks[0](torch.randn(1, 8, 16))
    (said,) = [text for text in tracer.status()["warnings"] if "did not reach" in text]
    assert "blocks.1" in said
    assert "blocks.0" not in said
