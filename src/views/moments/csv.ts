import { csvCell, nameFilter, rowFilter as placeFilter } from '../../aggregate';
import { STREAMS } from '../../protocol/streams.generated';
import { parseName } from '../../protocol/tensor-name';
import { FLOAT, GRADIENT_STAGES, streamName, WHOLE } from '../../store/moment-row';
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
  const columns = new Map<string, (at: number) => string | number | undefined>([
    ['stat', at => rows.stat[at]],
    ['name', at => rows.names[rows.nameId[at] ?? 0]],
    ...[...WHOLE, ...FLOAT].map(name => [streamName(name), (at: number) => rows[name][at]] as const),
    ['gradient_stage', at => GRADIENT_STAGES[rows.gradientStage[at] ?? 0]]
  ]);
  const fields = STREAMS.moments.fields.filter(({ name }) => columns.has(name)).map(({ name }) => name);
  const written = fields.map(name => columns.get(name) ?? (() => undefined));
  const lines = Array.from(rows.step.keys())
    .filter(takes)
    .map(at => written.map(read => csvCell(read(at))).join(','));
  return [fields.join(','), ...lines].join('\n') + '\n';
}
