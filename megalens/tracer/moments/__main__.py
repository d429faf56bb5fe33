"""``python -m megalens.tracer.moments [build]``: what measures on this machine's CPU; or build its kernel."""

from __future__ import annotations

import argparse

from .measure import kernel_name
from .native import library
from .native.build import FOLDER, LIBRARY, build


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code: 1 when the kernel could not be built."""
    parser = argparse.ArgumentParser(prog="python -m megalens.tracer.moments", description=__doc__)
    parser.add_argument(
        "command", nargs="?", choices=["build"], help="compile the native kernel into the package"
    )
    if parser.parse_args(arguments).command == "build" and (why_not := build(FOLDER / LIBRARY)) is not None:
        print(f"The native kernel was not built: {why_not}")
        return 1
    kernel = library.load()
    print(kernel_name("cpu") + (f": {kernel}" if isinstance(kernel, str) else ""))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
