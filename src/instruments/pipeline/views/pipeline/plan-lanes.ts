import { formatInteger } from '../../../../charts';
import type { IComparison, IMeasuredRun, IPlanned } from '../../plan';
import { KINDS } from '../../plan';
import type { Translate } from '../../../../views/shared/translate';
import type { ILane, ILaneGroup, IOperation, OperationKind } from './lane';

/** The share of a step in which a stage is idle, on average. */
export const idleShare = ({ bubble }: IPlanned): number =>
  bubble.reduce((sum, each) => sum + each, 0) / bubble.length;

/** The lanes of a plan: what each stage does, its optimizer last. */
export function planLanes(planned: IPlanned, t: Translate): ILane[] {
  const { table, plan, begin, end, done } = planned;
  return Array.from({ length: plan.stages }, (_, stage) => {
    const operations: IOperation[] = [];
    for (let at = table.starts[stage] ?? 0; at < (table.starts[stage + 1] ?? 0); at += 1) {
      operations.push({
        kind: KINDS[table.kind[at] ?? 0] ?? 'F',
        chunk: chunkOf(table.virtual[at] ?? 0, plan.stages),
        microBatch: table.microBatch[at] ?? -1,
        begin: begin[at] ?? NaN,
        end: end[at] ?? NaN
      });
    }
    const last = operations.at(-1)?.end ?? 0;
    const after = done[stage] ?? last;
    return {
      name: t('stage %1', formatInteger(stage)),
      operations:
        after > last
          ? [...operations, { kind: 'O', chunk: 0, microBatch: -1, begin: last, end: after }]
          : operations
    };
  });
}

/** The lanes of the last measured step, which begin where its first operation does. */
export function measuredLanes({ rows, steps }: IMeasuredRun, beginMs: number, t: Translate): ILane[] {
  const step = steps.steps.at(-1)?.step;
  const lanes = Array.from({ length: steps.stages }, (): IOperation[] => []);
  for (let at = 0; at < rows.stage.length; at += 1) {
    if (rows.step?.[at] === step) {
      lanes[rows.stage[at] ?? -1]?.push({
        kind: rows.kind[at] as OperationKind,
        chunk: Math.max(0, rows.chunk[at] ?? 0),
        microBatch: rows.micro_batch[at] ?? -1,
        begin: (rows.begin[at] ?? NaN) - beginMs,
        end: (rows.end[at] ?? NaN) - beginMs
      });
    }
  }
  return lanes.map((operations, stage) => ({
    name: t('measured %1', formatInteger(stage)),
    operations: operations.sort((a, b) => a.begin - b.begin)
  }));
}

/** Each lane of a plan with that of what was measured under it. */
export function overlaid(planned: ILaneGroup, measured: readonly ILane[]): ILaneGroup {
  const lanes = planned.lanes.flatMap((lane, at) => {
    const below = measured[at];
    return below ? [lane, below] : [lane];
  });
  const end = measured.reduce((most, { operations }) => Math.max(most, operations.at(-1)?.end ?? 0), 0);
  const path = planned.path?.map(each => ({ ...each, lane: 2 * each.lane }));
  return { ...planned, lanes, end: Math.max(planned.end, end), ...(path ? { path } : {}) };
}

/** The operations of a plan's critical path, as stretches of its lanes. */
export function pathOf({ criticalPath }: IPlanned): NonNullable<ILaneGroup['path']> {
  return criticalPath.flatMap(part =>
    part.what === 'message' ? [] : [{ lane: part.stage, begin: part.begin, end: part.end }]
  );
}

/** Sentences about the stages whose measured step departs from the plan most, the most first. */
export function departures(
  { stages }: IComparison,
  words: (ms: number) => string,
  most: number,
  t: Translate
): string[] {
  return stages
    .filter(({ reason }) => reason !== 'none')
    .sort((a, b) => Math.abs(b.laterMs) - Math.abs(a.laterMs))
    .slice(0, most)
    .map(({ stage, laterMs, computeMs, waitMs, messageMs, waitedFor }) => {
      const parts = [
        { ms: computeMs, text: t('compute %1', signed(computeMs, words)) },
        {
          ms: waitMs,
          text:
            waitedFor === null
              ? t('waiting %1', signed(waitMs, words))
              : t('waiting %1, most for stage %2', signed(waitMs, words), formatInteger(waitedFor))
        },
        { ms: messageMs, text: t('messages and host %1', signed(messageMs, words)) }
      ];
      const named = parts
        .filter(({ ms }) => Math.abs(ms) >= 0.1 * Math.abs(laterMs))
        .sort((a, b) => Math.abs(b.ms) - Math.abs(a.ms))
        .map(({ text }) => text)
        .join('; ');
      const [number, by] = [formatInteger(stage), words(Math.abs(laterMs))];
      return laterMs > 0
        ? t('Stage %1 ended %2 later than planned: %3.', number, by, named)
        : t('Stage %1 ended %2 sooner than planned: %3.', number, by, named);
    });
}

const signed = (ms: number, words: (ms: number) => string): string =>
  `${ms < 0 ? '−' : '+'}${words(Math.abs(ms))}`;

/** Chunk of a virtual stage: its place among those of its stage. */
const chunkOf = (virtual: number, stages: number): number => Math.floor(virtual / stages);
