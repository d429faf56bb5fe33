import { byName } from '../../protocol/by-name';
import type { IMomentGroups, MomentColumn, MomentKey } from '../../store/moment-source';
import { extentOf } from '../shared/scale';
import type { MomentOptions } from './words';

/** One group over steps, as it is drawn. */
export interface IMomentLine {
  readonly key: MomentKey;
  readonly name: string;
  /** What the legend says: the group, or its run where one group is drawn in several. */
  readonly label: string;
  /** Number of its run: 0 is the view's own. */
  readonly run: number;
  /** Layer of the group; null where it is not of one layer. */
  readonly layer: number | null;
  readonly step: Float64Array;
  /** Steps or samples. */
  readonly x: Float64Array;
  /** What is drawn; NaN is a gap. */
  readonly value: Float64Array;
  /** The numbers that the trailing mean is over; absent where there is none. */
  readonly raw?: { readonly x: Float64Array; readonly value: Float64Array };
  readonly nonFinite: Float64Array;
  readonly error: Float64Array;
  readonly count: Float64Array;
}

/** The columns of a line that go over its points. */
export const LINE_COLUMNS = ['step', 'x', 'value', 'nonFinite', 'error', 'count'] as const;

/** Where each group's rows begin and end. */
export function spans(groups: IMomentGroups): [number, number][] {
  const found = groups.keys.map((): [number, number] => [0, 0]);
  let from = 0;
  for (let at = 1; at <= groups.group.length; at += 1) {
    if (at === groups.group.length || groups.group[at] !== groups.group[from]) {
      found[groups.group[from] ?? 0] = [from, at];
      from = at;
    }
  }
  return found;
}

/** How groups become lines. */
export interface ILineWish {
  readonly options: MomentOptions;
  readonly by: readonly MomentColumn[];
  /** The same groups before the trailing mean. */
  readonly raw?: IMomentGroups;
  readonly run: number;
  readonly name: (key: MomentKey) => string;
  readonly label: (key: MomentKey) => string;
}

/** Turn groups into lines, in the order of the groups. A group without data at a step has a gap there. */
export function linesOf(groups: IMomentGroups, wish: ILineWish): IMomentLine[] {
  const { options, by, run, name, label } = wish;
  const place = by.indexOf('layer');
  const raws = new Map(
    wish.raw ? plain(wish.raw, options).map(each => [JSON.stringify(each.key), each]) : []
  );
  return plain(groups, options).map(line => {
    const layer = place < 0 ? null : line.key[place];
    const raw = raws.get(JSON.stringify(line.key));
    return {
      ...line,
      name: name(line.key),
      label: label(line.key),
      run,
      layer: typeof layer === 'number' ? layer : null,
      ...(raw ? { raw: { x: raw.x, value: raw.value } } : {})
    };
  });
}

type Plain = Omit<IMomentLine, 'name' | 'label' | 'run' | 'layer' | 'raw'>;

function plain(groups: IMomentGroups, options: MomentOptions): Plain[] {
  const xs = options.x === 'samples' ? groups.samples : groups.step;
  return spans(groups).flatMap(([from, to], at) => {
    const cut = (column: Float64Array): Float64Array => column.subarray(from, to);
    return to === from
      ? []
      : [
          {
            key: groups.keys[at] ?? [],
            ...byName(LINE_COLUMNS, name => cut(name === 'x' ? xs : groups[name]))
          }
        ];
  });
}

/** Least and greatest finite value that is drawn, or null. */
export const finiteRange = (lines: readonly IMomentLine[]): [number, number] | null =>
  extentOf(lines.flatMap(({ value, raw }) => (raw ? [value, raw.value] : [value])));
