import { rollup, type IRollup, type IRollupRows } from './rollup';
import type { Statistic } from './statistics';

/** What goes to the worker. */
export interface IRollupRequest {
  readonly id: number;
  readonly rows: IRollupRows;
  readonly statistics: readonly Statistic[];
}

/** What comes back. */
export type RollupReply =
  { readonly id: number; readonly result: IRollup } | { readonly id: number; readonly error: string };

/**
 * Answer one request, as the worker does.
 *
 * @returns The reply and the buffers that can be handed over with it instead of copied.
 */
export function answerRollup(request: IRollupRequest): [RollupReply, ArrayBufferLike[]] {
  const { id } = request;
  try {
    const result = rollup(request.rows, request.statistics);
    const columns = [result.step, result.layer, ...Object.values(result.statistics)];
    return [{ id, result }, columns.map(column => column.buffer)];
  } catch (error) {
    return [{ id, error: error instanceof Error ? error.message : String(error) }, []];
  }
}
