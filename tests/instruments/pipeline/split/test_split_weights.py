"""Which weights are sent, and what is told of those that are not alike."""

import pytest
from processes import run_job
from split_models import HIDDEN, WIDTH
from weights_work import TRAINED

pytestmark = pytest.mark.slow


def test_only_what_changed_is_sent() -> None:
    ranks = run_job(4, "weights_work:counted")
    frozen, counter, up = 4 * WIDTH, 8, 4 * HIDDEN * WIDTH
    for rank, updates in enumerate(ranks):
        moved, sent = zip(*updates, strict=True)
        # All in the beginning, with what is frozen and a buffer; and then what the optimizer changed.
        assert moved == (TRAINED + frozen + counter, TRAINED, TRAINED, TRAINED - up, TRAINED - up + frozen)
        assert sent == (moved if rank % 2 else (0,) * 5)


@pytest.mark.parametrize("which", [2, 3])
def test_a_weight_that_differs_is_found_in_both_processes(which: int) -> None:
    ranks = run_job(4, "weights_work:tampered", which)
    for rank, role in ((2, "forward"), (3, "backward")):
        assert ranks[rank][:5] == ["diverged", "still", 1, role, 6]
        assert "Weight still of stage 1" in ranks[rank][5]
        assert "goes on no more" in ranks[rank][6]
    # Nothing comes from there any more.
    assert [each[0] for each in ranks[:2]] == ["waited", "waited"]


def test_weights_that_only_one_role_has_are_refused_in_both() -> None:
    for found in run_job(2, "weights_work:unlike"):
        assert [each[:2] for each in found] == [["shape", "weight"], ["shape", "bias"], ["shape", "weight"]]
        assert "[4, 2]" in found[0][2]
        assert "[3, 2]" in found[0][2]
        assert "float64" in found[2][2]


def test_weights_that_do_not_divide_are_refused_by_name() -> None:
    for found in run_job(3, "weights_work:indivisible"):
        assert found[:2] == ["shape", "weight"]
        assert "[6, 2]" in found[2]
        assert "got torch.float32[5, 2]" in found[2]


def test_what_torch_cuts_is_put_together_in_a_forward_process(tmp_path) -> None:
    for found in run_job(3, "weights_work:dtensors", str(tmp_path)):
        assert max(found) < 1e-9
