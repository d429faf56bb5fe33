from collections.abc import Callable, Iterator

import pytest
import torch

import megalens
from megalens.adapters import find_adapter
from megalens.adapters.watch import PassWatch
from megalens.runs import Run
from megalens.tracer.tensors.batch import Batch
from megalens.tracer.tensors.capture import Capture
from megalens.tracer.tensors.config import change_plan, settings_from
from megalens.tracer.tensors.plan import TracingPlan
from tests.kit.live_run import eventually


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


Traced = dict[tuple[str, int, str], torch.Tensor]


@pytest.fixture
def capture_all() -> Iterator[Callable]:
    """Run a model once with every flag that it has, uncompressed and with all samples; with ``watch`` once
    more before that, which tells where the flags are.
    """
    captures = []

    def run(model, forward: Callable[[], object], adapter=None, watch=False) -> tuple[Traced, Batch, object]:
        points = (adapter or find_adapter(model)).points(model)
        if watch:
            with torch.no_grad(), PassWatch(points, adapter) as watching:
                forward()
            points = watching.finish()
        warnings: list[str] = []
        capture = Capture(points, warnings.append, hand_over=lambda batch: None)
        captures.append(capture)
        names = [name for name, here in points.flags.items() if here.layers]
        settings = {name: {"compressor": {"name": "NoOp"}, "samples": None} for name in names}
        capture.follow(change_plan(TracingPlan(), settings_from(settings), points))
        # Training mode of the model itself is all that tells a pass of training; what is inside may stay without dropout.
        for root in points.roots:
            root.training = True
        capture.begin(1, "train")
        output = forward()
        fired, expected, missing = capture.fired()
        assert (fired, missing, warnings) == (expected, {}, [])
        batch = capture.take()
        return {(r.meta.flag, r.meta.layer, r.meta.part): r.values for r in batch.rows}, batch, output

    yield run
    for capture in captures:
        capture.release()


@pytest.fixture
def recorded(tmp_path, monkeypatch) -> Callable[[], Run]:
    """Open the one recording in the test's folder, once its hub has closed it."""
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "rt"))

    def open_it() -> Run:
        def whole() -> bool:
            files = list((tmp_path / "runs").glob("*/run.json"))
            return bool(files) and '"finished"' in files[0].read_text(encoding="utf-8")

        eventually(whole, "the end of the recording")
        (folder,) = (tmp_path / "runs").iterdir()
        return megalens.open(folder)

    return open_it
