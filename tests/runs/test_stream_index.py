"""The index beside a stream that grows: it spares reading, and changes no answer, whatever became of it."""

import json

import numpy as np
import pyarrow as pa
import pytest

from megalens.hub.recording_folder import RecordingFolder
from megalens.protocol import FrameChecker, decode_frame, encode_frame, index_path, stream_schema
from megalens.runs import RunFolder, open_run
from megalens.runs.answers import RunAnswers
from megalens.runs.arrows_map import ArrowsMap
from megalens.runs.joined_messages import JoinedMessages
from megalens.server.run_notes import remove_recording

STEPS = 60
ENTRY = 32


def tensor(step, layer, flag, labels=(), values=6):
    return {
        "step": step,
        "micro_batch": 0,
        "phase": "train",
        "pass": "forward",
        "rank": layer % 2,
        "layer": layer,
        "flag": flag,
        "part": "",
        "compressor": "NoOp()",
        "source_shape": [1, values],
        "shape": [1, values],
        "values": [step + layer / 8] * values,
        "labels": list(labels),
        "nan_count": 0,
        "inf_count": 0,
        "compression_error": float("nan"),
        "count": float(values),
        **dict.fromkeys(("mean", "m2", "m3", "m4", "min", "max"), step / 4 + layer),
    }


def frames(steps, offset=0.0):
    """Yield frames of a training: flags that come at different steps, texts that change, a frame of several steps, and one of one step twice."""
    for step in range(1, steps + 1):
        rows = [tensor(step, layer, "MLP1_mat_mul") for layer in range(4)]
        if step % 5 == 0:
            rows += [tensor(step, layer, "HiddenStates", values=9) for layer in range(4)]
        yield "tensors", rows
        if step % 7 == 0:
            yield "tensors", [tensor(step, -1, "InputTokens", [chr(97 + step % 26)] * 6)]
        if step % 20 == 0:
            yield "tensors", [tensor(at, 1, "Late") for at in (step - 3, step - 1)]
        names = ["loss", "lr"] if step % 10 else ["loss", "lr", "held_out"]
        yield (
            "scalars",
            [
                {
                    "step": step,
                    "time": 1e9 + step,
                    "rank": 0,
                    "name": name,
                    "value": offset + step / 3,
                    "unit": name[:1],
                }
                for name in names
            ],
        )
        yield (
            "moments",
            [moment(step, name, stat) for stat in ("param", "grad") for name in ("a.0.w", "a.1.w")],
        )


def moment(step, name, stat):
    numbers = [each.name for each in stream_schema("moments") if pa.types.is_floating(each.type)]
    said = {"step": step, "samples": 8 * step, "stat": stat, "name": name, "rank": 0, "stage": -1}
    return {
        **dict.fromkeys(numbers, 1.0),
        **said,
        "mean": step / 8,
        "count": 4.0,
        "gradient_stage": "pre_clip",
    }


def write(recording, several):
    """Record frames."""
    checker = FrameChecker()
    for stream, rows in several:
        table = pa.Table.from_pylist(rows, schema=stream_schema(stream))
        data = encode_frame(stream, table, step=rows[-1]["step"])
        recording.append(checker.check(decode_frame(data), data))


def recorded(folder, steps=STEPS, offset=0.0):
    """Record as a hub does that is killed in the end."""
    recording = RecordingFolder(folder)
    write(recording, frames(steps, offset))
    flags = [
        {
            "name": name,
            "title": name,
            "layers": [0, 1, 2, 3],
            "parts": [],
            "axes": [],
            "bytes_per_layer": None,
        }
        for name in ("MLP1_mat_mul", "HiddenStates")
    ]
    run = {"id": folder.name, "name": "run", "started": 1.0}
    about = {"format": 2, "run": run, "state": "training", "ended": None, "flags": flags, "missing_steps": []}
    recording.write_description(about)
    recording.close()
    return folder


def answers(folder):
    """Return all that is asked of a run, with new objects each time."""
    run = open_run(folder)
    asked = RunAnswers(run)

    def rows(**texts):
        return pa.ipc.open_stream(asked.stream("tensors", texts).body).read_all().to_pylist()

    def lines(stream, **texts):
        table = pa.ipc.open_stream(asked.lines(stream, texts)).read_all()
        return table.to_pydict(), json.loads(table.schema.metadata[b"megalens"])

    moments = asked.moments_index()
    groups = asked.moments_groups({"stat": "grad", "statistic": "l2", "by": ["layer"]})[0]
    found = {
        "index": asked.index(),
        "all": rows(flag="MLP1_mat_mul"),
        "lowest": rows(flag="HiddenStates", rank="lowest", first="7", last="31"),
        "late": rows(flag="Late", layers="1"),
        "none": rows(flag="Never"),
        "words": rows(flag="InputTokens"),
        "trend": lines("tensors", flag="MLP1_mat_mul", rank="lowest", statistic="mean", points="50"),
        "loss": lines("scalars", names='["loss"]', first="5", last="40"),
        "scalars": lines("scalars"),
        "moments": [moments[name] for name in ("stats", "names", "samples")],
        "groups": groups.to_pydict(),
        "detail": (asked.detail()["status"]["step"], run.truncated, RunFolder(folder).step),
    }
    run.close()
    return json.dumps(found, default=str)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A recording without any index, and what is answered of it."""
    folder = recorded(tmp_path_factory.mktemp("plain") / "run")
    for index in folder.glob("*.index"):
        index.unlink()
    return answers(folder)


@pytest.fixture
def folder(tmp_path):
    return recorded(tmp_path / "run")


def indexes(folder):
    found = sorted(folder.glob("*.index"))
    assert [index.stem for index in found] == ["moments", "scalars", "tensors"]
    return found


def test_with_an_index_the_answers_are_those_without(folder, plain):
    indexes(folder)
    assert answers(folder) == plain


@pytest.mark.slow
def test_an_index_that_is_cut_anywhere_changes_no_answer(folder, plain):
    whole = {index: index.read_bytes() for index in indexes(folder)}
    longest = max(map(len, whole.values()))
    for cut in [0, 1, 31, 32, 33, 64, 65, *range(96, longest, longest // 12), longest - 1]:
        for index, data in whole.items():
            index.write_bytes(data[:cut])
        assert answers(folder) == plain, cut


@pytest.mark.slow
def test_garbage_in_an_index_changes_no_answer(folder, plain):
    whole = {index: index.read_bytes() for index in indexes(folder)}
    rng = np.random.default_rng(0)
    for turn in range(24):
        for index, data in whole.items():
            spoiled = bytearray(data)
            if turn % 3 == 0:
                spoiled = bytearray(rng.bytes(len(data)))
            elif turn % 3 == 1:
                spoiled[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            else:
                at = int(rng.integers(1, len(data) // ENTRY)) * ENTRY
                spoiled[at : at + ENTRY] = bytes(ENTRY)
            index.write_bytes(spoiled)
        assert answers(folder) == plain, turn


def test_the_index_of_another_file_is_not_believed(folder, plain, tmp_path):
    other = recorded(tmp_path / "other", offset=0.5)
    for index in indexes(folder):
        index.write_bytes((other / index.name).read_bytes())
    (folder / "tensors.index").write_bytes((folder / "scalars.index").read_bytes())
    assert answers(folder) == plain


def test_an_index_of_more_than_the_file_has_is_believed_up_to_its_end(folder, tmp_path):
    for stream in ("tensors", "scalars", "moments"):
        path = folder / f"{stream}.arrows"
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with_index = answers(folder)
    for index in indexes(folder):
        index.unlink()
    assert with_index == answers(folder)


def test_a_hub_that_ends_between_a_message_and_its_entry_leaves_nothing_out(folder, plain):
    for index in indexes(folder):
        index.write_bytes(index.read_bytes()[:-ENTRY])
    assert answers(folder) == plain


@pytest.mark.parametrize("instead", ["folder", "link", "sparse"])
def test_what_is_no_index_is_left_alone(folder, plain, instead, tmp_path):
    for index in indexes(folder):
        data = index.read_bytes()
        index.unlink()
        if instead == "folder":
            index.mkdir()
        elif instead == "link":
            (tmp_path / index.name).write_bytes(data)
            index.symlink_to(tmp_path / index.name)
        else:
            with index.open("wb") as file:
                file.write(data)
                file.truncate(1 << 40)
    assert answers(folder) == plain


def test_what_is_recorded_after_the_index_was_read_is_answered(tmp_path):
    folder = tmp_path / "run"
    recording = RecordingFolder(folder)
    recording.write_description({"format": 2, "run": {"id": "run", "name": "run", "started": 1.0}})
    run = RunFolder(folder)
    for frame in frames(12):
        write(recording, [frame])
        if frame[0] == "tensors":
            flag, step = frame[1][-1]["flag"], frame[1][-1]["step"]
            assert [one["steps"][-1] for one in run.tensor_places().index() if one["flag"] == flag] == [step]
    assert run.read("tensors").num_rows == 12 * 4 + 2 * 4 + 1
    recording.close()


def test_of_a_question_only_messages_that_may_have_rows_of_it_are_read(folder, monkeypatch):
    read = []
    whole = JoinedMessages.read
    monkeypatch.setattr(
        JoinedMessages,
        "read",
        lambda self, piece, *rest: read.append(len(piece)) or whole(self, piece, *rest),
    )
    rows = pa.ipc.open_stream(RunAnswers(open_run(folder)).stream("tensors", {"flag": "HiddenStates"}).body)
    assert rows.read_all().num_rows == 4 * STEPS // 5
    # Once for the sizes of the steps and once for the rows; all messages are 60 + 8 + 3.
    assert sum(read) <= 2 * (STEPS // 5 + 8 + 3)
    read.clear()
    assert len(RunAnswers(open_run(folder)).index()) == 4
    assert sum(read) < 71


def test_a_packed_recording_has_no_index_and_a_deleted_one_leaves_none(folder, tmp_path):
    recording = RecordingFolder(tmp_path / "packed")
    write(recording, frames(3))
    recording.pack()
    assert not list((tmp_path / "packed").glob("*.index"))
    assert remove_recording(folder, ["tensors", "scalars", "moments"])
    assert not folder.exists()


def test_a_recording_that_gives_up_its_oldest_rows_has_no_index_of_them(tmp_path):
    recording = RecordingFolder(tmp_path / "run", 50_000)
    write(recording, frames(3))
    assert sorted(path.stem for path in (tmp_path / "run").glob("*.index")) == ["scalars"]
    recording.close()


def test_rows_are_recorded_where_no_index_can_be_written(tmp_path):
    recording = RecordingFolder(tmp_path / "run")
    path = tmp_path / "run" / "tensors.arrows"
    index_path(path).mkdir()
    write(recording, (frame for frame in frames(STEPS) if frame[0] == "tensors"))
    recording.close()
    found = ArrowsMap(path)
    assert len(found.indexed()[0]) == 0
    assert len(found.end()[1]) == STEPS + 8 + 3
