import {
  ColorScale,
  flagColor,
  formatFull,
  formatInteger,
  formatNumber,
  legend,
  paint,
  toPicture,
  type IPlace,
  type Row
} from '../charts';
import type { HeatmapOptions, ViewOptions } from '../protocol/views.generated';
import type { IRunSource, ITensorRow, SourceChange } from '../store/source';
import { BaseView, type IMark, type Loaded } from './base';
import {
  compressorWords,
  flagInfo,
  flagWords,
  lastAxis,
  omissionWords,
  tokenText,
  type IOmitted
} from './describe';
import { isLayerText, layerWords, parseLayers } from './layers';
import { axesOf, sliceOf, type IAxes, type ISlice } from './matrix';
import { emptyFlag, type IStateActions } from './states';
import { flagControl, layersControl, partControl, phaseControl, stepsControl } from './controls';
import type { Control } from './toolbar';
import type { ITip } from './tooltip';
import type { IViewHost, Mount } from './view';

/** Trace point that carries the texts of positions. */
const TOKENS = 'InputTokens';

const DEFAULTS = {
  part: null,
  layers: '1',
  step: null,
  sample: 0,
  head: 0,
  scale: 'shared',
  transform: 'linear',
  phase: 'train'
} as const;

/** One layer's slice at the step that is drawn. */
interface ILayer {
  layer: number;
  row: ITensorRow;
  slice: ISlice;
  scale: ColorScale;
}

/** All that the picture shows. */
interface IShown {
  step: number;
  axes: IAxes;
  layers: readonly ILayer[];
  tokens: readonly string[];
}

/** Position × tile of one flag at a step, one picture for each layer. */
class HeatmapView extends BaseView<HeatmapOptions> {
  constructor(node: HTMLElement, source: IRunSource, options: HeatmapOptions, host?: IViewHost) {
    super(node, source, { ...DEFAULTS, ...options }, host, { axes: 'xy', least: 4 });
  }

  protected plain(): ViewOptions {
    return this.options;
  }

  protected concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && change.stream === 'tensors';
  }

  protected override get actions(): IStateActions {
    return { ...super.actions, chooseFlag: flag => this.choose({ flag, part: null }) };
  }

  protected async load(signal: AbortSignal): Promise<Loaded> {
    const { flag, phase } = this.options;
    const [known, steps] = await Promise.all([this.source.shapeOf(flag), this.source.steps(flag, phase)]);
    this._parts = known.parts;
    this._known = known.layers;
    this._steps = steps;
    const step = nearest(steps, this.options.step);
    if (step === null) {
      this._shown = null;
      return { state: await emptyFlag(this.source, flag, phase, this.actions, this.t) };
    }
    const layers = parseLayers(this.options.layers, known.layers);
    const part = this.options.part ?? known.parts[0];
    const [result, tokens] = await Promise.all([
      this.source.tensors({ flag, phase, layers, steps: [step, step], ...(part ? { part } : {}) }, signal),
      this._tokens(step, signal)
    ]);
    const rows = firstOfEach(result.rows);
    if (rows.length === 0) {
      this._shown = null;
      return { state: this._noLayer(layers, step) };
    }
    this._shown = this._shape(step, rows, tokens);
    return { content: this._compose(this._shown, part ?? null, result) };
  }

  protected controls(): Control[] {
    const { options, t } = this;
    const controls: Control[] = [
      { kind: 'name', id: 'run', text: this.source.name },
      flagControl(this.source.hello, options.flag, flag => this.choose({ flag, part: null, head: 0 }), t),
      ...partControl(this._parts, options.part, part => this.choose({ part }), t),
      layersControl(options.layers, this._known, layers => this.choose({ layers }), t),
      ...this._pickers(),
      stepsControl(this._steps, options.step, this.source.connection, step => this.choose({ step }), t),
      ...phaseControl(
        this.source.hello,
        options.flag,
        options.phase,
        phase => this.choose({ phase, step: null }),
        t
      )
    ];
    if ((this._shown?.layers.length ?? 0) > 1) {
      controls.push({
        kind: 'select',
        id: 'scale',
        label: t('Scale'),
        value: options.scale,
        options: [
          { value: 'shared', text: t('shared') },
          { value: 'own', text: t('own') }
        ],
        change: value => this.choose({ scale: value === 'own' ? 'own' : 'shared' })
      });
    }
    controls.push({
      kind: 'select',
      id: 'transform',
      label: t('Colours'),
      value: options.transform,
      options: [
        { value: 'linear', text: t('linear') },
        { value: 'log', text: t('log') }
      ],
      change: value => this.choose({ transform: value === 'log' ? 'log' : 'linear' })
    });
    return controls;
  }

  protected probe(place: IPlace): { tip: ITip; mark: IMark } | null {
    const mark: IMark = {
      facet: ['layer', place.frame.facet['layer']],
      x: around(Math.round(place.x)),
      y: around(Math.round(place.y))
    };
    const tip = this.tipOf(mark);
    return tip && { tip, mark };
  }

  protected tipOf(mark: IMark): ITip | null {
    const found = this._at(mark);
    if (found === null || this._shown === null) {
      return null;
    }
    const { axes } = this._shown;
    const { layer, column, row, value } = found;
    const lines = [
      { name: this.t('value'), value: formatFull(value, true) },
      { name: this.t(axes.x), value: this._positionText(column) },
      ...(axes.y ? [{ name: this.t(axes.y), value: formatInteger(row) }] : []),
      { name: this.t('step'), value: formatInteger(this._shown.step) }
    ];
    return { heading: this.t('layer %1', layer.layer), lines };
  }

  protected move(key: string): { said: string; mark: IMark; copy?: string } | null {
    const shown = this._shown;
    const moves: Record<string, [number, number, number]> = {
      ArrowLeft: [-1, 0, 0],
      ArrowRight: [1, 0, 0],
      ArrowUp: [0, -1, 0],
      ArrowDown: [0, 1, 0],
      PageUp: [0, 0, -1],
      PageDown: [0, 0, 1],
      Home: [-Infinity, 0, 0],
      End: [Infinity, 0, 0],
      copy: [0, 0, 0]
    };
    const by = moves[key];
    if (!shown || by === undefined) {
      return null;
    }
    const hold = (value: number, count: number): number => Math.min(count - 1, Math.max(0, value));
    const before = this._cursor;
    const place = hold((before?.place ?? 0) + by[2], shown.layers.length);
    const layer = shown.layers[place];
    if (layer === undefined) {
      return null;
    }
    const column = hold((before?.column ?? 0) + (before ? by[0] : 0), layer.slice.columns);
    const row = hold((before?.row ?? 0) + (before ? by[1] : 0), layer.slice.rows);
    this._cursor = { place, column, row };
    const mark: IMark = { facet: ['layer', layer.layer], x: around(column), y: around(row) };
    this.zoom?.reveal(column, row);
    const value = formatFull(layer.slice.values[row * layer.slice.columns + column] ?? NaN, true);
    const where = shown.axes.y ? this.t(', %1 %2', this.t(shown.axes.y), row) : '';
    const said = this.t(
      'layer %1, %2 %3%4: %5',
      layer.layer,
      this.t(shown.axes.x),
      this._positionText(column),
      where,
      value
    );
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  private _pickers(): Control[] {
    const { axes, layers } = this._shown ?? { axes: null, layers: [] };
    const number = (id: 'sample' | 'head', label: string, count: number): Control => ({
      kind: 'number',
      id,
      label,
      value: this.options[id],
      least: 0,
      most: count - 1,
      change: value => this.choose(id === 'head' ? { head: value } : { sample: value })
    });
    const heads = axes && axes.heads > 1 && layers.length > 0;
    return [
      ...(heads ? [number('head', this.t('Head'), axes.heads)] : []),
      ...(axes && axes.samples > 1 ? [number('sample', this.t('Sample'), axes.samples)] : [])
    ];
  }

  private _shape(step: number, rows: readonly ITensorRow[], tokens: readonly string[]): IShown {
    const info = flagInfo(this.source.hello, this.options.flag);
    const names = info?.axes ?? ['position', 'feature'];
    const sample = rows[0];
    const axes = axesOf(
      sample as ITensorRow,
      names,
      lastAxis(sample?.compressor ?? '', names[names.length - 1] ?? 'feature')
    );
    const at = Math.min(this.options.sample, axes.samples - 1);
    const head = Math.min(this.options.head, axes.heads - 1);
    const slices = rows.map(row => {
      const key = `${at}/${head}`;
      const cached = this._slices.get(row);
      const slice = cached?.key === key ? cached.slice : sliceOf(row, axes, at, head);
      this._slices.set(row, { key, slice });
      return { row, slice };
    });
    const shared = new ColorScale(union(slices.map(each => each.slice.extent)), this.options.transform);
    return {
      step,
      axes,
      tokens,
      layers: slices.map(({ row, slice }) => ({
        layer: row.layer,
        row,
        slice,
        scale: this.options.scale === 'own' ? new ColorScale(slice.extent, this.options.transform) : shared
      }))
    };
  }

  private _compose(
    shown: IShown,
    part: string | null,
    omitted: IOmitted
  ): Extract<Loaded, { content: unknown }>['content'] {
    const { t } = this;
    const { layers, axes, step } = shown;
    const own = this.options.scale === 'own' && layers.length > 1;
    const columns = Math.max(...layers.map(each => each.slice.columns));
    const rows = Math.max(...layers.map(each => each.slice.rows));
    const most = Math.max(1, Math.floor((this.width - 90) / 250));
    const across = Math.ceil(layers.length / Math.ceil(layers.length / most));
    const nonFinite = layers.reduce((sum, each) => sum + each.slice.nonFinite, 0);
    const scale = layers[0]?.scale ?? new ColorScale(null);
    const strip = legend(
      scale,
      nonFinite > 0,
      { lowest: t('lowest'), highest: t('highest'), notFinite: t('not finite') },
      own
    );
    const single = layers.length === 1;
    const compressor = layers[0]?.row.compressor ?? '';
    const words = [
      flagWords(this.source.hello, this.options.flag, part, t),
      compressorWords(compressor, t),
      ...(axes.heads > 1 ? [t('head %1', Math.min(this.options.head, axes.heads - 1))] : []),
      layerWords(layers.map(each => each.layer)),
      t('step %1', formatInteger(step))
    ];
    const extent = { x: [-0.5, columns - 0.5] as const, y: [-0.5, rows - 0.5] as const };
    return {
      title: words.join(', '),
      caption: this._captions(shown, nonFinite, omitted),
      summary: this._words(shown, nonFinite),
      swatch: flagColor(this.options.flag, this.source.hello?.flags.map(each => each.name) ?? []),
      extent,
      recipe: {
        template: 'heatmap',
        texts: { xTitle: t(axes.x), yTitle: axes.y ? t(axes.y) : '', legendTitle: t('value') },
        params: {
          x0: extent.x[0],
          x1: extent.x[1],
          y0: extent.y[0],
          y1: extent.y[1],
          tokens: shown.tokens.map(tokenText),
          headers: Object.fromEntries(
            layers.map(each => [each.layer, single ? '' : this._header(each, own)])
          ),
          ...strip.params
        },
        datasets: { pictures: layers.map(each => this._picture(each)), legend: strip.rows },
        columns: across,
        height: single ? (axes.transposed ? 300 : 360) : layers.length <= 4 ? 170 : 120
      }
    };
  }

  private _header(each: ILayer, own: boolean): string {
    const name = this.t('layer %1', each.layer);
    return own && each.slice.extent
      ? this.t(
          '%1, %2 to %3',
          name,
          formatNumber(each.scale.domain[0], 3),
          formatNumber(each.scale.domain[1], 3)
        )
      : name;
  }

  /** Paint a layer, or take the picture from the last time when nothing about it changed. */
  private _picture(each: ILayer): Row {
    const key = `${each.scale.domain.join()} ${each.scale.transform}`;
    const cached = this._pictures.get(each.slice);
    if (cached?.key === key) {
      return cached.row;
    }
    const row: Row = {
      layer: each.layer,
      ...toPicture(paint(each.slice, each.scale)),
      x: -0.5,
      x2: each.slice.columns - 0.5,
      y: -0.5,
      y2: each.slice.rows - 0.5
    };
    this._pictures.set(each.slice, { key, row });
    return row;
  }

  private _captions(shown: IShown, nonFinite: number, omitted: IOmitted): string[] {
    const { t } = this;
    const first = shown.layers[0]?.row;
    const batch = first?.sourceShape[0] ?? 1;
    const sum = (read: (row: ITensorRow) => number): number =>
      shown.layers.reduce((total, each) => total + read(each.row), 0);
    const [nan, inf] = [sum(row => row.nanCount), sum(row => row.infCount)];
    const sample = Math.min(this.options.sample, shown.axes.samples - 1) + 1;
    const wanted = this.options.step;
    const lines = [t('Compressor: %1.', first?.compressor ?? ''), t('Sample %1 of %2.', sample, batch)];
    if (first && (first.microBatch > 0 || first.rank > 0)) {
      lines.push(t('Micro-batch %1, rank %2.', first.microBatch, first.rank));
    }
    if (wanted !== null && wanted !== shown.step) {
      lines.push(t('Step %1 was not traced; this is the nearest one.', formatInteger(wanted)));
    }
    if (this.options.transform === 'log') {
      lines.push(t('Colours are logarithmic, symmetric about zero.'));
    }
    if (nonFinite > 0) {
      lines.push(t('%1 cells are not finite (hatched).', formatInteger(nonFinite)));
    }
    if (nan + inf > 0) {
      lines.push(
        t('The traced tensors held %1 NaN and %2 infinite values.', formatInteger(nan), formatInteger(inf))
      );
    }
    return [...lines, ...omissionWords(omitted, t)];
  }

  private _words(shown: IShown, nonFinite: number): string {
    const { t } = this;
    const parts: string[] = [];
    let best: { layer: number; column: number; row: number; value: number } | null = null;
    for (const each of shown.layers) {
      each.slice.values.forEach((value, cell) => {
        if (Number.isFinite(value) && Math.abs(value) > Math.abs(best?.value ?? 0)) {
          const { columns } = each.slice;
          best = { layer: each.layer, column: cell % columns, row: Math.floor(cell / columns), value };
        }
      });
    }
    const range = union(shown.layers.map(each => each.slice.extent));
    if (range) {
      parts.push(
        t(
          'At step %1 values run from %2 to %3.',
          formatInteger(shown.step),
          formatNumber(range[0]),
          formatNumber(range[1])
        )
      );
    }
    const peak = best as { layer: number; column: number; row: number; value: number } | null;
    if (peak) {
      const where = shown.axes.y ? t(', %1 %2', t(shown.axes.y), peak.row) : '';
      parts.push(
        t(
          'The largest magnitude, %1, is in layer %2 at %3 %4%5.',
          formatNumber(peak.value),
          peak.layer,
          t(shown.axes.x),
          this._positionText(peak.column, shown),
          where
        )
      );
    }
    if (nonFinite > 0) {
      parts.push(t('%1 cells are not finite.', formatInteger(nonFinite)));
    }
    return parts.join(' ');
  }

  private _positionText(column: number, shown = this._shown): string {
    const token = shown?.tokens[column];
    return token === undefined ? formatInteger(column) : `${formatInteger(column)} “${tokenText(token)}”`;
  }

  private _at(mark: IMark): { layer: ILayer; column: number; row: number; value: number } | null {
    const layer = this._shown?.layers.find(each => each.layer === mark.facet?.[1]);
    const [column, row] = [mark.x[0] + 0.5, (mark.y?.[0] ?? 0) + 0.5];
    if (!layer || column < 0 || row < 0 || column >= layer.slice.columns || row >= layer.slice.rows) {
      return null;
    }
    return { layer, column, row, value: layer.slice.values[row * layer.slice.columns + column] ?? NaN };
  }

  private _noLayer(layers: readonly number[], step: number): Extract<Loaded, { state: unknown }>['state'] {
    const first = this._known[0];
    const sentence =
      layers.length === 0
        ? this.t(
            'Layers %1 are not traced: there are rows of %2.',
            this.options.layers,
            layerWords(this._known)
          )
        : this.t(
            '%1 has no row of %2 at step %3.',
            this.options.flag,
            layerWords(layers),
            formatInteger(step)
          );
    return first === undefined
      ? { kind: 'empty', sentence, action: { label: this.t('Check again'), run: () => this.actions.retry() } }
      : {
          kind: 'empty',
          sentence,
          action: {
            label: this.t('Show layer %1', first),
            run: () => this.choose({ layers: String(first), step: null })
          }
        };
  }

  /** Texts of the positions of the chosen sample at a step; empty when they are not traced. */
  private async _tokens(step: number, signal: AbortSignal): Promise<readonly string[]> {
    const { phase, flag } = this.options;
    if (flag === TOKENS || !this.source.hello?.flags.some(each => each.name === TOKENS)) {
      return [];
    }
    const { rows } = await this.source.tensors({ flag: TOKENS, phase, steps: [step, step] }, signal);
    const row = rows.find(each => each.labels.length > 0);
    if (row === undefined) {
      return [];
    }
    const length = row.shape[1] ?? row.labels.length;
    const sample = Math.min(this.options.sample, (row.shape[0] ?? 1) - 1);
    return row.labels.slice(sample * length, (sample + 1) * length);
  }

  private _parts: readonly string[] = [];
  private _known: readonly number[] = [];
  private _steps: readonly number[] = [];
  private _shown: IShown | null = null;
  private _cursor: { place: number; column: number; row: number } | null = null;
  private readonly _slices = new WeakMap<ITensorRow, { key: string; slice: ISlice }>();
  private readonly _pictures = new WeakMap<ISlice, { key: string; row: Row }>();
}

const around = (center: number): readonly [number, number] => [center - 0.5, center + 0.5];

/** Return the wanted step or the one nearest to it; the newest when null is wanted. */
export function nearest(steps: readonly number[], wanted: number | null): number | null {
  const last = steps[steps.length - 1];
  if (last === undefined) {
    return null;
  }
  return wanted === null
    ? last
    : steps.reduce((best, step) => (Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best), last);
}

/** Keep the first micro-batch and lowest rank of each layer. */
function firstOfEach(rows: readonly ITensorRow[]): ITensorRow[] {
  const first = new Map<number, ITensorRow>();
  for (const row of rows) {
    const known = first.get(row.layer);
    if (
      known === undefined ||
      row.microBatch < known.microBatch ||
      (row.microBatch === known.microBatch && row.rank < known.rank)
    ) {
      first.set(row.layer, row);
    }
  }
  return [...first.values()].sort((a, b) => a.layer - b.layer);
}

function union(extents: readonly (readonly [number, number] | null)[]): readonly [number, number] | null {
  const known = extents.filter(extent => extent !== null);
  return known.length === 0
    ? null
    : [Math.min(...known.map(extent => extent[0])), Math.max(...known.map(extent => extent[1]))];
}

/** Draw one flag as position × tile. */
export const mountHeatmap: Mount<HeatmapOptions> = (node, source, options, host) =>
  new HeatmapView(node, source, options, host);

/** Whether a layers text may be used. */
export const layersValid = isLayerText;
