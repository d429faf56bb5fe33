"""The demo's text."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest

from megalens.demo import ByteTokenizer, load_corpus


def test_the_corpus_is_english_split_by_document() -> None:
    corpus = load_corpus(200_000)
    assert 195_000 < len(corpus.train) + len(corpus.held_out) <= 201_000
    assert 0.05 < len(corpus.held_out) / len(corpus.train) < 0.1
    assert corpus.train.count(b" the ") > 1000


@pytest.mark.slow
def test_no_paragraph_of_the_held_out_text_was_trained_on() -> None:
    corpus = load_corpus(400_000)
    trained = {
        paragraph.split() and b" ".join(paragraph.split()) for paragraph in corpus.train.split(b"\n\n")
    }
    held_out = [b" ".join(paragraph.split()) for paragraph in corpus.held_out.split(b"\n\n")]
    assert len(held_out) > 50
    assert not trained.intersection(held_out)


@pytest.mark.slow
def test_two_interpreters_collect_the_same_bytes_and_import_none_of_the_modules_that_they_are_of() -> None:
    code = (
        "import hashlib, json, sys; from megalens.demo.train import load_corpus; before = set(sys.modules); "
        "c = load_corpus(150_000); digest = hashlib.sha256(c.train + b'|' + c.held_out).hexdigest(); "
        "print(json.dumps([digest, sorted(set(sys.modules) - before)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    digest, imported = json.loads(done.stdout)
    corpus = load_corpus(150_000)
    assert digest == hashlib.sha256(corpus.train + b"|" + corpus.held_out).hexdigest()
    harmless = ("pydoc_data", "_sysconfigdata", "encodings")
    assert [name for name in imported if not name.startswith(harmless)] == []


def test_too_little_text_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr("megalens.demo.train._topics", lambda: [])
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(ValueError, match=r"Expected at least 64 KiB of English.*Use a Python"):
        # Past what other tests had read.
        load_corpus(10_000_000)


def test_the_tokenizer_gives_back_what_it_was_given() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode("naïve ✓")) == "naïve ✓"
    assert tokenizer.decode(tokenizer.tensor("abc")[0]) == "abc"
    assert tokenizer.decode([0xC3]) == "\ufffd"
