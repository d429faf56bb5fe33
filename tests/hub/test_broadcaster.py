"""What the hub tells of itself."""

import json
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
