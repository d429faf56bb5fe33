import type { IStreamRows } from '../../store/row-store';
import type { IRunSource } from '../../store/source';
import { scalarsWords } from '../shared/change-words';
import type { Control } from '../shared/control';
import { transformControl } from '../shared/controls';
import type { IViewDefinition } from '../shared/definition';
import { nothingYet } from '../shared/states';
import type { IViewEnvironment } from '../shared/view-model';
import { columnOf, saidOf, type IKit } from './kit';
import type { ILine } from './lines/line';
import { LinesView, type ILineRun, type LineOptions, type LinesLoaded } from './lines/lines-view';
import { cutLine, thinOut, type ILineAsk } from './lines/shape-lines';

/** Options that a view of lines has beside its own; see `kitOptions`. */
export type KitLineOptions = LineOptions;

/** A line as a view gives it: a value at each step, steps ascending. */
export interface IStepLine {
  /** Tells the lines of a run apart, and is what the legend says. */
  readonly name: string;
  readonly steps: ArrayLike<number>;
  /** NaN is a gap. */
  readonly values: ArrayLike<number>;
  /** Lines of another unit have a panel of their own. */
  readonly unit?: string;
  /** Layer that it is of: it is marked where another view points at the layer. */
  readonly layer?: number;
}

export interface ILinesKit<O extends object> extends IKit<O, readonly IStepLine[]> {
  /** What the values are: the title of their axis. */
  readonly quantity: string | ((options: Readonly<Required<O>>) => string);
  /** What a line is: the title of the legend. */
  readonly legend: string;
}

/** Lines that a view of another package reads, with all that lines of the house have. */
class KitLines<O extends KitLineOptions> extends LinesView<O> {
  constructor(
    source: IRunSource,
    env: IViewEnvironment<O>,
    private readonly _kit: ILinesKit<O>
  ) {
    super(source, env, _kit.streams);
  }

  get subject(): string {
    return saidOf(this._kit.subject, this.options);
  }

  override controls(): Control[] {
    const { options, t } = this;
    const own = this._kit.controls?.(options, change => this.choose(change)) ?? [];
    const scale = transformControl(
      t('Scale'),
      options.transform,
      transform => this.choose({ transform } as Partial<O>),
      t
    );
    return [...own, scale, ...this.lineControls()];
  }

  protected async read(signal: AbortSignal): Promise<LinesLoaded> {
    const { _kit: kit, options, t } = this;
    const found = await this.compared(
      Math.max(1, this._rows.length),
      (run, ask) => this._linesOf(run, ask, signal),
      signal
    );
    if ('kind' in found) {
      return { state: found };
    }
    if (found.lines.length === 0) {
      return { state: nothingYet(saidOf(kit.empty, this.options), this.actions, t) };
    }
    const quantity = saidOf(kit.quantity, options);
    const drawn = this.takeByUnit(found, quantity, { colorTitle: kit.legend, quantity });
    const lines = drawn.shown.filter(line => !line.isFaint);
    return {
      content: {
        title: this.stepsTitle(this.subject, drawn),
        caption: [...(kit.caption?.(this._rows, options) ?? []), ...this.lineWords(drawn)],
        summary: kit.summary?.(this._rows, options) ?? scalarsWords(lines, t)
      }
    };
  }

  private async _linesOf(
    { source, run, clock, named }: ILineRun,
    { steps, points }: ILineAsk,
    signal: AbortSignal
  ): Promise<ILine[]> {
    const rows = (await this._kit.read({ source, options: this.options, steps, signal })) ?? [];
    if (run === 0) {
      this._rows = rows;
    }
    const lines = rows.flatMap(({ name, unit, layer = null, ...row }) => {
      const [step, value] = [Float64Array.from(row.steps), Float64Array.from(row.values)];
      const line: ILine = {
        key: name,
        ...named(name, rows.length),
        run,
        layer,
        ...(unit ? { unit } : {}),
        step,
        x: step.map(clock),
        value,
        nonFinite: value.map(each => (Number.isFinite(each) ? 0 : 1)),
        starts: [],
        isThin: false
      };
      return (steps ? cutLine(line, steps) : line) ?? [];
    });
    return points === undefined ? lines : lines.map(line => thinOut(line, points));
  }

  private _rows: readonly IStepLine[] = [];
}

/** A view of lines over steps, also compared with other runs, smoothed, and over time. */
export const lines = <O extends KitLineOptions>(kit: ILinesKit<O>): IViewDefinition<O> => ({
  create: (source, env) => new KitLines(source, env, kit)
});

/**
 * Rows of a stream as lines, one for each value of the column `name`.
 *
 * @param columns - Names of the columns that tell lines apart, and hold their steps and values.
 */
export function linesOf(
  rows: IStreamRows,
  { name, step, value }: { readonly name: string; readonly step: string; readonly value: string }
): IStepLine[] {
  const lines = new Map<string, { steps: number[]; values: number[] }>();
  const [names, steps, values] = [columnOf(rows, name), columnOf(rows, step), columnOf(rows, value)];
  for (let row = 0; row < rows.length; row += 1) {
    const key = String(names?.[row] ?? '');
    const line = lines.get(key) ?? { steps: [], values: [] };
    lines.set(key, line);
    line.steps.push(Number(steps?.[row] ?? NaN));
    line.values.push(Number(values?.[row] ?? NaN));
  }
  return [...lines].map(([key, line]) => ({ name: key, ...line }));
}
