"""A live run whose hub is found here, and a recorded one that is open."""

import pytest
from recorded_run import RUN_ID, write_run
from runs_fixtures import *  # noqa: F403

import megalens


@pytest.fixture
def training(live):
    return live()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / RUN_ID)


@pytest.fixture
def run(folder):
    with megalens.open(folder) as opened:
        yield opened
