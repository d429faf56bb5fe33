"""What strangers, hostile clients and hostile hubs send: seeded, by the grammar of HTTP, WebSocket, messages and frames.

Every generator takes a ``random.Random``, so that a case is named by its number. Sockets are loopback.
"""

import base64
import contextlib
import hashlib
import json
import socket
import struct
import threading

from fuzzing import golden_frames, golden_messages, mutated_frame, mutated_message

MESSAGES, FRAMES = golden_messages(), golden_frames()
HELLO = json.loads(next(text for text in MESSAGES if json.loads(text)["type"] == "hello"))
STATUS = json.loads(next(text for text in MESSAGES if json.loads(text)["type"] == "status"))
TEXT, BINARY, CLOSE, PING, PONG, CONTINUED = 1, 2, 8, 9, 10, 0
_CLOSE = 8
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_HEADS = (
    "Transfer-Encoding: chunked",
    "Content-Length: 5",
    "Content-Length: 0\r\nContent-Length: 7",
    "Host: a\r\nHost: b",
    "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99",
    "Sec-WebSocket-Key: short",
    "Sec-WebSocket-Version: 99",
    "Authorization: Bearer " + "x" * 3000,
    "Authorization: Bearer a\r\nAuthorization: Bearer b",
    "Sec-WebSocket-Protocol: " + ",".join(["megalens.v2"] * 500),
    "X\0: y",
    " folded: yes",
    "X: \x80\xff",
    ": no name",
    "X" * 9000 + ": y",
)
_LINES = (
    "GET / HTTP/1.1",
    "GET / HTTP/1.0",
    "GET / HTTP/2.0",
    "POST / HTTP/1.1",
    "GET http://elsewhere/ HTTP/1.1",
    "GET /../../etc HTTP/1.1",
    "GET /?token=x HTTP/1.1",
    "PRI * HTTP/2.0",
    "CONNECT a:1 HTTP/1.1",
    "GET " + "a" * 9000 + " HTTP/1.1",
    "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    "",
)


def upgrade(token=None, *, line="GET / HTTP/1.1", more=()):
    """Return the head of a request that opens a WebSocket."""
    lines = [
        line,
        "Host: x",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: " + base64.b64encode(b"0123456789abcdef").decode(),
        "Sec-WebSocket-Protocol: megalens.v2",
    ]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return ("\r\n".join([*lines, *more]) + "\r\n\r\n").encode("latin-1")


def hostile_request(chance):
    """Return what somebody without the token sends in place of a request."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.choice((0, 1, 20, 400, 20_000)))
    heads = chance.sample(_HEADS, chance.randrange(0, 4))
    data = bytearray(upgrade(line=chance.choice(_LINES) if kind == 1 else "GET / HTTP/1.1", more=heads))
    if kind == 2:
        del data[chance.randrange(len(data)) :]
    elif kind == 3:
        for _ in range(chance.randrange(1, 9)):
            data[chance.randrange(len(data))] = chance.choice(b"\0\r\n :\xff")
    # A second request behind the first, for whoever reads only one.
    return bytes(data) + (upgrade("x") if chance.random() < 0.3 else b"")


def ws_frame(payload, opcode=BINARY, *, fin=True, rsv=0, masked=True, claimed=None):
    """Return one WebSocket frame, which may lie about its length."""
    length = len(payload) if claimed is None else claimed
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    mask = 0x80 if masked else 0
    if length < 126:
        head += bytes([mask | length])
    elif length < 1 << 16:
        head += bytes([mask | 126]) + struct.pack("!H", length)
    else:
        head += bytes([mask | 127]) + struct.pack("!Q", length)
    return head + (b"\0\0\0\0" if masked else b"") + payload


def hostile_message(chance):
    """Return a text and an opcode, or rows: a message or data frame that was changed, or is as it should be but out of place."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.choice(MESSAGES).encode(), TEXT
    if kind == 1:
        return mutated_frame(FRAMES, chance.getrandbits(40)), BINARY
    if kind == 2:
        return chance.choice(FRAMES), BINARY
    return mutated_message(MESSAGES, chance.getrandbits(40)).encode("utf-8", "surrogatepass"), TEXT


def hostile_frame(chance, *, masked=True):
    """Return the bytes of a WebSocket frame: its grammar is changed, or what it carries."""
    payload, opcode = hostile_message(chance)
    more = {}
    if chance.random() < 0.4:
        kind = chance.randrange(6)
        if kind == 0:
            opcode = chance.randrange(16)
        elif kind == 1:
            more["rsv"] = chance.randrange(1, 8)
        elif kind == 2:
            more["fin"] = False
        elif kind == 3:
            more["claimed"] = chance.choice(
                (0, 1, 125, 126, 65535, 65536, 2**31, 2**40, 2**63 - 1, 2**64 - 1)
            )
        elif kind == 4:
            masked = not masked
        else:
            payload = payload[: chance.randrange(126)]
            opcode = chance.choice((CLOSE, PING, PONG, CONTINUED))
    return ws_frame(payload, opcode, masked=masked, **more)


class HostileHub:
    """Accepts any token, answers the handshake rightly, and then sends what ``script`` yields.

    Parameters
    ----------
    script : callable
        Takes the connected socket, and yields bytes to send. It may read from the socket itself.
    """

    def __init__(self, script, more=""):
        self.script = script
        self.more = more
        self.seen = 0
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"ws://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(4096)
                if not piece:
                    return
                head += piece
            key = head.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0].decode()
            accept = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
            offered = "Sec-WebSocket-Protocol: megalens.v2\r\n" if b"megalens.v2" in head else ""
            connection.sendall(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {accept}\r\n{offered}{self.more}\r\n".encode()
            )
            self.seen += 1
            for data in self.script(connection):
                connection.sendall(data)
            # Read on, so that a close is answered by the end of the connection and by no reset.
            while (data := connection.recv(65536)) and data[0] & 0x0F != _CLOSE:
                pass

    def close(self):
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def told(message):
    """Return a control message as a hub's WebSocket frame."""
    text = message if isinstance(message, (bytes, str)) else json.dumps(message)
    return ws_frame(text.encode() if isinstance(text, str) else text, TEXT, masked=False)


def lies(run):
    """Return what no hub may say, by name: WebSocket frames, what is expected of them after ``hello``, and what before it.

    Each is a tuple of the bytes, whether the hub says hello first, and the code of the error.
    """
    status = {**STATUS, "step": 1}
    changed = json.dumps({**status, "step": "HERE"})
    hello = {**HELLO, "run": {**HELLO["run"], "id": run}}
    rows = FRAMES[0]
    texts = {
        "a step that is infinite": changed.replace('"HERE"', "1e999"),
        "a step that is not a number": changed.replace('"HERE"', "NaN"),
        "a step of 400 digits": changed.replace('"HERE"', "1" + "0" * 400),
        "half of a character": json.dumps({**status, "warnings": ["X"]}).replace("X", "\\ud800"),
        "a long name": json.dumps({**hello, "run": {**hello["run"], "name": "x" * 1_000_000}}),
        "a million flags": json.dumps({**hello, "flags": [{}] * 100_000}),
        "every of 400 digits": json.dumps(
            {**hello, "config": {"flags": {"F": {"every": 0, "compressor": {"name": "Empty"}}}}}
        ).replace('"every": 0', '"every": 1' + "0" * 400),
        "a start that no clock has": json.dumps({**hello, "run": {**hello["run"], "started": 1e308}}),
        "brackets": "[" * 100_000,
        "no JSON": "hello",
        "a message of clients": json.dumps({"type": "configure", "id": "x", "patch": {"flags": {}}}),
    }
    found = {name: (told(text), True, "bad-message") for name, text in texts.items()}
    found["a message of clients"] = (*found["a message of clients"][:2], "forbidden")
    found["status before hello"] = (told(status), False, "bad-message")
    found["rows before hello"] = (ws_frame(rows, masked=False), False, "bad-frame")
    found["a text that is too long"] = (told(" " * (17 * 1024 * 1024)), True, "too-large")
    found["rows that are cut short"] = (ws_frame(rows[:-1], masked=False), True, "bad-frame")
    found["rows of no stream"] = (ws_frame(b"MLNS\1" + bytes(59), masked=False), True, "bad-frame")
    found["bits that mean compression"] = (ws_frame(b"x", TEXT, rsv=4, masked=False), True, "bad-message")
    found["bytes that are no text"] = (ws_frame(b"\xff\xff", TEXT, masked=False), True, "bad-message")
    found["a length of terabytes"] = (ws_frame(b"x", masked=False, claimed=1 << 40), True, "too-large")
    return found
