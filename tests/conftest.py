"""Puts tests/kit on the import path, so that the tests of every room can use its helpers."""

import gc
import os
import sys
from pathlib import Path

import hypothesis
import pytest

# Simulators, fakes and helpers of several rooms.
sys.path.insert(0, str(Path(__file__).parent / "kit"))

import warm

# jsonschema would load a grammar of addresses, which no schema here needs, for more than a second in each worker.
sys.modules.setdefault("rfc3987_syntax", None)

# Tests run one a core: threads of one that wait for each other, spinning, take the time of the other, as do processes that Inductor
# starts to compile. Processes that tests start inherit it.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
    os.environ.setdefault(_threads, "1")

warm.install()

pytest_plugins = ["forks"]

# How long one example takes says something of the machine, not of the code.
hypothesis.settings.register_profile("megalens", deadline=None, max_examples=50)
# make test-fast asks for this one.
hypothesis.settings.register_profile("fast", deadline=None, max_examples=20)
hypothesis.settings.load_profile("megalens")

# Each of these fixtures starts processes for the test that asks for it.
STARTING = {"hostile", "live", "pictures", "small_hub", "start_hub", "start_job"}


def pytest_collection_finish() -> None:
    """Leave out of garbage collections what has been imported: torch alone would be walked through for half a second each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that start processes as slow."""
    for item in items:
        if STARTING & set(item.fixturenames):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory):
    """Keep what tests import out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGALENS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
