import { csvCell, nameFilter, rowFilter as placeFilter } from '../../aggregate';
import { parseName } from '../../protocol/tensor-name';
import type { MomentFilter, IMomentRows } from '../../store/moment-source';

/**
 * Say which rows a filter takes: a source may bring more than these.
 *
 * @param steps - Inclusive first and last step; null takes all.
 */
export function rowFilter(
  rows: IMomentRows,
  where: MomentFilter,
  steps: readonly [number, number] | null = null
): (at: number) => boolean {
  const [first, last] = steps ?? [-Infinity, Infinity];
  const named = nameFilter(where);
  const taken = rows.names.map(name => named(name, parseName(name)));
  const placed = placeFilter(rows, where);
  return at => {
    const step = rows.step[at] ?? NaN;
    return step >= first && step <= last && taken[rows.nameId[at] ?? -1] === true && placed(at);
  };
}

/** Write the rows themselves as comma-separated values: the columns of the stream. */
export function rowsCsv(rows: IMomentRows, takes: (at: number) => boolean): string {
  const columns: Record<string, (at: number) => string | number | undefined> = {
    step: at => rows.step[at] ?? 0,
    samples: at => rows.samples[at] ?? -1,
    stat: at => rows.stat[at],
    name: at => rows.names[rows.nameId[at] ?? 0],
    rank: at => rows.rank[at] ?? -1,
    stage: at => rows.stage[at] ?? -1,
    count: at => rows.count[at],
    mean: at => rows.mean[at],
    m2: at => rows.m2[at],
    m3: at => rows.m3[at],
    m4: at => rows.m4[at],
    min: at => rows.min[at],
    max: at => rows.max[at],
    nan_count: at => rows.nanCount[at],
    inf_count: at => rows.infCount[at],
    rounding: at => rows.rounding[at],
    loss_scale: at => rows.lossScale[at]
  };
  const lines = Array.from(rows.step.keys())
    .filter(takes)
    .map(at =>
      Object.values(columns)
        .map(read => csvCell(read(at)))
        .join(',')
    );
  return [Object.keys(columns).join(','), ...lines].join('\n') + '\n';
}
