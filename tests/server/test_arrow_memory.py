"""Where Arrow takes the memory of what the server reads; in processes of their own, because it holds for a whole process."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest

CODE = """
import pyarrow as pa
from megalens.server.reader import __main__ as reader

async def serve(settings):
    print(pa.default_memory_pool().backend_name, flush=True)
    input()

reader.serve = serve
reader.main()
"""
SETTINGS = json.dumps({"token": "", "memory": 1 << 32, "limit_bytes": 1, "limit_rows": 1}) + "\n"
PREFERRED = next(
    name for name in ("jemalloc", "mimalloc", "system") if name in pa.supported_memory_backends()
)


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "taken"), [("", PREFERRED), ("system", "system")])
def test_the_server_reads_into_small_pages_unless_its_user_chose_otherwise(chosen, taken):
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": chosen}
    with subprocess.Popen(
        [sys.executable, "-c", CODE],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdin.write(SETTINGS)
        process.stdin.flush()
        assert process.stdout.readline().strip() == taken
