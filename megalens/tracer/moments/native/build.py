"""Compiles the kernel for CPUs with the standard library alone, as wheels are built where nothing else is."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LIBRARY = "libmegalens_moments.so"
_SOURCES = ("moments.cpp", "block.inc", "counts.inc", "casts.inc")
_COMPILERS = ("c++", "g++", "clang++")
_SECONDS = 300
# No -march: the instructions that a processor may lack are switched on function by function and chosen when
# the library runs. No -ffast-math: it would have the compiler believe that no value is NaN.
_FLAGS = (
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-exceptions",
    "-fno-rtti",
    "-Wno-psabi",
    "-pthread",
)
_OLDEST_MACOS = "11.0"
_OLDEST_GLIBC = 17
"""The minor number of the first glibc that the oldest tag in use (manylinux2014) allows."""


def source_hash(folder: Path = FOLDER) -> str:
    """Return what tells a library of this source from one of another."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:16]


def build(target: Path) -> str | None:
    """Compile the library into ``target``; return None, or why it was not built. Never raises.

    Takes ``$CXX`` or the first of ``c++``, ``g++``, ``clang++`` on the path. An existing library stays until
    the new one is complete.
    """
    if sys.platform == "win32":
        return "there is no native kernel for Windows"
    named = os.environ.get("CXX")
    compiler = named.split() if named else [found for each in _COMPILERS if (found := shutil.which(each))][:1]
    if not compiler:
        return f"there is no compiler: none of {', '.join(_COMPILERS)} is on the path and CXX is not set"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as work:
            made = Path(work) / target.name
            command = [
                *compiler,
                *_FLAGS,
                *_for_platform(),
                f'-DSOURCE="{source_hash()}"',
                str(FOLDER / "moments.cpp"),
                "-o",
                str(made),
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            if done.returncode:
                return f"{compiler[0]} failed: {done.stderr.strip()[-2000:]}"
            made.chmod(0o755)
            made.replace(target)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{compiler[0]} could not be run or its output not kept: {error}"
    return None


def platform_tag(library: Path) -> str:
    """Return the platform part of the tag of a wheel that holds ``library``.

    On Linux that of every system whose glibc is as new as the newest symbol that the library takes from it
    (PEP 600), which an index of packages takes; of musl, or of none, this system's own.
    """
    if sys.platform == "darwin":
        return f"macosx_{_OLDEST_MACOS}_{platform.machine()}".replace(".", "_")
    asked = [int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)", library.read_bytes())]
    if asked:
        return f"manylinux_2_{max(_OLDEST_GLIBC, *asked)}_{platform.machine()}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _for_platform() -> list[str]:
    if sys.platform == "darwin":
        return ["-arch", platform.machine(), f"-mmacosx-version-min={_OLDEST_MACOS}"]
    return ["-Wl,--as-needed"]
