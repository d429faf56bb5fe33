"""A seeded mutator over the golden files: the same 100,000 cases on every machine."""

import copy
import json
import random
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "protocol" / "fixtures"
EDGES = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
VALUES = (
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    2**70,
    "",
    "x",
    "1-4,7",
    "\x00",
    "\ud800",
    "x" * 70000,
    [],
    {},
    [[]],
    {"": {}},
)


def golden_frames():
    return [path.read_bytes() for path in sorted((FIXTURES / "frames").glob("*.frame"))]


def golden_messages():
    return [path.read_text(encoding="utf-8") for path in sorted((FIXTURES / "messages").glob("*.json"))]


def mutated_frame(seeds, number):
    """Return one golden frame with a few bytes changed, moved, cut or added; the length in its header mostly fits."""
    chance = random.Random(number)
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5, 9))):
        size = len(data)
        if size < 66:
            break
        at = chance.randrange(64, size) if chance.random() < 0.85 else chance.randrange(size)
        width = chance.choice((1, 2, 4, 8))
        aligned = at - at % width
        kind = chance.randrange(7)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind in (1, 2):
            value = chance.choice(EDGES) if chance.random() < 0.7 else chance.getrandbits(64)
            data[aligned : aligned + width] = (value % 256**width).to_bytes(width, "little")[: size - aligned]
        elif kind == 3:
            value = int.from_bytes(data[aligned : aligned + width], "little") + chance.choice((-8, -1, 1, 8))
            data[aligned : aligned + width] = (value % 256**width).to_bytes(width, "little")[: size - aligned]
        elif kind == 4:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 5:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        else:
            start = chance.randrange(64, size)
            data[at : at + 32] = data[start : start + chance.randrange(1, 64)]
    if chance.random() < 0.8:
        data[36:40] = max(len(data) - 64, 0).to_bytes(4, "little")
    return bytes(data)


def mutated_message(seeds, number):
    """Return the text of one golden message with its characters or its tree changed."""
    chance = random.Random(number)
    text = chance.choice(seeds)
    if chance.random() < 0.4:
        return _mutated_text(chance, text)
    tree = json.loads(text)
    for _ in range(chance.choice((1, 1, 2, 4))):
        _mutate_tree(chance, tree)
    return json.dumps(tree)


def _mutated_text(chance, text):
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(text))
        piece = chance.choice(
            ("", "{", "]", '"', "NaN", "-Infinity", "1e999", "\\ud800", "0" * 50, "[" * 2000, "\x00")
        )
        text = text[:at] + piece + text[at + chance.randrange(0, 4) :]
    return text


def _mutate_tree(chance, tree):
    places = []

    def collect(node):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(child, (dict, list)):
                collect(child)

    collect(tree)
    if not places:
        return
    node, key = chance.choice(places)
    kind = chance.randrange(4)
    if kind == 0:
        del node[key]
    elif kind == 1:
        node[key] = copy.deepcopy(chance.choice(VALUES))
    elif kind == 2 and isinstance(node, dict):
        node[chance.choice(("x", "type", "id", "flags", "since"))] = copy.deepcopy(chance.choice(VALUES))
    else:
        other, at = chance.choice(places)
        # Through text, so that the tree never holds itself.
        node[key] = json.loads(json.dumps(other[at])) if _has(other, at) else None


def _has(node, key):
    return key in node if isinstance(node, dict) else key < len(node)
