"""Where Arrow takes the memory of what the server reads; in processes of their own, because it holds for a whole process."""

import os
import subprocess
import sys

import pyarrow as pa
import pytest

CODE = """
import pyarrow as pa
from megalens.server.child_process import take_small_pages
take_small_pages()
print(pa.default_memory_pool().backend_name)
"""
PREFERRED = next(
    name for name in ("jemalloc", "mimalloc", "system") if name in pa.supported_memory_backends()
)


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "taken"), [("", PREFERRED), ("system", "system")])
def test_the_server_reads_into_small_pages_unless_its_user_chose_otherwise(chosen, taken):
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": chosen}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == taken


async def test_a_running_server_has_chosen(jp_fetch):
    await jp_fetch("megalens", "api", "runs")
    expected = os.environ.get("ARROW_DEFAULT_MEMORY_POOL") or PREFERRED
    assert pa.default_memory_pool().backend_name == expected
