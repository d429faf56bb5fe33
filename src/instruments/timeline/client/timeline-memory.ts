import { asArray, asObject } from '../../../client/rest';
import { own } from '../../../protocol/records';
import type { IPiece } from './timeline-api';

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

const number = (value: unknown): number => (typeof value === 'number' ? value : NaN);

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
