"""What a foreign hub sends: messages of the four dialects, and how they come out at our hub, in the recording and on the terminal."""

import asyncio
import json
import unicodedata
from random import Random
from typing import Any

from megalens.hub.dialects.dialect import DIALECTS, DialectError, Translation
from megalens.hub.dialects.translator import Translator
from megalens.protocol import FrameChecker, decode_frame, decode_message, encode_frame, encode_message
from tests.fuzz.mutate import json_text, mutated_tree
from tests.fuzz.surface import Surface

_WORDS = (
    "type",
    "update_type",
    "layer_id",
    "args",
    "result",
    "sampled",
    "num_layers",
    "prompts",
    "text",
    "message",
)


class _Host:
    """Takes what a translation says to our hub, and checks it as the hub does."""

    def __init__(self) -> None:
        self._checker = FrameChecker()
        self.rows = 0

    async def say(self, message: Any) -> None:
        decode_message(encode_message(message).encode("utf-8"))

    async def send(self, stream: str, table: Any, step: int) -> None:
        data = encode_frame(stream, table, step=step, seq=1)
        body = self._checker.check(decode_frame(data), data)
        for row in body.table().to_pylist():
            if stream == "tensors":
                size = 1
                for each in row["shape"]:
                    size *= each
                assert size == len(row["values"])
                assert row["labels"] == [] or len(row["labels"]) == size
        self.rows += table.num_rows


def _update(number: int, layer: int, args: list[int], count: int) -> dict[str, Any]:
    values = [0.5 * at for at in range(count)]
    return {"type": "update", "update_type": number, "layer_id": layer, "args": args, "result": values}


def _token(text: str) -> dict[str, Any]:
    return {"id": 7, "token": text, "logit": 1.5, "probability": 0.25}


def _seeds() -> list[Any]:
    start = {"type": "start", "micro_batch_size": 1, "seq_length": 2, "num_layers": 2}
    training = [
        start,
        *(_update(kind, layer, [2], 2 * (96 if kind == 1 else 64)) for layer in (1, 2) for kind in (1, 4, 5)),
    ]
    tokens = {"update_type": 8, "type": "update", "layer_id": 0, "args": [2, 1, 2], "result": [5, 6, 0, 1]}
    traced = [start, tokens, *(_update(kind, layer, [1, 2, 3], 6) for layer in (1, 2) for kind in (1, 4, 5))]
    result = {"type": "update", "update_type": 6, "result": [_token(" a")] * 4, "sampled": [_token("b")]}
    generated = [
        {"type": "start", "num_layers": 2, "prompts": [_token("Hi"), _token("!")]},
        *training[1:4],
        _update(2, 1, [2, 2, 2], 8),
        result,
        {"type": "finish", "text": ["Hi!b"]},
    ]
    talk = [{"type": "pong"}, {"type": "error", "message": "no"}, {"type": "finish-update"}, "Value Error!"]
    return [
        *(["T1", [*training, *training[1:], *talk[:3]]], ["T2", training * 2]),
        *(["3606", [*traced, *traced[1:]]], ["inference", generated], ["inference", talk]),
    ]


def _mutate(chance: Random, seed: Any) -> Any:
    dialect, messages = seed
    # Mostly one message of several is wrong, and what is right goes on after it.
    texts = []
    for message in messages if chance.random() < 0.8 else chance.sample(messages, len(messages)):
        if isinstance(message, str):
            texts.append(message)
            continue
        wrong = chance.random() < 0.3
        texts.append(
            json_text(chance, mutated_tree(chance, message, _WORDS)) if wrong else json.dumps(message)
        )
    if chance.random() < 0.05:
        texts.insert(chance.randrange(len(texts)), chance.randbytes(9))
    return {"dialect": dialect, "messages": texts, "end": [chance.randrange(5000), "bye\x1b[2J"]}


def _run(given: Any) -> None:
    translator = Translator(
        Translation("ws://127.0.0.1:1", DIALECTS[given["dialect"]], prompts=("Hi!",), tokens=1)
    )
    asyncio.run(_translate(translator, given))


async def _translate(translator: Translator, given: Any) -> None:
    host = _Host()
    translator._host = host
    await translator._announce()
    generation = translator._peer.generation if translator._peer is not None else None
    if generation is not None:
        generation.ask()
    try:
        for data in given["messages"]:
            await translator._take(data)
            _no_controls(translator.line())
    except DialectError as error:
        _no_controls(error.message)
    translator._end_generation("cancelled")
    await translator._flush()
    await translator._send_status()
    await translator._leave_note()
    for said in (*translator.sentences(), *translator.text):
        _no_controls(said)
    assert host.rows >= translator.sent_rows


def _no_controls(text: str) -> None:
    wrong = [each for each in text if unicodedata.category(each) in ("Cc", "Cs") and each not in "\n\t"]
    assert not wrong, f"a terminal would obey {wrong!r}"
    text.encode("utf-8")


SURFACE = Surface(_seeds, _mutate, _run, (DialectError,))
