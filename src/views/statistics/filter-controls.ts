import { MOST_CHARACTERS } from '../../aggregate/moment-keys';
import type { MomentFilter } from '../../protocol/views.generated';
import { formatInteger } from '../../charts';
import { readPattern } from '../../aggregate';
import { isRangeText } from '../../protocol/ranges';
import { type Control, selectControl } from '../shared/control';
import { smoothingControl } from '../shared/controls';
import { runsControls } from '../kits/lines/compare';
import { chip, rangesField } from '../shared/table';
import type { Translate } from '../shared/translate';
import { oneTensor } from './name-facts';
import { colorsControl, type IControlFacts } from './moment-controls';

const SMOOTHINGS = [0, 5, 20, 50, 100, 500];
/** Most tensors that are offered by name. */
const MOST_NAMES = 200;
const SERIES = [5, 10, 20, 40, 100, 200, 500];

/** The line that folds: which tensors take part, what their numbers are compared with, and other runs. */
export function filterControls(facts: IControlFacts, t: Translate): Control[] {
  return [
    ...whichTensors(facts, t),
    ...howShown(facts, t),
    ...tableLines(facts, t),
    ...runsControls(facts, t)
  ];
}

/** What a person writes about a table's columns. */
function tableLines({ options, choose }: IControlFacts, t: Translate): Control[] {
  if (options.kind !== 'table') {
    return [];
  }
  const line = (id: 'derive' | 'filter', label: string, suggestions: readonly string[]): Control => ({
    kind: 'text',
    id,
    label,
    value: options[id] ?? '',
    suggestions,
    spaced: true,
    valid: text => text.length <= MOST_CHARACTERS,
    change: text => choose({ [id]: text.trim() === '' ? null : text })
  });
  return [
    line('derive', t('Derive'), ['share = d.value / op.max(d.value)', 'moved = d.value - op.lag(d.value)']),
    line('filter', t('Filter rows'), ['d.value > op.mean(d.value)', 'd.nonfinite > 0'])
  ];
}

function whichTensors({ options, names, index, choose }: IControlFacts, t: Translate): Control[] {
  const where: MomentFilter = options.where ?? {};
  const set = (change: MomentFilter): void => choose({ where: without({ ...where, ...change }) });
  const ranges = (
    id: 'layer' | 'expert' | 'stage' | 'rank',
    label: string,
    known: readonly number[] = []
  ): Control =>
    rangesField(
      id,
      label,
      where[id] ?? 'all',
      known,
      text => set({ [id]: text }),
      text => text === '' || isRangeText(text)
    );
  const word = (id: 'family' | 'kind' | 'stack', label: string, known: readonly string[]): Control[] => {
    const now = where[id] ?? [];
    const shown = now.length > 1 ? [now.join(', ')] : [];
    return known.length < 2 && now.length === 0
      ? []
      : [
          {
            kind: 'select',
            id: `where-${id}`,
            label,
            value: now.join(', '),
            options: [
              { value: '', text: t('all') },
              ...[...new Set([...shown, ...now.slice(0, shown.length ? 0 : 1), ...known])].map(value => ({
                value,
                text: value
              }))
            ],
            change: value => set({ [id]: value === '' ? [] : known.includes(value) ? [value] : now })
          }
        ];
  };
  const roles = where.role ?? [];
  return [
    ranges('layer', t('Layers'), names.layers),
    ...word('family', t('Family'), names.family),
    ...word('kind', t('Kind'), names.kind),
    ...word('stack', t('Stack'), names.stack),
    ...(names.hasRoles || roles.length > 0
      ? [
          {
            kind: 'select',
            id: 'role',
            label: t('Role'),
            value: roles.length === 1 ? (roles[0] ?? '') : options.mixed ? 'mixed' : '',
            options: [
              { value: '', text: t('each') },
              { value: 'input', text: t('inputs') },
              { value: 'output', text: t('outputs') },
              { value: 'mixed', text: t('mixed') }
            ],
            change: value =>
              choose({
                mixed: value === 'mixed',
                where: without({ ...where, role: value === 'input' || value === 'output' ? [value] : [] })
              })
          } satisfies Control
        ]
      : []),
    ...(names.hasExperts || where.expert ? [ranges('expert', t('Experts'))] : []),
    ranges('stage', t('Stages')),
    ranges('rank', t('Ranks')),
    {
      kind: 'text',
      id: 'name',
      label: t('Name has'),
      value: where.name ?? '',
      suggestions: (index?.names ?? []).slice(0, MOST_NAMES).map(name => oneTensor(name).where.name),
      spaced: true,
      valid: isPattern,
      change: name => set({ name })
    },
    {
      kind: 'text',
      id: 'pattern',
      label: t('Group pattern'),
      value: options.pattern ?? '',
      suggestions: ['layers\\.(\\d+)\\.', '(q|k|v)_proj'],
      spaced: true,
      valid: isPattern,
      change: pattern => {
        const rest = (options.by ?? []).filter(column => column !== 'capture');
        choose(pattern === '' ? { pattern: null, by: rest } : { pattern, by: ['capture'], kind: 'lines' });
      }
    }
  ];
}

function howShown({ options, index, choose }: IControlFacts, t: Translate): Control[] {
  const has = (stat: string): boolean =>
    index?.stats.some(each => each.stat === stat && each.rows > 0) ?? false;
  const gains = options.stat === 'activation' || options.stat === 'dgrad';
  const steps = options.steps;
  return [
    selectControl(
      'ratio',
      t('Ratio'),
      options.ratio,
      [
        { value: 'none', text: t('none') },
        {
          value: 'grad_to_param',
          text: t('gradient over parameter'),
          disabled: options.ratio !== 'grad_to_param' && !(has('grad') && has('param'))
        },
        { value: 'gain', text: t('gain of a module'), disabled: options.ratio !== 'gain' && !gains }
      ],
      ratio => choose({ ratio })
    ),
    selectControl(
      'show',
      t('Values'),
      options.show,
      {
        raw: t('as they are'),
        relative: t('times the first'),
        delta: t('minus the first'),
        percent: t('change in %')
      },
      show => choose({ show })
    ),
    smoothingControl(SMOOTHINGS, options.smoothing, smoothing => choose({ smoothing }), t),
    ...colorsControl(options, choose, t),
    selectControl(
      'x',
      t('Over'),
      options.x,
      [
        { value: 'step', text: t('steps') },
        {
          value: 'samples',
          text: t('samples'),
          disabled: index !== null && !index.samples && options.x === 'step'
        }
      ],
      x => choose({ x })
    ),
    ...(options.kind === 'layers'
      ? [
          selectControl('marks', t('As'), options.marks, { lines: t('lines'), bars: t('bars') }, marks =>
            choose({ marks })
          )
        ]
      : []),
    selectControl(
      'series',
      t('Series, at most'),
      options.series,
      [...new Set([...SERIES, options.series])]
        .sort((a, b) => a - b)
        .map(value => ({ value, text: t('%1 series', value) })),
      series => choose({ series })
    ),
    ...(steps === null
      ? []
      : [
          chip(
            'steps-chip',
            t('steps %1–%2', formatInteger(steps[0] ?? 0), formatInteger(steps[1] ?? 0)),
            t('Show all steps again'),
            () => choose({ steps: null })
          )
        ])
  ];
}

/** A filter without members that say nothing. */
function without(where: MomentFilter): MomentFilter {
  return Object.fromEntries(Object.entries(where).filter(([, value]) => value.length > 0 && value !== 'all'));
}

function isPattern(text: string): boolean {
  try {
    readPattern(text, 'pattern');
    return true;
  } catch {
    return false;
  }
}
