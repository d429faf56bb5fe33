"""The engine's process: whatever happens to it, its host goes on and the next job works."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from megalens.pictures.engine import Engine, EngineError

ROOT = Path(__file__).parents[3]
WAIT = 30
ODD = [
    "\0",
    "\x1b[31m",
    "a\u2028b\u2029c",
    "\ufffe\uffff",
    "\ud800",
    "\udc00\ud800",
    "😀",
    "é",
    '</script>"\\',
    "\x7f\x80",
    "",
]


def nothing(method, body):
    raise AssertionError(f"{method} was asked")


def echo(engine, value):
    return engine.run("echo", value, nothing)[0]


def gone(pid):
    """Whether a process ends within a while; one that nobody waited for counts."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("text", ODD, ids=[ascii(text) for text in ODD])
def test_any_text_crosses_both_ways(engine, text):
    assert echo(engine, {"text": text, text: [text]}) == {"text": text, text: [text]}

    def answer(method, body):
        assert body == {"text": text}
        return {"text": text}, text.encode("utf-8", "surrogatepass")

    answered, bytes_ = engine.run("ask", {"text": text}, answer)
    assert answered == {"text": text}
    assert bytes_ == text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("text", ["", "plain", "é–😀", "\0\x7f", "x" * 20_000 + "😀"])
def test_text_is_coded_as_utf_8_and_base64(engine, text):
    found, body = engine.run("text", {"text": text}, nothing)
    assert body == bytes(found["utf8"]) == text.encode()
    assert found["back"] == text
    import base64

    assert found["base64"] == base64.b64encode(text.encode()).decode()


def test_half_of_a_pair_is_coded_as_a_replacement_character(engine):
    assert engine.run("text", {"text": "a\ud800b"}, nothing)[1] == "a\ufffdb".encode()


def test_clones_and_aborts_are_those_of_a_browser(engine):
    assert engine.run("clone", {}, nothing)[0] == [True, True, 7, [1.5], "enough"]


def test_a_job_reaches_neither_network_nor_files(engine):
    assert engine.run("world", {}, nothing)[0] == []


def test_large_bytes_cross_both_ways(engine):
    payload = os.urandom(8 << 20)
    assert engine.run("ask", {}, lambda method, body: (None, payload))[1] == payload


def test_many_questions_are_answered_in_any_number(engine):
    found, _ = engine.run(
        "ask-many", {"count": 300}, lambda method, body: (body["place"], b"x" * body["place"])
    )
    assert found == list(range(300))


def test_timers_fire_in_order_and_wait_for_no_clock(engine):
    began = time.monotonic()
    assert engine.run("order", {}, nothing)[0] == ["a", "b", "c"]
    told = []
    engine.run("steps", {}, nothing, progress=lambda *what: told.append(what))
    assert told == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert time.monotonic() - began < WAIT


def test_a_refusal_reaches_the_job_with_its_field(engine):
    class Refusal(Exception):
        message, code, field = "There is no run 'x'.", "not-found", "run"

    def refuse(method, body):
        raise Refusal

    with pytest.raises(EngineError, match="There is no run") as caught:
        engine.run("ask", {}, refuse)
    assert (caught.value.code, caught.value.field) == ("not-found", "run")


def test_an_error_of_a_job_leaves_the_engine_as_it_was(engine):
    echo(engine, 1)
    pid = engine.pid
    with pytest.raises(EngineError) as caught:
        engine.run("throw", {}, nothing)
    assert caught.value.message == "This view has no \0flag\ud800."
    assert caught.value.field == "options.flag"
    with pytest.raises(EngineError, match="no job"):
        engine.run("no such job", {}, nothing)
    with pytest.raises(EngineError, match="cannot come") as caught:
        engine.run("stuck", {}, nothing)
    assert caught.value.code == "stuck"
    assert engine.pid == pid


def test_an_error_of_who_answers_is_raised_as_it_is(engine):
    def fail(method, body):
        raise ZeroDivisionError("here")

    with pytest.raises(ZeroDivisionError, match="here"):
        engine.run("ask", {}, fail)
    assert echo(engine, 2) == 2


def test_a_killed_child_is_an_error_and_the_next_job_has_a_fresh_one(engine):
    echo(engine, 1)
    pid = engine.pid
    timer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(EngineError, match="was ended while it worked") as caught:
        engine.run("loop", {}, nothing)
    assert caught.value.code == "ended"
    assert echo(engine, 2) == 2
    assert engine.pid != pid


def test_a_child_that_was_killed_between_jobs_is_replaced(engine):
    echo(engine, 1)
    pid = engine.pid
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert echo(engine, 2) == 2


@pytest.mark.slow
def test_a_loop_without_end_is_given_up_in_time(engine):
    echo(engine, 1)
    pid = engine.pid
    with pytest.raises(EngineError, match=r"within 0\.3 s") as caught:
        engine.run("loop", {}, nothing, timeout=0.3)
    assert caught.value.code == "timeout"
    assert gone(pid)
    assert echo(engine, 2) == 2


def test_progress_that_raises_cancels(engine):
    def stop(done, total, words):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.run("steps", {}, nothing, progress=stop)
    assert echo(engine, 2) == 2


def test_waiting_for_answers_takes_no_time_of_the_engine(engine):
    echo(engine, 1)

    def slow(method, body):
        threading.Event().wait(5.5)
        return 1, b""

    assert engine.run("ask", {}, slow, timeout=5)[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("job", ["bomb", "bytes-bomb"])
def test_memory_is_bounded(bundle, job):
    engine = Engine(bundle, most_memory=200 << 20, most_data=1 << 30)
    with pytest.raises(EngineError, match="ran out of memory") as caught:
        engine.run(job, {}, nothing)
    assert caught.value.code == "memory"
    assert echo(engine, 2) == 2
    engine.close()


@pytest.mark.slow
def test_the_bound_of_data_holds_where_that_of_the_heap_does_not(bundle):
    engine = Engine(bundle, most_memory=0, most_data=600 << 20)
    with pytest.raises(EngineError) as caught:
        engine.run("bomb", {}, nothing)
    assert caught.value.code in ("memory", "ended")
    assert echo(engine, 2) == 2
    engine.close()


def test_a_message_beyond_the_bound_is_refused(engine, monkeypatch):
    import megalens.pictures.engine.child as child

    echo(engine, 1)
    monkeypatch.setattr(child, "MOST_BYTES", 1000)
    with pytest.raises(EngineError, match="more than 1,000") as caught:
        engine.run("echo", {"text": "x" * 2000}, nothing)
    assert caught.value.code == "too-large"
    monkeypatch.undo()
    assert echo(engine, 2) == 2


def test_a_missing_bundle_says_what_to_do(tmp_path):
    engine = Engine(tmp_path / "engine.js")
    with pytest.raises(EngineError, match="npm run build:bundles") as caught:
        engine.run("echo", {}, nothing)
    assert caught.value.code == "missing"
    engine.warm_up()
    (tmp_path / "engine.js").write_text("this is no script")
    with pytest.raises(EngineError, match="could not be started") as caught:
        engine.run("echo", {}, nothing)
    assert caught.value.code == "missing"


BOUNDED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (16 << 30, HIGHEST))
from megalens.pictures.engine import Engine, EngineError
try:
    print(Engine(BUNDLE).run("echo", "drawn", None)[0])
except EngineError as error:
    print(error.code, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "said"),
    [
        ("resource.RLIM_INFINITY", "drawn"),
        (
            "16 << 30",
            "missing The engine could not be started: a process may reserve 16 GiB of address space here",
        ),
    ],
)
def test_a_limit_of_address_space_is_raised_where_it_may_be_and_else_named(bundle, most, said):
    script = BOUNDED.replace("HIGHEST", most).replace(
        "BUNDLE", f"__import__('pathlib').Path({str(bundle)!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=WAIT
    )
    assert done.stdout.startswith(said), done.stderr


def test_two_threads_share_the_engine(engine):
    found = {}

    def work(name):
        found[name] = [echo(engine, [name, place]) for place in range(20)]

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert found == {name: [[name, place] for place in range(20)] for name in "ab"}


@pytest.mark.slow
def test_a_forked_process_starts_its_own_engine(bundle):
    code = f"""
import os, json, sys
from pathlib import Path
from megalens.pictures.engine import Engine
from megalens.pictures.engine import host
engine = Engine(Path({str(bundle)!r}))
os.register_at_fork(after_in_child=engine.forget)
ask = lambda method, body: None
engine.run("echo", 1, ask)
mine = engine.pid
read, write = os.pipe()
if os.fork() == 0:
    said = engine.run("echo", 2, ask)[0]
    os.write(write, json.dumps([said, engine.pid != mine]).encode())
    engine.close()
    os._exit(0)
os.wait()
print(json.dumps([json.loads(os.read(read, 100)), engine.run("echo", 3, ask)[0], engine.pid == mine]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=WAIT, cwd=ROOT
    )
    assert json.loads(done.stdout) == [[2, True], 3, True], done.stderr


@pytest.mark.parametrize(
    ("job", "end"), [("echo", "pass"), ("loop", "os._exit(3)"), ("loop", "os.kill(os.getpid(), 9)")]
)
def test_the_child_goes_with_its_parent(bundle, job, end):
    code = f"""
import os, sys, threading
from pathlib import Path
from megalens.pictures.engine import Engine
import atexit
engine = Engine(Path({str(bundle)!r}))
atexit.register(engine.close)
engine.run("echo", 1, None)
print(engine.pid, flush=True)
threading.Thread(target=engine.run, args=({job!r}, 1, None), daemon=True).start()
threading.Event().wait(0.3)
{end}
"""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT, cwd=ROOT
    )
    assert time.monotonic() - began < WAIT
    assert gone(int(done.stdout))


def test_the_child_inherits_no_descriptor_and_no_signal(engine):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    fresh = Engine(engine._bundle)
    try:
        echo(fresh, 1)
        assert os.getpgid(fresh.pid) != os.getpgid(0)
        held = {os.readlink(entry) for entry in Path(f"/proc/{fresh.pid}/fd").iterdir()}
        assert os.readlink(f"/proc/self/fd/{write}") not in held
    finally:
        with suppress(OSError):
            os.close(read)
            os.close(write)
        fresh.close()


def test_importing_the_engine_loads_neither_v8_nor_the_contract():
    code = "import sys, megalens.pictures.engine; print(sorted({'py_mini_racer', 'pyarrow', 'jsonschema'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"
