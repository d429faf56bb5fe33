import type { IRunSource, ITensorQuery, ITensorResult } from '../../store/source';
import { nearestStep } from './heatmap-data';

/** Steps that a rank may be behind another one before its layers are drawn as missing. */
const BEHIND = 3;

/**
 * Read the rows of one step. While the newest is followed and some layers' ranks are behind, of the newest step that more layers have:
 * pipeline stages send a step one after the other, and a picture must not lose half of its layers in between.
 *
 * @param steps Steps to choose from, ascending.
 * @param wanted The step, or null to follow the newest.
 * @returns Null where there is no step.
 */
export async function readStep(
  source: IRunSource,
  query: ITensorQuery,
  steps: readonly number[],
  wanted: number | null,
  signal: AbortSignal
): Promise<{ step: number; result: ITensorResult } | null> {
  const step = nearestStep(steps, wanted);
  if (step === null) {
    return null;
  }
  const read = async (at: number): Promise<{ step: number; result: ITensorResult; layers: number }> => {
    const result = await source.tensors({ ...query, steps: [at, at] }, signal);
    return { step: at, result, layers: new Set(result.rows.map(row => row.layer)).size };
  };
  let best = await read(step);
  const most = query.layers?.length ?? best.layers;
  for (let back = 2; wanted === null && best.layers < most && back <= BEHIND; back += 1) {
    const before = steps[steps.length - back];
    if (before === undefined) {
      break;
    }
    const other = await read(before);
    best = other.layers > best.layers ? other : best;
  }
  return best;
}
