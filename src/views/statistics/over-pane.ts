import type { IPlace, IRecipe, Row } from '../../charts';
import type { IContent, IMark, IMoved } from '../shared/content';
import { lineColors, legendOf } from '../kits/lines/legend';
import { finiteRange, type ILine } from '../kits/lines/line';
import {
  lineRecipe,
  type ILinesRequest,
  moveAmong,
  readLine,
  tipLines,
  valueWords,
  type ICursor
} from '../kits/lines/line-recipe';
import { moveOf, padded, scaleOf } from '../shared/scale';
import type { ITip } from '../shared/table';
import { MomentPane } from './pane';
import { axisWords } from './words';

/** Share of the unit of the axis that its bars take. */
const BARS = 0.8;

/** Groups at one step over something else, as lines or bars. */
export abstract class OverPane extends MomentPane {
  /** Name a position on the x axis: `layer 3`. */
  protected abstract placeWords(x: number): string;

  override probe(point: IPlace): IMark | null {
    const layer = Math.round(point.x);
    return this.lines.some(line => line.x.includes(layer)) ? markOf(layer) : null;
  }

  override tipOf(mark: IMark): ITip | null {
    const layer = (mark.x[0] + mark.x[1]) / 2;
    const color = (line: ILine): string => this._colors[this.lines.indexOf(line)] ?? '#000';
    const lines = tipLines(
      this.lines,
      line => {
        const reading = readLine(line, layer);
        return reading?.isExact ? reading : null;
      },
      null,
      color,
      this.t
    );
    return lines.length === 0 ? null : { heading: this.placeWords(layer), lines };
  }

  override move(key: string): IMoved | null {
    const first = this.lines[0]?.x[0] ?? 0;
    const at =
      this._at === null && moveOf(key) ? { line: 0, x: first } : moveAmong(key, this._at, this.lines);
    const line = at && this.lines[at.line];
    if (at === null || !line) {
      return null;
    }
    this._at = at;
    const layer = at.x;
    const reading = readLine(line, layer);
    const value = reading?.isExact ? valueWords(line, reading.at, this.t) : this.t('no data');
    const sentence = this.t('%1, %2: %3', this.placeWords(layer), line.name, value);
    return key === 'copy'
      ? { said: sentence, mark: markOf(layer), copy: value }
      : { said: sentence, mark: markOf(layer) };
  }

  protected compose(
    words: Pick<ILinesRequest['texts'], 'colorTitle' | 'xLabel' | 'xTicks' | 'xTitle'> & {
      readonly yTitle?: string;
    },
    read: readonly ILine[]
  ): Pick<IContent, 'extent' | 'legend' | 'printed'> & { recipe: IRecipe } {
    const { options, t } = this;
    const { lines } = this;
    const bars = options.marks === 'bars';
    const range = finiteRange(lines);
    const log = options.transform === 'log';
    const scale = scaleOf(options.transform, range?.[0] ?? 0);
    // Bars are read by their length, so that they begin at 0 unless the axis is logarithmic.
    const y = padded(range && bars && !log ? [Math.min(0, range[0]), Math.max(0, range[1])] : range, log);
    // Each line goes from its first layer to its last one.
    const ends = lines.flatMap(line => [line.x[0] ?? 0, line.x[line.x.length - 1] ?? 0]);
    const x: [number, number] = [Math.min(...ends) - 0.5, Math.max(...ends) + 0.5];
    const colorsIn = (dark: boolean): string[] => lineColors(this.all, dark);
    const drawnIn = (colors: readonly string[]): string[] =>
      colors.filter((_, at) => lines.includes(this.all[at] as ILine));
    const colors = colorsIn(this.env.isDark);
    this._colors = drawnIn(colors);
    const bad = read.flatMap(line =>
      Array.from(line.x).flatMap((at, index) => {
        const count = line.nonFinite[index] ?? 0;
        return count !== 0 || Math.abs(line.value[index] ?? 0) === Infinity ? [{ x: at, x2: at, count }] : [];
      })
    );
    const texts = {
      yTitle: axisWords(options, options.runs, t),
      ...words,
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
      legend: legendOf(this.all, colors, { title: texts.colorTitle, hidden, hide })
    };
  }

  private _bars(base: number, colors: readonly string[]): Row[] {
    const width = BARS / this.lines.length;
    return this.lines.flatMap((line, at) =>
      Array.from(line.x).flatMap((layer, index) => {
        const value = line.value[index] ?? NaN;
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
    for (const line of this.lines) {
      for (const [at, value] of line.value.entries()) {
        const size = best ? Math.abs(best.line.value[best.at] ?? 0) : -1;
        if (Number.isFinite(value) && Math.abs(value) > size) {
          best = { line, at };
        }
      }
    }
    return best;
  }

  /** Say where something is not finite, and where the largest magnitude is. */
  protected summaryWords(): string {
    const found = this._peak();
    const bad = this.lines.flatMap(({ name, x, nonFinite, value }) => {
      const at = nonFinite.findIndex((count, index) => count > 0 || Math.abs(value[index] ?? 0) === Infinity);
      return at < 0 ? [] : [this.t('Not finite in %1 (%2). ', this.placeWords(x[at] ?? 0), name)];
    });
    const largest = found
      ? this.t(
          'The largest magnitude, %1, is in %2 (%3).',
          valueWords({ ...found.line, digits: 4 }, found.at, this.t),
          this.placeWords(found.line.x[found.at] ?? 0),
          found.line.name
        )
      : this.t('Nothing is finite.');
    return (bad[0] ?? '') + largest;
  }

  protected lines: readonly ILine[] = [];
  /** Hidden ones among them. */
  protected all: readonly ILine[] = [];
  private _colors: readonly string[] = [];
  private _at: ICursor | null = null;
}

/** The mark of a layer. */
export const markOf = (layer: number): IMark => ({ facet: null, x: [layer - 0.5, layer + 0.5], y: null });
