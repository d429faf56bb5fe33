"""A job over two hosts, each a network namespace of its own, and strangers at its door."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until

import megalens
from megalens.tracer import Place
from megalens.tracer.sending.peers import Peers, Schedule
from megalens.tracer.tensors.plan import TracingPlan

WORKER = Path(__file__).with_name("worker.py")
ALL = {"HiddenStates": {"compressor": {"name": "Tile", "params": {"tiles": 2}}, "replicas": "all"}}


def ip(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def two_hosts():
    """Two network namespaces with a cable between them: name and address of each."""
    tag = f"ml{os.getpid() % 100_000}"
    names = [f"{tag}a", f"{tag}b"]
    made = [ip("netns", "add", name) for name in names]
    try:
        assert all(one.returncode == 0 for one in made), made
        assert (
            ip(
                "link",
                "add",
                names[0],
                "netns",
                names[0],
                "type",
                "veth",
                "peer",
                names[1],
                "netns",
                names[1],
            ).returncode
            == 0
        )
        hosts = []
        for number, name in enumerate(names, 1):
            address = f"10.207.55.{number}"
            ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
            ip("-n", name, "link", "set", name, "up")
            ip("-n", name, "link", "set", "lo", "up")
            hosts.append((name, address))
        yield hosts
    finally:
        for name in names:
            ip("netns", "del", name)


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
)
def test_ranks_on_another_host_reach_the_hub_with_the_token_of_the_job(two_hosts, tmp_path) -> None:
    master = f"{two_hosts[0][1]}:29517"
    processes = []
    for rank, (name, address) in enumerate(two_hosts):
        command = [sys.executable, str(WORKER), f"--namespace={name}", f"--rank={rank}", "--world=2"]
        command += [f"--folder={tmp_path}", f"--master={master}", f"--hub-host={two_hosts[0][1]}"]
        command += ["--steps=40", f"--flags={json.dumps(ALL)}"]
        environment = {
            **os.environ,
            "GLOO_SOCKET_IFNAME": name,
            "MEGALENS_RUNTIME_DIR": str(tmp_path / f"runtime-{rank}"),
            "PYTHONPATH": os.getcwd(),
        }
        assert address
        processes.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    for process in processes:
        said, complaints = process.communicate(timeout=110)
        assert process.returncode == 0, complaints[-3000:]
        assert json.loads(said)["status"]["dropped"]["producer"] == 0
    run = megalens.open(tmp_path / "runs")
    rows = run.tensors("HiddenStates").to_pandas()
    assert rows.groupby("rank")["step"].nunique().to_dict() == {0: 40, 1: 40}
    # No token outlives the job: the hub, which ends a moment after the training, takes its file along.
    deadline = time.monotonic() + 30
    while token_files := list((tmp_path / "runtime-0").glob("*.json")):
        assert time.monotonic() < deadline, token_files
        time.sleep(0.05)


class DictMeeting:
    """A job's store in one process."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def tell(self, key: str, value: str) -> None:
        self.values[key] = value

    def ask(self, key: str) -> str | None:
        return self.values.get(key)

    def secret(self, rank: int) -> str | None:
        return self.values.get("secret")

    def own_address(self) -> str:
        return "127.0.0.1"


@pytest.fixture
def make_peers():
    made = []

    def make(rank: int, values: dict[str, str], came: list | None = None) -> Peers:
        place = Place(rank=rank, dp=rank, tp_ranks=(rank,), world_size=2, dp_size=2)
        made.append(
            Peers(
                place,
                DictMeeting(values),
                Schedule(TracingPlan(), lambda plan, patch: plan),
                heartbeat=lambda: {"state": "training", "step": 1},
                received=lambda rank, name, meta, payload: None,
                hub=lambda place: (came if came is not None else []).append(place),
                changed=lambda: None,
            )
        )
        return made[-1]

    yield make
    for peers in made:
        peers.close()


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(4096),
        b"MLC1" + b"\xff" * 64,
        b"MLC1\x04\0\0\0\x02\0\0\0" + bytes(8) + b"{}",
    ],
    ids=["nothing", "http", "noise", "a huge message", "an early message"],
)
def test_a_stranger_is_turned_away_and_the_job_goes_on(make_peers, words) -> None:
    values = {"secret": "known to the job"}
    leader = make_peers(0, values)
    leader.tell_hub({"url": "ws://127.0.0.1:1", "token": "t", "run_id": "r"})
    until(lambda: "address/0" in values)
    host, port = values["address/0"].split(" ")
    with socket.create_connection((host, int(port)), 5) as stranger:
        said = b""
        with contextlib.suppress(OSError):
            stranger.sendall(words)
            stranger.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while chunk := stranger.recv(65536):
                said += chunk
    assert b'"token"' not in said
    came: list[dict] = []
    make_peers(1, values, came)
    until(lambda: came)
    assert came[0]["token"] == "t"
    until(lambda: leader.members.states()[1]["state"] == "training")


def test_whoever_does_not_know_the_secret_is_told_nothing(make_peers) -> None:
    values = {"secret": "known to the job"}
    leader = make_peers(0, values)
    leader.tell_hub({"url": "ws://127.0.0.1:1", "token": "t", "run_id": "r"})
    until(lambda: "address/0" in values)
    came: list[dict] = []
    liar = make_peers(1, {**values, "secret": "a guess"}, came)
    until(lambda: liar._listener._retry_at.get(0, 0) > 0 and not liar._listener.waiting)
    assert (came, leader.others()) == ([], {})
