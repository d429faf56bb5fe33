import { packedMoments, type ITensorPack } from './moments-pack';
import { rollup, type IRollup, type IRollupRows } from './rollup';
import type { Statistic } from './statistics';

/** What the worker can be asked. */
export type WorkerQuestion =
  | { readonly kind: 'rollup'; readonly rows: IRollupRows; readonly statistics: readonly Statistic[] }
  | { readonly kind: 'moments'; readonly pack: ITensorPack };

/** What goes to the worker. */
export type WorkerRequest = WorkerQuestion & { readonly id: number };

/** What the worker answers: a rollup, or packed sums of each tensor. */
export type WorkerAnswer =
  | { readonly kind: 'rollup'; readonly result: IRollup }
  | { readonly kind: 'moments'; readonly packed: Float64Array };

/** What comes back. */
export type WorkerReply =
  { readonly id: number; readonly answer: WorkerAnswer } | { readonly id: number; readonly error: string };

/** The buffers of a question or an answer, which are handed over instead of copied. */
export type Buffers = ArrayBufferLike[];

/**
 * Answer one request, as the worker does.
 *
 * @returns The reply, and the buffers that can be handed over with it.
 */
export function answer(request: WorkerRequest): [WorkerReply, Buffers] {
  const { id } = request;
  try {
    if (request.kind === 'moments') {
      const packed = packedMoments(request.pack);
      return [{ id, answer: { kind: 'moments', packed } }, [packed.buffer]];
    }
    const result = rollup(request.rows, request.statistics);
    const columns = [result.step, result.layer, ...Object.values(result.statistics)];
    return [{ id, answer: { kind: 'rollup', result } }, columns.map(column => column.buffer)];
  } catch (error) {
    return [{ id, error: error instanceof Error ? error.message : String(error) }, []];
  }
}
