"""The hub's process keeps the memory of a frame for the next one."""

import subprocess
import sys

CODE = """
import resource, sys
from megalens.hub.server import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
bytearray(3_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for size in range(2_000_000, 3_000_000, 50_000):
    bytearray(size)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    return int(subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, check=True).stdout)


def test_blocks_that_are_freed_are_not_fetched_anew():
    assert faults("keep") * 4 < faults("leave")
