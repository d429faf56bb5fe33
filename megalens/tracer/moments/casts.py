"""What tensors lose when they are cast to fewer bits: shares, errors, scales, in rows of moments.

Nothing of the training is changed: a cast is computed beside it, with torch's own casts where there are some.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ...protocol import CAST_SHARES, CAST_STATS, MOMENT_COLUMNS
from ..errors import TracerError
from .measure import measure
from .merge import merge_rows
from .native import library
from .part import NameList

KINDS = ("param", "activation", "dgrad")
"""Statistics of the tensors whose casts are computed."""
HYBRID = {"param": "float8_e4m3fn", "activation": "float8_e4m3fn", "dgrad": "float8_e5m2"}
"""What FP8 training mostly does: gradients need the exponents, all else the fraction."""

_HISTORY = 16
# Few enough for a CPU's cache, and for torch to stay in the calling thread: ten short operations that wait
# for each other's threads take longer where other work keeps the cores busy.
_CHUNK = {"cpu": 1 << 15}
_CHUNK_ELSEWHERE = 1 << 22
_NAN_COUNT, _MAX = MOMENT_COLUMNS.index("nan_count"), MOMENT_COLUMNS.index("max")
# Where classes that hold numbers and scales have them: torchao's of training and of inference. The first are
# divided by.
_HOLDERS = (("_data", "_scale", True), ("qdata", "scale", False))
_SCALE_NAMES = ("_scale", "_scale_inv")
# Where Transformer Engine's modules have the scales of their input, weight and output's gradient, by how the
# tensor's name ends.
_OWN_SCALES = {
    "activation": ("scaling_fwd", 0, "/input0"),
    "param": ("scaling_fwd", 1, ""),
    "dgrad": ("scaling_bwd", 0, "/output0"),
}
_LARGE = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class SmallFloats:
    """Floating-point numbers of a few bits.

    Attributes
    ----------
    dtype : torch.dtype or None
        torch's own; None where torch has no cast to them.
    largest, normal : float
        The largest number, and the smallest that is normal.
    beyond : float
        The least size that rounds to more than ``largest`` (to nearest, ties to even).
    fraction : int
        Bits of their fraction.
    """

    dtype: torch.dtype | None
    largest: float
    normal: float
    beyond: float
    fraction: int

    @cached_property
    def becomes(self) -> float:
        """What a size from ``beyond`` on becomes: infinite, NaN or the largest, by torch's version."""
        if self.dtype is None:
            return self.largest
        return float(torch.tensor([_LARGE]).to(self.dtype).float())


_FLOAT16 = SmallFloats(torch.float16, 65504.0, 2.0**-14, 65520.0, 10)
_BFLOAT16 = SmallFloats(torch.bfloat16, (2 - 2**-7) * 2.0**127, 2.0**-126, (2 - 2**-8) * 2.0**127, 7)
# 464 lies in the middle between 448 and what would come next, and rounds to 448, which is even: the next
# float32.
E4M3 = SmallFloats(torch.float8_e4m3fn, 448.0, 2.0**-6, 464.0 + 2**-15, 3)
E5M2 = SmallFloats(torch.float8_e5m2, 57344.0, 2.0**-14, 61440.0, 2)
E2M1 = SmallFloats(None, 6.0, 1.0, 7.0, 1)
_FLOAT8 = (E4M3.dtype, E5M2.dtype)
# Sizes of E2M1, and the largest value that rounds down at each; a tie goes to the even one.
_SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_ROUNDS_DOWN = (0.25, 0.75 - 2**-24, 1.25, 1.75 - 2**-23, 2.5, 3.5 - 2**-22, 5.0)


@dataclass(frozen=True)
class CastFormat:
    """How a tensor is cast.

    Attributes
    ----------
    numbers : SmallFloats
        To what.
    scaled : str
        By what it is multiplied before: ``""`` nothing; ``tensor`` what makes its largest size the largest
        number; ``delayed`` what would have done so before; ``mx`` a power of two for each block, of which
        none is clamped; ``nv`` an E4M3 number for each block and a number for the tensor.
    block : int
        Values with a scale of their own, along the last axis; 0: all.
    """

    numbers: SmallFloats
    scaled: str = ""
    block: int = 0


FORMATS: Mapping[str, CastFormat] = {
    "float16": CastFormat(_FLOAT16),
    "bfloat16": CastFormat(_BFLOAT16),
    "float8_e4m3fn": CastFormat(E4M3, "tensor"),
    "float8_e5m2": CastFormat(E5M2, "tensor"),
    "float8_e4m3fn_delayed": CastFormat(E4M3, "delayed"),
    "float8_e5m2_delayed": CastFormat(E5M2, "delayed"),
    "float8_e4m3fn_unscaled": CastFormat(E4M3),
    "float8_e5m2_unscaled": CastFormat(E5M2),
    "mxfp8": CastFormat(E4M3, "mx", 32),
    "nvfp4": CastFormat(E2M1, "nv", 16),
}
"""By the name that rows have."""


def formats_of(given: Any) -> dict[str, tuple[str, ...]]:
    """Return the formats of each kind of tensor: of one name or several, for all kinds or by kind.

    None is :data:`HYBRID`.

    Raises ``TracerError`` for what is none.
    """
    given = HYBRID if given is None else given
    by_kind = given if isinstance(given, Mapping) else dict.fromkeys(KINDS, given)
    found: dict[str, tuple[str, ...]] = {}
    for kind, names in by_kind.items():
        several = (names,) if isinstance(names, str) else tuple(names)
        if kind not in KINDS:
            raise TracerError(f"formats=… has casts of {', '.join(KINDS)}, got {kind!r:.50}.")
        for name in several:
            if not isinstance(name, str) or name not in FORMATS:
                raise TracerError(f"formats=… must name some of {', '.join(FORMATS)}, got {name!r:.50}.")
        found[kind] = several
    return found


class Casts:
    """Computes casts of a process's tensors, by the formats of each kind, as rows of its list of names."""

    def __init__(self, formats: Mapping[str, tuple[str, ...]], names: NameList) -> None:
        self.formats = formats
        self._names = names
        self._before: dict[int, deque[Tensor]] = {}

    def rows(
        self, kind: str, at: int, tensor: Tensor, module: nn.Module | None = None
    ) -> Iterator[tuple[str, int, Tensor]]:
        """Give statistic, index of the name and row of each figure of a tensor with the name ``at``.

        ``module`` is whose input, weight or output it is.
        """
        if kind not in self.formats:
            return
        found = held(tensor)
        if found is not None:
            yield from self._named(kind, at, str(found[0].dtype)[6:], held_rows(*found))
            return
        for name in self.formats[kind]:
            form = FORMATS[name]
            if kind == "param" and form.scaled and tensor.dim() < 2:
                # No training scales and casts a bias or the weight of a norm.
                continue
            if form.scaled != "delayed":
                yield from self._named(kind, at, name, cast_rows(tensor, form))
                continue
            of = self._names.index(f"{self._names[at]}/{kind}:{name}")
            before = self._before.setdefault(of, deque(maxlen=_HISTORY))
            encode = None if module is None else _own_scale(module, kind, self._names[at])
            if encode is None and before:
                encode = _encode(torch.stack([*before]).amax().float(), form.numbers.largest)
            rows = cast_rows(tensor, form, encode)
            before.append(rows["cast_amax"][0, _MAX])
            yield from self._named(kind, at, name, rows)

    def held_rows(self, name: str, codes: Tensor, decode: Tensor | None) -> Iterator[tuple[str, int, Tensor]]:
        """Give the figures of a parameter or buffer that holds numbers of float8."""
        yield from self._named(
            "param", self._names.index(name), str(codes.dtype)[6:], held_rows(codes, decode)
        )

    def _named(
        self, kind: str, at: int, form: str, rows: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, int, Tensor]]:
        of = self._names.index(f"{self._names[at]}/{kind}:{form}")
        return ((stat, of, row) for stat, row in rows.items())


def held(
    tensor: Tensor, module: nn.Module | None = None, name: str = ""
) -> tuple[Tensor, Tensor | None] | None:
    """Return the numbers of a float8 tensor, and by what they are multiplied, where it is known; else None.

    That is torchao's classes, and a tensor ``name`` of a module of one of torch's types with its scale beside
    it (``weight_scale``, ``weight_scale_inv``).
    """
    for data, scale, divided in _HOLDERS:
        codes = getattr(tensor, data, None)
        if isinstance(codes, Tensor) and codes.dtype in _FLOAT8:
            factor = getattr(tensor, scale, None)
            return codes, 1 / factor.double() if divided and factor is not None else factor
    if tensor.dtype not in _FLOAT8:
        return None
    beside = (getattr(module, f"{name}{ending}", None) for ending in _SCALE_NAMES)
    return tensor, next((each for each in beside if isinstance(each, Tensor)), None)


def _own_scale(module: nn.Module, kind: str, name: str) -> Tensor | None:
    """Return the factor that a module of Transformer Engine with delayed scaling has for a tensor."""
    key, at, end = _OWN_SCALES[kind]
    if not name.endswith(end):
        return None
    meta = getattr(module, "fp8_meta", None)
    scales = getattr(meta.get(key), "scale", None) if isinstance(meta, Mapping) else None
    return scales[at] if isinstance(scales, Tensor) and scales.numel() > at else None


def cast_rows(tensor: Tensor, form: CastFormat, encode: Tensor | None = None) -> dict[str, Tensor]:
    """Cast a tensor, and return what that loses: of each of ``CAST_STATS`` a row float64 ``[1, 11]``.

    ``encode`` is the factor of delayed scaling; without it the tensor's own is taken. No device is waited
    for. Shares are of the finite values; the row of a share has count, moments and extremes of ones and
    zeros.
    """
    with torch.inference_mode(False), torch.no_grad():
        values = tensor.detach()
        if not values.numel():
            nothing = measure([values.reshape(-1).double()])
            return dict.fromkeys(CAST_STATS, nothing)
        natively = _natively(values, form, encode)
        counts, error, largest, decode = natively or cast_plainly(values, form, encode)
        finite, shares = counts[0].double(), counts[1:].double()
        found = dict(zip(CAST_SHARES, _share(shares, finite), strict=True))
        found |= {"cast_error": error, "cast_amax": measure([largest.reshape(-1).double()])}
        return {**found, "cast_scale": measure([decode.reshape(-1)])}


def _natively(
    values: Tensor, form: CastFormat, encode: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Return what :func:`cast_plainly` does, by the kernel for CPUs; None where it cannot read the values."""
    kernel = library.load()
    if isinstance(kernel, str) or values.dtype is torch.float64:
        return None
    values = values.reshape(
        -1, values.shape[-1] if values.dim() and form.block else values.numel()
    ).contiguous()
    largest = kernel.largest(values, form.block or values.shape[1])
    if largest is None:
        return None
    encode, decode = _scales(largest, form, encode)
    numbers = form.numbers
    how = (
        numbers.largest,
        numbers.normal,
        numbers.beyond,
        numbers.becomes,
        numbers.fraction,
        bool(form.scaled),
    )
    return *kernel.cast(values, form.block, how, encode, decode), largest, decode


def cast_plainly(
    values: Tensor, form: CastFormat, encode: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return counts as :func:`_cast` gives them, the row of errors, largest sizes, and what undoes scales."""
    if form.block:
        values = values.reshape(-1, values.shape[-1] if values.dim() else 1)
        lacking = -values.shape[-1] % form.block
        # What is not finite counts nowhere.
        values = pad(values, (0, lacking), value=math.nan) if lacking else values
        values = values.reshape(-1, form.block)
    else:
        values = values.reshape(-1, 1)
    chunk = max(1, _CHUNK.get(values.device.type, _CHUNK_ELSEWHERE) // values.shape[1])
    largest = torch.cat([_largest(part) for part in torch.split(values, chunk)])
    largest = largest if form.block else largest.amax().reshape(1, 1)
    encode, decode = _scales(largest, form, encode)
    counts, errors = [], []
    for at in range(0, len(values), chunk):
        here = slice(at, at + chunk)
        several = encode.numel() > 1
        count, error = _cast(
            values[here], form, encode[here] if several else encode, decode[here] if several else decode
        )
        counts.append(count)
        errors.append(error)
    count, error = torch.stack(counts).sum(0), merge_rows(torch.stack(errors))
    error[0, _NAN_COUNT] -= values.numel() - count[0]
    return count, error, largest, decode


def held_rows(codes: Tensor, decode: Tensor | None) -> dict[str, Tensor]:
    """Return what can be said of a tensor that holds numbers of torch's float8 types, and its scales.

    What was cast is gone, so there are no underflow, no overflow and no errors. ``saturated`` are the values
    at the largest number.
    """
    numbers = E4M3 if codes.dtype == E4M3.dtype else E5M2
    with torch.inference_mode(False), torch.no_grad():
        size = codes.detach().float().abs()
        finite = size.isfinite()
        n = finite.sum().double()
        found = {
            "saturated": _share((finite & (size == numbers.largest)).sum().double(), n),
            "subnormal": _share(((size > 0) & (size < numbers.normal)).sum().double(), n),
        }
        if decode is not None:
            found["cast_scale"] = measure([decode.detach().reshape(-1).double()])
        if decode is None or decode.numel() == 1:
            # Of blocks the largest sizes are not known without their shape.
            largest = torch.where(finite, size, 0.0).amax() * (1.0 if decode is None else decode.detach())
            found["cast_amax"] = measure([largest.reshape(1).double()])
        return found


def _largest(values: Tensor) -> Tensor:
    """Return the largest finite size, float32: of each row ``[rows, 1]``, of a single column ``[1, 1]``."""
    size = torch.where(values.isfinite(), values, 0).abs().float()
    return size.amax(1, keepdim=True) if values.shape[1] > 1 else size.amax().reshape(1, 1)


def _scales(largest: Tensor, form: CastFormat, encode: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return by what each block or all is multiplied, and what undoes that."""
    if not form.scaled:
        one = torch.ones((1, 1), device=largest.device)
        return one, one.double()
    if form.scaled == "mx":
        fraction, exponent = torch.frexp(largest / form.numbers.largest)
        # Rounded up, so that none is clamped; E8M0 has the exponents from -127 to 127.
        power = (exponent - (fraction == 0.5).int()).clamp(-127, 127)
        power = torch.where(largest > 0, power, -127)
        # By its bits: what computes powers may round them.
        decode = ((power.long() + 1023) << 52).view(torch.float64)
        return (1 / decode).float(), decode
    if form.scaled == "nv":
        whole = _encode(largest.amax(), form.numbers.largest * E4M3.largest)
        block = (largest / form.numbers.largest * whole).clamp(max=E4M3.largest)
        stored = block.to(torch.float8_e4m3fn).float()
        # Of a block whose scale is lost nothing comes back.
        return torch.where(stored > 0, whole / stored, 0.0), stored.double() / whole.double()
    if encode is None:
        encode = _encode(largest, form.numbers.largest)
    encode = encode.reshape(1, 1).to(largest.device, torch.float32)
    return encode, 1 / encode.double()


def _encode(largest: Tensor, most: float) -> Tensor:
    """Return the float32 factor that makes ``largest`` the number ``most``; 1 for a tensor of zeros."""
    return torch.where(largest > 0, (most / largest).clamp(max=_LARGE), 1.0)


def _cast(values: Tensor, form: CastFormat, encode: Tensor, decode: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many values are finite and are of each share, int64 ``[5]``, and the row of errors."""
    numbers = form.numbers
    scaled = values.float() * encode
    if numbers.dtype is None:
        sizes = torch.tensor(_SIZES, device=values.device)
        edges = torch.tensor(_ROUNDS_DOWN, device=values.device)
        number = torch.copysign(sizes[torch.bucketize(scaled.abs(), edges)], scaled)
    else:
        # A cast alone is torch's own, of the values as they are.
        given = scaled.clamp(-numbers.largest, numbers.largest) if form.scaled else values
        number = given.to(numbers.dtype).float()
    finite = values.isfinite()
    size = number.abs()
    beyond = finite & (scaled.abs() >= numbers.beyond)
    counts = (
        finite,
        finite & (values != 0) & (size == 0),
        beyond,
        beyond & size.isfinite(),
        finite & (size > 0) & (size < numbers.normal),
    )
    error = torch.where(finite, number.double() * decode - values.double(), torch.nan)
    return torch.stack([each.sum() for each in counts]), measure([error], threads=1)


def _share(k: Tensor, n: Tensor) -> Tensor:
    """Return the row of ``k`` ones among ``n`` ones and zeros, float64 ``[1, 11]``; of several one each."""
    none, n = n == 0, n.expand_as(k)
    p = k / n
    q = (n - k) / n
    spread = [torch.where(none, 0.0, each) for each in (k * q, k * q * (q - p), k * q * (1 - 3 * p * q))]
    ends = [torch.where(none, torch.nan, each.double()) for each in (k == n, k > 0)]
    zero = torch.zeros_like(k)
    return torch.stack([n, p, *spread, *ends, zero, zero, zero, n - k], -1).unsqueeze(-2)
