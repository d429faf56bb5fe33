"""The gateway of an inference hub beside something else: in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from types import TracebackType

from ..discovery import HubEntry
from .inference_gateway import InferenceGateway
from .local_server import LOOPBACK, address_of

__all__ = ["ServedInference"]


class ServedInference:
    """Serves a live run in MegatronApp's dialect of inference until it is closed, or the run ends; as a context manager it closes itself.

    Parameters
    ----------
    entry : HubEntry
        The run's hub.
    port : int
        Port; 0 takes any free one.
    host : str
        Address or name under which clients find this machine.

    Attributes
    ----------
    address : str
        Where clients connect to.

    Raises
    ------
    DialectError
        ``bad-parameter`` when the port is in use, ``unreachable`` when the hub is.
    """

    def __init__(self, entry: HubEntry, port: int = 5000, host: str = LOOPBACK) -> None:
        self._gateway = InferenceGateway(entry, port, host=host)
        self._loop = asyncio.new_event_loop()
        self._ready: Future[int] = Future()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="megalens-inference", daemon=True)
        self._thread.start()
        try:
            self.address = address_of(host, self._ready.result())
        except BaseException:
            self._thread.join()
            raise

    def close(self) -> None:
        """Serve no more. Safe twice."""
        if self._task is not None:
            # Its loop may end by itself at this moment.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def __enter__(self) -> ServedInference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._task = asyncio.current_task()
        try:
            await self._gateway.run(self._ready.set_result)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
