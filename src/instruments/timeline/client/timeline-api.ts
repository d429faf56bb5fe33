import { own } from '../../../protocol/records';
import { type IQuestion, asArray, asObject } from '../../../client/rest';
import type { TimelineRequest } from '../../../protocol/requests.generated';

/** A stretch of time on a lane: a span, or the sum of some that are too short to be seen. */
export interface IPiece {
  readonly lane: number;
  /** 0 for phases, 1 for what is in them, 2 where the rank is blocked. */
  readonly depth: number;
  readonly kind: string;
  /** ms */
  readonly begin: number;
  readonly end: number;
  /** How many spans it is. */
  readonly count: number;
  /** Which span it is; -1 of a sum. Of a sum the members below say nothing. */
  readonly row: number;
  readonly name: string;
  readonly group: string;
  readonly step: number;
  readonly microBatch: number;
  readonly chunk: number;
  readonly bytes: number;
  readonly peer: number;
}

/** A stretch of a rank's memory, in bytes: a phase, a layer, what lies between two, or several short ones. */
export interface IMemoryPiece extends IPiece {
  /** At its end. */
  readonly allocated: number;
  /** The most in it. */
  readonly peak: number;
  readonly reserved: number;
  /** forward, backward, …; empty between two phases. */
  readonly phase: string;
}

/** Memory of the ranks that are drawn and say it. */
export interface ITimelineMemory {
  readonly ranks: readonly number[];
  /** The largest peak of all that was read, of which `top` tells. */
  readonly scale: number;
  readonly pieces: readonly IMemoryPiece[];
  readonly top: {
    readonly rank: number;
    readonly step: number;
    readonly phase: string;
    readonly name: string;
    /** 0 where it is not known. */
    readonly limit: number;
    readonly limitOf: string;
  };
  /** Layers that keep most after their forward pass, or lines of code that hold most of a snapshot. */
  readonly holders: readonly { readonly name: string; readonly bytes: number }[];
}

/** A rank of the picture. */
export interface ITimelineLane {
  readonly rank: number;
  /** -1 where there are none. */
  readonly stage: number;
  /** 95 % interval of its clock, ms to either side. */
  readonly halfWidth: number;
  /** Rank whose clock it is compared with. Those of two references cannot be compared. */
  readonly reference: number;
}

/** What makes other ranks wait. */
export interface ICulprit {
  readonly kind: string;
  readonly ranks: readonly number[];
  readonly first: number;
  readonly last: number;
  readonly sentence: string;
  /** 0.34 for 1.34 times as long; of pauses and waits a share of the rank's computing. */
  readonly slower: number;
  /** By how much a step would be shorter without it, ms; NaN where that is not known. */
  readonly priceMs: number;
}

/** What depends on what: from the one rank and moment to the other. */
export interface ITimelineLink {
  readonly rank: number;
  readonly at: number;
  readonly other: number;
  readonly otherAt: number;
}

/** A stretch of the critical path on one rank, ms. */
export interface IPathPiece {
  readonly rank: number;
  readonly begin: number;
  readonly end: number;
}

/** A span whose name was searched for, ms. */
export interface IFoundSpan extends IPathPiece {
  readonly step: number;
}

/** Spans of one name in a stretch of time. */
export interface ISum {
  readonly kind: string;
  readonly name: string;
  readonly count: number;
  /** ms within that time. */
  readonly total: number;
}

/** Lanes of the ranks on one clock, and who makes the others wait: see protocol/README.md. */
export interface ITimelineAnswer {
  /** Whether these are the lanes alone, since it is not known yet who makes the others wait. */
  readonly isDraft: boolean;
  /** Steps that there are, and those that were looked at. */
  readonly there: readonly [number, number];
  readonly chosen: readonly [number, number];
  /** How many ranks there are, and how many of them were asked for. */
  readonly ranksThere: number;
  readonly ranksChosen: number;
  readonly lanes: readonly ITimelineLane[];
  readonly window: readonly [number, number];
  readonly whole: readonly [number, number];
  /** Number, beginning and end, ms. */
  readonly steps: readonly (readonly [number, number, number])[];
  readonly pieces: readonly IPiece[];
  readonly links: readonly ITimelineLink[];
  /** Absent where no memory is recorded. */
  readonly memory?: ITimelineMemory;
  /** From the end of each step back to its beginning. */
  readonly path: readonly IPathPiece[];
  /** How many spans have the text, and some of them by time, from number `since` on. */
  readonly found: { readonly count: number; readonly since: number; readonly first: readonly IFoundSpan[] };
  /** The sums that were asked for, the largest total first; absent where none were, or nobody can sum. */
  readonly sums?: readonly ISum[];
  readonly culprits: readonly ICulprit[];
  /** By how much a step would be shorter without all of several culprits, ms; NaN where that is not known. */
  readonly priceMs: number;
  /** What a verdict would need and the recording does not hold, in sentences. */
  readonly lacking: readonly string[];
  /** Collectives in which ranks wait for others that never came, in sentences. */
  readonly stuck: readonly string[];
  /** What is slow and costs little or nothing. */
  readonly hidden: readonly ICulprit[];
  /** What makes a few steps longer and no span explains. */
  readonly stalls: readonly ICulprit[];
  /** ms; NaN where there is no whole step. */
  readonly stepMs: number;
  readonly problems: readonly string[];
  /** By rank and step, how much longer it computes than the ranks of its stage; NaN without such a step. */
  readonly slow: {
    readonly ranks: readonly number[];
    readonly steps: readonly number[];
    readonly values: readonly (readonly number[])[];
  };
}

/** What records spans, in a training script. */
export const SNIPPET = "megalens.trace(model, timeline='phases')";
/** Most columns of a timeline that a report's file holds. */
const HELD_COLUMNS = 400;

/** Lanes of the ranks, and who makes the others wait; null where there are no spans. */
export const TIMELINE: IQuestion<TimelineRequest, ITimelineAnswer> = {
  name: 'timeline',
  inEngine: true,
  read: timelineOf,
  held: {
    // Whole, and not finer than is seen.
    asked: ({ row: _, window: _w, draft: _d, found_from: _f, sums: _s, sums_ranks: _r, ...request }) => ({
      ...request,
      columns: Math.min(request.columns ?? Infinity, HELD_COLUMNS)
    }),
    key: ({ ranks, first, last }) => JSON.stringify({ ranks, first, last }),
    // JSON has null for what is not a number, and an answer has no null of its own.
    parse: text =>
      text === 'null'
        ? null
        : (JSON.parse(text, (_, value: unknown) => (value === null ? NaN : value)) as ITimelineAnswer)
  }
};

/** Take an answer; null where there are no spans. */
export function timelineOf(value: unknown): ITimelineAnswer | null {
  const answer = asObject(value);
  if (answer['steps_there'] === null || answer['chosen'] === undefined) {
    return null;
  }
  const verdict = asObject(answer['verdict']);
  const slow = asObject(answer['slow']);
  const memory = memoryOf(answer['memory'], asArray(answer['lanes']).length);
  return {
    isDraft: answer['draft'] === true,
    there: pair(answer['steps_there']),
    chosen: pair(answer['chosen']),
    ranksThere: number(answer['ranks_there']),
    ranksChosen: number(answer['ranks_chosen']),
    lanes: asArray(answer['lanes']).map(each => {
      const { rank, stage, half_width: halfWidth, reference } = asObject(each);
      return {
        rank: number(rank),
        stage: number(stage),
        halfWidth: number(halfWidth),
        reference: number(reference)
      };
    }),
    window: pair(answer['window']),
    whole: pair(answer['whole']),
    steps: asArray(answer['steps']).map(each => {
      const [step, begin, end] = numbers(each);
      return [step ?? NaN, begin ?? NaN, end ?? NaN];
    }),
    pieces: piecesOf(asObject(answer['pieces']), asArray(answer['kinds']).map(String)),
    links: asArray(answer['links']).map(each => {
      const { rank, at, other, other_at: otherAt } = asObject(each);
      return { rank: number(rank), at: number(at), other: number(other), otherAt: number(otherAt) };
    }),
    ...(memory ? { memory } : {}),
    path: asArray(answer['path']).map(pathPiece),
    found: {
      count: number(asObject(answer['found'])['count']),
      since: number(asObject(answer['found'])['since'] ?? 0),
      first: asArray(asObject(answer['found'])['first']).map(each => ({
        ...pathPiece(each),
        step: number(asObject(each)['step'])
      }))
    },
    ...(Array.isArray(answer['sums']) ? { sums: answer['sums'].map(sumOf) } : {}),
    culprits: asArray(verdict['culprits']).map(culprit),
    priceMs: number(verdict['price_ns']) / 1e6,
    lacking: asArray(verdict['lacking'] ?? []).map(String),
    stuck: asArray(verdict['stuck'] ?? []).map(String),
    hidden: asArray(verdict['hidden'] ?? []).map(culprit),
    stalls: asArray(verdict['stalls'] ?? []).map(culprit),
    stepMs: verdict['step_ns'] === null ? NaN : number(verdict['step_ns']) / 1e6,
    problems: asArray(verdict['problems']).map(String),
    slow: {
      ranks: numbers(slow['ranks']),
      steps: numbers(slow['steps']),
      values: asArray(slow['values']).map(numbers)
    }
  };
}

function piecesOf(columns: Record<string, unknown>, kinds: readonly string[]): IPiece[] {
  const column = (name: string): readonly unknown[] => asArray(own(columns, name));
  const [lane, depth, kind, begin, end] = ['lane', 'depth', 'kind', 'begin', 'end'].map(column);
  const [count, row, step, microBatch] = ['count', 'row', 'step', 'micro_batch'].map(column);
  const [chunk, bytes, peer, name, group] = ['chunk', 'bytes', 'peer', 'name', 'group'].map(column);
  return (lane ?? []).map((_, at) => ({
    lane: number(lane?.[at]),
    depth: number(depth?.[at]),
    kind: kinds[number(kind?.[at])] ?? '',
    begin: number(begin?.[at]),
    end: number(end?.[at]),
    count: number(count?.[at]),
    row: number(row?.[at]),
    name: String(name?.[at] ?? ''),
    group: String(group?.[at] ?? ''),
    step: number(step?.[at]),
    microBatch: number(microBatch?.[at]),
    chunk: number(chunk?.[at]),
    bytes: number(bytes?.[at]),
    peer: number(peer?.[at])
  }));
}

function culprit(value: unknown): ICulprit {
  const { kind, ranks, first, last, sentence, slower, price_ns: price } = asObject(value);
  return {
    kind: String(kind),
    ranks: numbers(ranks),
    first: number(first),
    last: number(last),
    sentence: String(sentence),
    slower: number(slower),
    priceMs: number(price) / 1e6
  };
}

function sumOf(value: unknown): ISum {
  const { kind, name, count, total } = asObject(value);
  return { kind: String(kind), name: String(name), count: number(count), total: number(total) };
}

function pathPiece(value: unknown): IPathPiece {
  const { rank, begin, end } = asObject(value);
  return { rank: number(rank), begin: number(begin), end: number(end) };
}

const number = (value: unknown): number => (typeof value === 'number' ? value : NaN);
const numbers = (value: unknown): number[] => asArray(value).map(number);

function pair(value: unknown): [number, number] {
  const [first = NaN, last = NaN] = numbers(value);
  return [first, last];
}

/** Take the memory of an answer whose lanes are so many; its own lanes come after them. */
export function memoryOf(value: unknown, lanes: number): ITimelineMemory | undefined {
  if (value === null || value === undefined) {
    return undefined;
  }
  const { ranks, scale, pieces, peak, holders } = asObject(value);
  const top = asObject(peak);
  const columns = asObject(pieces);
  const column = (name: string): readonly unknown[] => asArray(own(columns, name));
  const [lane, begin, end, count, step] = ['lane', 'begin', 'end', 'count', 'step'].map(column);
  const [allocated, highest, reserved] = ['allocated', 'peak', 'reserved'].map(column);
  const [phase, name] = ['phase', 'name'].map(column);
  return {
    ranks: asArray(ranks).map(number),
    scale: number(scale),
    pieces: (lane ?? []).map((_, at) => ({
      lane: lanes + number(lane?.[at]),
      depth: 0,
      kind: 'memory',
      begin: number(begin?.[at]),
      end: number(end?.[at]),
      count: number(count?.[at]),
      row: -1,
      name: String(name?.[at] ?? ''),
      group: '',
      step: number(step?.[at]),
      microBatch: -1,
      chunk: -1,
      bytes: -1,
      peer: -1,
      allocated: number(allocated?.[at]),
      peak: number(highest?.[at]),
      reserved: number(reserved?.[at]),
      phase: String(phase?.[at] ?? '')
    })),
    top: {
      rank: number(top['rank']),
      step: number(top['step']),
      phase: String(top['phase'] ?? ''),
      name: String(top['name'] ?? ''),
      limit: number(top['limit']),
      limitOf: String(top['limit_of'] ?? '')
    },
    holders: asArray(holders).map(each => {
      const { name: of, bytes } = asObject(each);
      return { name: String(of), bytes: number(bytes) };
    })
  };
}
