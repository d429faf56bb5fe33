import { TOKENS, type ITensorQuery, type ITensorResult, type ITensorRow } from '../../store/tensor-data';
import type { IRunSource } from '../../store/source';
import { unmeasured } from './heatmap-words';
import {
  nearestStep,
  firstOfEach,
  tokenRow,
  tokensOf,
  type HeatmapQuestion,
  type IHeatmapRead
} from './heatmap-data';

/** Steps that a rank may be behind another one before its layers are drawn as missing. */
const BEHIND = 3;

/**
 * Read the rows of one step. While the newest is followed and some layers' ranks are behind, of the newest
 * step that more layers have: pipeline stages send a step one after the other, and a picture must not lose
 * half of its layers in between.
 *
 * @returns Null where there is no step.
 */
async function readStep(
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

export class StepRows {
  constructor(private readonly _source: IRunSource) {}

  /**
   * @param steps Steps to choose from, ascending.
   * @param wanted The step, or null to follow the newest.
   * @returns The step that has no row of these layers where there is none; null where there is no step.
   */
  async read(
    question: HeatmapQuestion,
    steps: readonly number[],
    wanted: number | null,
    signal: AbortSignal
  ): Promise<IHeatmapRead | number | null> {
    const query = queryOf(question);
    const read = await readStep(this._source, query, steps, wanted, signal);
    if (read === null) {
      return null;
    }
    const { step, result } = read;
    const [tokens, measured] = await Promise.all([
      this._tokens(question, step, result.rows[0]?.rank ?? 0, signal),
      this._measured(query, result.rows, step, signal)
    ]);
    const [first, ...others] = firstOfEach(result.rows);
    const { sample, head } = question;
    return first === undefined
      ? step
      : { rows: [first, ...others], step, sample, head, tokens, result, measured };
  }

  /** The newest measured rows up to a step, where a drawn one was not measured. */
  private async _measured(
    query: ITensorQuery,
    rows: readonly ITensorRow[],
    step: number,
    signal: AbortSignal
  ): Promise<readonly ITensorRow[]> {
    const key = JSON.stringify(query);
    const inVain = this._source.connection.kind === 'recorded' && key === this._unmeasured.key;
    if (!unmeasured(rows) || (inVain && step <= this._unmeasured.upTo)) {
      return [];
    }
    const found = await this._source.tensors({ ...query, steps: [0, step], measured: true }, signal);
    if (found.rows.length === 0) {
      this._unmeasured = { key, upTo: step };
    }
    return found.rows;
  }

  /** Texts of the positions of the chosen sample at a step; empty when they are not traced. */
  private async _tokens(
    { phase, flag, sample }: HeatmapQuestion,
    step: number,
    rank: number,
    signal: AbortSignal
  ): Promise<string[]> {
    const { hello } = this._source;
    if (flag === TOKENS || !hello?.flags.some(each => each.name === TOKENS)) {
      return [];
    }
    const { rows } = await this._source.tensors({ flag: TOKENS, phase, steps: [step, step] }, signal);
    return tokensOf(tokenRow(rows, rank, hello), sample);
  }

  /** What was asked for errors in vain, and up to which step. */
  private _unmeasured = { key: '', upTo: -Infinity };
}

/** What is asked of the source, whatever the step. */
export function queryOf({ flag, phase, pass, rank, layers, part }: HeatmapQuestion): ITensorQuery {
  return { flag, phase, pass, rank: rank ?? 'lowest', layers, ...(part ? { part } : {}) };
}
