"""What a terminal would obey is never printed as it is."""

import json
import sys
import unicodedata

import pytest

from megalens.__main__ import main
from megalens.protocol import shown_text


@pytest.mark.slow
def test_every_character_that_is_shown_stays_and_no_other():
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    kept = {letter for letter, shown in zip(every, shown_text(every), strict=True) if letter == shown}
    assert {"\n", "\t", "a", "é", "日", "𝒳", "\u200d"} <= kept
    obeyed = {letter for letter in kept if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")}
    assert obeyed == {"\n", "\t"}
    turning = {
        letter
        for letter in kept
        if unicodedata.bidirectional(letter)
        in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    }
    assert not turning


@pytest.mark.parametrize("arguments", [["replay", "no-such\x1b]0;pwned\x07\u202e-folder"]])
def test_a_command_shows_the_names_of_others_without_their_control_characters(arguments, capsys):
    assert main(arguments) != 0
    said = capsys.readouterr()
    assert "no-such\ufffd]0;pwned\ufffd\ufffd-folder" in said.err
    assert not set(said.out + said.err) & {"\x1b", "\x07", "\u202e"}


def test_a_hubs_name_is_listed_without_its_control_characters(monkeypatch, capsys):
    from megalens.cli import hub as cli

    class Hub:
        id, name, pid, address, started, record = "r1", "a\x1b[2Jb\x9b", 1, "ws://127.0.0.1:1", 0.0, None
        via = node = None

    monkeypatch.setattr(cli, "found_hubs", lambda: ([Hub], []))
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.startswith("a\ufffd[2Jb\ufffd  r1")
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == Hub.name
