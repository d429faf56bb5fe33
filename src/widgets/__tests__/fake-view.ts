import { Signal } from '@lumino/signaling';
import type { ViewOptions } from '../../protocol';
import { MemoryRun } from '../../store/__tests__/memory-run';
import type { IRunSource } from '../../store/source';
import type { IMountedView, MountView } from '../view-host';
import type { IWidgetRuns } from '../runs';

/** Runs in memory, with a count of the shares that are out. */
export class MemoryRuns implements IWidgetRuns {
  source: MemoryRun | null = new MemoryRun(null);
  state: 'live' | 'recorded' | 'gone' = 'live';
  shares = 0;
  /** Paths that were opened. */
  opened: string[] = [];
  openStatistics(path: string): Promise<void> {
    this.opened.push(path);
    this.source = path === 'my work/runs/a' ? new MemoryRun(null, 'statistics-1') : this.source;
    return Promise.resolve();
  }
  list(): ReturnType<IWidgetRuns['list']> {
    return Promise.resolve(this.source ? [{ id: this.source.id, name: 'gpt-demo', state: this.state }] : []);
  }
  acquire(id: string): ReturnType<IWidgetRuns['acquire']> {
    const { source } = this;
    if (source === null || source.id !== id) {
      return Promise.reject(new Error(`There is no run ${id}.`));
    }
    this.shares += 1;
    let out = true;
    return Promise.resolve({
      source,
      dispose: () => {
        this.shares -= out ? 1 : 0;
        out = false;
      }
    });
  }
}

/** A view that only says which options it was given. */
export class PlainView implements IMountedView {
  constructor(
    readonly node: HTMLElement,
    readonly source: IRunSource,
    public options: ViewOptions
  ) {
    this.show();
  }
  readonly changed = new Signal<unknown, void>(this);
  disposed = false;
  update(options: ViewOptions): void {
    this.options = options;
    this.show();
  }
  /** Change the options as a person does in the view's toolbar. */
  choose(options: ViewOptions): void {
    this.update(options);
    this.changed.emit();
  }
  toSVG(): Promise<string> {
    return Promise.resolve(`<svg data-step="${'step' in this.options ? this.options.step : ''}"></svg>`);
  }
  dispose(): void {
    this.disposed = true;
    this.node.replaceChildren();
  }
  private show(): void {
    this.node.textContent = JSON.stringify(this.options);
  }
}

/** A mount function that keeps every view it made. */
export function plainMount(): MountView & { views: PlainView[] } {
  const views: PlainView[] = [];
  const mount: MountView = (node, source, options) => {
    const view = new PlainView(node, source, options);
    views.push(view);
    return Promise.resolve(view);
  };
  return Object.assign(mount, { views });
}

/** Let promises that are ready run. */
export const settled = (): Promise<void> => new Promise(resolve => setTimeout(resolve, 0));
