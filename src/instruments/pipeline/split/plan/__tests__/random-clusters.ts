import type { DeviceKind, SplitRequest } from '../../protocol/split.generated';
import { SeededRandom } from '../../../../../protocol/seeded-random';

/** A small cluster that is the same for the same seed: 1 to 3 kinds of devices, at most 6 devices and 6 layers, at times with little memory, and slow links. */
export function randomCluster(seed: number): SplitRequest {
  const random = new SeededRandom(seed);
  const one = <T>(...choices: readonly T[]): T => choices[random.below(choices.length)]!;
  const ms = (): number => 1 + random.below(400) / 10;
  const kinds = one(1, 2, 2, 2, 3);
  const tight = random.below(3) === 0;
  const devices = Array.from({ length: kinds }, (_, at): DeviceKind => {
    const forward = ms();
    const recompute = forward * (1 + random.below(4) / 10);
    return {
      name: `kind ${at}`,
      count: kinds === 3 ? one(1, 2) : 1 + random.below(6 / kinds),
      forward,
      recompute,
      backward: recompute * (1 + random.below(20) / 10),
      optimizer: one(0, 0, 1, 5),
      memory_bytes: tight ? 20 + random.below(180) : null
    };
  });
  return {
    devices,
    layers:
      random.below(3) > 0
        ? 1 + random.below(6)
        : Array.from({ length: 2 + random.below(5) }, () => 1 + random.below(5)),
    micro_batches: one(1, 2, 3, 4, 6, 8),
    most_tensor: one(1, 1, 2, 4),
    tensor_ms: one(0, 0.5, 3),
    latency: one(0, 0.1, 1, 10),
    bandwidth: one(null, 1, 10),
    message_bytes: one(0, 2, 10),
    activation_bytes: one(0, 20, 100),
    weight_bytes: one(0, 10, 50),
    state_bytes: one(10, 60, 200),
    ahead: one(1, 1, 2, 3),
    seed
  };
}
