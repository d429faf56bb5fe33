"""Starting and stopping the demo training."""

from __future__ import annotations

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from .base_handler import MegalensHandler
from .demo_training import DemoTraining
from .errors import ServerError

__all__ = ["DemoHandler"]


class DemoHandler(MegalensHandler):
    """``megalens/api/demo``. A request has no say in what is started."""

    @property
    def demo(self) -> DemoTraining:
        """The server's one demo training."""
        demo: DemoTraining = self.settings["megalens_demo"]
        return demo

    @authenticated
    @authorized
    async def get(self) -> None:
        """Answer whether the demo runs."""
        self.answer(await self.in_thread(self.demo.state))

    @authenticated
    @authorized
    async def post(self) -> None:
        """Start the demo unless it runs, and answer its state."""
        if self.json_body():
            raise ServerError(400, "bad-parameter", "The body must be {}: the demo takes no settings.")
        self.answer(await self.in_thread(self.demo.start))

    @authenticated
    @authorized
    async def delete(self) -> None:
        """End the demo and answer its state."""
        self.answer(await self.in_thread(self.demo.stop))
