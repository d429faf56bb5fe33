"""Hubs that misbehave: none ends a recording with a traceback, loses a whole step that came right, or is obeyed by a terminal."""

import asyncio
import json
import unicodedata

import pytest
from peers import Peer, input_tokens, say, start, t1_pass, tracer_layer
from test_inference_hub import generation
from translation import plan, small, translate

from megalens.hub.dialects.dialect import DialectError

HUGE = 10**400
EVIL = "\x1b]0;x\x07\x1b[2J\r\x9b1m\u202e"


def odd(**changes):
    """A good update, but for something."""
    good = {"type": "update", "update_type": 4, "layer_id": 1, "args": [4], "result": [0.5] * 16}
    return json.dumps({name: value for name, value in {**good, **changes}.items() if value != "left out"})


MESSAGES = {
    "binary": b"\x00\xff",
    "binary that is JSON": b'{"type": "pong"}',
    "nothing": "",
    "half an object": '{"type": "upd',
    "null": "null",
    "a number": "17",
    "a list": "[1, 2]",
    "deep": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "no type": "{}",
    "a type that is a number": '{"type": 5}',
    "a type that is half a character": '{"type": "\\ud800"}',
    "a type of control characters": json.dumps({"type": EVIL}),
    "a type of a megabyte": json.dumps({"type": "x" * 1_000_000}),
    "a key that is half a character": '{"type": "pong", "\\udc00": 1}',
    "plain text": f"CUDA error: {EVIL}",
    "plain text of a megabyte": "out of memory " * 70_000,
    "an error": json.dumps({"type": "error", "message": EVIL}),
    "an error that is no text": json.dumps({"type": "error", "message": {"a": [EVIL]}}),
    "an error without a message": '{"type": "error"}',
    "a finish": json.dumps({"type": "finish", "text": 5}),
    "a start without layers": '{"type": "start"}',
    **{
        f"a start of {number} layers": json.dumps({"type": "start", "num_layers": number})
        for number in (0, -1, HUGE, 2.0, True, "2", None)
    },
    "a start of fewer layers": json.dumps(start(layers=1)),
    "a start with an odd batch": json.dumps({**start(), "micro_batch_size": "two"}),
    "a start with a huge batch": json.dumps({**start(), "micro_batch_size": True}),
    "70 sizes": odd(args=[1] * 70, result=[1.0]),
    "sizes of zero": odd(args=[0], result=[]),
    "a size of zero and others": odd(args=[0, 2**31, 2**31, 2**31], result=[]),
    "a size below zero": odd(args=[-4]),
    "sizes below zero": odd(args=[-4, -4, 1]),
    "a huge size": odd(args=[HUGE]),
    "no sizes": odd(args=[]),
    **{
        f"sizes that are {json.dumps(args)}": odd(args=args)
        for args in (None, 4, "4", ["4"], [4.0], [True], [[4]], {"0": 4})
    },
    "no args": odd(args="left out"),
    "too few values": odd(result=[0.5] * 15),
    "too many values": odd(result=[0.5] * 17),
    "no values": odd(result=[]),
    "no result": odd(result="left out"),
    **{
        f"values that are {kind}": odd(result=value)
        for kind, value in (
            ("null", None),
            ("a number", 5),
            ("an object", {}),
            ("texts", ["0.5"] * 16),
            ("truth", [True] * 16),
            ("lists", [[0.5]] * 16),
            ("huge", [HUGE] * 15),
        )
    },
    **{
        f"the layer {str(layer)[:9]}": odd(layer_id=layer)
        for layer in (-1, 100_000, 4, HUGE, 1.0, True, "1", None, [1], "left out")
    },
    **{
        f"the number {ascii(number)[:9]}": odd(update_type=number)
        for number in (0, 99, -1, HUGE, 4.0, True, "4", None, [4], EVIL, "\ud800", "left out")
    },
    "a flag that nobody asked for": odd(update_type=3, args=[1, 4, 4]),
    "candidates": odd(update_type=6, sampled=[{}]),
}


def sends_passes(dialect, n):
    if dialect == "3606":
        return [input_tokens(n), *(each for layer in (1, 2, 3) for each in tracer_layer(n, layer))]
    return list(t1_pass(n))


def expected(dialect, passes):
    """Every row as (step, flag, layer, values)."""
    names = {1: "QKV_mat_mul", 4: "MLP1_mat_mul", 5: "MLP2_mat_mul"}
    return sorted(
        (n + 1, names[each["update_type"]], each["layer_id"] - 1, tuple(each["result"]))
        for n in range(passes)
        for each in sends_passes(dialect, n)
        if each["update_type"] in names
    )


def found(out):
    return sorted((row["step"], row["flag"], row["layer"], tuple(row["values"])) for row in out.rows())


def assert_no_controls(text):
    wrong = [each for each in text if unicodedata.category(each) in ("Cc", "Cs") and each not in "\n\t"]
    assert not wrong, ascii(text)


def check(out, rows):
    assert out.error is None or isinstance(out.error, DialectError), repr(out.error)
    assert found(out) == rows
    assert out.run.closed
    for text in (*out.said, out.translator.line(), str(out.error or ""), *out.translator.text):
        assert_no_controls(text)
    for row in out.run.read("audit").to_pylist():
        assert_no_controls(json.dumps(json.loads(row["detail"]), ensure_ascii=False))
    # How it ended stands in the recording.
    (end,) = out.audit("end")
    assert end["reason"] in out.said


def hubs(tmp_path, dialect, scripts, **changes):
    """Translate from many hubs at once, and return what came of each by its name."""

    async def one(number, script, free):
        async with free, Peer(*script) if isinstance(script, tuple) else Peer(script) as peer:
            asked = plan(peer, dialect, **{"config": small(dialect), **changes})
            return await translate(tmp_path / str(number), asked)

    async def run():
        free = asyncio.Semaphore(16)
        outs = [one(number, script, free) for number, script in enumerate(scripts.values())]
        return dict(zip(scripts, await asyncio.gather(*outs), strict=True))

    return asyncio.run(run())


def in_between(dialect, message):
    """Two passes with the message between them, and within the second."""
    first, second = sends_passes(dialect, 0), sends_passes(dialect, 1)
    sent = [start(), *first, message, *second[:5], message, *second[5:], message]

    async def script(peer, socket, asked):
        for each in sent if asked["type"] == "run_training_step" else ():
            await say(socket, each)
        peer.server.close(close_connections=False)
        await socket.close()

    return script


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["T1", "3606"])
def test_a_message_costs_itself_alone(tmp_path, dialect):
    scripts = {name: in_between(dialect, message) for name, message in of(dialect, MESSAGES).items()}
    assert len(scripts) >= 20
    rows = expected(dialect, 2)
    wrong = {}
    for name, out in hubs(tmp_path, dialect, scripts).items():
        try:
            check(out, rows)
        except AssertionError as error:
            wrong[name] = str(error)[:300]
    assert wrong == {}


def of(dialect, cases):
    """All cases in one dialect, and every third in the other: what reads them is the same, what counts passes is not."""
    return cases if dialect == "T1" else dict(list(cases.items())[::3])


def closing(code):
    return lambda socket: socket.close(code, f"bye {EVIL}")


async def cut_off(socket, data):
    """Send bytes that are no whole frame, and end the connection."""
    socket.transport.write(data)
    await asyncio.sleep(0)
    socket.transport.abort()


async def broken_text(socket):
    socket.transport.write(b"\x81\x02\xc3\x28")
    await socket.wait_closed()


async def unfinished(socket):
    async def pieces():
        yield '{"type":'
        socket.transport.abort()
        yield '"pong"}'

    await socket.send(pieces())


ENDS = {
    **{
        f"close {code}": closing(code)
        for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1011, 1012, 3000, 4999)
    },
    "no close": lambda socket: cut_off(socket, b""),
    "half a frame": lambda socket: cut_off(socket, b"\x81\x7e\xff\xffhalf"),
    "half a head": lambda socket: cut_off(socket, b"\x81\x7f\x00"),
    "a huge head": lambda socket: cut_off(socket, b"\x81\x7f" + b"\x7f" + b"\xff" * 7),
    "reserved bits": lambda socket: cut_off(socket, b"\xf1\x02hi"),
    "an unknown opcode": lambda socket: cut_off(socket, b"\x83\x02hi"),
    "a masked frame": lambda socket: cut_off(socket, b"\x81\x82\x00\x00\x00\x00hi"),
    "an odd close": lambda socket: cut_off(socket, b"\x88\x01\x03"),
    "a close of no code": lambda socket: cut_off(socket, b"\x88\x02\xff\xff"),
    "text that is none": broken_text,
    "half a message": unfinished,
}


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["T1", "3606"])
def test_an_end_of_any_kind_costs_the_pass_that_it_broke(tmp_path, dialect):
    """The connection ends in the second pass; what comes on the next one is the third."""

    def script(end):
        async def serve(peer, socket, asked):
            if peer.connections == 1:
                for each in (start(), *sends_passes(dialect, 0), *sends_passes(dialect, 1)[:2]):
                    await say(socket, each)
                # All of it has arrived.
                await (await socket.ping())
                await end(socket)
                return
            for each in sends_passes(dialect, 2):
                await say(socket, each)
            peer.server.close(close_connections=False)
            await socket.close()

        async def greet(peer, socket):
            # MegatronApp is asked once, and sends to its newest connection.
            if peer.connections == 2 and dialect == "T1":
                await serve(peer, socket, None)

        return serve, greet

    wrong = {}
    scripts = {name: script(end) for name, end in of(dialect, ENDS).items()}
    for name, out in hubs(tmp_path, dialect, scripts, wait_seconds=5).items():
        try:
            check(out, [row for row in expected(dialect, 3) if row[0] != 2 or row in found(out)])
            assert any("connection to the peer broke" in text for text in out.audit("drop")[0]["warnings"])
        except AssertionError as error:
            wrong[name] = str(error)[:300]
    assert wrong == {}


TOKEN = {"id": 1, "token": "a", "logit": 0.5, "probability": 0.5}
GENERATED = {
    **{
        f"a finish of {json.dumps(text)[:20]}": {"type": "finish", "text": text}
        for text in (5, None, {}, [5], [EVIL, "\ud800"], "ab", [[EVIL]])
    },
    "a finish alone": {"type": "finish"},
    **{
        f"candidates {json.dumps(change)[:40]}": {
            "type": "update",
            "update_type": 6,
            "result": [TOKEN] * 40,
            "sampled": [TOKEN] * 2,
            **change,
        }
        for change in (
            {"sampled": []},
            {"sampled": 5},
            {"sampled": [TOKEN] * 3},
            {"result": []},
            {"result": [5] * 40},
            {"result": [{**TOKEN, "id": HUGE, "logit": HUGE}] * 40},
            {"result": [{**TOKEN, "token": 5}] * 40},
            {"sampled": [{"token": "a"}] * 2},
        )
    },
    **{
        f"prompts {json.dumps(prompts)[:20]}": {"type": "start", "num_layers": 2, "prompts": prompts}
        for prompts in (
            5,
            None,
            [],
            [TOKEN],
            [5, 5],
            [{**TOKEN, "token": None}] * 2,
            [{**TOKEN, "id": "x"}] * 2,
        )
    },
    "evil tokens": {"type": "start", "num_layers": 2, "prompts": [{**TOKEN, "token": f"\ud800{EVIL}"}] * 2},
}


@pytest.mark.slow
def test_a_generation_of_odd_words_is_recorded(tmp_path):
    """The odd message comes before the last one: candidates that cannot be read still end no recording."""

    def script(message):
        async def serve(peer, socket, asked):
            *sent, last = generation(asked["prompts"])
            for each in (*sent, message, last):
                await say(socket, each)

        return serve

    asked = {"config": None, "prompts": ("To be", "Or not"), "tokens": 3}
    wrong = {}
    for name, out in hubs(
        tmp_path, "inference", {name: script(each) for name, each in GENERATED.items()}, **asked
    ).items():
        try:
            assert out.error is None, repr(out.error)
            assert out.run.closed
            for text in (*out.said, *out.translator.text, out.translator.line()):
                assert_no_controls(text)
            assert [row["step"] for row in out.rows("MLP1_mat_mul") if row["layer"] == 0] == [1, 2, 3]
        except AssertionError as error:
            wrong[name] = str(error)[:300]
    assert wrong == {}
