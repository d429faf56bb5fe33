import { Error as LogErrors, View, parse, type Spec } from 'vega';
import { expressionInterpreter } from 'vega-interpreter';
import { locate, type IPlace } from '../charts/frames';
import type { IZoomable } from '../charts/zoom';
import type { ILiveView } from './payload';
import { rowsOf } from './payload';

/** A row of a dataset. */
export type Row = Record<string, unknown>;

/** A running Vega view that needs no code generation: expressions are interpreted. */
export class LiveChart implements IZoomable {
  /** Draw a view into an empty node. */
  static async draw(node: HTMLElement, live: ILiveView, ramp: readonly string[]): Promise<LiveChart> {
    const view = new View(parse(withRamp(live.spec, ramp), undefined, { ast: true }), {
      expr: expressionInterpreter,
      renderer: 'svg',
      container: node,
      hover: false,
      logLevel: LogErrors
    });
    const chart = new LiveChart(node, view);
    for (const [name, columns] of Object.entries(live.datasets)) {
      chart.rows(name, rowsOf(columns));
    }
    await chart.settled();
    return chart;
  }

  private constructor(
    readonly node: HTMLElement,
    private readonly _view: View
  ) {}

  /** Replace the rows of a dataset. */
  rows(name: string, rows: Row[]): void {
    this._view.data(name, rows);
  }

  set(params: Readonly<Record<string, unknown>>): void {
    for (const [name, value] of Object.entries(params)) {
      this._view.signal(name, value);
    }
    void this.settled();
  }

  /** Resolves when everything asked so far is drawn. */
  async settled(): Promise<void> {
    await this._view.runAsync();
  }

  locate(event: MouseEvent): IPlace | null {
    const svg = this.node.querySelector('svg');
    if (!svg) {
      return null;
    }
    const box = svg.getBoundingClientRect();
    // The page may show the picture smaller than it was drawn.
    const scale = Number(svg.getAttribute('width')) / box.width || 1;
    return locate(this._view, (event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
  }

  dispose(): void {
    this._view.finalize();
  }
}

/** Return the spec with other ordered colours; the report was compiled with those for light pages. */
function withRamp(spec: Spec, ramp: readonly string[]): Spec {
  const config = { ...spec.config } as Record<string, unknown>;
  const range = config['range'] as Record<string, unknown> | undefined;
  return { ...spec, config: { ...config, range: { ...range, ramp, heatmap: ramp } } as Spec['config'] };
}
