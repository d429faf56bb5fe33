import { formatInteger, type IPlace, type IRecipe, type Row } from '../../charts';
import type { MomentColumn } from '../../store/moment-source';
import type { IPointed } from '../../store/run-link';
import type { IContent, IMark, IMoved, Loaded } from '../shared/content';
import type { ILinkedMarks } from '../shared/links';
import type { ITip } from '../shared/tip';
import { nonFiniteWords, omittedWords, optionWords, trustWords } from './captions';
import { lineColors } from '../shared/lines/colors';
import { comparedTitle, missingWords, runWords } from '../shared/lines/compare-words';
import { allHidden, hiddenWords, legendOf, shownLines } from '../shared/lines/legend';
import { finiteRange, type ILine } from '../shared/lines/line';
import { lineRecipe } from '../shared/lines/line-recipe';
import { moveAmong, readLine, tipLines, valueWords, type ICursor } from '../shared/lines/line-tips';
import { moveOf, placeNear } from '../shared/places';
import { MomentPane } from './pane';
import type { MomentReader } from './reader';
import { readLayers } from './read-layers';
import type { Control } from '../shared/control';
import { goControl, stepsControl } from '../shared/controls';
import { StepShown } from '../shared/pinned-step';
import { padded, scaleOf } from '../shared/scale';
import { axisWords, byWords, capital, quantityWords } from './words';

/** Share of a layer's place that its bars take. */
const BARS = 0.8;

/** Groups at one step over the layers, as lines or bars. */
export class LayersPane extends MomentPane {
  override pointedBy(mark: IMark): IPointed {
    return { step: this._step, layer: (mark.x[0] + mark.x[1]) / 2 };
  }

  override marksOf({ layer }: IPointed): ILinkedMarks {
    return { marks: layer === null ? [] : [markOf(layer)] };
  }

  override get by(): readonly MomentColumn[] {
    return ['layer', ...super.by.filter(column => column !== 'layer')];
  }

  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const { options, by, t } = this;
    const within = this.env.within(options.steps);
    const steps = this.steps.filter(each => !within || (each >= within[0] && each <= within[1]));
    const wanted = this._stepShown.of(options.step);
    const step = steps[wanted === null ? steps.length - 1 : placeNear(steps, wanted)];
    if (step === undefined) {
      return { state: this.nothing() };
    }
    this._step = step;
    const read = await readLayers(
      {
        options,
        by,
        question: { ...this.question(by), smoothing: 0 },
        everything: this.everything,
        reader,
        id: this.source.id,
        name: this.source.name,
        others: this.otherRuns,
        step,
        samples: this.total?.samples[placeNear(this.steps, step)] ?? -1
      },
      signal,
      t
    );
    const groups = read.base;
    const rest = by.slice(1);
    const { lines, left } = largest(read.lines, options.series);
    // Bars have no dashes that would tell runs apart: each of its own colour, and named in full.
    const isApart = options.marks === 'bars' && this.otherRuns.length > 0;
    this._all = isApart ? lines.map(apart) : lines;
    this._lines = shownLines(this._all, options.hidden);
    if (this._lines.length === 0 && lines.length > 0) {
      return { state: allHidden(hidden => this.choose({ hidden }), t) };
    }
    if (lines.length === 0) {
      const action = { label: t('Draw lines'), run: () => this.choose({ kind: 'lines' }) };
      const sentence =
        read.read.length > 0
          ? t('Nothing here can be compared.')
          : t('All tensors here are outside the layers.');
      return { state: { kind: 'empty', sentence, action } };
    }
    const unlayered = groups.keys.filter(([layer]) => layer === null).length;
    const title = comparedTitle(
      t(
        rest.length === 0 ? '%1 by layer, step %3' : '%1 by layer and %2, step %3',
        capital(quantityWords(options, t)),
        byWords(rest, t),
        formatInteger(step)
      ),
      options,
      this.otherRuns,
      t
    );
    const compares = this.otherRuns.length > 0 && options.compare !== 'overlay';
    return {
      content: {
        ...this._compose(rest, read.read),
        title,
        caption: [
          ...(wanted !== null && wanted !== step
            ? [t('Nothing was logged at step %1; this is the nearest one.', formatInteger(wanted))]
            : []),
          ...hiddenWords(this._all, options.hidden, t),
          ...(left > 0 ? [t('%1 series are left out: the smallest ones.', formatInteger(left))] : []),
          ...(unlayered > 0 ? [t('Tensors outside the layers are left out.')] : []),
          ...this._runWords(step, read.steps),
          ...omittedWords({ ...groups, groupsTotal: groups.keys.length }, '', t),
          ...optionWords({ ...options, smoothing: 0 }, this.index, t),
          ...nonFiniteWords(groups, t),
          ...(compares ? [] : trustWords(groups, { ...options, by: [...by] }, t))
        ],
        summary: this._summary(title),
        notes: await this.notes(reader, signal)
      }
    };
  }

  override controls(): Control[] {
    const { source, options, steps, t } = this;
    const change = (step: number | null): void => {
      this._stepShown.leave();
      this.choose({ step });
      this.env.refresh(false);
    };
    return [
      stepsControl(Array.from(steps), this._stepShown.of(options.step), source.connection, change, t),
      goControl(change, t)
    ];
  }

  override probe(place: IPlace): IMark | null {
    const layer = Math.round(place.x);
    return this._lines.some(line => line.x.includes(layer)) ? markOf(layer) : null;
  }

  override tipOf(mark: IMark): ITip | null {
    const layer = (mark.x[0] + mark.x[1]) / 2;
    const color = (line: ILine): string => this._colors[this._lines.indexOf(line)] ?? '#000';
    const lines = tipLines(
      this._lines,
      line => {
        const reading = readLine(line, layer);
        return reading?.isExact ? reading : null;
      },
      null,
      color,
      this.t
    );
    return lines.length === 0 ? null : { heading: this.t('layer %1', layer), lines };
  }

  override move(key: string): IMoved | null {
    const first = this._lines[0]?.x[0] ?? 0;
    const at =
      this._at === null && moveOf(key) ? { line: 0, x: first } : moveAmong(key, this._at, this._lines);
    const line = at && this._lines[at.line];
    if (at === null || !line) {
      return null;
    }
    this._at = at;
    const layer = at.x;
    const reading = readLine(line, layer);
    const value = reading?.isExact ? valueWords(line, reading.at, this.t) : this.t('no data');
    const said = this.t('layer %1, %2: %3', layer, line.name, value);
    return key === 'copy' ? { said, mark: markOf(layer), copy: value } : { said, mark: markOf(layer) };
  }

  /** Say which runs are drawn, how, and at which step where that is another one. */
  private _runWords(step: number, steps: readonly (number | null)[]): string[] {
    const { options, otherRuns, t } = this;
    const there = otherRuns.filter((_, at) => steps[at] !== null);
    const elsewhere = otherRuns.flatMap(({ name }, at) => {
      const own = steps[at] ?? step;
      return own === step ? [] : [t('%1 is at step %2, the nearest one.', name, formatInteger(own))];
    });
    const bars = options.marks === 'bars';
    const without = otherRuns.filter((_, at) => steps[at] === null);
    return [
      ...(bars && options.compare === 'overlay'
        ? []
        : runWords(options, this.source.name, otherRuns, there, t)),
      ...elsewhere,
      ...missingWords(without, t)
    ];
  }

  private _compose(
    rest: readonly MomentColumn[],
    read: readonly ILine[]
  ): Pick<IContent, 'extent' | 'legend' | 'printed'> & { recipe: IRecipe } {
    const { options, t } = this;
    const lines = this._lines;
    const bars = options.marks === 'bars';
    const range = finiteRange(lines);
    const log = options.transform === 'log';
    const scale = scaleOf(options.transform, range?.[0] ?? 0);
    // Bars are read by their length, so that they begin at 0 unless the axis is logarithmic.
    const y = padded(range && bars && !log ? [Math.min(0, range[0]), Math.max(0, range[1])] : range, log);
    // Each line goes from its first layer to its last one.
    const ends = lines.flatMap(line => [line.x[0] ?? 0, line.x[line.x.length - 1] ?? 0]);
    const x: [number, number] = [Math.min(...ends) - 0.5, Math.max(...ends) + 0.5];
    const several = this.otherRuns.length > 0;
    const colorsIn = (dark: boolean): string[] => lineColors(this._all, dark);
    const drawnIn = (colors: readonly string[]): string[] =>
      colors.filter((_, at) => lines.includes(this._all[at] as ILine));
    const colors = colorsIn(this.env.isDark);
    this._colors = drawnIn(colors);
    const bad = read.flatMap(line =>
      Array.from(line.x).flatMap((at, place) => {
        const count = line.nonFinite[place] ?? 0;
        return count !== 0 || Math.abs(line.value[place] ?? 0) === Infinity ? [{ x: at, x2: at, count }] : [];
      })
    );
    const texts = {
      xTitle: t('layer'),
      yTitle: axisWords(options, options.runs, t),
      colorTitle: capital(rest.length > 0 ? byWords(rest, t) : several ? t('run') : t('tensors')),
      yScale: scale
    };
    const recipeIn = (own: readonly string[]): IRecipe => {
      const recipe = lineRecipe({ lines, colors: own, bad, x, ys: [y], texts }, null);
      return bars
        ? { ...recipe, datasets: { ...recipe.datasets, rows: [], bars: this._bars(log ? y[0] : 0, own) } }
        : recipe;
    };
    const { hidden } = options;
    const hide = (next: string[]): void => this.choose({ hidden: next });
    return {
      recipe: recipeIn(this._colors),
      printed: (dark = this.env.isDark) => recipeIn(drawnIn(colorsIn(dark))),
      extent: { x, y },
      legend: legendOf(this._all, colors, { title: texts.colorTitle, hidden, hide })
    };
  }

  private _bars(base: number, colors: readonly string[]): Row[] {
    const width = BARS / this._lines.length;
    return this._lines.flatMap((line, at) =>
      Array.from(line.x).flatMap((layer, place) => {
        const value = line.value[place] ?? NaN;
        const left = layer - BARS / 2 + at * width;
        return Number.isFinite(value)
          ? [{ x: left, x2: left + width * 0.92, value, base, name: line.name, color: colors[at] }]
          : [];
      })
    );
  }

  override insight(): IMark | null {
    const found = this._peak();
    return found && markOf(found.line.x[found.at] ?? 0);
  }

  /** The value of largest magnitude; null where none is finite. */
  private _peak(): { line: ILine; at: number } | null {
    let best: { line: ILine; at: number } | null = null;
    for (const line of this._lines) {
      for (const [at, value] of line.value.entries()) {
        const size = best ? Math.abs(best.line.value[best.at] ?? 0) : -1;
        if (Number.isFinite(value) && Math.abs(value) > size) {
          best = { line, at };
        }
      }
    }
    return best;
  }

  private _summary(title: string): string {
    const found = this._peak();
    return found
      ? this.t(
          '%1. The largest magnitude, %2, is in layer %3 (%4).',
          title,
          valueWords(found.line, found.at, this.t),
          found.line.x[found.at] ?? 0,
          found.line.name
        )
      : this.t('%1. Nothing is finite.', title);
  }

  private readonly _stepShown = new StepShown(this.env);
  private _step: number | null = null;
  private _lines: readonly ILine[] = [];
  /** Hidden ones among them. */
  private _all: readonly ILine[] = [];
  private _colors: readonly string[] = [];
  private _at: ICursor | null = null;
}

const markOf = (layer: number): IMark => ({ facet: null, x: [layer - 0.5, layer + 0.5], y: null });

/** A line as one of its own among those of other runs. */
const apart = (line: ILine): ILine => ({
  ...line,
  key: `${line.run} ${line.key}`,
  label: line.name
});

/** The groups with the largest magnitudes, of all runs, in their order; and how many groups are left out. */
function largest(lines: readonly ILine[], most: number): { lines: readonly ILine[]; left: number } {
  const sizes = new Map<string, number>();
  const idOf = (line: ILine): string => line.key;
  for (const line of lines) {
    const before = sizes.get(idOf(line)) ?? -1;
    const size = line.value.reduce(
      (best, each) => (Number.isNaN(each) ? best : Math.max(best, Math.abs(each))),
      before
    );
    sizes.set(idOf(line), size);
  }
  const kept = new Set(
    [...sizes]
      .sort(([, a], [, b]) => b - a)
      .slice(0, most)
      .map(([id]) => id)
  );
  return { lines: lines.filter(line => kept.has(idOf(line))), left: sizes.size - kept.size };
}
