"""Run folders as somebody who means harm would leave them: JSON with one value exchanged, and names that are no names."""

from __future__ import annotations

import copy
import json
import os
import random
import socket
from contextlib import contextmanager

# JSON text by what is wrong with it; each stands where a value of run.json was.
ODD_VALUES = {
    "nan": "NaN",
    "infinity": "-Infinity",
    "overflow": "1e999",
    "digits": "1" * 400,
    "many digits": "9" * 5000,
    "beyond 64 bits": str(1 << 64),
    "negative": "-1",
    "half a pair": '"\\ud800"',
    "zero byte": '"a\\u0000b"',
    "long text": '"' + "x" * 300_000 + '"',
    "nested": "[" * 500 + "]" * 500,
    "nested too deeply": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "twice": '{"id": "a", "id": "b"}',
    "null": "null",
    "true": "true",
    "text": '"no number"',
    "list": "[]",
    "object": "{}",
    "pairs": "[[9, 3]]",
    "huge pairs": f"[[0, {10**30}]]",
    "half pairs": "[[1], [2, 3, 4], 5]",
    "many": "[" + ",".join(["[1, 2]"] * 5000) + "]",
}

ODD_NAMES = (
    b"a\nb",
    b"\xff\xfe",
    b"\x1b[31mred",
    b"..x",
    b" ",
    b"con\x00trol".replace(b"\0", b"\x01"),
    "ß\u202e".encode(),
)


def places(tree, path=()):
    """Yield the path of every value in a JSON tree, the tree itself left out."""
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*path, key)
        if isinstance(child, (dict, list)):
            yield from places(child, (*path, key))


def with_text(header, path, text):
    """Return the JSON text of a header in which ``text`` stands for the value at a path."""
    tree = copy.deepcopy(header)
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = "@@here@@"
    return json.dumps(tree).replace('"@@here@@"', text)


def mutated_header(header, number):
    """Return the text of ``run.json`` with one to three values exchanged, left out or torn."""
    chance = random.Random(number)
    tree, texts = copy.deepcopy(header), []
    for _ in range(chance.choice((1, 1, 2, 3))):
        path = chance.choice(list(places(tree)))
        node = tree
        for key in path[:-1]:
            node = node[key]
        if chance.random() < 0.1:
            del node[path[-1]]
        else:
            texts.append(chance.choice(list(ODD_VALUES.values())))
            node[path[-1]] = f"@@{len(texts) - 1}@@"
    text = json.dumps(tree)
    for at, odd in enumerate(texts):
        text = text.replace(f'"@@{at}@@"', odd)
    if chance.random() < 0.1:
        cut = chance.randrange(len(text))
        text = (
            text[:cut] + chance.choice(("", "\x00", "\ufeff", "}", "\\u")) + text[cut + chance.randrange(3) :]
        )
    return text


def odd_paths(folder):
    """Make, below a folder, entries that are no run folders though they look like some."""
    for at, name in enumerate(ODD_NAMES):
        place = os.path.join(os.fsencode(folder), name)
        os.mkdir(place)
        with open(os.path.join(place, b"run.json"), "w") as file:
            file.write(json.dumps({"format": at % 3}))
    for kind in ("pipe", "folder", "link", "socket", "device"):
        place = folder / f"odd-{kind}"
        place.mkdir()
        run = place / "run.json"
        if kind == "pipe":
            os.mkfifo(run)
        elif kind == "folder":
            run.mkdir()
        elif kind == "link":
            run.symlink_to("/etc/passwd")
        elif kind == "device":
            run.symlink_to("/dev/zero")
        else:
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(os.path.relpath(run))


@contextmanager
def nobody():
    """Be somebody who may not read everything, which root may."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
