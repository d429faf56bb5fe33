"""An engine whose jobs behave badly on purpose."""

import pytest
from engine_bundles import built

from megalens.pictures.engine import Engine


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """tests/pictures/engine/jobs.ts as the engine loads it."""
    return built(tmp_path_factory.mktemp("engine"), "jobs")


@pytest.fixture(scope="module")
def engine(bundle):
    engine = Engine(bundle)
    yield engine
    engine.close()
