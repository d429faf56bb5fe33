import type { IDisposable } from '@lumino/disposable';
import type { SourceChange } from './source';

const FRAME_MS = 50;

/** The page as far as the gate cares; nothing of it is there in Node. */
interface IPage {
  document?: { visibilityState: string };
  requestAnimationFrame?: (callback: () => void) => number;
}

/**
 * Gathers changes of rows and passes them on at most once per animation frame, or every 50 ms where no frames are drawn.
 *
 * What waits is one span of steps per stream, however long a tab sleeps.
 */
export class ChangeGate implements IDisposable {
  /**
   * @param emit - Called with one change per stream.
   */
  constructor(private readonly emit: (change: SourceChange) => void) {}

  /** Note that rows of a stream came. */
  note(stream: string, firstStep: number, lastStep: number): void {
    const span = this.spans.get(stream);
    this.spans.set(stream, [
      Math.min(span?.[0] ?? firstStep, firstStep),
      Math.max(span?.[1] ?? lastStep, lastStep)
    ]);
    if (!this.scheduled && !this.isDisposed) {
      this.scheduled = true;
      const page: IPage = globalThis;
      if (page.requestAnimationFrame !== undefined && page.document?.visibilityState === 'visible') {
        page.requestAnimationFrame(() => this.flush());
      } else {
        this.timer = setTimeout(() => this.flush(), FRAME_MS);
      }
    }
  }

  dispose(): void {
    this.isDisposed = true;
    clearTimeout(this.timer);
    this.spans.clear();
  }

  isDisposed = false;

  private flush(): void {
    this.scheduled = false;
    const spans = [...this.spans];
    this.spans.clear();
    for (const [stream, [firstStep, lastStep]] of spans) {
      this.emit({ kind: 'rows', stream, firstStep, lastStep });
    }
  }

  private readonly spans = new Map<string, [number, number]>();
  private scheduled = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
}
