"""Every process takes a change at one step, whatever is late, refused or silent."""

import threading
import time
from dataclasses import replace

import pytest

from megalens.protocol import ProtocolError
from megalens.tracer.sending.peers import Agreement, Proposal, Schedule
from megalens.tracer.sending.peers import channel as agreement_module
from megalens.tracer.sending.peers.channel import MessageKind
from megalens.tracer.sending.peers.members import Members
from megalens.tracer.tensors.plan import ModePlan, TracingPlan


def change(plan: TracingPlan, patch) -> TracingPlan:
    if patch.get("bad"):
        raise ProtocolError("bad-parameter", "It is bad.", field="bad")
    if "mode" in patch:
        plan = replace(plan, mode=ModePlan(patch["mode"]["paused"], False, patch["mode"].get("steps")))
    return replace(plan, budget=patch.get("budget", plan.budget))


class Others:
    """The other processes of a job, each with an schedule; what they are told arrives when the test says so."""

    def __init__(self, ranks: int) -> None:
        self.agendas = {rank: Schedule(TracingPlan(), change) for rank in range(ranks)}
        self.mail: list[tuple[int, MessageKind, dict]] = []
        self.answers: list[int | ProtocolError] = []
        self.connected = True
        self.agreement = Agreement(self.agendas[0], self)

    def others(self) -> dict[int, str]:
        return {rank: f"rank {rank}" for rank in self.agendas if rank}

    def complete(self) -> bool:
        return self.connected

    def tell(self, rank, kind, meta) -> None:
        self.mail.append((rank, kind, dict(meta)))

    def deliver(self, *kinds: MessageKind) -> None:
        mail, self.mail = self.mail, []
        for rank, kind, meta in mail:
            if kinds and kind not in kinds:
                self.mail.append((rank, kind, meta))
            elif kind is MessageKind.PREPARE:
                try:
                    first = self.agendas[rank].prepare(meta["number"], meta["patches"])
                except ProtocolError as error:
                    self.agreement.refused(rank, meta["number"], error)
                else:
                    self.agreement.ready(rank, meta["number"], first)
            elif kind is MessageKind.COMMIT:
                self.agendas[rank].commit(meta["number"], meta["step"])
            elif kind is MessageKind.ABORT:
                self.agendas[rank].abort(meta["number"])

    def ask(self, **patch) -> None:
        self.agreement.propose(Proposal(patch, "id", self.answers.append))
        self.agreement.tick()

    def begin(self, rank: int, step: int):
        return self.agendas[rank].at(step)


def test_nothing_is_decided_while_processes_are_still_connecting_but_not_for_ever(monkeypatch) -> None:
    job = Others(2)
    job.connected = False
    job.ask(budget=1.0)
    assert (job.mail, job.agreement.busy) == ([], True)
    job.connected = True
    job.agreement.tick()
    assert [kind for _, kind, _ in job.mail] == [MessageKind.PREPARE]

    job = Others(2)
    job.connected = False
    job.ask(budget=1.0)
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    job.agreement.tick()
    assert [kind for _, kind, _ in job.mail] == [MessageKind.PREPARE], "some ranks may never be traced"


def test_the_change_applies_at_the_latest_of_the_steps_that_the_processes_can() -> None:
    job = Others(3)
    for rank, steps in enumerate((4, 6, 5)):
        for step in range(1, steps + 1):
            assert job.begin(rank, step).plan is None
    job.ask(budget=1.0)
    job.deliver(MessageKind.PREPARE)
    assert job.answers == [7]
    job.deliver()
    for rank, begun in enumerate((4, 6, 5)):
        for step in range(begun + 1, 7):
            turn = job.begin(rank, step)
            assert (turn.plan, turn.untraced) == (None, False)
        turn = job.begin(rank, 7)
        assert (turn.plan.budget, turn.version) == (1.0, 1)


def test_a_step_that_begins_before_the_decision_came_is_not_traced() -> None:
    job = Others(2)
    job.ask(budget=1.0)
    job.deliver(MessageKind.PREPARE)
    # Rank 1 has not heard the decision yet.
    assert job.begin(0, 1).plan.budget == 1.0
    assert [job.begin(1, step).untraced for step in (1, 2)] == [True, True]
    job.deliver()
    turn = job.begin(1, 3)
    assert (turn.untraced, turn.plan.budget) == (False, 1.0)
    assert job.agendas[1].untraced_steps == 2


def test_one_refusal_and_nobody_changes_anything() -> None:
    job = Others(3)
    job.agendas[2]._change = lambda plan, patch: change(plan, {"bad": True})
    job.ask(budget=1.0)
    job.deliver()
    job.deliver()
    assert isinstance(job.answers[0], ProtocolError)
    assert job.answers[0].field == "bad"
    for rank in range(3):
        turn = job.begin(rank, 1)
        assert (turn.plan, turn.untraced) == (None, False)


def test_a_silent_process_is_named_and_nobody_changes_anything(monkeypatch) -> None:
    monkeypatch.setattr(agreement_module, "_ANSWER_SECONDS", 0.0)
    job = Others(2)
    job.ask(budget=1.0)
    job.agreement.tick()
    assert "No answer from rank 1" in job.answers[0].message
    job.deliver()
    assert job.begin(1, 1).untraced is False


def test_a_process_that_went_is_waited_for_no_more() -> None:
    job = Others(2)
    job.ask(budget=1.0)
    del job.agendas[1]
    job.agreement.tick()
    assert job.answers == [1]


def test_what_came_in_the_meantime_is_decided_together_and_a_bad_one_alone_is_refused() -> None:
    job = Others(2)
    job.ask(budget=1.0)
    for number in range(5):
        job.ask(budget=float(number), **({"bad": True} if number == 2 else {}))
    for _ in range(20):
        job.deliver()
        job.agreement.tick()
    refused = [answer for answer in job.answers if isinstance(answer, ProtocolError)]
    assert (len(job.answers), len(refused)) == (6, 1)
    assert job.begin(1, 1).plan.budget == 4.0


def test_more_changes_than_can_wait_are_refused_at_once() -> None:
    job = Others(2)
    for _ in range(400):
        job.agreement.propose(Proposal({"budget": 1.0}, "id", job.answers.append))
    assert len(job.answers) == 400 - 256
    assert all("wait already" in answer.message for answer in job.answers)


def test_a_pause_waits_at_its_step_and_tells_so_at_once() -> None:
    told: list[tuple] = []
    schedule = Schedule(TracingPlan(), change, waits=lambda turn, step: told.append((turn.ids, step)))
    assert schedule.at(1).plan is None
    assert schedule.decide([{"mode": {"paused": True, "steps": 2}}], ["pause"]) == 2
    assert schedule.at(2).ids == ("pause",)
    schedule.at(3)
    waiting = threading.Event()
    schedule._waits = lambda turn, step: (told.append((turn.ids, step)), waiting.set())
    turns = []
    thread = threading.Thread(target=lambda: turns.append(schedule.at(4)))
    thread.start()
    assert waiting.wait(10)
    assert schedule.paused
    assert told[0][1] == 4
    schedule.decide([{"mode": {"paused": False}}], ["resume"])
    thread.join(10)
    assert (turns[0].ids, schedule.paused, turns[0].waited > 0) == (("resume",), False, True)


def test_a_pause_ends_when_nobody_is_left_to_end_it() -> None:
    gone = threading.Event()
    schedule = Schedule(TracingPlan(), change, abandoned=gone.is_set)
    schedule.decide([{"mode": {"paused": True}}], ["pause"])
    thread = threading.Thread(target=lambda: schedule.at(1))
    thread.start()
    gone.set()
    thread.join(10)
    assert not thread.is_alive()
    # Whoever comes later finds a training that goes on.
    schedule.resume_listening()
    assert schedule.accepted.mode == ModePlan()


@pytest.mark.parametrize("late", [0, 3])
def test_a_process_that_comes_late_is_brought_up_to_the_others(late) -> None:
    first, other = (
        Schedule(TracingPlan(), change),
        Schedule(TracingPlan(), lambda plan, patch: change(plan, patch)),
    )
    for step in range(1, 3):
        first.at(step)
    first.decide([{"budget": 2.0}], ["a"])
    plan, number, since = first.in_force
    for step in range(1, late + 1):
        other.at(step)
    other.prepare(number, [plan.patch_from(since)])
    other.commit(number, since)
    turn = other.at(late + 1)
    if late + 1 < since:
        assert turn.plan is None
        turn = other.at(since)
    assert (turn.plan.budget, turn.version) == (2.0, number)


def test_a_step_begins_while_a_plan_is_still_being_made() -> None:
    reading, read = threading.Event(), threading.Event()

    def slowly(plan: TracingPlan, patch) -> TracingPlan:
        reading.set()
        assert read.wait(10)
        return change(plan, patch)

    schedule = Schedule(TracingPlan(), slowly)
    thread = threading.Thread(target=lambda: schedule.decide([{"budget": 1.0}], ["a"]))
    thread.start()
    assert reading.wait(10)
    # A vector file is being read, say: this would wait for ever.
    assert (schedule.at(1).plan, schedule.at(2).untraced) == (None, False)
    read.set()
    thread.join(10)
    assert schedule.at(3).plan.budget == 1.0


def test_what_is_heard_of_a_rank_while_others_are_looked_at_is_no_time_in_the_future(monkeypatch) -> None:
    members = Members()
    members.came(1, "rank 1", {"rank": 1, "tp": 0, "pp": 0, "dp": 1})
    heard = time.monotonic()
    # A message of a negative time is refused by the hub.
    monkeypatch.setattr(time, "monotonic", lambda: heard - 0.045)
    assert [state["seconds"] for state in members.states()] == [0.0]
