"""Hatch's hook that compiles the kernel for CPUs into the wheel, or, for an editable install, into the source tree.

A wheel with the library is tagged for its platform (``py3-none-manylinux_2_17_x86_64``: the library knows nothing of Python), one without says ``any``.
It never fails a build. ``MEGALENS_KERNEL=plain`` in the environment leaves the library out.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["KernelHook"]

PLACE = "megalens/tracer/moments/native"


class KernelHook(BuildHookInterface):
    """Compiles the kernel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library before the wheel is put together."""
        if os.environ.get("MEGALENS_KERNEL") == "plain":
            return
        builder = _builder(Path(self.root) / PLACE / "build.py")
        if version == "editable":
            self._report(builder.build(builder.FOLDER / builder.LIBRARY))
            return
        self._work = tempfile.TemporaryDirectory()
        made = Path(self._work.name) / builder.LIBRARY
        why_not = builder.build(made)
        self._report(why_not)
        if why_not is None:
            build_data["force_include"][str(made)] = f"{PLACE}/{builder.LIBRARY}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{builder.platform_tag(made)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was built for the wheel."""
        if hasattr(self, "_work"):
            self._work.cleanup()

    def _report(self, why_not: str | None) -> None:
        if why_not is not None:
            self.app.display_warning(f"Built without the native kernel, torch will measure: {why_not}")


def _builder(path: Path) -> Any:
    # By its path: the package itself cannot be imported where it is only being built.
    spec = importlib.util.spec_from_file_location("megalens_kernel_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
