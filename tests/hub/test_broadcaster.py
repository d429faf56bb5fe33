"""What the hub tells of itself."""

import json
import time
from types import SimpleNamespace

from megalens.hub.broadcaster import Broadcaster


def test_producers_are_told_of_the_first_viewer_before_anything_else_is_due() -> None:
    told: list[int] = []
    producer = SimpleNamespace(tell=lambda text: told.append(json.loads(text)["viewers"]))
    state = SimpleNamespace(state="training", step=3, attached={}, status=dict)
    viewers: dict = {}
    broadcaster = Broadcaster(state, viewers, lambda: [producer], lambda: None)
    broadcaster.tick(changed=False)
    assert told == [0]
    viewers[1] = SimpleNamespace()
    broadcaster.somebody_looks()
    assert told == [0, 1]
    viewers[2] = SimpleNamespace()
    broadcaster.somebody_looks()
    assert told == [0, 1]


def test_a_status_is_due_every_two_seconds_and_every_half_where_something_changed(monkeypatch) -> None:
    state = SimpleNamespace(state="training", step=3, attached={}, status=dict)
    broadcaster = Broadcaster(state, {}, list, lambda: None)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert broadcaster.tick(changed=True)
    for later, changed, due in (
        (0.4, True, False),
        (0.11, True, True),
        (0.6, False, False),
        (1.3, False, False),
        (0.11, False, True),
    ):
        now += later
        assert broadcaster.tick(changed=changed) == due
