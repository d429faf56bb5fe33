"""``make demo``: train the demo model and watch it from JupyterLab. ``--headless`` does the same without a person.

Exit codes: 0 all went well, or Ctrl-C ended it; 1 something failed, each thing said in one line; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from scripts.demo_process import DemoError, catch_signals  # noqa: E402

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/demo.py", description=__doc__)
    parser.add_argument(
        "--headless", action="store_true", help="run the notebook against the live run, then end"
    )
    parser.add_argument("--steps", type=int, default=4000, help="training steps (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=8888, help="JupyterLab's port; the next free one if taken"
    )
    options = parser.parse_args(arguments)

    catch_signals()
    os.chdir(ROOT)
    folder = ROOT / ".demo"
    folder.mkdir(exist_ok=True)
    try:
        if options.headless:
            from scripts.demo_headless import run_headless

            return run_headless(ROOT, folder)
        from scripts.demo_lab import run_lab

        return run_lab(ROOT, folder, options.steps, options.port)
    except DemoError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0 if not options.headless else 1


if __name__ == "__main__":
    raise SystemExit(main())
