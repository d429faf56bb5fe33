import type { Plan } from '../protocol/pipeline.generated';
import { measuredSteps, type IMeasured } from './measured';
import { stageOf, type IPlanShape } from './plan-shape';
import { readOperation } from './operation';

/**
 * The order in which the operations of the last measured step began: a plan, which is right only where nothing of the step is missing.
 *
 * @param rows - Times of all stages by one clock.
 */
export function planFromMeasured(rows: IMeasured, shape: IPlanShape): Plan {
  const order = Array.from({ length: shape.stages }, (): { name: string; begin: number }[] => []);
  for (const [name, at] of measuredSteps(rows, shape).at(-1)?.byName ?? []) {
    order[stageOf(readOperation(name)?.virtual ?? 0, shape)]?.push({ name, begin: rows.begin[at]! });
  }
  const { stages, chunks, micro_batches, placement } = shape;
  return {
    schedule: 'measured',
    stages,
    chunks,
    micro_batches,
    placement,
    order: order.map(each =>
      each
        .sort((a, b) => a.begin - b.begin)
        .map(({ name }) => name)
        .join(' ')
    )
  };
}
