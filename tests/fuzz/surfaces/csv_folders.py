"""A folder of CSV files that TrainerMon, or somebody else, wrote: two ranks, of which one is as it should be."""

import os
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from megalens.runs import ClientError, open_run
from tests.fuzz.mutate import mutated_bytes, mutated_text
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())
_HEADERS = (
    "vpp_stage,name,step,min,max,norm,zeros,nans,mean,shape,dtype",
    "vpp_stage,name,step,micro_step,norm,shape,dtype",
    "vpp_stage,name,step,norm",
)
_PIECES = (
    *(
        ",",
        '"',
        "\n",
        "\r\n",
        "\r",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "-1",
        "9" * 30,
        "0x1",
        "'",
        "\x00",
        "\ufeff",
    ),
    *("vpp_stage,name,step,norm\n", "vpp_stage,name,step\n" * 200, "a,b,c\n" * 50, ",,,,,,,,,,\n", "[3, 4]"),
    *(
        "vpp_stage," + ",".join(f"c{at}" for at in range(70)) + ",step\n",
        '"[3, 4]"',
        '"' + "x" * 140_000,
        "step",
    ),
)
os.environ["XDG_CACHE_HOME"] = str(_FOLDER / "cache")


def _lines(header: str) -> str:
    cells = {"vpp_stage": "0", "micro_step": "0", "nans": "0", "shape": '"[3, 4]"', "dtype": "torch.float32"}
    rows = [
        ",".join(
            cells.get(column, {"name": f"layers.{layer}.w", "step": str(step)}.get(column, "0.25"))
            for column in header.split(",")
        )
        for step in range(3)
        for layer in range(3)
    ]
    return "\n".join([header, *rows, ""])


def _seeds() -> list[Any]:
    return [
        {"name": f"{kind}_0-1.csv", "text": _lines(header)}
        for kind in ("grad_reduced", "actv", "exp_avg_sq")
        for header in _HEADERS
    ]


def _mutate(chance: Random, seed: Any) -> Any:
    text = mutated_text(chance, seed["text"], _PIECES) if chance.random() < 0.8 else seed["text"]
    data = text.encode("utf-8", "surrogatepass" if chance.random() < 0.1 else "replace")
    if chance.random() < 0.4:
        # In half of these somewhere in the header.
        data = mutated_bytes(chance, data, [range(len(seed["text"].partition("\n")[0]))])
    if chance.random() < 0.1:
        data = data * chance.choice((2, 300))
    return {"name": seed["name"], "data": data, "whole": _lines(_HEADERS[0]).encode()}


def _run(given: Any) -> None:
    for each in (_FOLDER / "out", _FOLDER / "cache"):
        shutil.rmtree(each, ignore_errors=True)
    place = _FOLDER / "out" / "Nov21_12-20-04-rank0-82ac1f33"
    place.mkdir(parents=True)
    (place / given["name"]).write_bytes(given["data"])
    (place / "param_updated_0-0.csv").write_bytes(given["whole"])
    with open_run(_FOLDER / "out") as run:
        # What is damaged costs itself: the other file is read.
        assert len(run.moments("param", ["name"])) == 9
        for stat in ("grad", "activation", "exp_avg_sq"):
            try:
                run.moments(stat, ["name"])
            except ClientError:
                continue
        run.readings(given["name"].rpartition("_")[0])


def _every_byte() -> list[Any]:
    whole = _lines(_HEADERS[0]).encode()
    return [
        {"name": seed["name"], "data": data, "whole": whole}
        for seed in _seeds()[: len(_HEADERS)]
        for data in byte_changes(seed["text"].encode())
    ]


SURFACE = Surface(_seeds, _mutate, _run, (ClientError,), _every_byte)
