"""Sources of statistics that are shared: opened once, with progress, closed when nobody asks, few at a time."""

import asyncio
import threading

import pytest
from held_rows import HeldRows
from recorded_moments import NAMES, moment_table

from megalens.runs import ClientError
from megalens.runs.moments import MomentQuery, MomentSource
from megalens.server.errors import ServerError
from megalens.server.reader.moment_pool import MomentPool


class SlowRows(HeldRows):
    """Rows whose first reading takes as long as the test wants."""

    def __init__(self, fails=False):
        super().__init__()
        self.append(moment_table([1, 2], ("param",)))
        self.started, self.release, self.closed = threading.Event(), threading.Event(), threading.Event()
        self.fails = fails

    def refresh(self, progress=None):
        if progress is None:
            return False
        self.started.set()
        for done in range(1, 10_000):
            progress(done, 10_000, "reading")
            if self.release.wait(0.005):
                break
        if self.fails:
            raise ClientError("It cannot be read.", code="unreadable")
        return True

    def close(self):
        super().close()
        self.closed.set()


@pytest.fixture
def here():
    return asyncio.Event()


@pytest.fixture
def make_pool(jp_asyncio_loop):
    pools = []

    def make(rows, **options):
        opened = []

        def opener(run_id):
            opened.append(run_id)
            return MomentSource(rows[run_id])

        pool = MomentPool(opener, **options)
        pools.append(pool)
        return pool, opened

    yield make
    for pool in pools:
        jp_asyncio_loop.run_until_complete(pool.close())


async def reached(event):
    assert await asyncio.get_running_loop().run_in_executor(None, event.wait, 20)


async def test_what_is_being_read_says_how_far_it_is_and_is_opened_once(make_pool, here):
    rows = {"a": SlowRows()}
    pool, opened = make_pool(rows)
    async with pool.share("a") as one, pool.share("a") as two:
        assert one is two
        await reached(rows["a"].started)
        assert not await one.opened(0.05, here)
        assert (one.done > 0, one.total) == (True, 10_000)
        waiting = asyncio.ensure_future(two.opened(30, here))
        rows["a"].release.set()
        assert await waiting
        assert sorted(one.index["names"]) == sorted(NAMES)
    assert opened == ["a"]


async def test_who_goes_waits_no_longer_and_the_reading_goes_on(make_pool, here):
    rows = {"a": SlowRows()}
    pool, _ = make_pool(rows)
    async with pool.share("a") as shared:
        waiting = asyncio.ensure_future(shared.opened(30, here))
        await reached(rows["a"].started)
        here.set()
        assert not await waiting
        rows["a"].release.set()
        assert await shared.opened(30, asyncio.Event())


async def test_what_could_not_be_read_is_tried_again(make_pool, here):
    rows = {"a": SlowRows(fails=True)}
    rows["a"].release.set()
    pool, opened = make_pool(rows)
    for _ in range(2):
        with pytest.raises(ClientError, match="cannot be read"):
            async with pool.share("a") as shared:
                await shared.opened(30, here)
    assert opened == ["a", "a"]
    assert len(pool) == 0


async def test_closing_ends_a_reading_that_is_under_way(make_pool):
    rows = {"a": SlowRows()}
    pool, _ = make_pool(rows)
    async with pool.share("a"):
        await reached(rows["a"].started)
    await pool.close()
    await reached(rows["a"].closed)
    assert not rows["a"].release.is_set()


async def test_a_source_that_nobody_asks_is_closed_and_the_least_used_makes_room(make_pool, here):
    rows = {f"run-{n}": SlowRows() for n in range(18)}
    for one in rows.values():
        one.release.set()
    pool, _ = make_pool(rows)
    for run_id in list(rows)[:17]:
        async with pool.share(run_id) as shared:
            assert await shared.opened(30, here)
    assert len(pool) == 16
    await reached(rows["run-0"].closed)
    assert not rows["run-1"].closed.is_set()
    quick, _ = make_pool(rows, idle_seconds=0.01)
    async with quick.share("run-17") as shared:
        assert await shared.opened(30, here)
    await reached(rows["run-17"].closed)


async def test_when_all_are_in_use_the_next_is_told_so(make_pool, here):
    rows = {f"run-{n}": SlowRows() for n in range(17)}
    for one in rows.values():
        one.release.set()
    pool, _ = make_pool(rows)
    shares = [pool.share(f"run-{n}") for n in range(16)]
    for share in shares:
        await share.__aenter__()
    with pytest.raises(ServerError) as caught:
        async with pool.share("run-16"):
            pass
    assert (caught.value.status, caught.value.code) == (503, "busy")
    await shares[0].__aexit__(None, None, None)
    async with pool.share("run-16") as shared:
        assert await shared.opened(30, here)
    for share in shares[1:]:
        await share.__aexit__(None, None, None)


async def test_a_question_is_given_up_when_who_asked_it_goes(make_pool, here):
    rows = {"a": SlowRows()}
    rows["a"].release.set()
    pool, _ = make_pool(rows)
    asking = threading.Event()
    async with pool.share("a") as shared:
        assert await shared.opened(30, here)

        def endless(wanted):
            chunks = [*HeldRows.chunks(rows["a"], wanted)]
            while True:
                asking.set()
                yield from chunks

        rows["a"].chunks = endless
        question = asyncio.ensure_future(
            shared.ask(lambda source: source.groups(MomentQuery.of("param", "l2", [])), here)
        )
        await reached(asking)
        behind = asyncio.ensure_future(shared.ask(lambda source: source.index(), here))
        here.set()
        with pytest.raises((ClientError, ServerError), match=r"given up|cancelled"):
            await question
        with pytest.raises(ServerError, match="cancelled"):
            await behind
        del rows["a"].chunks
        groups = await shared.ask(lambda source: source.groups(MomentQuery.of("param", "l2", [])), None)
        assert groups.table.num_rows == 2


async def test_those_who_wait_are_told_of_more_and_others_after_their_time(make_pool, here):
    class Growing(SlowRows):
        grown = False

        def refresh(self, progress=None):
            if progress is None and self.grown:
                self.grown = False
                self.append(moment_table([3], ("param",)))
                return True
            return super().refresh(progress)

    rows = {"a": Growing()}
    rows["a"].release.set()
    pool, _ = make_pool(rows)
    async with pool.share("a") as shared:
        assert await shared.opened(30, here)
        version = shared.version
        assert not await shared.newer(version, 0.05, here)
        waiting = [asyncio.ensure_future(shared.newer(version, 30, here)) for _ in range(3)]
        rows["a"].grown = True
        assert await asyncio.gather(*waiting) == [True, True, True]
        assert shared.index["stats"][0]["last"] == 3
        assert shared.names_known(version) == len(NAMES)
        assert shared.names_known("other.3.x") == shared.names_known(None) == 0
