import { formatInteger } from '../../../charts';
import { type Joined, joinNarrow } from '../../../views/kits/lanes/join-narrow';
import type { Translate } from '../../../views/shared/translate';
import { type IComparison, type IMeasuredRun, type IPlanned, KINDS, type Outcome } from '../plan';

/** The part of a step that a period of steps must be below to be told. */
const SHORTER = 0.99;
/** Least time between two plans of a run that goes on. */
const RENEW_MS = 10_000;

/** Reads and plans once for all panes of a view, and anew where options changed or rows came. */
export abstract class PlanReader<R> {
  /** What was read last; null before that. */
  last: R | null = null;

  /**
   * Rows have come: measured steps are to be read anew, unless that was done a moment ago.
   * @returns Whether there is something to read.
   */
  renew(): boolean {
    this._isStale ||= Date.now() - this._readAt > RENEW_MS;
    return this._isStale;
  }

  dispose(): void {
    this._end.abort();
  }

  /**
   * Read, or return what is being read.
   * @param asked - What is planned, as options; anything else is not read for anew.
   */
  protected once(asked: unknown, read: (signal: AbortSignal) => Promise<R>): Promise<R> {
    const key = JSON.stringify(asked);
    if (key !== this._key || this._isStale || this.reading === null) {
      this._end.abort();
      this._end = new AbortController();
      this._key = key;
      this._isStale = false;
      this._readAt = Date.now();
      this.reading = read(this._end.signal);
    }
    return this.reading;
  }

  /** What is read, or being read. */
  protected reading: Promise<R> | null = null;

  private _key = '';
  private _isStale = false;
  private _readAt = 0;
  private _end = new AbortController();
}

/** First and last of the steps that options ask for, where they do. */
export function rangeOf(steps: readonly [number, number] | null): { first?: number; last?: number } {
  return steps === null ? {} : { first: steps[0], last: steps[1] };
}

/**
 * A plan as it is drawn: where durations vary, the mean of its steps, so that the picture ends where the
 * number of the sentences and lists says. Outcomes that are no plan stay as they are.
 */
export function drawnPlan<P extends Outcome>(outcome: P): P {
  if ('refused' in outcome || outcome.typical === undefined) {
    return outcome;
  }
  const { busyMs, criticalPath, stepMs, table, typical } = outcome;
  const { begin, end, done } = typical;
  const places = new Map(Array.from({ length: table.count }, (_, at) => [table.name(at), at]));
  const path = criticalPath.map(part => {
    if (part.what === 'message') {
      return part;
    }
    const at = part.what === 'operation' ? (places.get(part.operation) ?? -1) : -1;
    const last = table.starts[part.stage + 1]! - 1;
    return at < 0
      ? { ...part, begin: end[last] ?? NaN, end: done[part.stage] ?? NaN }
      : { ...part, begin: begin[at] ?? NaN, end: end[at] ?? NaN };
  });
  return {
    ...outcome,
    ...typical,
    nominalMs: stepMs,
    bubble: busyMs.map(busy => (stepMs > 0 ? Math.max(0, 1 - busy / stepMs) : 0)),
    criticalPath: path
  };
}

/** The share of a step in which a stage is idle, on average. */
export const idleShare = ({ bubble }: IPlanned): number =>
  bubble.reduce((sum, each) => sum + each, 0) / bubble.length;

/**
 * The share of the period in which a stage is idle, on average: without what stages begin and end one after
 * the other. Null where that is the step's own.
 */
export const steadyIdleShare = ({ busyMs, periodMs, nominalMs }: IPlanned): number | null =>
  // What is lost to rounding, or in a draw of jitter, is no shorter period.
  periodMs < SHORTER * nominalMs
    ? Math.max(0, 1 - busyMs.reduce((sum, each) => sum + each, 0) / busyMs.length / periodMs)
    : null;

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

/**
 * What an operation is: a forward pass, one that is done again for a backward pass, a whole backward pass,
 * its gradient of the input, its gradients of the weights, the optimizer, new weights that come.
 */
export type OperationKind = 'B' | 'F' | 'I' | 'O' | 'R' | 'S' | 'W';

/** One operation as it is drawn, times in ms since the step began. */
export interface IOperation {
  readonly kind: OperationKind;
  readonly chunk: number;
  /** -1 where it is of none. */
  readonly microBatch: number;
  readonly begin: number;
  readonly end: number;
}

/** One line of a picture: what a stage does. Operations are in the order of time. */
export interface ILane {
  readonly name: string;
  readonly operations: readonly IOperation[];
}

export interface ILaneGroup {
  /** What stands over them; empty where nothing does. */
  readonly heading: string;
  readonly lanes: readonly ILane[];
  /** When the step is over, ms. */
  readonly end: number;
  /** What the step's length hangs on: stretches on lanes, each followed by what waited for it. */
  readonly path?: readonly { readonly lane: number; readonly begin: number; readonly end: number }[];
}

/** An operation, or the sum of several that are shorter than a pixel, on the line that it is drawn on. */
export interface IGanttBar extends Joined<IOperation> {
  /** Number of the row, over all groups. */
  readonly lane: number;
  readonly group: number;
}

/** The operations of a lane that lie in a window, those that are shorter than a pixel put together. */
export const piecesOf = (
  { operations }: ILane,
  place: Pick<IGanttBar, 'group' | 'lane'>,
  window: readonly [number, number],
  pixel: number
): IGanttBar[] => joinNarrow(operations, window, pixel).map(each => ({ ...each, ...place }));
