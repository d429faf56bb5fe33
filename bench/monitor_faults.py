"""What the training monitor finds, and how often it is wrong: ``python -m bench.monitor_faults [--quick]``.

Real trainings by torch, watched by ``megalens.monitor`` with its own settings: with a fault put in, and healthy ones in which it is to stay silent.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench.common import Row, asked, judged, report, share
from tests.kit.monitor_faults import ranks
from tests.kit.monitor_faults.healthy import HEALTHY
from tests.kit.monitor_faults.judging import Verdict, verdict_of
from tests.kit.monitor_faults.running import KINDS, LOCAL, false_alarms, fault_alarms, kind_alarms
from tests.kit.monitor_faults.unseen import CHOSEN

__all__ = ["main"]

_SOON = 20
"""Steps within which a small mistake is to be found."""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure, and write the table."""
    options = asked(__doc__, arguments, "few faults and steps", steps=(500, "steps of each healthy training"))
    every = 8 if options.quick else 1
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        several = range(0, len(LOCAL), every)
        local = [
            verdict_of(LOCAL[at], *given)
            for at, given in zip(several, pool.map(fault_alarms, several), strict=True)
        ]
        # Thresholds were chosen on the first of them, which say nothing here.
        judged = range(len(CHOSEN), len(KINDS), every)
        kinds = [
            verdict_of(KINDS[at], *given)
            for at, given in zip(judged, pool.map(kind_alarms, judged), strict=True)
        ]
    found = [*local, *ranks.verdicts(ranks.FAULTS[:: 4 if options.quick else 1])]
    for each in (*found, *kinds):
        print(_line(each), flush=True)
    steps = 200 if options.quick else options.steps
    chosen = range(0, len(HEALTHY), 6 if options.quick else 1)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        healthy = list(pool.map(false_alarms, chosen, [steps] * len(chosen)))
    if not options.quick:
        healthy.append(ranks.healthy(3, steps))
    for told, number in Counter(told for _, _, alarms in healthy for told in alarms).items():
        print(f"false alarm × {number}: {told}", flush=True)
    how = (
        f"{len(found)} faults, each put into a real training on the CPU that is watched by megalens.monitor with its own settings and activations at every step: a small GPT, one with experts, one in half precision, a "
        "classifier, and replicas on 2 to 4 processes. A fault is found when the first alarm of severity critical or warning comes in its step or one of the 40 after it (20 with several processes), and none before. Wrong values count as found when "
        f"that is in their step or the next. {len(healthy)} healthy trainings of {steps} steps differ in seed, size, schedule, warm-up, optimizer, betas, clipping, batch, micro-batches, dropout, precision, model and kind, with seeds that no threshold was chosen with; two go on from a checkpoint, and one is of three processes. Then {len({_kind(each) for each in kinds})} kinds of small mistakes on "
        f"{len({each.fault.name.partition(':')[0] for each in kinds})} models and seeds that no threshold was chosen on, found when the first alarm comes within {_SOON} steps. What follows from an alarm is none. Intervals: exact, of shares and of a Poisson number."
    )
    return report(
        "monitor_faults",
        "What the training monitor finds",
        [*_rows(found, healthy), *_kind_rows(kinds)],
        how=how,
        quick=options.quick,
    )


def _rows(found: Sequence[Verdict], healthy: Sequence[tuple[int, int, list[str]]]) -> list[Row]:
    values = [each for each in found if each.fault.value]
    placed = [each for each in found if each.fault.module or each.fault.direction or each.fault.rank >= 0]
    steps, peer, false = (
        sum(column)
        for column in (
            (s for s, _, _ in healthy),
            (p for _, p, _ in healthy),
            (len(a) for _, _, a in healthy),
        )
    )
    rows = [
        _share("faults that were found", found, lambda each: each.found, 97),
        _share("wrong values found within one step", values, lambda each: each.soon, 100),
        _share(
            "first anomaly right in rank, module and part",
            placed,
            lambda each: each.found and each.right == 1,
            95,
        ),
        _share("· within the first three", placed, lambda each: each.found and 0 < each.right <= 3, 100),
        _share("faults that the peer's two rules report", found, lambda each: each.peer, None),
        _share("· and report nothing before", found, lambda each: each.peer and not each.peer_before, None),
        _number("false alarms in 100,000 healthy steps", false, steps, 1.0),
        _number("· of the peer's two rules", peer, steps, None),
    ]
    rows += [
        Row(
            f"missed: {each.fault.name}",
            1,
            "",
            note="" if each.first == "nothing" else f"too early: {each.first}",
        )
        for each in found
        if not each.found
    ]
    rows += [
        Row(
            f"elsewhere: {each.fault.name}", each.right, "th alarm that is right", note=f"first: {each.first}"
        )
        for each in placed
        if each.found and each.right != 1
    ]
    return rows


def _kind(each: Verdict) -> str:
    return each.fault.name.partition(": ")[2]


def _kind_rows(kinds: Sequence[Verdict]) -> list[Row]:
    def soon(each: Verdict) -> bool:
        return each.found and each.late <= _SOON

    placed = [each for each in kinds if each.fault.module or each.fault.direction]
    names = dict.fromkeys(map(_kind, kinds))
    return [
        _share("small mistakes found, of all kinds", kinds, soon, 90),
        _share(
            "· first anomaly right in module and part",
            placed,
            lambda each: soon(each) and each.right == 1,
            None,
        ),
        *(_share(f"· {name}", [e for e in kinds if _kind(e) == name], soon, None) for name in names),
        *(Row(f"missed: {each.fault.name}", 1, "") for each in kinds if not soon(each)),
    ]


def _share(what: str, of: Sequence[Verdict], good: Callable[[Verdict], bool], target: float | None) -> Row:
    aim = "" if target is None else f"≥ {target} %"
    return share(what, sum(good(each) for each in of), max(1, len(of)), aim, _exact)


def _number(what: str, number: int, steps: int, target: float | None) -> Row:
    low, high = (1e5 * end / steps for end in _poisson(number))
    value, note = 1e5 * number / steps, f"{number} in {steps:,} steps"
    if target is None:
        return Row(what, value, "", low, high, note=note)
    return judged(what, value, "", f"≤ {target:.0f}", note, low=low, high=high)


def _exact(good: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Clopper and Pearson."""
    from math import comb

    def at_least(share: float, least: int) -> float:
        return sum(comb(of, n) * share**n * (1 - share) ** (of - n) for n in range(least, of + 1))

    low = 0.0 if good == 0 else _where(lambda share: at_least(share, good) - 0.025, 0.0, 1.0)
    high = 1.0 if good == of else _where(lambda share: at_least(share, good + 1) - 0.975, 0.0, 1.0)
    return low, high


def _poisson(number: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean of a Poisson number, one-sided where it is 0."""
    from math import exp, lgamma, log

    def at_most(mean: float, most: int) -> float:
        return sum(exp(n * log(mean) - mean - lgamma(n + 1)) for n in range(most + 1))

    top = 2.0 * number + 30
    low = 0.0 if number == 0 else _where(lambda mean: 0.975 - at_most(mean, number - 1), 1e-9, top)
    return low, _where(lambda mean: (0.05 if number == 0 else 0.025) - at_most(mean, number), 1e-9, top)


def _where(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def _line(each: Verdict) -> str:
    place = each.fault.module or each.fault.direction or each.fault.rank >= 0
    word = (
        ("found" if not place or each.right == 1 else f"elsewhere ({each.right})") if each.found else "MISSED"
    )
    return f"{word:14}{each.fault.name}: {each.late:+d} {each.first}"


if __name__ == "__main__":
    main()
