import type { SplitOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import type { ICompositionEnvironment, IViewDefinition } from '../../../../views/shared/definition';
import { selectControl, type IChoice } from '../../../../views/shared/control';
import { formatBytes, formatInteger, timeWords, formatNumber } from '../../../../charts';
import type { IMark, Loaded, INote } from '../../../../views/shared/content';
import { emptyState } from '../../../../views/shared/states';
import { PlanView, type IPlanToolbar, type PlanPanes } from '../../views/what-if';
import type { ISplitPlanned } from '../plan/planned-split';
import { RolesPane } from './roles-pane';
import {
  type ISplitRead,
  drawnOf,
  SplitReader,
  splitLanes,
  SplitPane,
  deviceWords,
  familyWords,
  layoutWords,
  isMeasured
} from './split-pane';
import { splitSliders } from './split-what-if';
import type { Translate } from '../../../../views/shared/translate';

function verdictWords(
  { isWorthIt, split, other, percent, lowPercent, highPercent, regretPercent }: ISplitRead['plan']['verdict'],
  t: Translate
): string {
  if (split === null || other === null) {
    return split !== null
      ? t('Split: nothing else fits in the memory of these devices.')
      : t('Do not split: no split fits on these devices.');
  }
  const by = t('%1 % a step (95 %: %2 to %3)', signed(percent), signed(lowPercent), signed(highPercent));
  const against = layoutWords(other, t);
  const first = isWorthIt
    ? t('Split: %1 against %2.', by, against)
    : highPercent > 0 && lowPercent < 0
      ? t('Do not split: %1 against %2 is no more than the times may be off.', by, against)
      : t('Do not split: the best split takes %1 against %2.', by, against);
  return regretPercent >= 0.05
    ? `${first} ${t('Where the times are otherwise this costs %1 % on average.', formatNumber(regretPercent, 2))}`
    : first;
}

const signed = (value: number): string =>
  `${value < 0 ? '−' : '+'}${formatNumber(Math.abs(value), Math.abs(value) < 10 ? 2 : 3)}`;

/** What each process does in a step, the last measured step under it, and whether a split is worth it. */
export class SplitPlanPane extends SplitPane {
  protected show(read: ISplitRead, drawn: ISplitPlanned | null): Loaded {
    const { options, t } = this;
    if (drawn === null) {
      return { state: this._absent(read) };
    }
    const measured =
      options.measured && read.measured && isMeasured(drawn, read.measured) ? read.measured : null;
    return {
      content: {
        title: t('%1: %2 a step', layoutWords(drawn, t), timeWords(drawn.stepMs)),
        caption: this._caption(read, drawn, measured),
        summary: this._summary(read, drawn),
        notes: this._notes(read, drawn),
        ...this.drawGantt([splitLanes(drawn, measured, t)], 1, t('stage and process'))
      }
    };
  }

  private _summary({ what }: ISplitRead, { devices, peakBytes, stepMs }: ISplitPlanned): string {
    const { t } = this;
    const [took, on] = [timeWords(stepMs), deviceWords(devices, what.request, t)];
    const peak = Math.max(...peakBytes);
    return peak > 0
      ? t('A step takes %1 on %2; the fullest device holds %3.', took, on, formatBytes(peak))
      : t('A step takes %1 on %2.', took, on);
  }

  private _caption(read: ISplitRead, drawn: ISplitPlanned, measured: ISplitRead['measured']): string[] {
    const { t } = this;
    const { layout, lanes, overMemoryBytes, sentBytes } = drawn;
    return [
      ...(read.what.isExample
        ? [t('A split needs two devices; this run has one, so an example with two like it is shown.')]
        : []),
      ...(layout.data > 1 ? [t('One of %1 replicas, which are alike.', formatInteger(layout.data))] : []),
      ...(lanes.some(({ role }) => role === 'forward')
        ? [
            t(
              'It cannot deadlock: no operation waits for one that comes later in the order of micro-batches.'
            )
          ]
        : []),
      ...(overMemoryBytes > 0
        ? [t('It needs %1 more than the memory of a device.', formatBytes(overMemoryBytes))]
        : []),
      ...(sentBytes > 0 ? [t('%1 are sent in a step.', formatBytes(sentBytes))] : []),
      read.measured === null
        ? t('Times are those set under What if; nothing was measured.')
        : t('Times are the medians of %1 measured steps.', formatInteger(read.measured.steps)),
      ...(read.measured?.isSplit
        ? [
            t(
              'What forward processes would take for other passes was not measured: it is taken from backward processes, by how their forward passes compare.'
            )
          ]
        : []),
      ...(measured ? [this._beside(drawn, measured)] : [])
    ];
  }

  private _beside(drawn: ISplitPlanned, measured: NonNullable<ISplitRead['measured']>): string {
    const [plannedMs, measuredMs] = [drawn.stepMs, measured.stepMs];
    const percent = plannedMs > 0 ? (measuredMs / plannedMs - 1) * 100 : NaN;
    return this.t(
      'Under each process: step %1 as measured. Steps take %2, %3 planned (%4 %).',
      formatInteger(measured.operationsStep),
      timeWords(measuredMs),
      timeWords(plannedMs),
      `${percent < 0 ? '−' : '+'}${formatNumber(Math.abs(percent), 2)}`
    );
  }

  /** Whether a split is worth it, by how much, and what it costs if that is wrong. */
  private _notes({ plan: { verdict } }: ISplitRead, { layout }: ISplitPlanned): INote[] {
    const { t } = this;
    const family = (verdict.isWorthIt ? verdict.split : verdict.other)?.layout.family ?? layout.family;
    const action =
      family === layout.family
        ? { label: t('Copy as code'), run: () => void this.actions.copyCode() }
        : {
            label: t('Show %1', familyWords(family, t)),
            run: () => this.choose({ layout: family })
          };
    return [{ text: verdictWords(verdict, t), tone: 'finding', action }];
  }

  private _absent(read: ISplitRead): ReturnType<typeof emptyState> {
    const { options, t } = this;
    const found = drawnOf(read, options.layout);
    const sentence =
      found !== null && 'refused' in found
        ? found.refused.message
        : options.layout === 'run'
          ? t('No passes are recorded of these devices and micro-batches.')
          : t('No layout fits in the memory of these devices.');
    return read.plan.best === null
      ? emptyState(sentence, t('Take the limits of memory away'), () =>
          this.choose({ memory_gb: null, others_memory_gb: null })
        )
      : emptyState(sentence, t('Show the best'), () => this.choose({ layout: 'best' }));
  }
}

/** The best layout of each family under one another on one axis of time, the fastest first. */
class SplitLayoutsPane extends SplitPane {
  override readonly subject = this.t('Layouts');

  protected show(read: ISplitRead): Loaded {
    const { t } = this;
    const there = read.plan.layouts.flatMap(each => ('refused' in each || each === read.run ? [] : [each]));
    this._shown = [...there].sort((a, b) => a.stepMs - b.stepMs);
    const [first, last] = [this._shown[0], this._shown.at(-1)];
    const refused = read.plan.layouts.flatMap(each => ('refused' in each ? [each.refused.message] : []));
    if (!first || !last) {
      return {
        state: emptyState(refused[0] ?? '', t('Take the limits of memory away'), () =>
          this.choose({ memory_gb: null, others_memory_gb: null })
        )
      };
    }
    return {
      content: {
        title: t('%1 layouts side by side', formatInteger(this._shown.length)),
        caption: [
          t('Each is the best of its family on these devices; any device may be left out.'),
          ...refused
        ],
        summary: t(
          '%1 is the fastest with %2, %3 the slowest with %4.',
          layoutWords(first, t),
          timeWords(first.stepMs),
          layoutWords(last, t),
          timeWords(last.stepMs)
        ),
        ...this.drawGantt(
          this._shown.map(each => ({ ...splitLanes(each, null, t), heading: this._heading(read, each) })),
          1,
          t('stage and process')
        )
      }
    };
  }

  /** The layout of the lane is shown. */
  override clicked(mark: IMark): void {
    const family = this._shown[this.groupOf(mark)]?.layout.family;
    if (family !== undefined) {
      this.choose({ layout: family });
    }
  }

  private _heading({ what }: ISplitRead, planned: ISplitPlanned): string {
    const { t } = this;
    const peak = Math.max(...planned.peakBytes);
    return [
      layoutWords(planned, t),
      t('%1 a step', timeWords(planned.stepMs)),
      deviceWords(planned.devices, what.request, t),
      ...(peak > 0 ? [formatBytes(peak)] : [])
    ].join(' · ');
  }

  private _shown: readonly ISplitPlanned[] = [];
}

type Options = Required<SplitOptions>;

const PANES: PlanPanes<SplitOptions, SplitReader> = [
  ['plan', SplitPlanPane],
  ['map', RolesPane],
  ['layouts', SplitLayoutsPane]
];
const LAYOUTS: readonly Options['layout'][] = [
  ...(['split', 'run', 'best', 'megafbd'] as const),
  ...(['ordinary', 'recompute', 'pipeline', 'pipeline_recompute'] as const)
];

/** Split training: the step of each process, who does what, and alternatives on the same devices. */
class SplitView extends PlanView<SplitOptions, SplitReader> {
  constructor(source: IRunSource, env: ICompositionEnvironment<SplitOptions>) {
    super(env, new SplitReader(source), PANES);
  }

  get unpictured(): string {
    return this.env.t('There is no layout to draw.');
  }

  /** Where too few devices are set, one picture says so. */
  override shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key === 'plan' || this.env.options.kind !== 'all' || isDrawn(key);
  }

  protected toolbar(): IPlanToolbar {
    const { env, reader } = this;
    const { options, t } = env;
    const maps: Record<Options['rank_map'], string> = {
      megalens: t('Megalens'),
      megafbd: t('MegaFBD'),
      one_flag: t('MegaFBD, one flag')
    };
    return {
      choices: [
        selectControl('layout', t('Layout'), options.layout, this._layouts(), layout =>
          env.choose({ layout })
        ),
        selectControl('kind', t('Draw'), options.kind, this._kinds(), kind => env.choose({ kind })),
        ...(options.kind === 'map' || options.kind === 'all'
          ? [
              selectControl('rank-map', t('Map of'), options.rank_map, maps, rank_map =>
                env.choose({ rank_map })
              )
            ]
          : [])
      ],
      titles: {
        whatIf: t('Change devices, times, links and memory'),
        measured: t('Lay the last measured step over the plan of the run’s own layout')
      },
      sliders: splitSliders(t),
      values: reader.last?.what.values ?? null
    };
  }

  private _layouts(): IChoice<Options['layout']>[] {
    const { t } = this.env;
    const { last } = this.reader;
    return LAYOUTS.map(value => {
      const found = last ? drawnOf(last, value) : null;
      return {
        value,
        text: value === 'run' ? t('As it runs') : value === 'best' ? t('best') : familyWords(value, t),
        disabled: value === 'run' && last !== null && last.run === null,
        title: found !== null && 'refused' in found ? found.refused.message : ''
      };
    });
  }

  private _kinds(): Record<Options['kind'], string> {
    const { t } = this.env;
    return { all: t('all'), plan: t('step'), map: t('roles'), layouts: t('layouts') };
  }
}

export const view: IViewDefinition<SplitOptions> = {
  compose: (source, env) => new SplitView(source, env)
};
