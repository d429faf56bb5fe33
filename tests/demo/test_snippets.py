"""How the Python of README and docs is found; ``scripts/check-wheel.sh`` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.snippets.__main__ import main, pages, snippets_of


def test_every_snippet_of_readme_and_docs_says_how_it_is_run() -> None:
    found = [each for page in pages() for each in snippets_of(page)]
    text = "".join(page.read_text(encoding="utf-8") for page in pages())
    assert len(found) == text.count("```python\n") > 30
    # A pipeline and a split need a process for each stage; their examples are run by tests of their own.
    left = {each.place.split(":")[0] for each in found if each.how.startswith("not run")}
    assert left == {
        "kubernetes.md",
        "pipeline.md",
        "python.md",
        "security.md",
        "split.md",
        "ssh.md",
        "statistics.md",
    }


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("", "page.md:1: expected a comment before it with one of training, .*, got 'nothing'"),
        ("<!-- snippet: notebok, live -->\n", "got 'notebok, live'"),
        ("<!-- snippet: not run -->\n", "or 'not run, WHY', got 'not run'"),
        ("<!-- snippet: continues -->\n", "no training snippet before it"),
    ],
)
def test_a_snippet_that_does_not_say_it_is_refused(comment: str, message: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{comment}```python\nx = 1\n```\n")
    with pytest.raises(ValueError, match=message):
        snippets_of(page)


@pytest.mark.slow
def test_a_snippet_that_fails_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- snippet: training -->\n```python\nmodel.no_such_thing()\n```\n")
    assert main([str(page)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("page.md:2: ")
    assert "no attribute 'no_such_thing'" in said
    assert said.endswith("1 snippets, 1 failed\n")
