"""Imports, trains, records, opens and tests a copy of the package, as ``rest_work.py COPY FOLDER ATTRIBUTE…``: no run of it has one of the attributes."""

import importlib
import os
import sys
from pathlib import Path

import pytest

root, folder, *absent = sys.argv[1:]
# What starts warm would be forked from the checkout's own package.
os.environ["MEGALENS_TEST_COLD"] = "1"
os.environ["MEGALENS_RUNTIME_DIR"] = f"{folder}/runtime"
# Its grammar of addresses takes longer to load than all else.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import torch  # noqa: E402

import megalens  # noqa: E402

package = Path(megalens.__file__).parent
assert package.is_relative_to(root), package


def import_all() -> None:
    files = [path.relative_to(package.parent) for path in package.rglob("*.py") if path.stem != "__main__"]
    assert len(files) > 200, len(files)
    for path in files:
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A package that is not installed, such as Triton on a machine without a GPU.
            if (error.name or "megalens").startswith("megalens"):
                raise


def train() -> Path:
    from megalens.demo.model import GPT, GPTConfig

    model = GPT(GPTConfig(vocabulary=32, layers=2, hidden=16, heads=2, sequence=8))
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 32, (2, 8))
    with megalens.trace(
        model, record=f"{folder}/runs", linger=0.1, flags={"HiddenStates": megalens.Tile(4)}
    ) as tracer:
        assert tracer.connected(30)
        megalens.log_statistics(model, optimizer, tracer=tracer, activation=1)
        for _ in range(3):
            with tracer.step():
                loss = model(ids).logsumexp(-1).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                tracer.log(loss=loss.detach())
    return tracer.folder


def look(recording: Path) -> None:
    with megalens.open(recording) as opened:
        for stream in ("tensors", "moments", "scalars"):
            assert set(opened.run.table(stream)["step"].to_pylist()) == {1, 2, 3}, stream
        for name in absent:
            for run in (opened, opened.run):
                with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
                    getattr(run, name)


import_all()
look(train())
sys.exit(
    pytest.main(
        [
            *("-q", "-x", "-p", "no:cacheprovider", "-m", "not slow"),
            *("tests/test_slices.py", "tests/protocol/test_streams.py"),
        ]
    )
)
