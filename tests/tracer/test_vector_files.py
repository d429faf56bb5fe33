"""Files of vectors that lie: each is a typed error, in bounded time and memory; and what other programs write is read."""

import json
import os
import resource
import struct
import time
import zipfile
from collections import OrderedDict
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from megalens.protocol import ProtocolError, check_message
from megalens.tracer.tensors.compression_error import CompressionError
from megalens.tracer.vectors import load_vectors

ARRAY = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
UNIT = torch.nn.functional.normalize(ARRAY, dim=-1).unsqueeze(1)


def refused(folder: Path, name: str) -> ProtocolError:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ProtocolError) as caught:
        load_vectors(name, [folder], layers=4, features=[8], field="f")
    assert (caught.value.code, caught.value.field) == ("bad-vectors", "f")
    assert str(folder) not in caught.value.message
    assert time.process_time() - began < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    check_message(caught.value.to_message())
    caught.value.message.encode("utf-8")
    return caught.value


@pytest.mark.parametrize(
    "name",
    [
        "x" * 300,
        "x" * 300 + ".npy",
        "a/" * 400,
        "x" * 5000,
        "\udcff.npy",
        "half-\ud800.npy",
        "a\0.npy",
        "",
        ".",
        "..",
        "\n.npy",
        "folder.npy",
        "pipe.npy",
        "~",
        "/dev/zero",
        "/proc/self/mem",
        "folder.npy/../../x.npy",
        "null.npy",
    ],
    ids=ascii,
)
def test_a_name_that_is_that_of_no_file_in_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "null.npy").symlink_to("/dev/null")
    refused(tmp_path, name)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", ARRAY.numpy())

    def closed(path, *arguments, **more):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", closed)
    assert "Permission denied" in refused(tmp_path, "a.npy").message


def npy(header: bytes, data: bytes = b"", version: bytes = b"\x01\x00", length: int | None = None) -> bytes:
    size = len(header) if length is None else length
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", size) + header + data


def described(shape: str, descr: str = "'<f4'", order: str = "False") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()


@pytest.mark.parametrize(
    "data",
    [
        npy(described("(4, 1099511627776, 8)"), bytes(128)),
        npy(described("(4, 100000000, 8)"), bytes(128)),
        npy(described("(4, -8)"), bytes(128)),
        npy(described("(4, 8)"), bytes(100)),
        npy(described("(4, 8.0)"), bytes(128)),
        npy(described("(4, True)"), bytes(128)),
        npy(described("(" + "1," * 2000 + ")"), bytes(128)),
        npy(described("(4, 8)", "'|O'"), bytes(512)),
        npy(described("(4, 8)", "'|S1000000000'"), bytes(512)),
        npy(described("(4, 8)", "[('a', '<f4')]"), bytes(512)),
        npy(described("(4, 8)", "'<c8'"), bytes(512)),
        npy(described("(4, 8)", "('<f4', (100000, 100000))"), bytes(512)),
        npy(b"(" * 9000 + b")" * 900),
        npy(b"[" * 9000),
        npy(b"-" * 9000 + b"1"),
        npy(b"{'descr':" * 900),
        npy(b" " * 60_000),
        npy(b"1" * 9_999),
        npy(described("(4, 8)"), bytes(128), b"\x02\x00", 1 << 31),
        npy(described("(4, 8)"), bytes(128), b"\x03\x00"),
        b"\x93NUMPY",
        b"",
        b"PK\x03\x04" * 100,
        b"\x80\x04K\x01.",
    ],
    ids=range(24),
)
def test_an_npy_file_that_lies_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(data)
    refused(tmp_path, "a.npy")


def tensors(header: object, data: bytes = bytes(128), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: object = (4, 8), dtype: object = "F32", offsets: object = (0, 128)) -> dict:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    "data",
    [
        tensors(entry(), length=1 << 60),
        tensors(entry(), length=2**64 - 1),
        tensors(entry(), length=0),
        tensors(b"[" * 100_000),
        tensors(b'{"a":' * 100_000),
        tensors(b" " * (2 << 20)),
        tensors(b"\xff" * 50),
        tensors([]),
        tensors(1),
        tensors({}),
        tensors({"a": 1}),
        tensors(entry(shape=[4, 1 << 40], offsets=[0, 1 << 44])),
        tensors(entry(shape=[4, 1 << 62, 1 << 62, 8])),
        tensors(entry(shape=[4, -8])),
        tensors(entry(shape=[4.0, 8])),
        tensors(entry(shape=[True] * 8)),
        tensors(entry(shape=[1] * 1000)),
        tensors(entry(shape="48")),
        tensors(entry(offsets=[128, 0])),
        tensors(entry(offsets=[-128, 0])),
        tensors(entry(offsets=[1 << 50, (1 << 50) + 128])),
        tensors(entry(offsets=[0, 128, 4])),
        tensors(entry(dtype="C64", offsets=[0, 256]), bytes(256)),
        tensors(entry(dtype=["F32"])),
        tensors(entry(), bytes(64)),
        tensors({str(at): entry()["a"] for at in range(5000)}),
        b"",
        b"\x01",
    ],
    ids=range(28),
)
def test_a_safetensors_file_that_lies_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(data)
    refused(tmp_path, "a.safetensors")


def repacked(pickled: bytes | None = None, compress: int = zipfile.ZIP_STORED, **records: bytes) -> bytes:
    """A file of torch's with another pickle, or other records."""
    saved, made = BytesIO(), BytesIO()
    torch.save(ARRAY, saved)
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(made, "w", compress) as new:
        kept = {info.filename: old.read(info) for info in old.infolist()}
        folder = next(iter(kept)).partition("/")[0]
        kept |= {f"{folder}/{name}": data for name, data in records.items()}
        if pickled is not None:
            kept[f"{folder}/data.pkl"] = pickled
        for name, data in kept.items():
            new.writestr(name, data)
    return made.getvalue()


def described_tensor(shape: bytes, strides: bytes, count: bytes = b"K\x20", offset: bytes = b"K\0") -> bytes:
    """The pickle of one tensor, with operations for its sizes."""
    storage = b"((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu" + count + b"tQ"
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n"
        + storage
        + offset
        + shape
        + strides
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


LARGE = b"\x8a\x06" + (1 << 46).to_bytes(6, "little")
PAIR = b"K\x04K\x08\x86"
ROWS = b"K\x08K\x01\x86"
# Tuples that hold themselves twice, 60 deep: one hash of the last takes 2 ** 60 steps.
TWICE = b"\x80\x02}K\x01" + b"q\0h\0\x86" * 60 + b"K\x01s."


@pytest.mark.parametrize(
    "data",
    [
        repacked(described_tensor(b"K\x04" + LARGE + b"\x86", b"K\0K\0\x86")),
        repacked(described_tensor(b"K\x04" + LARGE + b"K\x08\x87", b"K\0K\0K\x01\x87")),
        repacked(described_tensor(PAIR, LARGE + b"K\x01\x86")),
        repacked(described_tensor(PAIR, b"J\xff\xff\xff\xffK\x01\x86")),
        repacked(described_tensor(PAIR, b"K\x01\x85")),
        repacked(described_tensor(PAIR, ROWS, LARGE)),
        repacked(described_tensor(PAIR, ROWS, offset=b"K\x01")),
        repacked(described_tensor(PAIR, ROWS, offset=LARGE)),
        repacked(described_tensor(b"N", ROWS)),
        repacked(described_tensor(b"K\x04K\x08\x86" * 1, b"G" + bytes(8) + b"\x85")),
        repacked(TWICE),
        repacked(b"\x80\x02c__builtin__\nbytearray\n" + LARGE + b"\x85R."),
        repacked(b"\x80\x02cbuiltins\nset\n)R."),
        repacked(b"\x80\x02cos\nsystem\nX\x04\0\0\0trueq\0\x85R."),
        repacked(b"\x80\x02" + b"]" * 30_000 + b"a" * 29_999 + b"."),
        repacked(b"\x80\x02" + b"(" * 30_000 + b"t" * 30_000 + b"."),
        repacked(b"\x80\x02" + b"t" * 100),
        repacked(b"\x80\x02R" * 100),
        repacked(b"\x80\x02h\x05."),
        repacked(b"\x80\x02K\x01Q."),
        repacked(b"\x80\x02X\xff\xff\xff\x7fabc."),
        repacked(b"\x80\x02\x8b\xff\xff\xff\x7fabc."),
        repacked(b"I" + b"1" * 100_000 + b"\n."),
        repacked(b""),
        repacked(b"N" * (2 << 20)),
        repacked(None, zipfile.ZIP_DEFLATED),
        repacked(byteorder=b"big"),
        repacked()[:-40],
        repacked()[:200] + bytes(2000) + repacked()[200:],
        b"PK\x03\x04" + bytes(100),
    ],
    ids=range(30),
)
def test_a_pt_file_that_lies_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(data)
    refused(tmp_path, "a.pt")


def bomb(entries: int) -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a/data.pkl", b"N.")
    data = made.getvalue()
    at = data.index(b"PK\x01\x02")
    directory, end = data[at : data.index(b"PK\x05\x06")], data[data.index(b"PK\x05\x06") :]
    size = len(directory) * entries
    count = min(entries, 0xFFFF)
    end = end[:8] + struct.pack("<HHII", count, count, size, at) + end[20:]
    return data[:at] + directory * entries + end


@pytest.mark.parametrize(
    "saved",
    [
        torch.nested.nested_tensor([torch.ones(8)] * 4),
        torch.ones(4, 8).to_sparse(),
        torch.ones(4, 8, dtype=torch.complex64),
        torch.ones(4, 8, device="meta"),
        torch.ones(4, 1, 1).expand(4, 1 << 40, 8),
        torch.ones(1, 8).expand(1 << 40, 8),
        [torch.ones(4, 8)],
        {"a": torch.ones(4, 8), "b": torch.ones(4, 8)},
        {1: torch.ones(4, 8)},
        "text",
        torch.nn.Linear(8, 4),
        torch.quantize_per_tensor(torch.ones(4, 8), 1.0, 0, torch.qint8),
    ],
    ids=range(12),
)
def test_what_else_torch_saves_is_refused(tmp_path: Path, saved: object) -> None:
    torch.save(saved, tmp_path / "a.pt")
    refused(tmp_path, "a.pt")


def test_a_directory_of_a_million_records_and_a_file_of_an_older_format_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(bomb(1_000_000))
    assert "4 MiB" in refused(tmp_path, "a.pt").message
    torch.save(ARRAY, tmp_path / "b.pt", _use_new_zipfile_serialization=False)
    assert "save it again" in refused(tmp_path, "b.pt").message


class Tagged(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vectors = torch.nn.Parameter(ARRAY)
        self.other = torch.nn.Linear(2, 2)


def tagged(tensor: torch.Tensor) -> torch.Tensor:
    tensor.note = "mine"
    return tensor


@pytest.mark.parametrize(
    "saved",
    [
        ARRAY,
        torch.nn.Parameter(ARRAY),
        ARRAY.clone().requires_grad_(),
        tagged(ARRAY.clone()),
        ARRAY.double(),
        ARRAY.t().contiguous().t(),
        torch.cat([torch.ones(3, 8), ARRAY])[3:],
        torch.stack([ARRAY, ARRAY], -1)[..., 0],
        {"vectors": ARRAY, "layers": [1, 2.5, None, True], "of": {"name": "gpt", "more": (1, 2)}, 3: "x"},
        OrderedDict(vectors=ARRAY),
        Tagged().state_dict(),
        {"one": ARRAY, "step": 10**12, "texts": "é" * 300},
    ],
    ids=range(12),
)
def test_what_torch_saves_of_vectors_is_read(tmp_path: Path, saved: object) -> None:
    torch.save(saved, tmp_path / "a.pt")
    torch.testing.assert_close(load_vectors("a.pt", [tmp_path], layers=4, features=[8]), UNIT)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int8,
        torch.int64,
        torch.uint8,
        torch.uint16,
        torch.uint64,
    ],
)
def test_narrow_and_whole_numbers_are_read_as_torch_reads_them(tmp_path: Path, dtype: torch.dtype) -> None:
    narrow = (ARRAY.abs() * 20 + 1).to(dtype)
    expected = torch.nn.functional.normalize(narrow.float(), dim=-1).unsqueeze(1)
    torch.save(narrow, tmp_path / "a.pt")
    names = ["a.pt"]
    # Up to 0.5 its own writer knows no unsigned numbers but bytes.
    with suppress(KeyError):
        save_file({"a": narrow}, tmp_path / "a.safetensors")
        names.append("a.safetensors")
    for name in names:
        torch.testing.assert_close(load_vectors(name, [tmp_path], layers=4, features=[8]), expected)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8", "<i2", ">i4", "<i8", "|u1", "<f16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numpy_are_read_whatever_their_order(tmp_path: Path, dtype: str, order: str) -> None:
    array = np.asarray((ARRAY.abs() * 20 + 1).numpy().reshape(4, 2, 4), dtype=dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    expected = torch.nn.functional.normalize(torch.from_numpy(array.astype(np.float32)), dim=-1)
    torch.testing.assert_close(load_vectors("a.npy", [tmp_path], layers=4, features=[4]), expected)


def test_vectors_of_which_bases_take_too_long_are_used_and_not_measured() -> None:
    from megalens import Projection

    few = CompressionError(Projection("a"), torch.randn(2, 3, 8))
    data = torch.randn(5, 8)
    assert few(data, data @ torch.randn(8, 3)).isfinite()
    began = time.process_time()
    many = CompressionError(Projection("a"), torch.ones(1, 1, 1).expand(64, 1 << 11, 1 << 11))
    assert time.process_time() - began < 2
    wide = torch.randn(5, 1 << 11)
    assert many(wide, wide).isnan()
    assert many.squares(wide, wide).isnan().all()
    assert np.isnan(many.fitted(wide))
