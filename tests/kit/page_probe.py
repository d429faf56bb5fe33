"""Opens a report in a browser without a network."""

import json
import shutil
import subprocess
from pathlib import Path

PROBE = Path(__file__).parent / "page_probe.mjs"


def probe(page, *flags):
    node = shutil.which("node")
    assert node, "Node is needed to open a report in a browser. Install Node 20."
    done = subprocess.run([node, PROBE, page, *flags], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
