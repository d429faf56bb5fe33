"""An engine whose jobs behave badly on purpose."""

import pytest
from bundles import built

from megalens.engine import Engine


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """tests/engine/jobs.ts as the engine loads it."""
    return built(tmp_path_factory.mktemp("engine"), "jobs")


@pytest.fixture(scope="module")
def engine(bundle):
    engine = Engine(bundle)
    yield engine
    engine.close()
