"""What a pipeline of pull request 3606 sends, in the order of time: one forward, one backward, its stages at their own pace."""

import numpy as np
from peers import update

FORWARD, BACKWARD = 1.0, 2.0


def starts(stages, micro_batches):
    """When each forward pass begins, by stage and micro-batch, and when the step ends."""
    orders = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, micro_batches)
        order = [("F", n) for n in range(ahead)]
        for n in range(micro_batches - ahead):
            order += [("F", ahead + n), ("B", n)]
        orders.append(order + [("B", n) for n in range(micro_batches - ahead, micro_batches)])
    ends, clock, at = {}, [0.0] * stages, [0] * stages
    while any(at[stage] < len(orders[stage]) for stage in range(stages)):
        for stage in range(stages):
            while at[stage] < len(orders[stage]):
                kind, n = orders[stage][at[stage]]
                other = stage - 1 if kind == "F" else stage + 1
                needs = ends.get((kind, n, other), 0.0 if other in (-1, stages) else None)
                if needs is None:
                    break
                clock[stage] = max(clock[stage], needs) + (FORWARD if kind == "F" else BACKWARD)
                ends[kind, n, stage] = clock[stage]
                at[stage] += 1
    return {key[1:]: end - FORWARD for key, end in ends.items() if key[0] == "F"}, max(clock)


def stream(steps=3, stages=2, micro_batches=4, layers=2, numbers=(1, 4, 5), late=0.0):
    """Return every update as (pass, layer from 0, message), all values of a pass being its number. Later stages' come ``late``: through a worker."""
    begins, length = starts(stages, micro_batches)
    sent = []
    for step in range(steps):
        for (n, stage), begin in begins.items():
            number = step * micro_batches + n
            each = FORWARD / (layers * len(numbers) + 1)
            passed = [(number, -1, update(8, 0, (2, 1, 4), np.full(8, number)))] if stage == 0 else []
            passed += [
                (number, layer, update(kind, layer + 1, (1, 4, 6), np.full(24, float(number))))
                for layer in range(stage * layers, (stage + 1) * layers)
                for kind in numbers
            ]
            time = step * (length + 1) + begin + late * (stage > 0)
            sent += [(time + (at + 0.5) * each, stage, *message) for at, message in enumerate(passed)]
    return [message for _, _, *message in sorted(sent, key=lambda each: each[:2])]
