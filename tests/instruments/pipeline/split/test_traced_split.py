"""The timeline shows forward and backward processes as the lanes of one run."""

import pandas
import pytest
from processes import run_job
from split_models import HIDDEN, SAMPLES, WIDTH, Case
from traced_split_work import STEPS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("last", [True, False])
def test_lanes_of_both_roles_have_whole_steps(last: bool, tmp_path) -> None:
    case = Case(pipeline=2, last_forward=last, ahead=2)
    (answer, problems, spans), *_ = run_job(4 if last else 3, "traced_split_work:traced", case, str(tmp_path))
    forward = 2 if last else 1
    assert problems == ()
    assert (answer["stages"], answer["chunks"], answer["micro_batches"]) == (forward + 2, 1, 4)
    assert answer["replicas"] == 1
    # Forward process of stage 0, of stage 1 where there is one, then backward processes.
    assert answer["ranks"] == ([0, 2, 1, 3] if last else [0, 1, 2])
    assert len(answer["steps"]) == STEPS
    rows = pandas.DataFrame(answer["operations"])
    for (step, lane), mine in rows.groupby(["step", "stage"]):
        words = [f"{kind}{number}" for kind, number in zip(mine["kind"], mine["micro_batch"], strict=True)]
        if lane < forward:
            assert words == [f"F{number}" for number in range(4)], step
        else:
            # With two micro-batches recomputed ahead; the optimizer's step is the last.
            assert words == ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3", "O-1"], step
        assert (mine["begin_ms"].values[1:] >= mine["end_ms"].values[:-1]).all()
    table = pandas.DataFrame(spans)
    messages = table[(table["name"] == "pipeline") & (table["step"] == 2)]
    sent, received = (messages[messages["kind"] == kind] for kind in ("send", "receive"))
    nbytes = 4 * SAMPLES * WIDTH
    # Activations to the forward and the backward process of the next stage, and gradients back: each both sent and received.
    passed = [4 * (1 + (1 if last else 0)), 4]
    assert (sent["micro_batch"] >= 0).sum() == (received["micro_batch"] >= 0).sum() == sum(passed)
    assert set(received[received["micro_batch"] >= 0]["bytes"]) == {nbytes}
    weights = received[received["micro_batch"] < 0]
    trained = 4 * (2 * HIDDEN * WIDTH + HIDDEN + WIDTH + 1)
    assert sorted(weights["bytes"]) == sorted([7, trained] * forward)
