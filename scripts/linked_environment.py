"""Make an environment that has a wheel, what it asks for, and nothing else: ``python -m scripts.linked_environment FOLDER WHEEL REQUIREMENT …``.

The wheel is installed by pip. What it and the further requirements ask for is followed from package to package in what the packages say of themselves, and each is linked from
the environment of this Python, which has the locked versions, instead of being fetched and unpacked again; pip says whether it is complete. ``REQUIREMENT`` may name the wheel's own
package, with extras.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

__all__ = ["asked_for", "link", "main"]


def asked_for(requirements: list[str], own: tuple[str, list[str]]) -> dict[str, Distribution]:
    """Return the installed packages that requirements come to, by name.

    Parameters
    ----------
    requirements : list of str
        As pip takes them; conditions are those of this Python and platform.
    own : tuple
        Name of the package that is not looked for among the installed ones, and what it requires.

    Raises
    ------
    ValueError
        When an installed version is another than what is asked for.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name != own[0] and name not in found:
            found[name] = distribution(name)
            if not one.specifier.contains(found[name].version, prereleases=True):
                raise ValueError(f"{one} is asked for, and {found[name].version} is locked")
        for extra in {"", *one.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            wanted = map(Requirement, own[1] if name == own[0] else found[name].requires or [])
            waiting += [
                each for each in wanted if each.marker is None or each.marker.evaluate({"extra": extra})
            ]
    return found


def link(one: Distribution, python: Path) -> None:
    """Link the files of a package into the environment of ``python``, with what was compiled of them; scripts are written anew, since their first line names their Python."""
    here, home = Path(sysconfig.get_path("purelib")), python.parents[1]
    there = home / here.relative_to(sys.prefix)
    for each in one.files or []:
        path = here / each
        compiled = [Path(importlib.util.cache_from_source(str(path)))] if path.suffix == ".py" else []
        for source in (path, *compiled):
            target = Path(os.path.normpath(there / os.path.relpath(source, here)))
            if not target.is_relative_to(home):
                raise ValueError(f"{one.name} has a file outside of its environment: {each}")
            if target.exists() or not source.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.parent == python.parent and (text := source.read_bytes()).startswith(b"#!"):
                target.write_bytes(b"#!%s\n%s" % (os.fsencode(python), text.partition(b"\n")[2]))
                target.chmod(0o755)
                continue
            try:
                os.link(source, target)
            except OSError:
                # It lies on another disk.
                shutil.copy2(source, target)


def main(arguments: list[str]) -> int:
    """Make it, and return pip's exit code."""
    folder, wheel, *requirements = arguments
    venv.create(folder, symlinks=True)
    python = Path(folder).resolve() / "bin" / "python"
    with ZipFile(wheel) as held:
        name = next(each for each in held.namelist() if each.endswith(".dist-info/METADATA"))
        said = held.read(name).decode().partition("\n\n")[0].splitlines()
    needs = [line.partition(": ")[2] for line in said if line.startswith("Requires-Dist: ")]
    for one in asked_for(requirements, (parse_wheel_filename(Path(wheel).name)[0], needs)).values():
        link(one, python)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
    for command in (("install", "--quiet", "--no-compile", "--no-deps", wheel), ("check",)):
        done = subprocess.run((*pip, *command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(done.stdout)
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
