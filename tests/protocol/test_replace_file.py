"""A file that is replaced holds what it held, or all of what it shall hold."""

import os

import pytest

from megalens.protocol import replace_file


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "run.json"
    replace_file(path, b"first", mode=0o600)
    held = path.open("rb")
    replace_file(path, b"second", sync=True)
    assert (held.read(), path.read_bytes(), os.listdir(tmp_path)) == (b"first", b"second", ["run.json"])
    held.close()


@pytest.mark.parametrize("failing", ["replace", "fsync"])
def test_what_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch, failing):
    path = tmp_path / "run.json"
    replace_file(path, b"first")

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fails)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"second", sync=True)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"first", ["run.json"])
