import { byName, own } from '../../../protocol/records';
import { type IQuestion, asArray, asObject, badAnswer } from '../../../client/rest';
import type { PipelineStepsRequest } from '../../../protocol/requests.generated';
import type { IReportPart } from '../../../report/report-part';
import type { IRunSource } from '../../../store/source';

/** Forward; backward; gradients of inputs and of weights, where computed apart; optimizer. */
export type PipelineKind = 'F' | 'B' | 'I' | 'W' | 'O';

/** How chunks lie on stages: each starts at the first stage, or every second one runs back from the last. */
export type Placement = 'loop' | 'v';

/** Operations as columns of one length, ordered by step, stage and beginning. */
export interface IPipelineColumns {
  readonly step: readonly number[];
  readonly stage: readonly number[];
  readonly rank: readonly number[];
  /** -1 of an optimizer, as micro-batch and virtual stage. */
  readonly chunk: readonly number[];
  /** Place in the order in which a micro-batch runs through all chunks. */
  readonly virtualStage: readonly number[];
  readonly kind: readonly PipelineKind[];
  readonly microBatch: readonly number[];
  /** ms since the step began, on one clock. */
  readonly begin: readonly number[];
  readonly end: readonly number[];
}

/** A step that was measured. */
export interface IPipelineStep {
  readonly step: number;
  /** ms from when its first stage began it to when its last stage ended it. */
  readonly duration: number;
}

/** The steps of one pipeline as they were measured: see protocol/README.md. */
export interface IPipelineSteps {
  /** First and last step that there are. */
  readonly there: readonly [number, number];
  /** The newest of those that were asked for, and how many of them were left out. */
  readonly steps: readonly IPipelineStep[];
  readonly left: number;
  /** 1 of a run that has no pipeline. */
  readonly stages: number;
  /** Of the model on each stage. */
  readonly chunks: number;
  readonly microBatches: number;
  readonly placement: Placement;
  /** How many pipelines there are, and which this is. */
  readonly replicas: number;
  readonly replica: number;
  /** Of each stage. */
  readonly ranks: readonly number[];
  readonly operations: IPipelineColumns;
  readonly problems: readonly string[];
}

const KINDS: readonly string[] = ['F', 'B', 'I', 'W', 'O'];
const MOST_OPERATIONS = 200_000;
const MOST_STEPS = 20;
const MOST_STAGES = 65_536;
const MOST_PROBLEMS = 100;
const MOST_LETTERS = 1000;
/** ms; some thirty years. */
const MOST_TIME = 1e12;

/** Steps of one pipeline as they were measured; null where there are no spans. */
export const PIPELINE: IQuestion<PipelineStepsRequest, IPipelineSteps> = {
  name: 'pipeline',
  inEngine: true,
  read: pipelineOf,
  held: {
    key: ({ first, last, replica }) => JSON.stringify({ first, last, replica }),
    cut: embeddedPipeline
  }
};

const COLUMNS = ['step', 'stage', 'rank', 'chunk', 'virtualStage', 'microBatch', 'begin', 'end'] as const;

/** Most operations of measured steps that a file holds, but for those of one step. */
const PIPELINE_OPERATIONS = 20_000;

/** Cut measured steps to the newest ones that a file has space for. */
function embeddedPipeline(answer: IPipelineSteps): IPipelineSteps {
  const { operations, steps } = answer;
  const at = operations.step.length - PIPELINE_OPERATIONS;
  // The first step whose operations are all behind the cut, or the newest.
  const newest = steps.at(-1)?.step ?? 0;
  const from =
    at > 0 ? Math.min((operations.step[at - 1] ?? newest) + 1, newest) : (steps[0]?.step ?? newest);
  const first = operations.step.findIndex(step => step >= from);
  const retained = steps.filter(({ step }) => step >= from);
  return {
    ...answer,
    steps: retained,
    left: answer.left + steps.length - retained.length,
    operations: {
      ...byName(COLUMNS, name => operations[name].slice(Math.max(0, first))),
      kind: operations.kind.slice(Math.max(0, first))
    }
  };
}

/**
 * Take an answer; null where there are no spans.
 * @throws ClientError `bad-answer` where columns do not fit each other, or hold invalid numbers.
 */
export function pipelineOf(value: unknown): IPipelineSteps | null {
  const answer = asObject(value);
  if (answer['steps_there'] === null) {
    return null;
  }
  const [first, last] = wholes(answer['steps_there'], 'steps_there', 2);
  const stages = count(answer['stages'], 'stages', 1, MOST_STAGES);
  const ranks = wholes(answer['ranks'], 'ranks', stages);
  if (first === undefined || last === undefined || ranks.length !== stages) {
    throw badAnswer('a pipeline whose ranks or steps are not all there');
  }
  const [chunks, microBatches] = [count(answer['chunks'], 'chunks'), count(answer['micro_batches'], 'micro')];
  const placement = answer['placement'];
  if (placement !== 'loop' && placement !== 'v') {
    throw badAnswer('chunks that lie neither in loops nor as a v');
  }
  const steps = list(answer['steps'], 'steps', MOST_STEPS).map(each => {
    const { step, duration } = asObject(each);
    return { step: count(step, 'step'), duration: Math.max(time(duration), 0) };
  });
  const operations = columnsOf(asObject(answer['operations']));
  const known = new Set(steps.map(({ step }) => step));
  const places: [readonly number[], number, number][] = [
    [operations.stage, 0, stages],
    [operations.chunk, -1, chunks],
    [operations.microBatch, -1, microBatches],
    [operations.virtualStage, -1, stages * chunks]
  ];
  const outside = places.some(([column, least, most]) => column.some(each => each < least || each >= most));
  if (outside || operations.step.some(step => !known.has(step))) {
    throw badAnswer('operations of stages, chunks, micro-batches or steps that are not there');
  }
  return {
    there: [first, last],
    steps,
    left: count(answer['left'], 'left'),
    stages,
    chunks,
    microBatches,
    placement,
    replicas: count(answer['replicas'], 'replicas', 1),
    replica: count(answer['replica'], 'replica'),
    ranks,
    operations,
    problems: asArray(answer['problems'])
      .slice(0, MOST_PROBLEMS)
      .map(each => String(each).slice(0, MOST_LETTERS))
  };
}

function columnsOf(columns: Record<string, unknown>): IPipelineColumns {
  const kind = list(columns['kind'], 'kind', MOST_OPERATIONS).map(kindOf);
  const column = (name: string): number[] =>
    fitting(wholes(own(columns, name), name, kind.length), kind.length, name);
  const times = (name: string): number[] =>
    fitting(list(own(columns, name), name, kind.length).map(time), kind.length, name);
  const [begin, end] = [times('begin_ms'), times('end_ms')];
  if (end.some((each, at) => each < (begin[at] ?? NaN))) {
    throw badAnswer('operations that end before they begin');
  }
  return {
    step: column('step'),
    stage: column('stage'),
    rank: column('rank'),
    chunk: column('chunk'),
    virtualStage: column('virtual_stage'),
    kind,
    microBatch: column('micro_batch'),
    begin,
    end
  };
}

function kindOf(value: unknown): PipelineKind {
  if (typeof value !== 'string' || !KINDS.includes(value)) {
    throw badAnswer('an operation of a kind that is none of F, B, I, W and O');
  }
  return value as PipelineKind;
}

function fitting<T>(values: T[], length: number, name: string): T[] {
  if (values.length !== length) {
    throw badAnswer(`${values.length} values of ${name} for ${length} operations`);
  }
  return values;
}

function list(value: unknown, name: string, most: number): unknown[] {
  const values = asArray(value);
  if (values.length > most) {
    throw badAnswer(`${values.length} values of ${name} where ${most} are the most`);
  }
  return values;
}

function wholes(value: unknown, name: string, most: number): number[] {
  return list(value, name, most).map(each => count(each, name, -1));
}

function count(value: unknown, name: string, least = 0, most = Number.MAX_SAFE_INTEGER): number {
  if (!Number.isSafeInteger(value) || Number(value) < least || Number(value) > most) {
    throw badAnswer(`no whole number as ${name}`);
  }
  return Number(value);
}

function time(value: unknown): number {
  if (typeof value !== 'number' || !(Math.abs(value) <= MOST_TIME)) {
    throw badAnswer('a time that is no number');
  }
  return value;
}

/** A plan says something of a run that is a pipeline. */
export async function lookForReport(run: IRunSource): Promise<IReportPart> {
  const steps = await run
    .asker?.(PIPELINE)?.({})
    .catch(() => null);
  return { has: {}, views: (steps?.stages ?? 0) > 1 ? [{ view: 'pipeline', schedule: 'measured' }] : [] };
}
