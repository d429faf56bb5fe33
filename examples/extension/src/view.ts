import { ViewModel, type IMark, type IPlace, type IRunSource, type ITip } from 'megalens';
import type { Control, IViewDefinition, Loaded, SourceChange } from 'megalens';

/** What the descriptor's schema lets through, with every default. */
export interface INormsOptions {
  contains: string;
  relative: boolean;
}

/** Points of each line: [step, norm]. */
export type Lines = ReadonlyMap<string, readonly (readonly [number, number])[]>;

/** Read the norms of a run by the weight's name. */
export async function readNorms(source: IRunSource, options: INormsOptions): Promise<Lines> {
  const { columns, length } = await source.table('weight_norms');
  const lines = new Map<string, [number, number][]>();
  const first = new Map<string, number>();
  for (let row = 0; row < length; row++) {
    const [name, step, value] = ['name', 'step', 'value'].map(column => columns[column]?.[row]);
    if (typeof name === 'string' && name.includes(options.contains)) {
      first.set(name, first.get(name) ?? Number(value));
      const norm = Number(value) / (options.relative ? (first.get(name) ?? 1) : 1);
      lines.set(name, [...(lines.get(name) ?? []), [Number(step), norm]]);
    }
  }
  return lines;
}

/** Weight norms over steps: a picture that knows nothing of the page, as Megalens's own are. */
class NormsView extends ViewModel<INormsOptions> {
  readonly subject = 'Weight norms';

  concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && change.stream === 'weight_norms';
  }

  async load(): Promise<Loaded> {
    this._lines = await readNorms(this.source, this.options);
    const steps = [...this._lines.values()].flat().map(([step]) => step);
    if (steps.length === 0) {
      const action = { label: 'Check again', run: () => this.actions.retry() };
      return { state: { kind: 'empty', sentence: 'This run has no weight norms.', action } };
    }
    const [x0, x1] = [Math.min(...steps), Math.max(...steps)];
    const rows = [...this._lines].flatMap(([name, line]) =>
      line.map(([x, value]) => ({ x, value, name, line: name, color: '#1f77b4', opacity: 1, dash: [1, 0] }))
    );
    const yTitle = this.options.relative ? 'relative norm' : 'norm';
    const axis = { xTitle: 'step', xLabel: 'datum.label', xTicks: 'null' };
    const texts = { ...axis, yTitle, colorTitle: 'weight', yScale: 'linear' };
    const values = rows.map(({ value }) => value);
    const [y0, y1] = [Math.min(...values), Math.max(...values)];
    const params = { x0, x1, y0, y1 };
    return {
      content: {
        recipe: { template: 'lines', texts, params, datasets: { rows }, height: 280 },
        extent: { x: [x0, x1], y: [y0, y1] },
        title: `Weight norms, steps ${x0} to ${x1}`,
        caption: [],
        summary: `Norms of ${this._lines.size} weights: ${[...this._lines.keys()].join(', ')}.`
      }
    };
  }

  override controls(): Control[] {
    const { relative: pressed } = this.options;
    const change = (relative: boolean): void => this.choose({ relative });
    const title = 'Divide each line by its first value';
    return [{ kind: 'toggle', id: 'relative', text: 'Relative', title, pressed, change }];
  }

  override probe({ x }: IPlace): IMark {
    return { facet: null, x: [Math.round(x), Math.round(x)], y: null };
  }

  override tipOf({ x: [at] }: IMark): ITip {
    const lines = [...this._lines].flatMap(([name, line]) =>
      line.filter(([step]) => step === at).map(([, value]) => ({ name, value: value.toPrecision(6) }))
    );
    return { heading: `step ${at}`, lines };
  }

  private _lines: Lines = new Map();
}

export const view: IViewDefinition<INormsOptions> = { create: (source, env) => new NormsView(source, env) };
