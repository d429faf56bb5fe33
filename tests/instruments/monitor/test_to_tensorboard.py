"""TrainerMon's CSV files as TensorBoard's, read by the format's own rules."""

import math
import resource
import subprocess
import sys

import pytest
from event_files import events_of

from megalens.__main__ import main
from megalens.instruments.monitor.trainermon import csv2tensorboard_by_step
from megalens.instruments.monitor.trainermon.config import ConfigError
from megalens.instruments.monitor.trainermon.writing import EventFile
from megalens.protocol import MegalensError

HEAD = "vpp_stage,name,step,micro_step,norm,nans,shape,dtype\n"


@pytest.fixture
def folder(tmp_path):
    for name, norm in (
        ("Nov21_12-20-04-rank0-82ac1f33", 1.5),
        ("Nov21_12-30-00-rank0-0000aaaa", 7.0),
        ("Nov21_12-20-05-rank12-82ac1f34", 3.0),
    ):
        place = tmp_path / "out" / name
        place.mkdir(parents=True)
        steps = (2, 1) if norm < 7 else (2, 3)
        text = "".join(
            f'1,a.input,{step},{micro},{norm + micro},0,"[2]",torch.float32\n'
            for step in steps
            for micro in (0, 1)
        )
        (place / "actv_0-9.csv").write_text(HEAD + text)
        (place / "grad_reduced_0-9.csv").write_text(
            'vpp_stage,name,step,norm,shape,dtype\n0,w,1,nan,"[2]",torch.float32\n'
        )
    return tmp_path / "out"


def test_each_rank_and_kind_is_a_file_and_a_later_folder_counts(folder, tmp_path, capsys):
    out = tmp_path / "events"
    # In this process; the test of a script does it in two others.
    asked = ["--output_dirpath", str(out), "--process_num", "1"]
    assert main(["monitor", "to-tensorboard", str(folder), *asked]) == 0
    numbers, pictures = events_of(out / "rank0" / "actv")
    assert {key: value for key, value in numbers.items() if key[0].endswith("/norm")} == {
        ("vp1:a.input:micro0/norm", 1): 1.5, ("vp1:a.input:micro1/norm", 1): 2.5,
        ("vp1:a.input:micro0/norm", 2): 7.0, ("vp1:a.input:micro1/norm", 2): 8.0,
        ("vp1:a.input:micro0/norm", 3): 7.0, ("vp1:a.input:micro1/norm", 3): 8.0,
    }  # fmt: skip
    assert [step for _, step in numbers] == sorted(step for _, step in numbers)
    assert ("vp1:a.input:micro0/nans", 3) in numbers
    assert pictures == {}
    assert math.isnan(events_of(out / "rank12" / "grad_reduced")[0]["vp0:w/norm", 1])
    said = capsys.readouterr()
    assert "actv_0-9.csv has steps that were there before: the later ones count." in said.err
    assert f"Wrote {out}" in said.out


def test_folders_and_kinds_can_be_chosen_and_files_are_replaced(folder, tmp_path):
    for _ in range(2):
        out = csv2tensorboard_by_step(
            folder, "Nov21_12-20-04", "Nov21_12-20-05", data_type_list=["actv"], output_dirpath=tmp_path / "e"
        )
    assert sorted(str(path.parent.relative_to(out)) for path in out.rglob("*tfevents*")) == [
        "rank0/actv",
        "rank12/actv",
    ]
    assert ("vp1:a.input:micro0/norm", 2) in events_of(out / "rank0/actv")[0]
    assert csv2tensorboard_by_step(folder).parent == folder
    assert csv2tensorboard_by_step(folder).name.endswith("-csv2tensorboard_by_step")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"process_num": 0}, "process_num must be 1 to 128, got 0"),
        ({"process_num": 129}, "process_num must be 1 to 128, got 129"),
        ({"data_type_list": "actv"}, "data_type_list must be a list of any of actv, .*, got 'actv'"),
        ({"data_type_list": ["other"]}, "data_type_list must be a list"),
        ({"data_type_list": [["actv"]]}, "data_type_list must be a list"),
        ({"time_start": "yesterday"}, "time_start: illegal timestamp 'yesterday'"),
        ({"time_start": "Nov21_12-20-04", "time_end": "Nov20_12-20-04"}, "time_start must not be after time_end"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(folder, wrong, sentence):
    with pytest.raises(ConfigError, match=sentence):
        csv2tensorboard_by_step(folder, **wrong)


def test_a_folder_with_nothing_is_told(tmp_path, capsys):
    assert main(["monitor", "to-tensorboard", str(tmp_path)]) == 2
    assert "holds no" in capsys.readouterr().err


@pytest.mark.slow
def test_a_script_without_a_main_block_is_not_run_again(folder, tmp_path):
    script = tmp_path / "convert.py"
    script.write_text(
        "from megalens.instruments.monitor.trainermon import csv2tensorboard_by_step\n"
        "print('begun')\n"
        f"csv2tensorboard_by_step({str(folder)!r}, process_num=2, output_dirpath={str(tmp_path / 'e')!r}, tell=lambda _: None)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stdout) == (0, "begun\n"), done.stderr
    assert events_of(tmp_path / "e" / "rank12" / "actv")[0]["vp1:a.input:micro0/norm", 1] == 3.0


def test_two_outputs_are_not_mixed(folder, tmp_path):
    folder.rename(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "Nov21_12-30-00-rank0-0000aaaa").rename(
        tmp_path / "b" / "Nov21_12-30-00-rank0-0000aaaa"
    )
    with pytest.raises(MegalensError, match="must hold one output of TrainerMon, it holds 2"):
        csv2tensorboard_by_step(tmp_path)


def test_a_line_of_many_rows_is_written_in_several_events(tmp_path):
    place = tmp_path / "Nov21_12-20-04-rank0-82ac1f33"
    place.mkdir()
    text = "".join(f'0,w{n},3,{n},"[2]",torch.float32\n' for n in range(2500))
    (place / "grad_reduced_0-9.csv").write_text("vpp_stage,name,step,norm,shape,dtype\n" + text)
    out = csv2tensorboard_by_step(tmp_path, output_dirpath=tmp_path / "e")
    numbers, _ = events_of(out / "rank0" / "grad_reduced")
    assert numbers == {(f"vp0:w{n}/norm", 3): n for n in range(2500)}


def test_files_that_are_there_stay_where_new_ones_cannot_be_written(folder, tmp_path):
    out = csv2tensorboard_by_step(folder, data_type_list=["actv"], output_dirpath=tmp_path / "e")
    before = events_of(out / "rank0" / "actv")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(MegalensError, match="cannot be written: File too large"):
            csv2tensorboard_by_step(folder, data_type_list=["actv"], output_dirpath=out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert events_of(out / "rank0" / "actv") == before


def test_what_comes_after_a_full_disk_can_be_read(tmp_path):
    file = EventFile(tmp_path)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(OSError):
            file.scalars(1, {f"{n}": n for n in range(5000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    broken = {*tmp_path.iterdir()}
    file.scalars(2, {"a": 1.0})
    file.close()
    assert len(broken) == 1
    broken.pop().unlink()
    assert events_of(tmp_path)[0] == {("a", 2): 1.0}
