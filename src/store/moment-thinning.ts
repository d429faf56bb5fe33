import type { MomentColumns } from './moment-columns';

// Of so many neighbouring steps those that stand out stay when memory runs out.
const STRETCH = 8;

/** The places of the rows of one step. */
interface IStepSpan {
  readonly from: number;
  readonly to: number;
}

/**
 * Choose the rows that stay when memory runs out.
 *
 * A step stays or goes as a whole, for a total over the tensors of a step must not lack some. Of the older half of the steps, the very first stays;
 * of each stretch of eight those of the greatest and of the least sum of squares, the one at which a single tensor stands out most from its
 * neighbours in time, and every one with values that are not finite or not known. Where nothing goes that way, the oldest steps go.
 *
 * @param columns - Rows of one stat, ordered by step.
 * @returns Places of the rows that stay, ascending; how many steps went, and the newest of them.
 */
export function thinSteps(columns: MomentColumns): { rows: Uint32Array; steps: number; newest: number } {
  const spans = spansOf(columns.column('step'));
  const half = spans.length >> 1;
  const stay = new Set<IStepSpan>([...spans.slice(0, 1), ...spans.slice(half)]);
  for (let start = 0; start < half; start += STRETCH) {
    outstanding(columns, spans.slice(start, Math.min(half, start + STRETCH))).forEach(span => stay.add(span));
  }
  if (stay.size === spans.length) {
    spans.slice(1, 1 + Math.max(1, half >> 2)).forEach(span => stay.delete(span));
  }
  const gone = spans.filter(span => !stay.has(span));
  const kept = spans.filter(span => stay.has(span));
  const rows = new Uint32Array(kept.reduce((sum, { from, to }) => sum + to - from, 0));
  let length = 0;
  for (const { from, to } of kept) {
    for (let row = from; row < to; row += 1) {
      rows[length] = row;
      length += 1;
    }
  }
  const newest = columns.column('step')[gone[gone.length - 1]?.from ?? -1] ?? -Infinity;
  return { rows, steps: gone.length, newest };
}

function outstanding(columns: MomentColumns, spans: readonly IStepSpan[]): IStepSpan[] {
  const [count, mean, m2] = [columns.column('count'), columns.column('mean'), columns.column('m2')];
  const [nans, infs] = [columns.column('nanCount'), columns.column('infCount')];
  const size = (row: number): number =>
    (count[row] ?? 0) > 0 ? Math.max(m2[row] ?? 0, 0) + (count[row] ?? 0) * (mean[row] ?? 0) ** 2 : 0;
  const ids = columns.nameId;
  const sums = new Map<number, number>();
  const totals = spans.map(({ from, to }) => {
    let total = 0;
    for (let row = from; row < to; row += 1) {
      total += size(row);
      sums.set(ids[row] ?? 0, (sums.get(ids[row] ?? 0) ?? 0) + size(row));
    }
    return total;
  });
  const jumps = spans.map(({ from, to }) => {
    let jump = 0;
    for (let row = from; row < to; row += 1) {
      jump = Math.max(jump, size(row) / (sums.get(ids[row] ?? 0) || 1));
    }
    return jump;
  });
  const bad = ({ from, to }: IStepSpan): boolean => {
    for (let row = from; row < to; row += 1) {
      if (nans[row] !== 0 || infs[row] !== 0 || !Number.isFinite(size(row))) {
        return true;
      }
    }
    return false;
  };
  const places = [
    totals.indexOf(Math.max(...totals)),
    totals.indexOf(Math.min(...totals)),
    jumps.indexOf(Math.max(...jumps))
  ];
  return spans.filter((span, place) => places.includes(place) || bad(span));
}

function spansOf(steps: Float64Array): IStepSpan[] {
  const spans: IStepSpan[] = [];
  let from = 0;
  for (let row = 1; row <= steps.length; row += 1) {
    if (row === steps.length || steps[row] !== steps[from]) {
      spans.push({ from, to: row });
      from = row;
    }
  }
  return spans;
}
