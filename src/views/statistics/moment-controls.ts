import type { StatisticsOptions } from '../../protocol/views.generated';
import type { IMomentIndex, MomentColumn } from '../../store/row-moments';
import type { IRunSource } from '../../store/source';
import { smoothedChip, transformControl } from '../shared/controls';
import { type Control, selectControl } from '../shared/control';
import type { Translate } from '../shared/translate';
import { chip } from '../shared/table';
import type { INameFacts } from './name-facts';
import type { MomentOptions } from './words';
import { columnWords, byWords, showing, STATISTICS, STATS, statisticWords, statsWords } from './words';
import { capital } from '../shared/describe';
import { alongOf, cellsChosen, isMap, mapRows } from './map-cells';

type Choose = (options: Partial<StatisticsOptions>) => void;

const ACROSS = ['rank', 'layer', 'stage', 'expert'] as const;

function columnsControl(options: MomentOptions, choose: Choose, t: Translate): Control[] {
  return isMap(options.kind)
    ? [
        selectControl(
          'columns',
          t('Over'),
          options.columns,
          [
            { value: 'step', text: t('steps') },
            ...ACROSS.map(value => ({
              value,
              text: t('%1 at a step', columnWords(value, t)),
              disabled: mapRows({ ...options, columns: 'step' }).join() === value
            }))
          ],
          // What is chosen are cells of the map before.
          columns => choose({ columns, cells: [] })
        )
      ]
    : [];
}

export function colorsControl(options: MomentOptions, choose: Choose, t: Translate): Control[] {
  return isMap(options.kind)
    ? [
        selectControl(
          'colors',
          t('Colours'),
          options.colors,
          { continuous: t('continuous'), sigma: t('mean ± 1, 2, 3 σ') },
          colors => choose({ colors })
        )
      ]
    : [];
}

/** Choose what the lines of cells go over, and take them away. */
export function cellControls(options: MomentOptions, choose: Choose, t: Translate): Control[] {
  const cells = cellsChosen(options).length;
  const own = [...mapRows(options), options.columns];
  return cells === 0
    ? []
    : [
        selectControl(
          'along',
          t('Lines over'),
          alongOf(options),
          (['step', ...ACROSS, 'name'] as const)
            .filter(value => value === 'step' || !own.includes(value))
            .map(value => ({ value, text: value === 'step' ? t('step') : columnWords(value, t) })),
          along => choose({ along })
        ),
        chip('cells', cells === 1 ? t('1 cell') : t('%1 cells', cells), t('Draw no lines of cells'), () =>
          choose({ cells: [] })
        )
      ];
}

export interface IControlFacts {
  readonly source: IRunSource;
  readonly options: MomentOptions;
  readonly index: IMomentIndex | null;
  readonly names: INameFacts;
  /** Other runs; null where there are none to compare with. */
  readonly runs: readonly { readonly id: string; readonly name: string }[] | null;
  readonly choose: (options: Partial<StatisticsOptions>) => void;
}

/** Groupings that are offered; any other that the options name is offered too. */
const GROUPINGS: readonly (readonly MomentColumn[])[] = [
  [],
  ['layer'],
  ['family'],
  ['kind'],
  ['item_type'],
  ['module_type'],
  ['stack'],
  ['role'],
  ['layer', 'role'],
  ['layer', 'family'],
  ['layer', 'kind'],
  ['expert'],
  ['layer', 'expert'],
  ['stage'],
  ['rank'],
  ['name']
];

export function mainControls(
  facts: IControlFacts,
  open: boolean,
  fold: (open: boolean) => void,
  t: Translate
): Control[] {
  const { source, options, index, choose } = facts;
  return [
    { kind: 'name', id: 'run', text: source.name },
    selectControl(
      'stat',
      t('Of'),
      options.stat,
      STATS.map(value => {
        const known = index?.stats.some(each => each.stat === value && each.rows > 0) ?? true;
        const why = known ? {} : { disabled: true, title: t('Not logged in this run') };
        return { value, text: statsWords(value, t), ...why };
      }),
      stat => {
        const gains = stat === 'activation' || stat === 'dgrad';
        choose({
          ...showing(stat),
          ...(options.ratio === 'gain' && !gains ? { ratio: 'none' } : {})
        });
      }
    ),
    selectControl(
      'statistic',
      t('Statistic'),
      options.statistic,
      STATISTICS.map(value => ({ value, text: statisticWords(value, t) })),
      statistic => choose({ statistic })
    ),
    // What differs from kind to kind comes after it: it stays where it is pressed.
    selectControl('kind', t('Draw'), options.kind, kindWords(t), kind => choose({ kind, cells: [] })),
    ...byControl(facts, t),
    ...columnsControl(options, choose, t),
    ...(options.kind === 'table'
      ? []
      : [transformControl(t('Scale'), options.transform, transform => choose({ transform }), t)]),
    ...(options.kind === 'layers' || options.kind === 'table'
      ? []
      : smoothedChip(options.smoothing, smoothing => choose({ smoothing }), t)),
    {
      kind: 'toggle',
      id: 'more',
      text: foldWords(options, open, t),
      title: open ? t('Hide filters and what else can be set') : t('Filters and what else can be set'),
      pressed: open,
      change: fold
    }
  ];
}

function kindWords(t: Translate): Record<MomentOptions['kind'], string> {
  return {
    overview: t('overview'),
    lines: t('lines'),
    layers: t('layers at a step'),
    layer_map: t('map of layers'),
    item_map: t('map of items'),
    map: t('map'),
    tensors: t('single tensors'),
    table: t('table')
  };
}

function byControl({ options, choose }: IControlFacts, t: Translate): Control[] {
  if (!['lines', 'layers', 'map', 'table'].includes(options.kind)) {
    return [];
  }
  const now = options.by ?? [];
  const known = [...GROUPINGS, ...(options.pattern === null ? [] : [['capture'] as const])];
  const groupings = known.some(each => each.join() === now.join()) ? known : [...known, now];
  const choices = groupings.map(by => ({ value: by.join(), text: byWords(by, t), by }));
  return [
    selectControl('by', t('By'), now.join(), choices, value =>
      choose({ by: [...(choices.find(each => each.value === value)?.by ?? [])], cells: [] })
    )
  ];
}

/** Name the fold by what is set behind it. */
function foldWords(options: MomentOptions, open: boolean, t: Translate): string {
  const set = [
    ...Object.values(options.where ?? {}).filter(each => each.length > 0 && each !== 'all'),
    ...(options.pattern === null ? [] : [1]),
    ...(options.steps === null ? [] : [1]),
    ...(options.show === 'raw' ? [] : [1]),
    ...(options.ratio === 'none' ? [] : [1]),
    ...(options.smoothing > 1 ? [1] : []),
    ...options.runs
  ].length;
  const mark = open ? '▴' : '▾';
  return set === 0 ? `${t('More')} ${mark}` : `${capital(t('more'))} (${set}) ${mark}`;
}
