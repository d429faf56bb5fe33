"""A sample of transformers' own list of architectures; ``python -m tests.corpus.families`` tries all of
them.
"""

import logging

import pytest

from tests.corpus.families import try_family
from tests.corpus.family_models import architectures
from tests.corpus.verdict import BAD

# Of those that write text each layout is in test_model_matrix.py; here is one of them beside an encoder, a pair, and one that sees.
SAMPLE = ["deepseek_v3", "bert", "bart", "vit"]
KNOWN = {model_type: (kind, model_type, name) for kind, model_type, name in architectures()}


@pytest.fixture(autouse=True)
def _quiet(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "rt"))
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", SAMPLE)
def test_no_value_is_other_than_what_is_seen_inside_of_the_attention(model_type: str) -> None:
    family = try_family(*KNOWN[model_type])
    said = [f"{kind}: {flag}: {text}" for (flag, kind), text in family.verdict.sentences.items()]
    assert ([each for each in said if each.startswith(BAD)], family.failed) == ([], None)
