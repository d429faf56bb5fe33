import {
  gapStarts,
  histogramsOf,
  quantileOf,
  spanOfBin,
  type IHistograms,
  type IStepCounts
} from '../../aggregate';
import { formatInteger, formatNumber, type IPlace } from '../../charts';
import { own } from '../../protocol/records';
import { rangesText } from '../../protocol/ranges';
import type { DistributionOptions } from '../../protocol/views.generated';
import type { IPointed } from '../../store/run-link';
import type { SourceChange } from '../../store/source';
import type { ITensorResult, ITensorShape } from '../../store/tensor-data';
import { firstBadWords, seriesWords, type ITold } from '../shared/change-words';
import type { IMark, IMoved, Loaded } from '../shared/content';
import { type Control, selectControl } from '../shared/control';
import { colorRangeControl, goControl, lockedWords, transformControl } from '../shared/controls';
import type { IViewDefinition } from '../shared/definition';
import { capital, compressorWords, flagWords, omissionWords, thinnedWords } from '../shared/describe';
import { chosenLayers, layerWords } from '../shared/layers';
import { rangeOf, type ILinkedMarks, type IStepAxis } from '../shared/links';
import { around, hold, lockedRange, moveOf, nearestIndex } from '../shared/scale';
import { emptyFlag, nothingYet, type IState } from '../shared/states';
import { rangesField, tipSaid, type ITip } from '../shared/table';
import { tensorControls } from '../shared/tensor-controls';
import type { Translate } from '../shared/translate';
import { ViewModel } from '../shared/view-model';
import {
  distributionMap,
  distributionQuantiles,
  distributionRidges,
  drawnShares,
  shareName,
  SHARES,
  sharesOf,
  type IDrawnDistribution,
  type IDrawnStep
} from './distribution-recipe';

const DRAW = { map: distributionMap, ridgeline: distributionRidges, quantiles: distributionQuantiles };

/** How the values of a flag are distributed over steps, from histograms. */
export class DistributionView extends ViewModel<Required<DistributionOptions>> {
  get subject(): string {
    return this.t('Distribution of %1 over time', this._flag);
  }

  concerns(change: SourceChange): boolean {
    return change.kind === 'rows' ? change.stream === 'tensors' : change.kind !== 'status';
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { options, source, t } = this;
    const { flag, phase, pass, rank, replicas, tiles, kind, transform } = options;
    this._shape = await source.shapeOf(flag);
    const layers = chosenLayers(options.layers, this._shape.layers);
    const part = options.part ?? this._shape.parts[0];
    const steps = this.env.within(options.steps);
    const found = await source.tensors(
      {
        ...{ flag, phase, pass, layers },
        ...(replicas === 'all' ? {} : { rank: rank ?? ('lowest' as const) }),
        ...(part ? { part } : {}),
        ...(steps ? { steps } : {})
      },
      signal
    );
    this._ranks = new Set(found.rows.map(row => row.rank)).size;
    const data = histogramsOf(found.rows, tiles);
    this._data = data;
    this._drawn = null;
    this._steps = [];
    if (data === null || data.steps.every(({ total }) => total === 0)) {
      return { state: await this._without(found, layers) };
    }
    const look = { dark: this.env.isDark, range: this._range };
    const drawn = DRAW[kind]({ data, isSampled: found.sampledEvery > 1, transform, look }, t);
    this._drawn = drawn;
    this._steps = drawn.steps.map(({ step }) => step);
    const { recipe, extent } = drawn;
    const [first, last] = [data.steps[0], data.steps[data.steps.length - 1]] as [IStepCounts, IStepCounts];
    const title = t(
      first === last ? '%1, %2, step %3' : '%1, %2, steps %3 to %4',
      capital(this.subject),
      layerWords(layers, t),
      formatInteger(first.step),
      formatInteger(last.step)
    );
    return {
      content: {
        recipe,
        extent,
        title,
        caption: this._caption(data, found),
        summary: this._summary(data)
      }
    };
  }

  override controls(): Control[] {
    const { options, t, _drawn: drawn } = this;
    const kinds = { map: t('bin × step'), ridgeline: t('ridges'), quantiles: t('quantiles') };
    const tiles = this._data?.tiles ?? 1;
    return [
      ...tensorControls(this.source, options, this._shape, [], change => this.choose(change), t),
      ...(tiles > 1
        ? [
            rangesField(
              'tiles',
              t('Tiles'),
              options.tiles,
              Array.from({ length: tiles }, (_, at) => at),
              value => this.choose({ tiles: value })
            )
          ]
        : []),
      ...(new Set(this.source.hello?.layout?.ranks?.map(({ rank }) => rank)).size > 1
        ? [
            selectControl(
              'replicas',
              t('Ranks'),
              options.replicas,
              { lowest: t('one'), all: t('all, added up') },
              replicas => this.choose({ replicas })
            )
          ]
        : []),
      selectControl('kind', t('Draw'), options.kind, kinds, kind => this.choose({ kind })),
      ...(options.kind === 'ridgeline'
        ? []
        : [
            transformControl(t('Scale'), options.transform, transform => this.choose({ transform }), t),
            goControl(step => this.env.goTo(this._goTo(step)), t)
          ]),
      ...colorRangeControl(
        options.color_range,
        drawn?.domain ?? null,
        change => this.choose(change),
        () => drawn?.steps.map(drawnShares) ?? [],
        t
      )
    ];
  }

  override probe({ x, y }: IPlace): IMark | null {
    const drawn = this._drawn;
    if (!drawn) {
      return null;
    }
    if (this.options.kind === 'ridgeline') {
      return this._markOf({ step: 0, bin: hold(Math.round(x) - drawn.span[0], this._bins) + drawn.span[0] });
    }
    const step = drawn.steps[nearestIndex(this._steps, x)]?.step ?? 0;
    return this._markOf({ step, bin: drawn.span[1] - hold(Math.round(y), this._bins) });
  }

  override tipOf(mark: IMark): ITip | null {
    const { _data: data, _drawn: drawn, t } = this;
    const at = this._cursorOf(mark);
    if (!data || !drawn || !at) {
      return null;
    }
    const of = drawn.steps.find(({ step }) => step === at.step);
    if (this.options.kind === 'ridgeline') {
      const lines = drawn.steps.map(each => ({
        name: t('step %1', formatInteger(each.step)),
        value: this._shareWords(each, at.bin)
      }));
      return { heading: this._binWords(at.bin), lines };
    }
    if (!of) {
      return null;
    }
    const heading = t('step %1', formatInteger(Math.round(of.step)));
    return this.options.kind === 'map'
      ? { heading, lines: [{ name: this._binWords(at.bin), value: this._shareWords(of, at.bin) }] }
      : {
          heading,
          lines: [...SHARES]
            .reverse()
            .map(share => ({ name: shareName(share, t), value: this._quantileWords(of, share) }))
        };
  }

  override move(key: string): IMoved | null {
    const { _drawn: drawn } = this;
    const by = moveOf(key);
    if (!drawn || by === undefined) {
      return null;
    }
    const { span, steps } = drawn;
    const before = this._at;
    const [across, down] = before ? by : [0, 0];
    const isRidges = this.options.kind === 'ridgeline';
    const from = before ? nearestIndex(this._steps, before.step) : steps.length - 1;
    const bin = (before?.bin ?? this._data?.bins.count ?? 0) + (isRidges ? across : -down);
    this._at = {
      step: steps[hold(from + (isRidges ? 0 : across), steps.length)]?.step ?? 0,
      bin: hold(bin - span[0], this._bins) + span[0]
    };
    const mark = this._markOf(this._at);
    const tip = this.tipOf(mark);
    const said = tip ? tipSaid(tip) : '';
    return key === 'copy' ? { said, mark, copy: said } : { said, mark };
  }

  override pointedBy({ x }: IMark): IPointed {
    return { step: this.options.kind === 'ridgeline' ? null : (x[0] + x[1]) / 2, layer: null };
  }

  override marksOf({ step }: IPointed): ILinkedMarks {
    return {
      marks:
        step === null || this.options.kind === 'ridgeline' ? [] : [{ facet: null, x: [step, step], y: null }]
    };
  }

  override stepAxis(): IStepAxis | undefined {
    const half = (this._drawn?.spacing ?? 0) / 2;
    return this.options.kind === 'ridgeline'
      ? undefined
      : {
          stepsIn: ([from, to]) => rangeOf(this._steps.filter(step => step >= from && step <= to)),
          spanOf: ([first, last]) => [first - half, last + half]
        };
  }

  private _markOf({ step, bin }: ICursor): IMark {
    const { span = [0, 0], spacing = 0 } = this._drawn ?? {};
    if (this.options.kind === 'ridgeline') {
      return { facet: null, x: around(bin), y: null };
    }
    const x = [step - spacing / 2, step + spacing / 2] as const;
    return { facet: null, x, y: this.options.kind === 'map' ? around(span[1] - bin) : null };
  }

  private _cursorOf({ x, y }: IMark): ICursor | null {
    const { _drawn: drawn } = this;
    const middle = (x[0] + x[1]) / 2;
    return drawn && this.options.kind === 'ridgeline'
      ? { step: 0, bin: Math.round(middle) }
      : drawn && {
          step: this._steps[nearestIndex(this._steps, middle)] ?? 0,
          bin: y ? drawn.span[1] - Math.round((y[0] + y[1]) / 2) : drawn.span[0]
        };
  }

  private _goTo(wanted: number): IMark | null {
    const step = this._steps[nearestIndex(this._steps, wanted)];
    if (step === undefined) {
      return null;
    }
    this._at = { step, bin: this._at?.bin ?? this._data?.bins.count ?? 0 };
    return this._markOf(this._at);
  }

  private get _bins(): number {
    const [low, high] = this._drawn?.span ?? [0, 0];
    return high - low + 1;
  }

  private get _range(): readonly [number, number] | null {
    return lockedRange(this.options.color_range ?? []);
  }

  private get _flag(): string {
    const { flag, pass, part } = this.options;
    return flagWords(this.source.hello, flag, part ?? this._shape.parts[0] ?? null, this.t, pass);
  }

  private _binWords(bin: number): string {
    const { _data: data, t } = this;
    const [low, high] = data ? spanOfBin(data.bins, bin) : [NaN, NaN];
    if (low === -high) {
      return high === 0 ? t('zero') : t('smaller than %1', formatNumber(high, 3));
    }
    return !Number.isFinite(high)
      ? t('from %1', formatNumber(low, 3))
      : !Number.isFinite(low)
        ? t('to %1', formatNumber(high, 3))
        : t('%1 to %2', formatNumber(low, 3), formatNumber(high, 3));
  }

  private _shareWords(of: IDrawnStep, bin: number): string {
    const share = formatNumber(100 * (sharesOf(of)[bin] ?? 0), 3);
    return of.greatest
      ? this.t('at most %1 %', share)
      : this.t('%1 % (%2 values)', share, formatInteger(of.counts[bin] ?? 0));
  }

  private _quantileWords(of: IStepCounts, share: number): string {
    const { value, error } = this._data ? quantileOf(this._data.bins, of, share) : { value: NaN, error: NaN };
    if (error === Infinity) {
      return value > 0
        ? this.t('above %1', formatNumber(value, 3))
        : this.t('below %1', formatNumber(value, 3));
    }
    return `${formatNumber(value, 4)} ± ${formatNumber(error, 2)}`;
  }

  private _caption(data: IHistograms, found: ITensorResult): string[] {
    const { t } = this;
    const { replicas, tiles } = this.options;
    const range = this._range;
    const drawn = this._drawn;
    const isThin = drawn !== null && drawn.steps.length < data.steps.length;
    return [
      t(
        'Counts of all samples, micro-batches and layers, added up: %1.',
        compressorWords(data.compressor, t)
      ),
      ...(replicas === 'all' ? [t('Of %1 ranks, added up.', this._ranks)] : []),
      ...(tiles === 'all' ? [] : [t('Of tiles %1 only.', tiles)]),
      ...(isThin && this.options.kind === 'ridgeline'
        ? [
            t(
              'Of %1 steps %2 are drawn: of each stretch the one that differs most from the mean.',
              formatInteger(data.steps.length),
              drawn.steps.length
            )
          ]
        : []),
      ...(isThin && this.options.kind === 'map'
        ? [t('Of steps that share a column each bin shows its greatest share.')]
        : []),
      ...(this.options.kind === 'quantiles'
        ? [t('A quantile lies within the band about its line: in the bin that holds it.')]
        : []),
      ...(drawn?.domain && range ? lockedWords(range, drawn.steps.map(drawnShares), t) : []),
      ...(data.others > 0
        ? [t('Rows that another compressor made are left out: %1.', formatInteger(data.others))]
        : []),
      ...(found.kept ? thinnedWords(found.kept, t) : []),
      ...omissionWords(found, t)
    ];
  }

  /** What is not finite, what the quantiles did, and how the values lie now. */
  private _summary({ bins, steps }: IHistograms): string {
    const { t } = this;
    const last = steps[steps.length - 1] as IStepCounts;
    const bad = steps.filter(({ nonFinite }) => nonFinite > 0);
    const at = Float64Array.from(steps, ({ step }) => step);
    const starts = gapStarts(at).map(start => at[start] ?? NaN);
    const told = [0.5, 0.99, 0.01].map((share, layer): ITold => {
      const values = steps.map(of => quantileOf(bins, of, share).value);
      return { layer, where: t('the %1', shareName(share, t)), steps: at, values, nonFinite: [], starts };
    });
    const names = (those: readonly ITold[]): string =>
      listOf(
        those.map(({ where }) => where),
        t
      );
    return [
      ...firstBadWords(
        bad.slice(0, 1).map(({ step }) => {
          const from = steps.findIndex(each => each.step === step);
          const stays = steps.length - from > 1 && bad.length === steps.length - from;
          return { step, where: this._flag, stays };
        }),
        t
      ),
      ...(steps.length > 1 ? [seriesWords(this._flag, told, names, t)] : []),
      ...(last.total > 0 ? [this._now(last)] : []),
      ...(last.nonFinite > 0 ? [t('Values that are not finite: %1.', formatInteger(last.nonFinite))] : [])
    ].join(' ');
  }

  private _now(last: IStepCounts): string {
    const { t } = this;
    const middle = (last.counts.length - 1) / 2;
    const zero = last.counts[middle] ?? 0;
    return [
      t(
        'At step %1 half of the values lie between %2 and %3, the median at %4.',
        formatInteger(last.step),
        this._quantileWords(last, 0.25),
        this._quantileWords(last, 0.75),
        this._quantileWords(last, 0.5)
      ),
      ...(zero > 0
        ? [t('%1 % are %2.', formatNumber((100 * zero) / last.total, 3), this._binWords(middle))]
        : [])
    ].join(' ');
  }

  /** Say why there is nothing to draw, and offer what would change that. */
  private async _without(found: ITensorResult, layers: readonly number[]): Promise<IState> {
    const { source, options, actions, t } = this;
    const { flag, phase, pass } = options;
    if (found.rows.length === 0) {
      return emptyFlag(
        source,
        flag,
        phase,
        { ...actions, chooseFlag: other => this.choose({ flag: other, part: null }) },
        t,
        pass
      );
    }
    const sentence = this._data
      ? t('There is no value in tiles %1 of layers %2.', options.tiles, rangesText(layers))
      : t(
          '%1 is traced as %2, which does not say how its values are distributed.',
          this._flag,
          compressorWords(found.rows[found.rows.length - 1]?.compressor ?? '', t)
        );
    const { hello, connection } = source;
    const setting = own(hello?.config.flags, flag);
    const isOffered = hello?.compressors.some(({ name }) => name === 'Histogram') === true;
    if (this._data || connection.kind !== 'live' || !setting || !isOffered) {
      return nothingYet(sentence, actions, t);
    }
    const change = async (): Promise<void> => {
      await source.configure({ flags: { [flag]: { ...setting, compressor: { name: 'Histogram' } } } });
    };
    return { kind: 'empty', sentence, action: { label: t('Trace it as a histogram'), run: change } };
  }

  private _shape: ITensorShape = { parts: [], layers: [] };
  private _ranks = 0;
  private _data: IHistograms | null = null;
  private _drawn: IDrawnDistribution | null = null;
  /** Ascending: those of what is drawn. */
  private _steps: readonly number[] = [];
  private _at: ICursor | null = null;
}

/** Name several in a sentence: `a, b and c`. */
function listOf(names: readonly string[], t: Translate): string {
  const [last = '', ...others] = [...names].reverse();
  return others.length === 0 ? last : t('%1 and %2', others.reverse().join(', '), last);
}

/** A bin at a step. */
interface ICursor {
  readonly step: number;
  readonly bin: number;
}

export const view: IViewDefinition<DistributionOptions> = {
  create: (source, env) => new DistributionView(source, env)
};
