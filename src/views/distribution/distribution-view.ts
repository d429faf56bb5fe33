import { gapStarts, histogramsOf, quantileOf, type IHistograms, type IStepCounts } from '../../aggregate';
import { formatInteger, formatNumber } from '../../charts';
import { own } from '../../protocol/records';
import { rangesText } from '../../protocol/ranges';
import type { DistributionOptions } from '../../protocol/views.generated';
import type { SourceChange } from '../../store/source';
import type { ITensorResult, ITensorShape } from '../../store/tensor-data';
import { firstBadWords, seriesWords, type ITold } from '../shared/change-words';
import type { Loaded } from '../shared/content';
import { type Control, selectControl } from '../shared/control';
import { colorRangeControl, goControl, lockedWords, transformControl } from '../shared/controls';
import type { IViewDefinition } from '../shared/definition';
import { capital, compressorWords, flagWords, omissionWords, thinnedWords } from '../shared/describe';
import { chosenLayers, layerWords } from '../shared/layers';
import { lockedRange } from '../shared/scale';
import { emptyFlag, nothingYet, type IState } from '../shared/states';
import { rangesField } from '../shared/table';
import { tensorControls } from '../shared/tensor-controls';
import type { Translate } from '../shared/translate';
import { ViewModel } from '../shared/view-model';
import { DistributionPicture } from './distribution-picture';
import { drawnShares, shareName } from './distribution-recipe';

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
    this._isDrawn = false;
    if (data === null || data.steps.every(({ total }) => total === 0)) {
      return { state: await this._without(found, layers) };
    }
    const wish = { data, isSampled: found.sampledEvery > 1, transform, range: this._range };
    const drawn = this._picture.draw(kind, wish, this.env.isDark);
    this._isDrawn = true;
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
        ...drawn,
        title,
        caption: this._caption(data, found),
        summary: this._summary(data)
      }
    };
  }

  override controls(): Control[] {
    const { options, t, _picture: picture } = this;
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
            goControl(step => this.env.goTo(picture.goTo(step)), t)
          ]),
      ...colorRangeControl(
        options.color_range,
        this._isDrawn ? picture.domain : null,
        change => this.choose(change),
        () => picture.steps.map(drawnShares),
        t
      )
    ];
  }

  protected override get drawn(): DistributionPicture | null {
    return this._isDrawn ? this._picture : null;
  }

  private get _range(): readonly [number, number] | null {
    return lockedRange(this.options.color_range ?? []);
  }

  private get _flag(): string {
    const { flag, pass, part } = this.options;
    return flagWords(this.source.hello, flag, part ?? this._shape.parts[0] ?? null, this.t, pass);
  }

  private _caption(data: IHistograms, found: ITensorResult): string[] {
    const { t } = this;
    const { replicas, tiles } = this.options;
    const range = this._range;
    const { domain, steps } = this._picture;
    const isThin = steps.length < data.steps.length;
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
              steps.length
            )
          ]
        : []),
      ...(isThin && this.options.kind === 'map'
        ? [t('Of steps that share a column each bin shows its greatest share.')]
        : []),
      ...(this.options.kind === 'quantiles'
        ? [t('A quantile lies within the band about its line: in the bin that holds it.')]
        : []),
      ...(domain ? lockedWords(range, steps.map(drawnShares), t) : []),
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
        this._picture.quantileWords(last, 0.25),
        this._picture.quantileWords(last, 0.75),
        this._picture.quantileWords(last, 0.5)
      ),
      ...(zero > 0
        ? [t('%1 % are %2.', formatNumber((100 * zero) / last.total, 3), this._picture.binWords(middle))]
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
  private _isDrawn = false;
  private readonly _picture = new DistributionPicture(this.t, this.env);
}

/** Name several in a sentence: `a, b and c`. */
function listOf(names: readonly string[], t: Translate): string {
  const [last = '', ...others] = [...names].reverse();
  return others.length === 0 ? last : t('%1 and %2', others.reverse().join(', '), last);
}

export const view: IViewDefinition<DistributionOptions> = {
  create: (source, env) => new DistributionView(source, env)
};
