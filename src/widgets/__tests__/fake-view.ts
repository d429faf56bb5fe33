import { Signal } from '@lumino/signaling';
import type { ViewOptions } from '../../protocol';
import type { Hello, Status } from '../../protocol/messages.generated';
import type { ConnectionState, IRunSource, SourceChange } from '../../store/source';
import type { IMountedView, MountView } from '../view-host';
import type { IWidgetRuns } from '../runs';

/** A run in memory that the test steers: its connection changes when the test says so. */
export class MemorySource implements IRunSource {
  constructor(
    readonly id: string,
    public connection: ConnectionState = { kind: 'live' }
  ) {}
  readonly name = 'gpt-demo';
  hello: Hello | null = null;
  status: Status | null = null;
  readonly changed: Signal<IRunSource, SourceChange> = new Signal<IRunSource, SourceChange>(this);
  isDisposed = false;
  become(connection: ConnectionState): void {
    this.connection = connection;
    this.changed.emit({ kind: 'connection' });
  }
  steps(): Promise<readonly number[]> {
    return Promise.resolve([]);
  }
  shapeOf(): ReturnType<IRunSource['shapeOf']> {
    return Promise.resolve({ parts: [], layers: [] });
  }
  tensors(): ReturnType<IRunSource['tensors']> {
    return Promise.resolve({ rows: [], evictedRows: 0, sampledEvery: 1 });
  }
  scalars(): ReturnType<IRunSource['scalars']> {
    const none = new Float64Array(0);
    return Promise.resolve({ step: none, time: none, value: none, name: [], units: {} });
  }
  table(): ReturnType<IRunSource['table']> {
    return Promise.reject(new Error('this run has no other streams'));
  }
  configure(): ReturnType<IRunSource['configure']> {
    return Promise.reject(new Error('a run in memory cannot be configured'));
  }
  dispose(): void {
    this.isDisposed = true;
  }
}

/** Runs in memory, with a count of the shares that are out. */
export class MemoryRuns implements IWidgetRuns {
  source: MemorySource | null = new MemorySource('r1');
  state: 'live' | 'recorded' | 'gone' = 'live';
  shares = 0;
  /** Paths that were opened. */
  opened: string[] = [];
  openStatistics(path: string): Promise<void> {
    this.opened.push(path);
    this.source = path === 'my work/runs/a' ? new MemorySource('statistics-1') : this.source;
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
