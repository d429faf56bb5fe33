import type { IDisposable } from '@lumino/disposable';
import type { SourceChange } from './source';

/** Longest that changes wait for others, ms: in a page that is looked at, and elsewhere. */
const [SEEN_MS, UNSEEN_MS] = [16, 50];

/** The page as far as the gate cares; nothing of it is there in Node. */
interface IPage {
  document?: { visibilityState: string };
}

/**
 * Gathers changes of rows and passes them on at most every 16 ms, or every 50 ms where nobody looks. It asks for no animation frame: each would
 * have the browser go through the whole page, also where no view of the run is in sight.
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
      const wait = page.document?.visibilityState === 'visible' ? SEEN_MS : UNSEEN_MS;
      this.timer = setTimeout(() => this.flush(), wait);
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
