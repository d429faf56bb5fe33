"""Vectors come only from whole files in allowed folders."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from megalens.protocol import ProtocolError
from megalens.tracer.vectors import load_vectors


def refused(name: str, folders: list[Path], **options) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        load_vectors(name, folders, **{"layers": 4, "features": [8], "field": "f", **options})
    assert caught.value.code == "bad-vectors"
    assert caught.value.field == "f"
    assert caught.value.message.endswith("What was set before stays in force.")
    return caught.value


def test_the_three_formats_give_the_same_unit_vectors(tmp_path: Path) -> None:
    array = torch.randn(4, 8)
    np.save(tmp_path / "a.npy", array.numpy())
    torch.save(array, tmp_path / "a.pt")
    torch.save({"vectors": array, "other": torch.ones(1)}, tmp_path / "b.pt")
    save_file({"directions": array}, tmp_path / "a.safetensors")
    expected = (array / array.norm(dim=1, keepdim=True)).unsqueeze(1)
    for name in ("a.npy", "a.pt", "b.pt", "a.safetensors", str(tmp_path / "a.npy")):
        found = load_vectors(name, [tmp_path], layers=4, features=[8])
        torch.testing.assert_close(found, expected)


def test_several_vectors_a_layer_keep_their_axis(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(4, 3, 8)))
    found = load_vectors("a.npy", [tmp_path], layers=4, features=[8])
    assert found.shape == (4, 3, 8)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(4, 3))


def test_one_vector_is_that_of_every_layer(tmp_path: Path) -> None:
    array = torch.randn(8)
    save_file({"vectors": array}, tmp_path / "a.safetensors")
    found = load_vectors("a.safetensors", [tmp_path], layers=4, features=[8])
    torch.testing.assert_close(found, (array / array.norm()).expand(4, 1, 8))


def test_vectors_can_keep_their_length_and_be_one_a_layer(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    np.save(tmp_path / "a.npy", array)
    options = {"layers": 4, "features": [8], "several": False}
    assert np.array_equal(load_vectors("a.npy", [tmp_path], unit=False, **options)[:, 0], array)
    np.save(tmp_path / "a.npy", array[:, None].repeat(2, 1))
    error = refused("a.npy", [tmp_path], **options)
    assert (error.expected, error.got) == ("[8] or [4, 8]", "[4, 2, 8]")


def resident(word: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(word)) >> 10


@pytest.mark.slow
def test_a_file_of_500_megabytes_takes_little_more_than_its_values(tmp_path: Path) -> None:
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.float32, (4, 31_250_000))[1, :2] = 3, 4
    # From here on the most that is held is counted anew.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    found = load_vectors("a.npy", [tmp_path], layers=4)
    assert resident("VmHWM") - before < 512
    assert (found[1, 0, :2].tolist(), int(found.count_nonzero())) == (
        [pytest.approx(0.6), pytest.approx(0.8)],
        2,
    )


def test_headers_are_bounded_before_they_are_read(tmp_path: Path) -> None:
    array = torch.randn(4, 8)
    save_file({"vectors": array}, tmp_path / "a.safetensors")
    packed = (tmp_path / "a.safetensors").read_bytes()
    length = int.from_bytes(packed[:8], "little")
    header = packed[8 : 8 + length].ljust((1 << 20) + 8)
    (tmp_path / "a.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + packed[8 + length :]
    )
    torch.save({"vectors": array, "note": "x" * (1 << 20)}, tmp_path / "a.pt")
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 8)}".ljust(5 << 20)
    (tmp_path / "a.npy").write_bytes(
        b"\x93NUMPY\x02\x00" + len(head).to_bytes(4, "little") + head + bytes(128)
    )
    with open(tmp_path / "b.npy", "wb") as file:
        file.truncate((1 << 30) + 1)
    for name, why in {"a.safetensors": "1 MiB", "a.pt": "1 MiB", "a.npy": "4 MiB", "b.npy": "1 GiB"}.items():
        assert f"larger than {why}" in refused(name, [tmp_path]).message


def test_what_takes_too_much_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    shapes = {"(4, 31250001)": False, "(4, 10500000)": True, "(25000001,)": False}
    for shape, columns_first in shapes.items():
        head = f"{{'descr': '<f4', 'fortran_order': {columns_first}, 'shape': {shape}}}\n".encode()
        (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
        assert "more than 476 MiB" in refused("a.npy", [tmp_path], features=[]).message


def test_values_in_another_order_are_put_in_order(tmp_path: Path) -> None:
    array = torch.randn(4, 8)
    np.save(tmp_path / "a.npy", np.asfortranarray(array.numpy()))
    torch.save(array.T.contiguous().T, tmp_path / "a.pt")
    np.save(tmp_path / "b.npy", array.numpy().astype(">f8"))
    for name in ("a.npy", "a.pt", "b.npy"):
        found = load_vectors(name, [tmp_path], layers=4, features=[8], unit=False)
        assert torch.equal(found[:, 0], array)


def test_a_wrong_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    for shape in ((4, 9), (3, 8), (9,), (0,), (4, 1, 1, 8), (4, 0, 8)):
        np.save(tmp_path / "a.npy", np.ones(shape))
        error = refused("a.npy", [tmp_path])
        assert "[4, 8]" in str(error.expected)
        assert error.got == str(list(shape))


def test_a_path_outside_of_the_allowed_folders_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    np.save(outside / "a.npy", np.ones((4, 8)))
    (inside / "link.npy").symlink_to(outside / "a.npy")
    (inside / "loop.npy").symlink_to(inside / "loop.npy")
    for name in ("../out/a.npy", str(outside / "a.npy"), "link.npy", "/etc/passwd"):
        assert "outside" in refused(name, [inside]).message
    refused("loop.npy", [inside])
    refused("a\0.npy", [inside])
    assert "No folder" in refused("a.npy", []).message


def test_a_missing_broken_or_foreign_file_is_refused_without_naming_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "a.pt").write_bytes(b"PK\x03\x04 not a zip")
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 64)
    (tmp_path / "a.txt").write_text("1 2 3")
    np.save(tmp_path / "text.npy", np.array(["a"]))
    np.save(tmp_path / "nan.npy", np.full((4, 8), np.nan))
    torch.save({"a": torch.ones(4, 8), "b": torch.ones(4, 8)}, tmp_path / "two.pt")
    names = (
        "none.npy",
        "a.npy",
        "a.pt",
        "a.safetensors",
        "a.txt",
        "text.npy",
        "nan.npy",
        "two.pt",
        "sub/none.npy",
    )
    for name in names:
        assert str(tmp_path) not in refused(name, [tmp_path]).message


class Harmful:
    def __reduce__(self):
        return (open, ("harmed", "w"))


def test_nothing_that_a_file_holds_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "a.npy", np.array([Harmful()], dtype=object), allow_pickle=True)
    torch.save(Harmful(), tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Harmful()))
    for name in ("a.npy", "a.pt", "b.pt"):
        refused(name, [tmp_path])
    assert not (tmp_path / "harmed").exists()
