import { COLORS, formatInteger, formatNumber, type Row } from '../../../../charts';
import type { EffectsOptions } from '../../../../protocol/views.generated';
import type { IContent } from '../../../../views/shared/content';
import { layerName } from '../../../../views/shared/layers';
import { type ILine, lineAt } from '../../../../views/kits/lines/line';
import { tipLines, readLine } from '../../../../views/kits/lines/line-recipe';
import type { ITip } from '../../../../views/shared/table';
import { tokenLabels, tokenTicks, type ITokenWindow } from '../shared/token-axis';
import type { Translate } from '../../../../views/shared/translate';
import type { IComparedTexts, IPositionEffect, ISequenceEffects } from './effects-subject';
import { comparedName, divergenceRows, nextLines, divergenceOf, layersOf } from './effects-subject';
import { SeriesPicture, type IRange } from './series-picture';
import type { IEffect, IEffects } from '../../store/effects';

export type Measure = Required<EffectsOptions>['measure'];

/** What can be drawn of each kind. */
export const MEASURES: Readonly<Record<Required<EffectsOptions>['kind'], readonly Measure[]>> = {
  positions: ['kl', 'changed', 'distance'],
  layers: ['distance'],
  sweep: ['kl', 'changed', 'distance', 'divergence']
};

/** What is drawn: the first of its kind where that has no such measure. */
export function measureOf({ kind, measure }: Pick<Required<EffectsOptions>, 'kind' | 'measure'>): Measure {
  const [first = 'kl'] = MEASURES[kind];
  return MEASURES[kind].includes(measure) ? measure : first;
}

/** A mark on the pictures that both themes and all colours leave to be seen. */
export const RULE_COLOR = COLORS.rule;

/** A measure of each next token over positions: KL divergence and changes as bars, distances as lines. */
export class PositionsPicture extends SeriesPicture {
  draw(
    effects: ISequenceEffects,
    texts: IComparedTexts,
    { measure, transform }: Pick<Required<EffectsOptions>, 'measure' | 'transform'>,
    axis: ITokenWindow,
    isDark: boolean
  ): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    const { t } = this;
    const isByLayer = measure === 'distance';
    const { positions } = effects;
    const xs = positions.map(({ position }) => position);
    const lines = isByLayer
      ? effects.layers.map(layer =>
          lineAt(
            layerName(layer, t),
            layer,
            xs,
            positions.map(({ distances }) => distances.get(layer) ?? NaN)
          )
        )
      : [
          lineAt(
            measureWords(measure, t),
            null,
            xs,
            positions.map(each => valueOf(each, measure))
          )
        ];
    const byPosition = new Map(positions.map(each => [each.position, each]));
    return this.take(
      {
        lines,
        ...(isByLayer
          ? {}
          : {
              bars: {
                kinds: positions.map(({ isChanged }) => (isChanged ? 1 : 0)),
                names: [t('stays'), t('is another one')]
              }
            }),
        transform: measure === 'changed' ? 'linear' : transform,
        texts: {
          xTitle: t('token of the clean text, and its position'),
          yTitle: measureWords(measure, t),
          colorTitle: isByLayer ? t('layer') : t('best next token'),
          ...tokenTicks('width')
        },
        params: { labels: tokenLabels(texts.clean, axis), mostTicks: 1000 },
        rules: divergenceRows(texts, RULE_COLOR, t) as Row[],
        x: axis.x,
        shown: axis.shown,
        half: 0.5,
        nameOf: x => comparedName(texts, x, t),
        tipOf: (x, color) => [
          ...this._effectLines(byPosition.get(x)),
          ...(isByLayer ? tipLines(lines, line => readLine(line, x), null, color, t) : []),
          ...nextLines(texts, x, t)
        ],
        valueOf: (line, x) => this._valueWords(line, x, measure)
      },
      isDark
    );
  }

  private _effectLines(effect: IPositionEffect | undefined): ITip['lines'] {
    const { t } = this;
    return effect === undefined || (Number.isNaN(effect.kl) && effect.isChanged === null)
      ? []
      : [
          { name: t('KL divergence'), value: t('%1 nats', formatNumber(effect.kl, 3)) },
          { name: t('best next token'), value: effect.isChanged ? t('is another one') : t('stays') }
        ];
  }

  private _valueWords(line: ILine, x: number, measure: Measure): string {
    const value = line.value[line.x.indexOf(x)] ?? NaN;
    return measure === 'changed'
      ? value > 0
        ? this.t('best next token is another one')
        : this.t('best next token stays')
      : measure === 'kl'
        ? this.t('%1 nats', formatNumber(value, 3))
        : formatNumber(value, 3);
  }
}

export function measureWords(measure: Measure, t: Translate): string {
  const words: Readonly<Record<Measure, string>> = {
    kl: t('KL divergence (nats)'),
    changed: t('change of the best next token'),
    distance: t('relative distance of hidden states'),
    divergence: t('first position at which the text differs')
  };
  return words[measure];
}

export function valueOf({ kl, isChanged }: IPositionEffect, measure: Measure): number {
  return measure === 'changed' ? (isChanged === null ? NaN : Number(isChanged)) : kl;
}

/** Say where the KL divergence is largest and where the best next token changes; empty if unknown. */
export function positionsSummary(
  { positions }: ISequenceEffects,
  texts: IComparedTexts,
  t: Translate
): string {
  const known = positions.filter(({ isChanged }) => isChanged !== null);
  const changed = known.filter(({ isChanged }) => isChanged).length;
  const peak = peakOf(positions);
  return known.length === 0 || peak === null
    ? ''
    : t(
        'The best next token changes at %1 of %2 positions; KL is largest after %3, %4 nats.',
        formatInteger(changed),
        formatInteger(known.length),
        comparedName(texts, peak.position, t),
        formatNumber(peak.kl, 3)
      );
}

/** The position of the largest KL divergence; null where none is finite. */
export function peakOf(positions: readonly IPositionEffect[]): IPositionEffect | null {
  return positions.reduce<IPositionEffect | null>(
    (best, each) => (Number.isFinite(each.kl) && !(each.kl <= (best?.kl ?? -Infinity)) ? each : best),
    null
  );
}

export interface ISweepPoint {
  /** From 0. */
  readonly point: number;
  readonly setting: string;
  /** NaN where the setting is no number. */
  readonly value: number;
}

/** A measure over the points of a sweep, of the logits or of one layer: mean and range over sequences. */
export interface ISweepSeries extends IRange {
  /** Null where it is of the logits. */
  readonly layer: number | null;
  readonly mean: Float64Array;
  /** Sequences that have the measure. */
  readonly count: Float64Array;
}

export interface ISweep {
  /** By number where every setting is another one, else in their order. */
  readonly points: readonly ISweepPoint[];
  readonly isNumeric: boolean;
  readonly rows: readonly IEffect[];
}

/** Put the points of a sweep together. */
export function sweepOf({ rows }: IEffects): ISweep {
  const own = rows.filter(({ point, position }) => point >= 0 && position < 0);
  const points = [...new Map(own.map(row => [row.point, row])).values()]
    .map(({ point, setting, value }) => ({ point, setting, value }))
    .sort((a, b) => a.point - b.point);
  const isNumeric =
    points.every(({ value }) => Number.isFinite(value)) &&
    new Set(points.map(({ value }) => value)).size === points.length;
  return {
    points: isNumeric ? points.sort((a, b) => a.value - b.value) : points,
    isNumeric,
    rows: own
  };
}

/** A measure over the points, of each layer where it is a distance. */
export function sweepSeries({ points, rows }: ISweep, measure: Measure): ISweepSeries[] {
  const isByLayer = measure === 'distance';
  const layers = isByLayer ? layersOf(rows) : [null];
  const places = new Map(points.map(({ point }, at) => [point, at]));
  return layers.map(layer => {
    const found = points.map((): Map<number, number> => new Map());
    for (const row of rows) {
      if (row.layer === (layer ?? -1)) {
        found[places.get(row.point) ?? -1]?.set(row.sequence, sweptValue(row, measure));
      }
    }
    const known = found.map(each => [...each.values()].filter(Number.isFinite));
    const column = (of: (values: number[]) => number): Float64Array =>
      Float64Array.from(known, values => (values.length === 0 ? NaN : of(values)));
    return {
      layer,
      mean: column(values => values.reduce((sum, each) => sum + each, 0) / values.length),
      low: column(values => Math.min(...values)),
      high: column(values => Math.max(...values)),
      count: Float64Array.from(known, ({ length }) => length)
    };
  });
}

export const sequencesIn = ({ rows }: ISweep): number => new Set(rows.map(({ sequence }) => sequence)).size;

function sweptValue(row: IEffect, measure: Measure): number {
  return measure === 'divergence' ? (divergenceOf(row) ?? NaN) : row[measure];
}
