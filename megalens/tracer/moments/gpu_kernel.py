"""Moments of one tensor in Triton: the algorithm of ``native/block.inc``, with blocks in registers."""

from __future__ import annotations

import triton
import triton.language as tl


# Triton compiles annotations too, so there are none but its own.
@triton.jit  # type: ignore[untyped-decorator]
def moments_kernel(  # type: ignore[no-untyped-def] # noqa: ANN201
    data, length, out, row_stride, enabled,  # noqa: ANN001
    BLOCK: tl.constexpr, COMPUTE: tl.constexpr, EPS: tl.constexpr, SWITCHED: tl.constexpr,
):  # fmt: skip
    """Write the row of every ``num_programs``-th block of ``length`` values, from the program's own on.

    ``out`` is float64: this program's row of figures begins at ``program * row_stride``. ``COMPUTE`` is
    float32, or float64 for float64; ``EPS`` is one of its numbers. The range's power of two scales each block
    into [-1, 1], and every sum is one of positive terms or small against them. Where ``SWITCHED`` and the
    int32 number ``enabled`` is 0, nothing of ``data`` is read and the row is one without data.
    """
    program = tl.program_id(0).to(tl.int64)
    if SWITCHED:
        length = tl.where(tl.load(enabled) != 0, length, 0)
    infinity = float("inf")
    count = tl.full((), 0.0, tl.float64)
    mean = count
    m2 = count
    m3 = count
    m4 = count
    nan_count = count
    inf_count = count
    negative_inf_count = count
    near_zero_count = count
    low = tl.full((), infinity, tl.float64)
    high = -low
    for start in range(program * BLOCK, length, tl.num_programs(0).to(tl.int64) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        there = at < length
        x = tl.load(data + at, mask=there, other=0.0).to(COMPUTE)
        nan = x != x
        # Not `abs(x) == infinity`: a NaN would pass for finite where comparisons are folded.
        infinite = (x == infinity) | (x == -infinity)
        finite = there & (nan == 0) & (infinite == 0)
        nan_count += tl.sum((there & nan).to(tl.int32), 0).to(tl.float64)
        inf_count += tl.sum((there & infinite).to(tl.int32), 0).to(tl.float64)
        negative_inf_count += tl.sum((there & (x == -infinity)).to(tl.int32), 0).to(tl.float64)
        near_zero_count += tl.sum((finite & (tl.abs(x) < EPS)).to(tl.int32), 0).to(tl.float64)
        n = tl.sum(finite.to(tl.int32), 0).to(tl.float64)
        least = tl.min(tl.where(finite, x, infinity), 0)
        most = tl.max(tl.where(finite, x, -infinity), 0)
        # Divided first: the sum itself may be beyond the type. Only a pivot, so its rounding costs nothing.
        middle = tl.sum(tl.where(finite, x, 0.0) * (1.0 / BLOCK), 0) * (BLOCK / tl.maximum(n, 1.0)).to(
            COMPUTE
        )
        pivot = tl.where(n > 0, tl.minimum(tl.maximum(middle, least), most), 0.0).to(COMPUTE)
        reach = tl.where(n > 0, tl.maximum(most - pivot, pivot - least), 0.0)
        # The power of two of 1 / reach, by its exponent's bits.
        exponent = (reach.to(tl.float32).to(tl.int32, bitcast=True) >> 23) & 255
        scale = ((254 - tl.minimum(tl.maximum(exponent, 1), 253)) << 23).to(tl.float32, bitcast=True)
        scale = tl.where(reach > 0, scale, 1.0).to(COMPUTE)
        d = tl.where(finite, x * scale - pivot * scale, 0.0)
        d2 = d * d
        s1 = tl.sum(d, 0).to(tl.float64)
        s2 = tl.sum(d2, 0).to(tl.float64)
        s3 = tl.sum(d2 * d, 0).to(tl.float64)
        s4 = tl.sum(d2 * d2, 0).to(tl.float64)
        # About the block's mean, in its own scale, then in the values'.
        m = s1 / tl.maximum(n, 1.0)
        back = 1.0 / scale.to(tl.float64)
        back2 = back * back
        block_mean = pivot.to(tl.float64) + m * back
        block_m2 = tl.maximum(s2 - n * m * m, 0.0) * back2
        block_m3 = (s3 - 3 * m * s2 + 2 * n * m * m * m) * back2 * back
        block_m4 = (s4 - 4 * m * s3 + 6 * m * m * s2 - 3 * n * m * m * m * m) * back2 * back2
        # Pairwise update: Pébay 2008, SAND2008-6212, equations 2.1 and 3.1.
        both = tl.maximum(count + n, 1.0)
        apart = tl.where(n > 0, block_mean - mean, 0.0)
        a = count / both * apart
        b = n / both * apart
        m4 += (
            block_m4 + count * b * b * b * b + n * a * a * a * a
            + 6 * (a * a * block_m2 + b * b * m2) + 4 * (a * block_m3 - b * m3)
        )  # fmt: skip
        m3 += block_m3 + n * a * a * a - count * b * b * b + 3 * (a * block_m2 - b * m2)
        m2 += block_m2 + n * a * a + count * b * b
        mean += b
        count += n
        low = tl.minimum(low, least.to(tl.float64))
        high = tl.maximum(high, most.to(tl.float64))
    row = out + program * row_stride
    tl.store(row, count)
    tl.store(row + 1, mean)
    tl.store(row + 2, m2)
    tl.store(row + 3, m3)
    tl.store(row + 4, m4)
    tl.store(row + 5, low)
    tl.store(row + 6, high)
    tl.store(row + 7, nan_count)
    tl.store(row + 8, inf_count)
    tl.store(row + 9, negative_inf_count)
    tl.store(row + 10, near_zero_count)
