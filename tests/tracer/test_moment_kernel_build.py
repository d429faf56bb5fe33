"""The native kernel is built where there is a compiler, loaded from nowhere but the package, and missed by nobody where there is none."""

import importlib.util
import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from megalens.tracer.moments import kernel_name, measure, merge_rows
from megalens.tracer.moments.native.build import FOLDER, LIBRARY, build, source_hash
from megalens.tracer.moments.native.library import NativeKernel, load
from megalens.tracer.moments.part import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
COMPILER = next((found for each in ("c++", "g++", "clang++") if (found := shutil.which(each))), None)
# A machine without a compiler has nothing to load; that it then measures plainly is the first test's.
HERE = [FOLDER / LIBRARY] if COMPILER else []


def hook(**made):
    spec = importlib.util.spec_from_file_location("build_kernel", ROOT / "scripts" / "build_kernel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    said = []
    app = SimpleNamespace(display_warning=said.append)
    return module.KernelHook(str(ROOT), {}, None, None, "", "wheel", app=app), said


def test_where_there_is_a_compiler_setting_up_has_built_the_kernel() -> None:
    assert kernel_name("cpu").startswith("native" if COMPILER else "plain")


def test_without_a_compiler_nothing_is_built_and_the_wheel_is_for_any_platform(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no compiler" in build(tmp_path / "made" / LIBRARY)
    made, said = hook()
    data = {"force_include": {}}
    made.initialize("standard", data)
    assert data == {"force_include": {}}
    assert "torch will measure" in said[0]


@pytest.mark.parametrize("compiler", ["false", "/no/such/compiler"])
def test_a_compiler_that_fails_leaves_the_library_as_it_was(compiler, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CXX", compiler)
    target = tmp_path / LIBRARY
    target.write_bytes(b"earlier")
    assert compiler in build(target)
    assert target.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("library", HERE, ids=["here"] * len(HERE))
def test_a_wheel_with_the_kernel_says_its_platform(library, monkeypatch, tmp_path) -> None:
    # Setting up compiles it, and scripts/check-wheel.sh once more: this compiler gives what there is.
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\nfor target; do :; done\ncp "{library}" "$target"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    made, said = hook()
    data = {"force_include": {}}
    made.initialize("standard", data)
    ((built, place),) = data["force_include"].items()
    assert place == f"megalens/tracer/moments/native/{LIBRARY}"
    assert data["tag"].startswith("py3-none-")
    assert not data["tag"].endswith("any")
    assert data["pure_python"] is False
    assert NativeKernel(Path(built)).measure([]).shape == (0, COLUMNS)
    made.finalize("standard", data, "")
    assert not Path(built).exists()
    assert not said


@pytest.mark.slow
def test_asked_to_be_plain_it_says_why_and_starts_none_of_torchs_compilers() -> None:
    # They take seconds to import, in every process of a job.
    code = (
        "import sys; from megalens.tracer.moments.__main__ import main; main([]);"
        "print([name for name in ('torch._dynamo', 'triton') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"MEGALENS_KERNEL": "plain"}, capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout == "plain: MEGALENS_KERNEL=plain\n[]\n"


def test_a_missing_library_is_named(tmp_path) -> None:
    assert str(tmp_path / LIBRARY) in load(tmp_path / LIBRARY)


@pytest.mark.parametrize("library", HERE, ids=["here"] * len(HERE))
def test_a_library_of_another_source_is_not_used(library, tmp_path) -> None:
    copy = tmp_path / LIBRARY
    copy.write_bytes(library.read_bytes().replace(source_hash().encode(), b"0" * 16))
    assert "another version" in load(copy)


@pytest.mark.parametrize("library", HERE, ids=["here"] * len(HERE))
@pytest.mark.parametrize("writable", ["file", "folder"])
def test_a_library_that_any_user_may_write_is_not_used(library, writable, tmp_path) -> None:
    copy = tmp_path / LIBRARY
    shutil.copy(library, copy)
    assert not isinstance(load(copy), str)
    load.cache_clear()
    (copy if writable == "file" else tmp_path).chmod(0o777)
    assert "every user may write" in load(copy)
    load.cache_clear()


@pytest.mark.parametrize("library", HERE, ids=["here"] * len(HERE))
def test_the_number_of_threads_changes_no_bit(library) -> None:
    tensors = [torch.randn(n) for n in (1_000_000, 7, 65_536, 200_001)]
    kernel = NativeKernel(library)
    before = torch.get_num_threads()
    rows = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            for parallel in (kernel._parallel, None):
                kernel._parallel = parallel
                rows.append(kernel.measure([kernel.describe(each) for each in tensors]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, rows[0]) for each in rows)


@pytest.mark.slow
@pytest.mark.parametrize("library", HERE, ids=["here"] * len(HERE))
def test_more_values_than_an_int_counts(library) -> None:
    # Zeros that the system hands out without memory behind them; torch's own would be written.
    memory = mmap.mmap(-1, 2 * (2**31 + 5), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tensor = torch.frombuffer(memory, dtype=torch.float16)
    tensor[-3], tensor[2**31 - 1] = 7, -2
    (row,) = measure([tensor])
    assert row[0] == 2**31 + 5
    assert row[1] == pytest.approx(5 / (2**31 + 5), rel=1e-6)
    assert row[2] == pytest.approx(53, rel=1e-6)
    assert row[5:].tolist() == [-2, 7, 0, 0, 0, 2**31 + 3]


def test_nothing_waits_for_the_device() -> None:
    # Tensors without values: whatever asked for one on the host would raise.
    with FakeTensorMode():
        tensors = [torch.empty(shape, dtype=dtype) for shape in ((), (3, 4), (2**17,)) for dtype in (torch.float32, torch.bfloat16)]  # fmt: skip
        rows = measure(tensors)
        merged = merge_rows(torch.stack([rows, rows, rows]))
    assert merged.shape == (6, COLUMNS)
    assert merged.dtype == torch.float64


def test_a_subclass_that_keeps_its_values_elsewhere_is_measured_through_torch() -> None:
    class Doubled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                found = function(*args, **(kwargs or {}))
                return found * 2 if function is torch.Tensor.detach else found

    plain = torch.arange(1.0, 4.0)
    rows = measure([plain, plain.as_subclass(Doubled), plain])
    assert torch.as_tensor(rows)[:, 1].tolist() == [2, 4, 2]
    assert torch.as_tensor(rows)[:, 6].tolist() == [3, 6, 3]


def test_rows_of_an_inference_pass_may_be_added_to_afterwards() -> None:
    with torch.inference_mode():
        rows = measure([torch.ones(3)])
    rows += 1
    assert rows[0, 0] == 4
