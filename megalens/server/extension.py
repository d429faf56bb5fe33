"""The Jupyter server extension: configuration, endpoints, life cycle."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Int, List, Unicode

from ..hub.connections import MinuteLog
from ..protocol import RUNS_FOLDER
from .demo_training import DemoHandler, DemoTraining
from .forward import ForwardHandler
from .hubs_handler import HubsHandler
from .page_handler import PageFilesHandler, PageHandler
from .reader.process import Reader
from .registry import RunRegistry
from .relay import RelayHandler
from .runs_handlers import CoursesHandler, RunHandler, RunsHandler, StatisticsHandler, SummariesHandler
from .translations import Translations

# Seconds after the start in which Jupyter itself has enough to do.
_QUIET_SECONDS = 2.0
_RUN = r"megalens/api/runs/([^/]+)"
HANDLERS: tuple[tuple[str, type[Any]], ...] = (
    (r"megalens/api/runs", RunsHandler),
    (_RUN, RunHandler),
    # All that is read of a run's files, those of slices too.
    (rf"{_RUN}/(.+)", ForwardHandler),
    (r"megalens/api/summaries", SummariesHandler),
    (r"megalens/api/courses", CoursesHandler),
    (r"megalens/api/statistics", StatisticsHandler),
    (r"megalens/api/hubs", HubsHandler),
    (r"megalens/api/demo", DemoHandler),
    (r"megalens/ws/runs/([^/]+)", RelayHandler),
    (r"megalens/", PageHandler),
    (r"megalens", PageHandler),
    (r"megalens/view/([^/]+)", PageHandler),
    (r"megalens/view/([^/]+)/([^/]+)", PageHandler),
    (r"megalens/static/(.+)", PageFilesHandler),
)


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
    storage = List(
        Unicode(),
        default_value=["s3", "gs", "gcs", "az", "abfs", "hf"],
        help=(
            "Kinds of other storage from which a user may open a run by its address, with the credentials of "
            "this server's environment. https is left out, since the server would ask any host."
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

    reader_memory = Int(
        4 << 30,
        help="Most bytes that the process which reads recordings and other files may hold, on Linux.",
    ).tag(config=True)

    engine = Unicode(
        "",
        help=(
            "Address of a Dask scheduler, such as 'tcp://host:8786', whose workers answer questions about "
            "recordings: they see them at the same paths. Its machines run what this server sends them, and "
            "it reads pickles that they send. None by default."
        ),
    ).tag(config=True)

    allow_demo = Bool(
        True, help="Whether a user may start the demo training from the panel: one process of this server."
    ).tag(config=True)

    _getting_ready: asyncio.TimerHandle | None = None

    def initialize_settings(self) -> None:
        serverapp = self.serverapp
        assert serverapp is not None
        root = Path(serverapp.root_dir)
        registry = RunRegistry(root, self.run_folders, self.allowed_hubs, self.log, self._hides)
        # The demo's run is listed after its end where the first of the folders is.
        records = root / Path(self.run_folders[0] if self.run_folders else RUNS_FOLDER).expanduser()
        executor = ThreadPoolExecutor(4, "megalens-files")
        reader = Reader(
            max(256 << 20, self.reader_memory),
            max(64 * 1024, self.limit_bytes),
            max(1, self.limit_rows),
            executor,
            self.log,
            self.engine.strip(),
        )
        self.settings.update(
            {
                "megalens_registry": registry,
                "megalens_demo": DemoTraining(records, self.allow_demo),
                "megalens_translations": Translations(),
                "megalens_executor": executor,
                "megalens_reader": reader,
                "megalens_storage": frozenset(self.storage),
                "megalens_relays": set(),
                "megalens_broken": MinuteLog(lambda line: self.log.warning("Megalens: %s", line)),
            }
        )

    def initialize_handlers(self) -> None:
        self.handlers.extend(HANDLERS)

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        """Prepare for questions while nobody asks any, where there are recordings; Jupyter's start hook."""

        async def get_ready() -> None:
            loop = asyncio.get_running_loop()
            has = self.settings["megalens_registry"].has_recordings
            if await loop.run_in_executor(self.settings["megalens_executor"], has):
                self.settings["megalens_reader"].warm_up()

        self._getting_ready = asyncio.get_running_loop().call_later(
            _QUIET_SECONDS, lambda: asyncio.ensure_future(get_ready())
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
        await self.settings["megalens_reader"].close()
        self.settings["megalens_executor"].shutdown(wait=False, cancel_futures=True)
