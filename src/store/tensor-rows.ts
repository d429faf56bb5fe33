import { PASSES, PHASES, type ITensorMoments, type ITensorRow } from './tensor-data';
import { badFrame } from '../protocol/frame';
import type { StreamTable } from '../protocol/frame-table';
import type { Pass, Phase } from '../protocol/messages.generated';

/** How many moments of the whole tensor stand between the compression error and the call. */
const MOMENTS = 7;

/**
 * The rows of a `tensors` table. Their values are views of the table's memory.
 * @throws ProtocolError `bad-frame` when a row contradicts itself.
 */
export function tensorRows(table: StreamTable): ITensorRow[] {
  const [
    step,
    microBatch,
    phase,
    pass,
    rank,
    layer,
    flag,
    part,
    compressor,
    sourceShape,
    shape,
    values,
    labels,
    nans,
    infs,
    errors,
    ...later
  ] = table.children;
  const [call, whole] = [later[MOMENTS], later.slice(0, MOMENTS)];
  return Array.from({ length: table.numRows }, (_, row) => {
    const retained: ArrayLike<number> = shape?.at(row) ?? [];
    const flat: unknown = values?.at(row);
    const [phaseName, passName] = [String(phase?.at(row)), String(pass?.at(row))];
    if (!(flat instanceof Float32Array) || !isPhase(phaseName) || !isPass(passName)) {
      throw badFrame('A tensors row has an unknown phase or pass.', {
        expected: [...PHASES, ...PASSES].join(', '),
        got: `${phaseName}, ${passName}`.slice(0, 200)
      });
    }
    const size = Array.prototype.reduce.call(retained, (product, edge) => Number(product) * Number(edge), 1);
    if (size !== flat.length) {
      throw badFrame('A tensors row has another number of values than its shape says.', {
        expected: String(size),
        got: String(flat.length)
      });
    }
    return {
      step: Number(step?.at(row)),
      microBatch: Number(microBatch?.at(row)),
      phase: phaseName,
      pass: passName,
      rank: Number(rank?.at(row)),
      layer: Number(layer?.at(row)),
      flag: String(flag?.at(row)),
      part: String(part?.at(row)),
      compressor: String(compressor?.at(row)),
      sourceShape: Array.from<number>(sourceShape?.at(row) ?? []),
      shape: Array.from(retained),
      values: flat,
      labels: Array.from<string>(labels?.at(row) ?? []),
      nanCount: Number(nans?.at(row)),
      infCount: Number(infs?.at(row)),
      compressionError: Number(errors?.at(row) ?? NaN),
      call: Number(call?.at(row) ?? 0),
      whole: wholeOf(whole.map(column => Number(column.at(row))))
    };
  });
}

/** Moments of a whole tensor from their columns; null where nobody measured it. */
function wholeOf(columns: readonly number[]): ITensorMoments | null {
  const [count = NaN, mean = NaN, m2 = NaN, m3 = NaN, m4 = NaN, min = NaN, max = NaN] = columns;
  return Number.isNaN(count) ? null : { count, mean, m2, m3, m4, min, max };
}

/** The order in which queries answer: step, micro-batch, layer; then part, pass, rank and call. */
export function compareRows(a: ITensorRow, b: ITensorRow): number {
  return (
    a.step - b.step ||
    a.microBatch - b.microBatch ||
    a.layer - b.layer ||
    (a.part < b.part ? -1 : a.part > b.part ? 1 : 0) ||
    (a.pass < b.pass ? 1 : a.pass > b.pass ? -1 : 0) ||
    a.rank - b.rank ||
    a.call - b.call
  );
}

const isPhase = (text: string): text is Phase => PHASES.some(each => each === text);

const isPass = (text: string): text is Pass => PASSES.some(each => each === text);
