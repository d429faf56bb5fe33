import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

/** What somebody points at in a view; null or absent where the view does not tell. */
export interface IPointed {
  readonly layer: number | null;
  readonly step: number | null;
  /** Number of a generation, and the sequence of its batch: which text `position` is of. */
  readonly generation?: number | null;
  readonly sequence?: number | null;
  /** Position in the text, counted from 0. */
  readonly position?: number | null;
}

/** A position of a text that a model wrote. */
export interface ITextPosition {
  readonly generation: number;
  /** Sequence of its batch, from 0. */
  readonly sequence: number;
  /** Position in the sequence, from 0. */
  readonly position: number;
}

export type StepRange = readonly [number, number];

/** What changed in a link. `pointed` comes at most once per animation frame. */
export type LinkChange = 'pointed' | 'filter' | 'pinned' | 'position';

/** Longest wait of a pointer where no frames are drawn, ms. */
const FRAME_MS = 50;

interface IPage {
  document?: { visibilityState: string };
  requestAnimationFrame?: (callback: () => void) => number;
}

/**
 * What the views of one run tell one another: what is under the pointer, the steps that were chosen, the step
 * that is pinned, and the position of a generated text that is. It belongs to the run's source, which all
 * viewers of a page share; nothing of it is saved or sent.
 */
export class RunLink implements IDisposable {
  /** Emitted after `pointed`, `filter`, `pinned` or `position` changed. */
  readonly changed = new Signal<this, LinkChange>(this);

  /** What is pointed at, and which view said so. */
  get pointed(): { readonly by: object; readonly at: IPointed } | null {
    return this._pointed;
  }

  /** The chosen steps, and which view chose them. */
  get filter(): { readonly by: object; readonly steps: StepRange } | null {
    return this._filter;
  }

  /** Point at something, or at nothing. A view takes back only what it said itself. */
  point(by: object, at: IPointed | null): void {
    const now = this._next === undefined ? this._pointed : this._next;
    if (at === null ? now?.by !== by : now?.by === by && same(now.at, at)) {
      return;
    }
    const waits = this._next !== undefined;
    this._next = at && { by, at };
    if (!waits) {
      this._schedule();
    }
  }

  /** Choose steps; null chooses all of them again, whoever chose before. */
  choose(by: object, steps: StepRange | null): void {
    const now = this._filter;
    if (this._isDisposed || (steps === null ? now === null : now?.by === by && equal(now.steps, steps))) {
      return;
    }
    this._filter = steps && { by, steps };
    this.changed.emit('filter');
  }

  /** The step that is pinned: marked in every view, and what values are compared with. */
  get pinned(): number | null {
    return this._pinned;
  }

  pin(step: number | null): void {
    if (!this._isDisposed && step !== this._pinned) {
      this._pinned = step;
      this.changed.emit('pinned');
    }
  }

  get position(): ITextPosition | null {
    return this._position;
  }

  /** Pin a position of a generated text; null unpins. */
  pinPosition(at: ITextPosition | null): void {
    if (!this._isDisposed && !alike(at, this._position)) {
      this._position = at;
      this.changed.emit('position');
    }
  }

  /** Point at nothing, choose all steps and pin none and no position, whoever did otherwise. */
  clear(by: object): void {
    const at = (this._next === undefined ? this._pointed : this._next)?.by;
    if (at !== undefined) {
      this.point(at, null);
    }
    this.choose(by, null);
    this.pin(null);
    this.pinPosition(null);
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Forget everything and everybody. Safe twice. */
  dispose(): void {
    this._isDisposed = true;
    clearTimeout(this._timer);
    Signal.clearData(this);
  }

  private _schedule(): void {
    const page: IPage = globalThis;
    if (page.requestAnimationFrame !== undefined && page.document?.visibilityState === 'visible') {
      page.requestAnimationFrame(() => this._tell());
    } else {
      this._timer = setTimeout(() => this._tell(), FRAME_MS);
    }
  }

  private _tell(): void {
    const next = this._next;
    this._next = undefined;
    if (next !== undefined && !this._isDisposed) {
      this._pointed = next;
      this.changed.emit('pointed');
    }
  }

  private _pointed: { by: object; at: IPointed } | null = null;
  /** What the next frame tells; undefined while nothing waits. */
  private _next: { by: object; at: IPointed } | null | undefined;
  private _filter: { by: object; steps: StepRange } | null = null;
  private _pinned: number | null = null;
  private _position: ITextPosition | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _isDisposed = false;
}

type Place = Pick<IPointed, 'generation' | 'position' | 'sequence'>;

const same = (a: IPointed, b: IPointed): boolean => a.layer === b.layer && a.step === b.step && alike(a, b);
/** Whether two places are the same position of the same text. */
const alike = (a: Place | null, b: Place | null): boolean =>
  a === b ||
  (a !== null &&
    b !== null &&
    a.generation === b.generation &&
    a.sequence === b.sequence &&
    a.position === b.position);
const equal = (a: StepRange, b: StepRange): boolean => a[0] === b[0] && a[1] === b[1];
