import type { ITokenLocation } from '../generation-rows';
import type { ITensorRow } from '../../../../store/tensor-data';

/**
 * Where the tensors of a text lie: its prompt in one pass at step 1, each later token in a step of its own, the last one nowhere.
 *
 * @param written - Later tokens that were read.
 */
export function placesOf(
  prompt: number,
  written: number,
  { padding = 0, step = 1 }: { padding?: number; step?: number } = {}
): ITokenLocation[] {
  return [
    ...Array.from({ length: prompt }, (_, position) => ({
      position,
      step,
      pass: 0,
      offset: padding + position
    })),
    ...Array.from({ length: written }, (_, at) => ({
      position: prompt + at,
      step: step + 1 + at,
      pass: 0,
      offset: 0
    })),
    ...(written > 0 ? [{ position: prompt + written, step: -1, pass: 0, offset: 0 }] : [])
  ];
}

/** A forward pass whose attention is traced. */
export interface IAttentionPass {
  readonly step: number;
  readonly queries: number;
  readonly keys: number;
  readonly heads: number;
  /** Of each sequence of the batch. */
  readonly padding: readonly number[];
  readonly layer?: number;
  /** As `Peaks(cells=…)`: of blocks of a power of two, at most so many along either axis, the largest value. */
  readonly cells?: number;
  /** Whether queries look at later keys too. */
  readonly ahead?: boolean;
}

/**
 * A row of attention probabilities. Padding and later keys have 0, queries of padding 9.
 *
 * @param value - Of a sequence, head, query and key, both counted in positions of the text.
 */
export function attentionRow(
  { step, queries, keys, heads, padding, layer = 0, cells = Infinity, ahead = false }: IAttentionPass,
  value: (sequence: number, head: number, query: number, key: number) => number
): Partial<ITensorRow> {
  const side = (length: number): number => {
    let found = 1;
    while (Math.ceil(length / found) > cells) {
      found *= 2;
    }
    return found;
  };
  const [down, across] = [side(queries), side(keys)];
  const shape = [padding.length, heads, Math.ceil(queries / down), Math.ceil(keys / across)];
  const values = padding.flatMap((pad, sequence) =>
    Array.from({ length: heads }, (_, head) => {
      const blocks = new Array<number>((shape[2] ?? 0) * (shape[3] ?? 0)).fill(-Infinity);
      for (let row = 0; row < queries; row += 1) {
        for (let key = 0; key < keys; key += 1) {
          const [query, at] = [keys - queries + row - pad, key - pad];
          const own = query < 0 ? 9 : at < 0 || (at > query && !ahead) ? 0 : value(sequence, head, query, at);
          const block = Math.floor(row / down) * (shape[3] ?? 0) + Math.floor(key / across);
          blocks[block] = Math.max(blocks[block] ?? 0, own);
        }
      }
      return blocks;
    }).flat()
  );
  return {
    step,
    layer,
    phase: 'generate',
    flag: 'RawAttentionScore_mat_mul',
    compressor: Number.isFinite(cells) ? `Peaks(cells=${cells})` : 'NoOp()',
    shape,
    sourceShape: [padding.length, heads, queries, keys],
    values: Float32Array.from(values)
  };
}
