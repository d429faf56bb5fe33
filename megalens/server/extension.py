"""The Jupyter server extension: configuration, endpoints, life cycle."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Int, List, Unicode

from ..hub.minute_log import MinuteLog
from ..protocol import RUNS_FOLDER
from ..slices import find_slices, load
from .child_process import take_small_pages
from .demo_training import DemoHandler, DemoTraining
from .hubs_handler import HubsHandler
from .moment_pool import MomentPool
from .moments_handlers import MomentGroupsHandler, MomentRowsHandler, MomentsHandler, StatisticsHandler
from .registry import RunRegistry
from .relay import RelayHandler
from .runs_handlers import (
    IndexHandler,
    LinesHandler,
    ReportHandler,
    RunHandler,
    RunsHandler,
    StreamHandler,
    SummariesHandler,
)
from .translations import Translations

# Seconds after the start in which Jupyter itself has enough to do.
_QUIET_SECONDS = 2.0
_RUN = r"megalens/api/runs/([^/]+)"
_HANDLERS: tuple[tuple[str, type[Any]], ...] = (
    (r"megalens/api/runs", RunsHandler),
    (_RUN, RunHandler),
    (rf"{_RUN}/index", IndexHandler),
    (rf"{_RUN}/lines/(tensors|scalars)", LinesHandler),
    (rf"{_RUN}/streams/([^/]+)", StreamHandler),
    (rf"{_RUN}/moments", MomentsHandler),
    (rf"{_RUN}/moments/rows", MomentRowsHandler),
    (rf"{_RUN}/moments/groups", MomentGroupsHandler),
    (rf"{_RUN}/report", ReportHandler),
    (r"megalens/api/summaries", SummariesHandler),
    (r"megalens/api/statistics", StatisticsHandler),
    (r"megalens/api/hubs", HubsHandler),
    (r"megalens/api/demo", DemoHandler),
    (r"megalens/ws/runs/([^/]+)", RelayHandler),
)


def handlers() -> list[tuple[str, type[Any]]]:
    """Return every endpoint, those of slices too."""
    others = [load(each.endpoints) for each in find_slices() if each.endpoints]
    return [*_HANDLERS, *((f"{_RUN}/{path}", handler) for pairs in others for path, handler in pairs)]


class MegalensExtension(ExtensionApp):
    """See inside training runs."""

    name = "megalens"
    description = "Lists live and recorded training runs and relays live ones to the browser."

    run_folders = List(
        Unicode(),
        default_value=[RUNS_FOLDER],
        help="Folders that hold run folders, relative to the server's root or absolute.",
    ).tag(config=True)
    allowed_hubs = List(
        Unicode(),
        default_value=[],
        help=(
            "Hubs that a user may connect to by address, as patterns such as 'gpu-*.example.org:4567' or "
            "'10.0.0.5:*'. None by default; the hubs of the server's own user are found without it."
        ),
    ).tag(config=True)
    limit_bytes = Int(
        64 * 1024 * 1024,
        help="Most bytes of rows that one answer may have; steps are thinned out to fit.",
    ).tag(config=True)

    limit_rows = Int(
        1_000_000,
        help=(
            "Most rows of statistics that one answer may have; beyond, the browser asks for groups, which "
            "the server makes."
        ),
    ).tag(config=True)

    allow_demo = Bool(
        True, help="Whether a user may start the demo training from the panel: one process of this server."
    ).tag(config=True)

    _getting_ready: asyncio.TimerHandle | None = None

    def initialize_settings(self) -> None:
        serverapp = self.serverapp
        assert serverapp is not None
        take_small_pages()
        root = Path(serverapp.root_dir)
        registry = RunRegistry(root, self.run_folders, self.allowed_hubs, self.log, self._hides)
        # The demo's run is listed after its end where the first of the folders is.
        records = root / Path(self.run_folders[0] if self.run_folders else RUNS_FOLDER).expanduser()
        self.settings.update(
            {
                "megalens_registry": registry,
                "megalens_demo": DemoTraining(records, self.allow_demo),
                "megalens_translations": Translations(),
                "megalens_executor": ThreadPoolExecutor(4, "megalens-files"),
                # Judging takes long: it waits for itself only.
                "megalens_counting": ThreadPoolExecutor(1, "megalens-counting"),
                "megalens_relays": set(),
                "megalens_broken": MinuteLog(lambda line: self.log.warning("Megalens: %s", line)),
                "megalens_limit_bytes": max(64 * 1024, self.limit_bytes),
                "megalens_moments": MomentPool(registry.moments),
                "megalens_limit_rows": max(1, self.limit_rows),
            }
        )

    def initialize_handlers(self) -> None:
        self.handlers.extend(handlers())

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        """Prepare for questions while nobody asks any, where there are recordings; Jupyter's start hook."""

        def get_ready() -> None:
            if self.settings["megalens_registry"].has_recordings():
                self.settings["megalens_moments"].warm_up()

        executor: Executor = self.settings["megalens_executor"]
        self._getting_ready = asyncio.get_running_loop().call_later(
            _QUIET_SECONDS, executor.submit, get_ready
        )

    def _hides(self, path: str) -> bool:
        """Whether Jupyter's file browser would hide a path below the root."""
        contents = getattr(self.serverapp, "contents_manager", None)
        if getattr(contents, "allow_hidden", False):
            return False
        return any(part.startswith(".") for part in path.split("/"))

    async def stop_extension(self) -> None:
        """Close every relay, end the demo training, the translations and the worker threads."""
        loop = asyncio.get_running_loop()
        if self._getting_ready is not None:
            self._getting_ready.cancel()
        ending = asyncio.gather(
            *(
                loop.run_in_executor(None, self.settings[name].close)
                for name in ("megalens_demo", "megalens_translations")
            )
        )
        relays: set[RelayHandler] = self.settings["megalens_relays"]
        await asyncio.gather(*(relay.shut_down() for relay in list(relays)), return_exceptions=True)
        await ending
        await self.settings["megalens_moments"].close()
        for name in ("megalens_executor", "megalens_counting"):
            self.settings[name].shutdown(wait=False, cancel_futures=True)
