"""Build the conda recipe where no channel of conda is to be had: ``python scripts/conda_package.py FOLDER SITE_PACKAGES``.

rattler-build renders it, solves for its environments, runs its script and its tests, as a channel's own build does. What it solves from
is a channel made here: of each package that the recipe names the version that is installed, with nothing in it; ``python`` is a link to
this Python, which finds the installed packages. So the recipe, the bounds and the package are proven, and the channel's packages are not.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tarfile
from importlib.metadata import distributions
from pathlib import Path

from rattler_build import Package, Stage0Recipe, VariantConfig
from rattler_build.package_assembler import ArchiveType, assemble_package
from rattler_build.progress import SimpleProgressCallback
from rattler_build.tool_config import ToolConfiguration

RECIPE = Path(__file__).parents[1] / "packaging" / "conda" / "recipe.yaml"


def make_channel(folder: Path, installed: Path, names: set[str], pypi: dict[str, str]) -> None:
    """Write a channel of ``python`` and of ``names``, as they are installed; ``pypi`` has those that PyPI calls otherwise."""
    found = {
        re.sub(r"[-_.]+", "-", each.name).lower(): each.version
        for each in distributions(path=[str(installed)])
    }
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for each in installed.iterdir():
        # Not the checkout itself, nor what is imported for each start.
        if "megalens" not in each.name and each.suffix != ".pth":
            (packages / each.name).symlink_to(each)
    files = folder / "python"
    site = files / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (site / "installed.pth").write_text(f"{packages}\n")
    (files / "bin").mkdir()
    base = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    for name in ("python", "python3", f"python3.{sys.version_info[1]}"):
        (files / "bin" / name).symlink_to(base)
    (files / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    empty = folder / "empty"
    for name in sorted(names):
        (empty / name / "share" / "channel").mkdir(parents=True)
        (empty / name / "share" / "channel" / name).write_text("")
    version = ".".join(map(str, sys.version_info[:3]))
    entries: dict[str, dict[str, object]] = {"noarch": {}, "linux-64": {}}
    for name in ["python", *sorted(names)]:
        real = name == "python"
        where, content = ("linux-64", files) if real else ("noarch", empty / name)
        made = assemble_package(
            name,
            version if real else found[re.sub(r"[-_.]+", "-", pypi.get(name, name)).lower()],
            where,
            "0_cpython" if real else "0",
            folder / "channel",
            files_dir=content,
            noarch=None if real else "generic",
            archive_type=ArchiveType.TarBz2,
        )
        path = Path(made.path)
        with tarfile.open(path) as packed:
            index = json.load(packed.extractfile("info/index.json"))  # type: ignore[arg-type]
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        entries[where][path.name] = {**index, "sha256": digest, "size": path.stat().st_size}
        (folder / "channel" / where).mkdir(exist_ok=True)
        path.rename(folder / "channel" / where / path.name)
    for where, each in entries.items():
        repodata = {"info": {"subdir": where}, "packages": each, "packages.conda": {}, "repodata_version": 1}
        (folder / "channel" / where / "repodata.json").write_text(json.dumps(repodata))


def main(folder: Path, installed: Path) -> None:
    """Build, test and describe the package."""
    for name in ("channel-work", "built"):
        shutil.rmtree(folder / name, ignore_errors=True)
    recipe = Stage0Recipe.from_file(RECIPE)
    (variant,) = recipe.render(VariantConfig())
    rendered = variant.recipe.to_dict()
    asked = rendered["requirements"]
    names = {each.split()[0] for part in ("host", "run") for each in asked[part]} - {"python"}
    make_channel(folder / "channel-work", installed, names, rendered["extra"]["pypi-names"])
    built = variant.run_build(
        ToolConfiguration(test_strategy="native"),
        folder / "built",
        [(folder / "channel-work" / "channel").as_uri()],
        SimpleProgressCallback(),
    )
    for path in built.packages:
        package = Package.from_file(path)
        print(
            f"{Path(path).name}: {len(package.files)} files, built and tested; it asks for {', '.join(package.depends)}"
        )
    print("1 passed")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
