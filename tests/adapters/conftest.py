from collections.abc import Callable

import pytest
from tracing_fixtures import *  # noqa: F403

import megalens
from megalens.runs import Run
from tests.kit.live_run import eventually


@pytest.fixture
def recorded(tmp_path, monkeypatch) -> Callable[[], Run]:
    """Open the one recording in the test's folder, once its hub has closed it."""
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "rt"))

    def open_it() -> Run:
        def whole() -> bool:
            files = list((tmp_path / "runs").glob("*/run.json"))
            return bool(files) and '"finished"' in files[0].read_text(encoding="utf-8")

        eventually(whole, "the end of the recording")
        (folder,) = (tmp_path / "runs").iterdir()
        return megalens.open(folder)

    return open_it
