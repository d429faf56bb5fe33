"""The commands as a person runs them."""

import json
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from peers import input_tokens, start, t1_pass, tracer_layer
from recorded_run import write_run
from websockets.sync.client import connect
from websockets.sync.server import serve

import megalens
from megalens.__main__ import main
from megalens.demo.model import GPT, GPTConfig, save_checkpoint
from megalens.hub.discovery import find_hub
from megalens.hub.replay import serve as serve_replay

ROOT = Path(__file__).parents[3]
WAIT = 60
EVIL = "\x1b]0;x\x07\x1b[2J\r\x9b1m"


@pytest.fixture
def run_main(capsys):
    """Run the command in this process; return its exit code."""

    def run(*arguments):
        try:
            return main(arguments)
        except SystemExit as exit:
            return exit.code

    run.said = lambda: capsys.readouterr().err
    return run


@contextmanager
def peer(handle):
    server = serve(handle, "127.0.0.1", 0, ping_interval=None)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def command(*arguments):
    process = subprocess.Popen(
        [sys.executable, "-m", "megalens", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def endless(connection):
    """Train for as long as the connection is there."""
    for text in connection:
        if json.loads(text)["type"] != "run_training_step":
            continue
        connection.send(json.dumps(start()))
        for n in range(3):
            for message in t1_pass(n, qkv=96, mlp=64):
                connection.send(json.dumps(message))


@pytest.mark.slow
def test_record_is_ended_by_ctrl_c_and_leaves_a_whole_recording(tmp_path):
    asked = ("--dialect", "t2", "--into", tmp_path / "runs")
    with peer(endless) as address, command("record", address, *asked) as process:
        run_id = re.fullmatch(r"run (\S+)\n", process.stdout.readline())[1]
        folder = Path(re.fullmatch(r"recorded in (.+)\n", process.stdout.readline())[1])
        assert find_hub(run_id) is not None
        with megalens.connect(run_id) as run:
            run.wait(3, timeout=WAIT)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT)
    assert process.returncode == 0, err
    assert re.search(r"3 steps \(inferred\), 27 rows", out)
    # Nothing is drawn over a line that is no terminal's.
    assert "\r" not in err
    assert json.loads((folder / "run.json").read_text())["ended"]
    with megalens.open(folder) as run:
        assert run.step == 3
        assert not run.truncated
        assert run.tensors("QKV_mat_mul").num_rows == 9


def evil(connection):
    """Put control characters wherever a person may come to read them, and send two steps."""
    for text in connection:
        asked = json.loads(text)
        if asked["type"] not in ("run_training_step", "generate"):
            continue
        tokens = [{"id": 1, "token": EVIL}]
        for message in (
            {**start(layers=1), "prompts": tokens},
            {"type": EVIL},
            {"type": "error", "message": EVIL},
            {"type": "update", "update_type": EVIL},
            {"type": "update", "update_type": 6, "result": tokens, "sampled": tokens},
            *([] if asked["type"] == "generate" else [EVIL]),
            *(each for n in range(2) for each in t1_pass(n, layers=1, qkv=96, mlp=64)),
            *(each for n in range(2) for each in (input_tokens(n), *tracer_layer(n, 1))),
            {"type": "finish", "text": [EVIL]},
        ):
            connection.send(message if message is EVIL else json.dumps(message))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["T1", "3606", "inference"])
def test_what_a_hub_says_is_shown_and_obeyed_by_no_terminal(tmp_path, dialect):
    with peer(evil) as address:
        asked = ("--dialect", dialect, "--into", tmp_path, "--wait", "1", "--steps", "1", "--prompt", "a")
        with command("record", address, *asked) as process:
            written = process.communicate(timeout=WAIT)
    assert process.returncode == 0, written
    assert "\ufffd[2J" in "".join(written)
    assert all(each.isprintable() for each in "".join(written).replace("\n", ""))


@pytest.mark.slow
def test_connect_ends_with_its_standard_input(tmp_path):
    with (
        peer(endless) as address,
        command("connect", address, "--dialect", "T2", "--until-stdin-closes") as process,
    ):
        run_id = re.fullmatch(r"run (\S+)\n", process.stdout.readline())[1]
        assert find_hub(run_id) is not None
        process.communicate(timeout=WAIT)
    assert process.returncode == 0
    assert find_hub(run_id) is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--dialect", "T1", "--wait", "0"], 3, "No hub could be reached"),
        (["--dialect", "T9"], 2, "expected one of"),
        (["--dialect", "T1", "--reduction", "std"], 2, "keep their meaning"),
        (["--dialect", "inference"], 2, "--prompt"),
        (["--tiles", "8"], 2, "need --dialect"),
        (["--dialect", "T1", "--flag", "Nope"], 2, "has no flag 'Nope'"),
        (["--dialect", "T2", "--flag", "QKV_mat_mul", "--flag", "Nope"], 2, "has no flag 'Nope'"),
        (["--dialect", "T1", "--record-mode", "50"], 2, "a folder that its owner may use"),
        (["--dialect", "T1", "--config", "{}"], 2, "flags"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_an_exit_code(tmp_path, run_main, arguments, code, said):
    assert run_main("record", "ws://127.0.0.1:9", "--into", str(tmp_path), *arguments) == code
    assert said in run_main.said()


def test_no_live_run_to_serve_is_said(run_main):
    assert run_main("serve-3606", "no-such-run") == 3
    assert "no live run of no-such-run" in run_main.said()


@pytest.mark.slow
def test_a_recording_is_replayed_served_in_the_dialect_and_recorded_again(tmp_path):
    """All the commands in a row give the numbers that were recorded first."""
    folder = write_run(tmp_path / "first", steps=40, layers=2, nonfinite_at=None)
    with (
        serve_replay(folder, 20, loop=True, wait_for_viewer=True) as replay,
        command("serve-3606", replay.id, "--port", 0) as gateway,
    ):
        address = gateway.stdout.readline().strip()
        assert address.startswith("ws://127.0.0.1:")
        asked = ("--dialect", "3606", "--flag", "MLP1_mat_mul", "--tiles", 16, "--steps", 3)
        with command("record", address, *asked, "--into", tmp_path / "again") as process:
            _, err = process.communicate(timeout=WAIT)
        assert process.returncode == 0, err
        gateway.send_signal(signal.SIGTERM)
        gateway.communicate(timeout=WAIT)
        assert gateway.returncode == 0
    with megalens.open(folder) as first, megalens.open(tmp_path / "again") as again:
        was = [row["values"] for row in first.tensors("MLP1_mat_mul", layers=1).to_pylist()]
        now = [row["values"] for row in again.tensors("MLP1_mat_mul", layers=1).to_pylist()]
        assert 2 <= len(now) <= 3
        at = was.index(now[0])
        assert now == [was[(at + n) % len(was)] for n in range(len(now))]


@pytest.mark.slow
def test_a_folder_is_served_to_the_front_end_of_the_inference_hub_too(tmp_path):
    save_checkpoint(GPT(GPTConfig(layers=2, hidden=16, heads=2, sequence=16)), tmp_path / "tiny")
    asked = ("serve", "--model", tmp_path / "tiny", "--dialect", "inference", "--dialect-port", 0)
    with command(*asked) as process:
        address = re.search(r"ws://127\.0\.0\.1:\d+", process.stdout.readline())[0]
        run = re.search(r" as run (\S+)\. ", process.stdout.readline())[1]
        with connect(address) as front_end:
            front_end.send(json.dumps({"type": "generate", "prompts": ["To be"], "tokens_to_generate": 2}))
            said = []
            while "finish" not in said:
                said.append(json.loads(front_end.recv(WAIT))["type"])
        assert said[0] == "start"
        assert "error" not in said
        # Beside a run that is there already, and where the port is taken.
        with command("serve-inference", run, "--port", address.rpartition(":")[2]) as second:
            assert "Could not listen" in second.communicate(timeout=WAIT)[1]
            assert second.returncode == 2
        with command("serve-inference", run, "--port", 0) as second:
            with connect(second.stdout.readline().strip()) as front_end:
                front_end.send('{"type": "ping"}')
                assert json.loads(front_end.recv(WAIT)) == {"type": "pong"}
            process.send_signal(signal.SIGTERM)
            # It ends with the run.
            second.communicate(timeout=WAIT)
            assert second.returncode == 0
        process.communicate(timeout=WAIT)
        assert process.returncode == 0
