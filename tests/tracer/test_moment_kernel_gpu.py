"""The GPU's kernel, where Triton is installed: its arithmetic in Triton's interpreter, and that it compiles for GPUs that are not here."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from megalens.tracer.moments import gpu as measuring

ROOT = Path(__file__).resolve().parents[2]
# It comes with torch's GPU builds alone, at 1 GB: the project's own environment has none, and then there is nothing here to run.
TRITON = find_spec("triton") is not None

EQUALS = """
import sys

sys.path.insert(0, "tests/tracer")
import numpy as np
from test_moment_kernel_exactness import LIMITS, TYPES, errors, natively, read, rounded, truth, whole_tensor
import torch
from megalens.tracer.moments.gpu import TritonKernel
from test_moment_kernel_tensors import assert_same

rng = np.random.default_rng(11)
tensors = [rounded(whole_tensor(rng), TYPES[i % 4], rng) for i in range(300)]
columns = [truth(tensor) for tensor in tensors]
expected = {name: np.array([each[name] for each in columns], dtype=np.float64) for name in columns[0]}
kernel = TritonKernel()
found = read(kernel.measure(tensors))
for name in ("count", "min", "max"):
    np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
for name, error in errors(found, expected).items():
    print(name, error.max())
    assert error.max() <= LIMITS[name], name

nan, inf = float("nan"), float("inf")
whole = torch.randn(24, 40, 30)
odd = [
    torch.zeros(0), torch.tensor(3.0), torch.full((5,), nan), torch.full((9,), 0.1), torch.tensor([nan, 1.0, -inf, 2.0, inf]),
    torch.randn(4096 * 515 + 7) + 50, whole.transpose(0, 2), whole[:, 3:17], whole[..., ::3], whole[:, :1].expand(24, 9, 30),
]
for row, tensor in zip(kernel.measure(odd), odd, strict=True):
    assert_same(row, tensor)

from megalens.tracer.moments.merge import merge_rows

for tensor in odd:
    (on,) = merge_rows(kernel.measure_where(tensor, torch.ones(1, dtype=torch.int32)))
    assert_same(on, tensor)
    off = kernel.measure_where(tensor, torch.zeros(1, dtype=torch.int32))
    assert not off[..., 0].any() and not off[..., 7:].any()

tiny = torch.tensor([0.0, -0.0, 9.99e-9, 1e-8, -1e-8, 1.01e-8, 1e-40, nan, inf, -inf, 1.0] * 900)
for dtype in TYPES:
    for eps in (1e-8, 0.0, 6e-8, 1.0):
        tensor = tiny.to(dtype)
        assert_same(kernel.measure([tensor], eps)[0], tensor, eps)
"""

COMPILES = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from megalens.tracer.moments.gpu_kernel import moments_kernel
from megalens.tracer.moments.gpu import _BLOCK, _WARPS

for target in (GPUTarget("cuda", 80, 32), GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
    for kind, compute in (("fp32", tl.float32), ("bf16", tl.float32), ("fp16", tl.float32), ("fp64", tl.float64)):
        for length, switched in (("i32", False), ("i64", False), ("i32", True)):
            arguments = {"data": "*" + kind, "length": length, "out": "*fp64", "row_stride": "i32", "enabled": "*i32" if switched else "*fp64", **dict.fromkeys(("BLOCK", "COMPUTE", "EPS", "SWITCHED"), "constexpr")}
            source = ASTSource(moments_kernel, arguments, {"BLOCK": _BLOCK, "COMPUTE": compute, "EPS": 1e-8, "SWITCHED": switched})
            made = triton.compile(source, target=target, options={"num_warps": _WARPS})
            assert {"cubin", "hsaco"} & set(made.asm)
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


if TRITON:

    @pytest.mark.slow
    def test_in_the_interpreter_it_equals_float64_numpy() -> None:
        run(EQUALS, TRITON_INTERPRET="1")

    @pytest.mark.slow
    def test_it_compiles_for_gpus_of_both_makers() -> None:
        run(COMPILES)


if torch.cuda.is_available():

    def test_on_a_gpu_it_equals_the_cpu() -> None:
        given = [
            torch.randn(1000, 700) + 5,
            torch.randn(77).bfloat16(),
            torch.randn(3, 5).half(),
            torch.randn(9).double(),
        ]
        rows = measuring.measure([each.to("cuda") for each in given])
        assert rows is not None, measuring.load()
        for row, each in zip(rows.cpu(), given, strict=True):
            d = each.double() - each.double().mean()
            assert row[0] == each.numel()
            assert row[1] == pytest.approx(each.double().mean().item(), rel=1e-6, abs=1e-7)
            assert row[2] == pytest.approx((d**2).sum().item(), rel=1e-6)
            assert row[4] == pytest.approx((d**4).sum().item(), rel=1e-5)


def test_without_triton_or_with_a_gpu_that_cannot_run_it_torch_measures(monkeypatch) -> None:
    class Broken(measuring.TritonKernel):
        def __init__(self) -> None:
            pass

        def measure(self, tensors, eps):
            raise RuntimeError("no driver")

    monkeypatch.setattr(measuring._Loaded, "kernel", Broken())
    assert measuring.measure([torch.ones(3)]) is None
    assert "no driver" in measuring.load()
    monkeypatch.setattr(measuring._Loaded, "kernel", None)
    monkeypatch.setitem(sys.modules, "triton.language", None)
    assert isinstance(measuring.load(), str)
    assert measuring.measure([torch.ones(3)]) is None
