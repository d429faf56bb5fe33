import { AggregateError, type AggregateErrorCode } from './aggregate-error';
import type { IMomentGroups } from '../store/moment-source';
import type { TableAnswer, TableQuestion, MomentTables } from './moment-tables';
import { packedMoments, type ITensorPack } from './moments-pack';
import {
  answerBuffers,
  type ProjectionAnswer,
  type ProjectionQuestion,
  type Projections
} from '../instruments/generation/aggregate/projection/projections';

/** What the worker can be asked. */
export type WorkerQuestion =
  | { readonly kind: 'moments'; readonly pack: ITensorPack }
  | { readonly kind: 'tables'; readonly question: TableQuestion }
  | { readonly kind: 'points'; readonly question: ProjectionQuestion };

/** What goes to the worker. */
export type WorkerRequest = WorkerQuestion & { readonly id: number };

/** What the worker answers: packed sums of each tensor, what its tables say, or points that it projected. */
export type WorkerAnswer =
  | { readonly kind: 'moments'; readonly packed: Float64Array }
  | { readonly kind: 'tables'; readonly answer: TableAnswer }
  | { readonly kind: 'points'; readonly answer: ProjectionAnswer };

/** What comes back. */
export type WorkerReply =
  | { readonly id: number; readonly answer: WorkerAnswer }
  | { readonly id: number; readonly error: string; readonly code: AggregateErrorCode };

/** The buffers of a question or an answer, which are handed over instead of copied. */
export type Buffers = ArrayBufferLike[];

/**
 * Answer one request, as the worker does.
 *
 * @param tables - Keeps the tables of moments between requests.
 * @param projections - Keeps what is being laid out.
 * @returns The reply, and the buffers that can be handed over with it.
 */
export function answer(
  request: WorkerRequest,
  tables: MomentTables,
  projections: Projections
): [WorkerReply, Buffers] {
  const { id } = request;
  try {
    if (request.kind === 'moments') {
      const packed = packedMoments(request.pack);
      return [{ id, answer: { kind: 'moments', packed } }, [packed.buffer]];
    }
    if (request.kind === 'points') {
      const projected = projections.ask(request.question);
      return [{ id, answer: { kind: 'points', answer: projected } }, answerBuffers(projected)];
    }
    const said = tables.ask(request.question);
    return [
      { id, answer: { kind: 'tables', answer: said } },
      said.kind === 'groups' ? buffersOf(said.groups) : []
    ];
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
