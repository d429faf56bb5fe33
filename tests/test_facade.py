"""Everything that the package promises at its top can be reached from a bare import."""

import subprocess
import sys
from pathlib import Path

import pytest

import megalens

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", megalens.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(megalens, name) is not None


@pytest.mark.slow
def test_the_hugging_face_callback_is_reached_from_a_bare_import() -> None:
    code = "import megalens; print(megalens.adapters.MegalensCallback.__name__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "MegalensCallback"


def test_importing_what_trains_searches_for_no_garbage_of_torch_and_does_so_again_afterwards() -> None:
    code = (
        "import torch, gc, megalens; seen = [];"
        "gc.callbacks.append(lambda phase, told: seen.append(told['generation']));"
        "megalens.trace; print(len(seen), gc.isenabled()); gc.disable(); megalens.monitor; print(gc.isenabled())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.split() == ["0", "True", "False"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tarce'"):
        megalens.tarce  # noqa: B018
