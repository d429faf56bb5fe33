"""Recordings on other storage: S3 as moto's server speaks it over HTTP, behind a proxy that cuts answers."""

import asyncio
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from live_run import LiveRun, eventually
from moto.server import ThreadedMotoServer
from recorded_run import RUN_ID, write_run
from s3fs import S3FileSystem

import megalens
from megalens.cli import upload as upload_command
from megalens.cli.main import main
from megalens.demo.model import GPT, GPTConfig
from megalens.protocol import segment_name
from megalens.runs import ClientError, RunFolder, open_run, remote
from megalens.runs import storage as far
from megalens.runs.remote import bring, mirrored
from megalens.runs.uploading import Upload
from megalens.tracer import TracerError
from megalens.tracer.sending import hub_process


class Proxy:
    """Passes HTTP on to one port; it cuts as many answers, after 300 bytes, as it is told to."""

    def __init__(self, port):
        self.target, self.cuts = port, 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._stop.wait()

    async def _serve(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer, 300))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _pass(self, reader, writer, most=None):
        while data := await reader.read(4096):
            if most is not None and self.cuts and (most := most - len(data)) < 0:
                self.cuts -= 1
                writer.transport.abort()
                return
            writer.write(data)
            await writer.drain()
        writer.close()

    def close(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)


@pytest.fixture(scope="module")
def moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def s3(moto, monkeypatch, tmp_path):
    """Give a bucket's address and the proxy in front of it; no credentials but those of the environment."""
    proxy = Proxy(moto)
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "of-the-test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}"),
        ("AWS_MAX_ATTEMPTS", "1"),
        ("MEGALENS_CACHE_DIR", str(tmp_path / "cache")),
        ("MEGALENS_RUNTIME_DIR", str(tmp_path / "hubs")),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(far, "_FIRST_WAIT", 0.01)
    # Theirs wait for seconds each.
    monkeypatch.setattr(S3FileSystem, "retries", 1)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    storage = fsspec.filesystem("s3")
    bucket = f"bucket-{tmp_path.name}".lower().replace("_", "-")[:60].rstrip("-")
    storage.mkdir(bucket)
    yield f"s3://{bucket}/runs", proxy
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    proxy.close()


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def whole(address):
    """Return the mirror with all that the run has."""
    folder = mirrored(address)
    for stream in RunFolder(folder).streams:
        bring(folder, stream)
    return folder


def fetched_files(monkeypatch):
    """Return the list to which the names of fetched files are added."""
    names, own = [], remote._fetch

    def fetch(storage, path, target):
        names.append(target.name)
        own(storage, path, target)

    monkeypatch.setattr(remote, "_fetch", fetch)
    return names


def test_a_recording_goes_to_s3_and_opens_from_there_though_connections_break(s3, tmp_path, capsys):
    address, proxy = s3
    folder = write_run(tmp_path / RUN_ID)
    # One less than it is tried, so that all of them may meet one file.
    proxy.cuts = 4
    assert main(["upload", str(folder), address]) == 0
    told = []
    mirrored(f"{address}/{RUN_ID}", lambda done, total, words: told.append((done, total)))
    assert files(whole(f"{address}/{RUN_ID}")) == files(folder)
    assert told[-1][0] > 0
    assert proxy.cuts == 0
    with open_run(f"{address}/{RUN_ID}") as run:
        assert run.id == RUN_ID
    assert main(["info", f"{address}/{RUN_ID}"]) == 0
    assert RUN_ID in capsys.readouterr().out


def test_only_what_is_new_is_fetched_again_and_what_is_gone_there_goes_here(s3, tmp_path, monkeypatch):
    address, _ = s3
    folder = write_run(tmp_path / RUN_ID)
    upload = Upload(folder, address)
    upload.send(whole=True)
    whole(upload.address)
    fetched = fetched_files(monkeypatch)
    whole(upload.address)
    assert fetched == []
    shutil.copy(folder / "scalars.parquet", folder / "alarms.parquet")
    (folder / "audit.parquet").unlink()
    upload.send(whole=True)
    fsspec.filesystem("s3").rm(f"{upload.address}/audit.parquet")
    there = whole(upload.address)
    assert fetched == ["alarms.parquet"]
    assert sorted(path.name for path in there.iterdir()) == [
        "alarms.parquet",
        "run.json",
        "scalars.parquet",
        "tensors.parquet",
    ]


def test_a_broken_network_loses_nothing_and_the_next_call_goes_on(s3, tmp_path, monkeypatch):
    address, proxy = s3
    folder = write_run(tmp_path / RUN_ID)
    upload = Upload(folder, address)
    own, proxy.target = proxy.target, 1
    with pytest.raises(ClientError, match="could not be reached 5 times"):
        upload.send(whole=True)
    proxy.target = own
    upload.send(whole=True)
    assert files(whole(upload.address)) == files(folder)
    # Another process finds what is there already.
    again = Upload(folder, address)
    assert again.send() == (folder / "run.json").stat().st_size


def test_only_the_streams_that_a_question_reads_are_fetched(s3, tmp_path, monkeypatch):
    address, _ = s3
    folder = write_run(tmp_path / RUN_ID)
    Upload(folder, address).send(whole=True)
    fetched = fetched_files(monkeypatch)
    with open_run(f"{address}/{RUN_ID}") as run, open_run(folder) as here:
        assert run.status == here.status
        # Its warnings are rows of the audit.
        assert sorted(fetched) == ["audit.parquet", "run.json"]
        fetched.clear()
        assert run.scalars().equals(here.scalars())
        assert fetched == ["scalars.parquet"]
    # So does another process, which knows the folder alone.
    remote._mirrors.clear()
    with open_run(run.folder) as again:
        assert again.tensors("MLP1_mat_mul")["layer"].equals(here.tensors("MLP1_mat_mul")["layer"])
    assert fetched == ["scalars.parquet", "tensors.parquet"]


@pytest.mark.parametrize("in_the_footer", [True, False])
def test_of_some_steps_only_the_segments_that_have_them_are_fetched(s3, tmp_path, monkeypatch, in_the_footer):
    address, _ = s3
    folder = write_run(tmp_path / RUN_ID)
    (folder / "scalars").mkdir()
    rows = pq.read_table(folder / "scalars.parquet")
    (folder / "scalars.parquet").unlink()
    for number, first in enumerate((1, 11, 21, 31)):
        part = rows.filter(pc.and_(pc.greater_equal(rows["step"], first), pc.less(rows["step"], first + 10)))
        pq.write_table(
            part,
            folder / "scalars" / segment_name(number, first, ".parquet"),
            write_statistics=in_the_footer,
        )
    Upload(folder, address).send(whole=True)
    monkeypatch.setattr(remote, "_LEAST_WHOLE", 0)
    # Shorter than a footer, which is then asked for once more.
    monkeypatch.setattr(remote, "_END_BYTES", 64)
    fetched = fetched_files(monkeypatch)
    with open_run(f"{address}/{RUN_ID}") as run, open_run(folder) as here:
        assert run.scalars(steps="12-18").equals(here.scalars(steps="12-18"))
        wanted = ["000001-step-11.parquet"]
        assert fetched == ["run.json", *(wanted if in_the_footer else sorted(fetched[1:]))]
        assert run.scalars().equals(here.scalars())
    assert sorted(fetched[1:]) == sorted(path.name for path in (folder / "scalars").iterdir())


def test_what_was_sealed_there_since_it_was_looked_at_is_found(s3, tmp_path):
    address, _ = s3
    folder = write_run(tmp_path / RUN_ID)
    Upload(folder, address).send(whole=True)
    run = open_run(f"{address}/{RUN_ID}")
    storage = fsspec.filesystem("s3")
    at = f"{address}/{RUN_ID}/scalars"
    storage.mv(f"{at}.parquet", f"{at}/{segment_name(0, 0, '.parquet')}")
    with open_run(folder) as here:
        assert run.scalars().equals(here.scalars())


def test_a_network_that_is_away_at_the_end_is_waited_for_as_long_as_is_said(
    s3, tmp_path, monkeypatch, capsys
):
    address, proxy = s3
    folder = write_run(tmp_path / RUN_ID)
    own, proxy.target = proxy.target, 1
    monkeypatch.setattr(upload_command, "_EVERY", 0.01)
    assert main(["upload", str(folder), address, "--follow", "--patience", "0"]) == 3
    assert "could not be reached" in capsys.readouterr().err
    send, tries = Upload.send, []

    def again(upload, **options):
        tries.append(options)
        proxy.target = own if len(tries) == 3 else 1
        return send(upload, **options)

    monkeypatch.setattr(Upload, "send", again)
    assert main(["upload", str(folder), address, "--follow", "--patience", "600"]) == 0
    assert files(whole(f"{address}/{RUN_ID}")) == files(folder)


@pytest.mark.slow
def test_a_training_records_to_other_storage_by_a_process_of_its_own(s3, tmp_path, monkeypatch, caplog):
    caplog.set_level("WARNING", "megalens")
    address, proxy = s3
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))
    own, proxy.target = proxy.target, 1
    monkeypatch.setattr(hub_process, "_UPLOAD_SECONDS", 0.1)
    tracer = megalens.trace(model, name="far", flags=["MLP1_mat_mul"], record=address, linger=0)
    ((sending, folder),) = tracer._hub_process._uploads
    folder = Path(folder)
    try:
        assert folder.parent == tmp_path / "cache" / "recordings"
        eventually(lambda: os.getpriority(os.PRIO_PROCESS, sending.pid) == 19, "it lets others go first")
        with tracer.step():
            model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
        # The network is away: closing says where the rows are, and waits no longer.
        tracer.close()
        assert f"still being sent to {address}, by process {sending.pid}" in caplog.text
        proxy.target = own
        assert sending.wait(120) == 0, Path(f"{folder}.upload.log").read_text()
    finally:
        sending.kill()
    with open_run(f"{address}/{folder.name}") as run, open_run(folder) as here:
        assert run.table("tensors").equals(here.table("tensors"))
        assert run.table("tensors").num_rows > 0


def test_a_recording_address_that_cannot_be_used_is_refused_before_the_training():
    with pytest.raises(TracerError, match="must hold no password") as refused:
        megalens.trace(GPT(GPTConfig(vocabulary=50, layers=1)), record="s3://key:secret@bucket/runs")
    assert "secret" not in str(refused.value)


def test_a_live_recording_is_followed_to_its_end_while_the_network_breaks(s3, tmp_path, monkeypatch):
    address, proxy = s3
    monkeypatch.setattr(upload_command, "_EVERY", 0.05)
    monkeypatch.setattr(upload_command, "_MOST_WAIT", 0.1)
    monkeypatch.setattr(upload_command, "_LAST_LOOKS", 600)
    run = LiveRun(tmp_path / "hubs", "--record", tmp_path / "runs").announce()
    try:
        folder = tmp_path / "runs" / run.id
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(main, ["upload", str(folder), address, "--follow"])
            run.step(20)
            storage = fsspec.filesystem("s3")
            eventually(lambda: _is_there(storage, f"{address}/{run.id}/run.json"), "the header is there")
            own, proxy.target = proxy.target, 1
            run.step(20)
            proxy.target = own
            run.finish()
            run.close()
            assert ended.result(60) == 0
    finally:
        run.close()
    assert files(whole(f"{address}/{run.id}")) == files(folder)


def test_a_tail_goes_there_only_at_the_end_and_is_removed_once_it_is_sealed(s3, tmp_path):
    address, _ = s3
    folder = write_run(tmp_path / RUN_ID)
    (folder / "moments").mkdir()
    tail = folder / "moments" / segment_name(0, 0, ".arrows")
    tail.write_bytes(b"rows")
    upload = Upload(folder, address)
    upload.send()

    def names():
        return {path.rpartition(f"{RUN_ID}/")[2] for path in fsspec.filesystem("s3").find(upload.address)}

    assert not any(name.endswith(".arrows") for name in names())
    upload.send(whole=True)
    assert f"moments/{tail.name}" in names()
    tail.rename(tail.with_suffix(".parquet"))
    upload.send(whole=True)
    assert {name for name in names() if name.startswith("moments/")} == {"moments/000000-step-0.parquet"}


def _is_there(storage, path):
    storage.invalidate_cache()
    return storage.exists(path)


def test_names_that_no_recording_has_are_not_taken(s3, tmp_path):
    address, _ = s3
    folder = write_run(tmp_path / RUN_ID)
    Upload(folder, address).send(whole=True)
    storage = fsspec.filesystem("s3")
    for name in (
        "../../evil.parquet",
        ".bashrc",
        "notes.txt",
        "moments/../../x.parquet",
        "moments/a/b.parquet",
    ):
        storage.pipe(f"{address}/{RUN_ID}/{name}", b"x")
    there = whole(f"{address}/{RUN_ID}")
    assert sorted(path.name for path in there.parent.rglob("*") if path.is_file()) == [
        ".mirror.json",
        *sorted(path.name for path in folder.iterdir()),
    ]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("s3://key:secret@bucket/run", "must hold no password"),
        ("https://host/run?token=1", "must hold no password and no query"),
        ("simplecache::s3://bucket/run", "does not exist"),
        ("nothing://bucket/run", "cannot be used"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_in_a_sentence(path, words):
    with pytest.raises(ClientError, match=words) as refused:
        open_run(path)
    assert "secret" not in str(refused.value)


def test_an_address_without_a_run_says_so(s3):
    address, _ = s3
    with pytest.raises(ClientError, match=r"it has no run\.json"):
        open_run(f"{address}/nothing")


def test_a_file_address_is_a_path(tmp_path):
    folder = write_run(tmp_path / RUN_ID)
    with open_run(f"file://{folder}") as run:
        assert run.folder == folder
