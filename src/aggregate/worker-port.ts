import { AggregateError, type AggregateErrorCode } from './aggregate-error';
import type { IMomentGroups } from '../store/moment-source';
import type { DeskAnswer, DeskQuestion, MomentDesk } from './moment-desk';
import { packedMoments, type ITensorPack } from './moments-pack';
import { rollup, type IRollup, type IRollupRows } from './rollup';
import type { Statistic } from './statistics';

/** What the worker can be asked. */
export type WorkerQuestion =
  | { readonly kind: 'rollup'; readonly rows: IRollupRows; readonly statistics: readonly Statistic[] }
  | { readonly kind: 'moments'; readonly pack: ITensorPack }
  | { readonly kind: 'desk'; readonly question: DeskQuestion };

/** What goes to the worker. */
export type WorkerRequest = WorkerQuestion & { readonly id: number };

/** What the worker answers: a rollup, packed sums of each tensor, or what its desk says of the tables that are there. */
export type WorkerAnswer =
  | { readonly kind: 'rollup'; readonly result: IRollup }
  | { readonly kind: 'moments'; readonly packed: Float64Array }
  | { readonly kind: 'desk'; readonly answer: DeskAnswer };

/** What comes back. */
export type WorkerReply =
  | { readonly id: number; readonly answer: WorkerAnswer }
  | { readonly id: number; readonly error: string; readonly code: AggregateErrorCode };

/** The buffers of a question or an answer, which are handed over instead of copied. */
export type Buffers = ArrayBufferLike[];

/**
 * Answer one request, as the worker does.
 *
 * @param desk - Keeps the tables of moments between requests.
 * @returns The reply, and the buffers that can be handed over with it.
 */
export function answer(request: WorkerRequest, desk: MomentDesk): [WorkerReply, Buffers] {
  const { id } = request;
  try {
    if (request.kind === 'moments') {
      const packed = packedMoments(request.pack);
      return [{ id, answer: { kind: 'moments', packed } }, [packed.buffer]];
    }
    if (request.kind === 'desk') {
      const said = desk.ask(request.question);
      return [
        { id, answer: { kind: 'desk', answer: said } },
        said.kind === 'groups' ? buffersOf(said.groups) : []
      ];
    }
    const result = rollup(request.rows, request.statistics);
    const columns = [result.step, result.layer, ...Object.values(result.statistics)];
    return [{ id, answer: { kind: 'rollup', result } }, columns.map(column => column.buffer)];
  } catch (error) {
    const code = error instanceof AggregateError ? error.code : 'invalid';
    return [{ id, error: error instanceof Error ? error.message : String(error), code }, []];
  }
}

/** The memory of the columns, each buffer once. */
function buffersOf(groups: IMomentGroups): Buffers {
  const { group, step, samples, value, count, nonFinite, error, scaled } = groups;
  const columns = [group, step, samples, value, count, nonFinite, error, scaled];
  return [...new Set(columns.map(column => column.buffer))];
}
