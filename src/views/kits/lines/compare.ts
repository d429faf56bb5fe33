import { formatInteger } from '../../../charts';
import type { TrendOptions } from '../../../protocol/views.generated';
import type { IRunSource } from '../../../store/source';
import type { IViewRuns } from '../../view';
import { type Control, selectControl } from '../../shared/control';
import { indexBefore } from '../../shared/scale';
import { chip } from '../../shared/table';
import type { Translate } from '../../shared/translate';
import { dashWords } from './legend';
import type { ILine } from './line';
import type { IOtherRun } from './other-runs';

/**
 * What other runs' lines are minus, or over, this run's line of the same key. Where this run has no point at
 * a position of the other's, it is interpolated between its neighbours; in its gaps, before its first and
 * after its last one there is nothing.
 *
 * @returns Lines of the other runs, and how many of their points were interpolated.
 */
export function compareLines(
  own: readonly ILine[],
  others: readonly ILine[],
  how: 'difference' | 'ratio'
): { lines: ILine[]; between: number } {
  const byKey = new Map(own.filter(line => !line.isFaint).map(line => [line.key, line]));
  let between = 0;
  const lines = others.flatMap(line => {
    const base = byKey.get(line.key);
    if (base === undefined || line.isFaint) {
      return [];
    }
    const value = line.value.map((each, at) => {
      const [reference, exact] = valueAt(base, line.x[at] ?? NaN);
      between += exact || Number.isNaN(reference) ? 0 : 1;
      return how === 'difference' ? each - reference : reference === 0 ? NaN : each / reference;
    });
    const { error: _error, half: _half, ...rest } = line;
    return [{ ...rest, value }];
  });
  return { lines, between };
}

/** The value of a line at `x`, and whether it lies between two of its points. */
function valueAt({ x, value, step, starts }: ILine, position: number): [number, boolean] {
  const at = indexBefore(x, position);
  if (at < 0) {
    return [NaN, false];
  }
  const [left, right] = [x[at] ?? NaN, x[at + 1]];
  if (left === position) {
    return [value[at] ?? NaN, true];
  }
  if (right === undefined || starts.includes(step[at + 1] ?? NaN)) {
    return [NaN, false];
  }
  const share = (position - left) / (right - left);
  return [(value[at] ?? NaN) * (1 - share) + (value[at + 1] ?? NaN) * share, false];
}

/** Name what is drawn of a quantity where other runs are compared with this one. */
export const comparedWords = (quantity: string, compare: RunsOptions['compare'], t: Translate): string =>
  compare === 'overlay'
    ? quantity
    : compare === 'difference'
      ? t('difference of %1', quantity)
      : t('ratio of %1', quantity);

/** What of the options compares runs. */
export type RunsOptions = Pick<Required<TrendOptions>, 'align' | 'compare' | 'runs'> & {
  /** Absent where others are always compared with this run. */
  readonly baseline?: string | null;
  /** What runs are called, this one first; absent where they keep their names. */
  readonly aliases?: string[];
};

interface IRunsFacts {
  readonly source: Pick<IRunSource, 'id'>;
  readonly options: RunsOptions;
  /** Other runs; null where there are none to compare with. */
  readonly runs: readonly { readonly id: string; readonly name: string }[] | null;
  readonly choose: (options: Partial<RunsOptions>) => void;
}

/** Controls that choose other runs and say how they are shown; none where there are none to compare with. */
export function runsControls({ options, runs, source, choose }: IRunsFacts, t: Translate): Control[] {
  if (runs === null && options.runs.length === 0) {
    return [];
  }
  const known = runs ?? [];
  const { aliases, baseline } = options;
  const nameOf = (id: string): string =>
    aliases?.[options.runs.indexOf(id) + 1] || (known.find(each => each.id === id)?.name ?? id);
  const without = (id: string): Partial<RunsOptions> => ({
    runs: options.runs.filter(each => each !== id),
    ...(baseline === id && { baseline: null }),
    ...(aliases && { aliases: aliases.filter((_, at) => at === 0 || options.runs[at - 1] !== id) })
  });
  return [
    {
      kind: 'select',
      id: 'runs',
      label: t('Compare with'),
      value: '',
      options: [
        { value: '', text: options.runs.length > 0 ? t('another run…') : t('no run') },
        ...known
          .filter(each => each.id !== source.id && !options.runs.includes(each.id))
          .map(each => ({ value: each.id, text: each.name }))
      ],
      change: id => id !== '' && choose({ runs: [...options.runs, id].slice(0, 8) })
    },
    ...options.runs.map(id =>
      chip(`run-${id}`, nameOf(id), t('Stop comparing with this run'), () => choose(without(id)))
    ),
    ...(options.runs.length === 0
      ? []
      : [
          selectControl(
            'compare',
            t('Compare as'),
            options.compare,
            { overlay: t('overlay'), difference: t('difference'), ratio: t('ratio') },
            compare => choose({ compare })
          ),
          ...(baseline === undefined || options.compare === 'overlay'
            ? []
            : [
                selectControl(
                  'baseline',
                  t('Baseline'),
                  baseline ?? '',
                  [
                    { value: '', text: t('this run') },
                    ...options.runs.map(id => ({ value: id, text: nameOf(id) }))
                  ],
                  id => choose({ baseline: id === '' ? null : id })
                )
              ]),
          selectControl(
            'align',
            t('Align by'),
            options.align,
            { step: t('step'), tokens: t('tokens'), time: t('time') },
            align => choose({ align })
          )
        ])
  ];
}

type IComparison = Pick<Required<TrendOptions>, 'compare'>;

/**
 * A title with what runs are minus or over this one, or another baseline, put before it.
 *
 * @param others - Those that are compared with it.
 */
export function comparedTitle(
  title: string,
  { compare }: IComparison,
  others: readonly IOtherRun[],
  t: Translate,
  base = t('this run')
): string {
  const names = others.map(each => each.name).join(', ');
  return others.length === 0 || compare === 'overlay'
    ? title
    : compare === 'difference'
      ? t('Difference, %1 minus %2: %3', names, base, title)
      : t('Ratio, %1 over %2: %3', names, base, title);
}

/**
 * Say which runs are drawn, and how they are told apart.
 *
 * @param there - Those of the others that have something to draw.
 */
export function runWords(
  { compare }: IComparison,
  name: string,
  others: readonly IOtherRun[],
  there: readonly IOtherRun[],
  t: Translate,
  base = t('this run')
): string[] {
  const compared = there.map(each => each.name).join(', ');
  if (there.length === 0) {
    return [];
  }
  switch (compare) {
    case 'overlay':
      return [
        t('%1 (this run): solid.', name),
        ...there.map(each => t('%1: %2.', each.name, dashWords(others.indexOf(each) + 1, t)))
      ];
    case 'difference':
      return [t('%1 minus %2.', compared, base)];
    case 'ratio':
      return [t('%1 over %2.', compared, base)];
  }
}

/** Say which runs have nothing to draw, and which could not be opened. */
export function missingWords(without: readonly IOtherRun[], t: Translate): string[] {
  const empty = without.filter(each => each.source !== null).map(each => each.name);
  return [
    ...(empty.length > 0 ? [t('Nothing to compare in %1.', empty.join(', '))] : []),
    ...without
      .filter(each => each.source === null)
      .map(({ name }) => t('The run %1 could not be opened here, so it is not drawn.', name))
  ];
}

export function betweenWords(between: number, t: Translate, base = t('this run')): string[] {
  return between > 0
    ? [
        t(
          'Where %2 has no such point, what lies between its neighbours is taken: %1 times.',
          formatInteger(between),
          base
        )
      ]
    : [];
}

/** Runs that can be compared with, as they were when they were listed last. */
export class RunList {
  /** @param _changed - Called when they are known. */
  constructor(
    private readonly _source: IRunSource,
    private readonly _runs: IViewRuns | null,
    private readonly _changed: () => void
  ) {
    void this.list();
  }

  /** Null where there are none to compare with, or nobody knows yet. */
  known: IRunsFacts['runs'] = null;

  async list(): Promise<void> {
    const runs = await this._runs?.list().catch(() => null);
    if (runs) {
      this.known = runs.filter(({ id }) => id !== this._source.id);
      this._changed();
    }
  }
}
