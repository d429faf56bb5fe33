"""Ids of new runs, which are folder names and parts of addresses."""

import re

import pytest

from megalens.hub.options import new_run_id


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-demo", "gpt-demo-"),
        ("my run/of ../today", "my-run-of-..-today-"),
        ("résumé", "r-sum-"),
        ("训练", ""),
        ("run", ""),
        ("", ""),
        ("--x--", "x-"),
        ("a" * 200, "a" * 40 + "-"),
    ],
)
def test_an_id_has_what_any_file_system_takes_of_the_name(name, words):
    made = new_run_id(name)
    assert re.fullmatch(r"\d{8}-\d{6}-" + re.escape(words) + r"[0-9a-f]{8}", made)
    # As protocol/messages.schema.json has it.
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", made)
    assert new_run_id(name) != made
