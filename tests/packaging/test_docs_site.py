"""The documentation site holds what it shall: ``make docs`` itself fails where a link leads to nothing or a page is in no list."""

import re
import sys
from pathlib import Path

import megalens

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "site"))

import contract  # noqa: E402


def test_the_reference_names_everything_that_import_megalens_offers():
    page = (DOCS / "reference" / "api.md").read_text("utf-8")
    named = set(re.findall(r"^\.\. auto\w+:: megalens\.(\w+)$", page, re.M))
    assert named - {"slices"} == {*megalens.__all__} - {"__version__"}


def test_the_gallery_has_every_picture():
    page = (DOCS / "gallery.md").read_text("utf-8")
    assert set(re.findall(r"\(pictures/([\w-]+\.png)\)", page)) == {
        path.name for path in (DOCS / "pictures").iterdir()
    }


def test_streams_and_messages_are_told_from_the_files_that_the_code_reads():
    told = "\n".join(contract.streams())
    assert "## alarms\n" in told
    assert "| `micro_batch` | `int32` | Forward pass within the step, counted from 0. |" in told
    of_messages = "\n".join(contract.messages("messages.schema.json"))
    assert '| `type` | `"generating"` | required |' in of_messages
    assert "| `generation` | `integer, 1 to 9007199254740991` | required |" in of_messages


def test_a_word_that_ends_in_an_underscore_is_no_link_in_a_docstring():
    lines = ["kept as pass_ is, ``pass_`` and kept_…", "a_b stays, :func:`run_` too"]
    contract.plain_words(None, "", "", None, None, lines)
    assert lines == ["kept as pass\\_ is, ``pass_`` and kept\\_…", "a_b stays, :func:`run_` too"]
