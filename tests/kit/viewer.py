"""A viewer of a hub, on a real socket."""

import asyncio

from websockets.asyncio.client import connect

from megalens.protocol import decode_frame, decode_message, encode_message

WAIT = 60


class Viewer:
    def __init__(self, socket):
        self.socket = socket
        self.frames = []
        self.count = 0

    async def wait(self, kind, test=lambda message: True):
        """Return the next message of a type that passes a test; frames are kept."""
        return await self._next(lambda message: message["type"] == kind and test(message))

    async def configure(self, **patch):
        """Send a change and return its first answer."""
        self.count += 1
        change = f"change-{self.count}"
        patch.setdefault("flags", {})
        await self.socket.send(encode_message({"type": "configure", "id": change, "patch": patch}))
        return await self._next(lambda message: change in (message.get("id"), message.get("reply_to")))

    async def _next(self, test):
        async def read():
            while True:
                data = await self.socket.recv()
                if isinstance(data, bytes):
                    self.frames.append(decode_frame(data))
                    continue
                message = decode_message(data)
                if test(message):
                    return message

        return await asyncio.wait_for(read(), WAIT)


async def watch(entry):
    """Join a hub as a viewer; its hello is in ``viewer.hello``."""
    socket = await connect(
        entry.address,
        subprotocols=["megalens.v2"],
        additional_headers={"Authorization": f"Bearer {entry.token}"},
        compression=None,
        max_size=None,
    )
    peer = {"name": "panel", "version": "0"}
    await socket.send(
        encode_message({"type": "join", "protocol": "megalens.v2", "role": "viewer", "peer": peer})
    )
    viewer = Viewer(socket)
    viewer.hello = await viewer.wait("hello")
    return viewer
