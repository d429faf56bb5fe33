import type { IDisposable } from '@lumino/disposable';
import type { IState } from '../shared/states';
import { element } from './dom';

/** Draw a state: in the middle of an empty stage, or as a line over a picture. */
export function renderState(
  node: HTMLElement,
  state: IState | null,
  failed: (reason: unknown) => void
): void {
  node.hidden = state === null;
  const key =
    state === null ? '' : `${state.kind}\n${state.sentence}\n${state.action.label}\n${state.code ?? ''}`;
  if (node.dataset['state'] === key) {
    return;
  }
  node.dataset['state'] = key;
  node.replaceChildren();
  if (state === null) {
    return;
  }
  node.dataset['kind'] = state.kind;
  node.setAttribute('role', state.kind === 'error' ? 'alert' : 'status');
  const buttons = [state.action, ...(state.more ?? [])].map(action => actionButton(action, failed));
  const code = state.code === undefined ? [] : [element('pre', {}, state.code)];
  node.append(element('p', {}, state.sentence), ...code, ...buttons);
}

function actionButton(action: IState['action'], failed: (reason: unknown) => void): HTMLElement {
  const button = element('button', { class: 'jp-MegalensButton', type: 'button' }, action.label);
  button.addEventListener('click', () => {
    button.disabled = true;
    void Promise.resolve()
      .then(() => action.run())
      .catch(failed)
      .finally(() => {
        button.disabled = false;
      });
  });
  return button;
}

/**
 * A drawing that was asked for and others wait for. One promise serves every request until all is drawn: an
 * export, a test or the kernel that waits meanwhile sees the newest picture and not the one that happened to
 * be under way.
 */
export class Drawing {
  /** Resolves when everything asked for is drawn. */
  get ended(): Promise<void> {
    return this._ended;
  }

  /** Something was asked for: waiting begins, unless it goes on. */
  begin(): void {
    if (this._isOver) {
      this._isOver = false;
      this._ended = new Promise(resolve => (this._resolve = resolve));
    }
  }

  /** It goes on with what is not there yet, whether that comes or fails. */
  async until(rest: Promise<unknown>): Promise<void> {
    this._waitsFor += 1;
    // A failure is told by the drawing that asks for the same again.
    await rest.catch(() => undefined);
    this._waitsFor -= 1;
  }

  /** What was asked for is drawn: all, unless something is still waited for. */
  drawn(): void {
    if (this._waitsFor === 0) {
      this.end();
    }
  }

  end(): void {
    this._isOver = true;
    this._resolve();
  }

  private _isOver = false;
  private _waitsFor = 0;
  private _resolve: () => void = () => undefined;
  private _ended = new Promise<void>(resolve => (this._resolve = resolve));
}

/** Least time between two updates that a run asks for, ms: at most 10 a second. */
export const LEAST_INTERVAL = 100;
/** The same where a person waits for what the run sends, ms. */
export const AWAITED_INTERVAL = 50;
/** The same for an update that changes less than can be seen, ms. */
export const CALM_INTERVAL = 500;

/** A single slow answer is no reason to wait long for the next picture, ms. */
const MOST_TAKEN = 150;
/**
 * Of its time a picture that follows a run takes at most this part: several stand on one page, which must
 * stay quick.
 */
const MOST_SHARE = 0.1;
/** The same of one that a person waits for. */
const AWAITED_SHARE = 0.3;

/**
 * Runs a task when asked, at most 10 times a second (20 where a person waits) and no more than a part of the
 * time, never twice at once, on an animation frame. Requests that come meanwhile are one more run. What is
 * out of sight waits until it is seen, unless a person waits for it; a hidden page gets no frames, so it
 * costs nothing either.
 */
export class Pace implements IDisposable {
  constructor(private readonly _task: () => Promise<void>) {}

  /** Called where a run waits until it is seen. */
  onUnseen: () => void = () => undefined;

  /** Whether what the task draws can be seen. What was asked for meanwhile is run when it is. */
  set isSeen(isSeen: boolean) {
    this._isSeen = isSeen;
    if (isSeen && this._wanted) {
      this.request(true);
    }
  }

  /**
   * Ask for a run; `now`: a person waits for it. Of several requests the shortest `least` ms since the last
   * run counts.
   */
  request(now = false, least = LEAST_INTERVAL): void {
    if (this.isDisposed) {
      return;
    }
    this._least = this._wanted ? Math.min(this._least, least) : least;
    this._wanted = true;
    // While a run goes on nothing is queued: whatever comes is one more run when it ends. A source that is
    // faster than the drawing so costs no memory, and what is drawn next is always the newest.
    if (this._running) {
      return;
    }
    if (!now && !this._isSeen) {
      this.onUnseen();
      return;
    }
    // Counted from the beginning of the last run.
    const share = this._least < LEAST_INTERVAL ? AWAITED_SHARE : MOST_SHARE;
    const interval = Math.max(this._least, Math.min(this._took, MOST_TAKEN) / share);
    const due = now ? -Infinity : this._last + interval;
    if (this._timer !== null && due >= this._due) {
      return;
    }
    this._due = due;
    clearTimeout(this._timer ?? undefined);
    this._timer = setTimeout(() => this._frame(), Math.max(0, due - performance.now()));
  }

  /** Run now what waits for its turn, or until it is seen: somebody waits for it. */
  hurry(): void {
    if (this._wanted) {
      this.request(true);
    }
  }

  /** Run now, though a run has not ended: nobody waits for that any more. */
  restart(): void {
    this._turn += 1;
    this._running = false;
    this.request(true);
  }

  dispose(): void {
    this.isDisposed = true;
    this._wanted = false;
    clearTimeout(this._timer ?? undefined);
  }

  private _frame(): void {
    // First the timer, then the frame: frames alone come 60 times a second, timers also on a hidden page.
    const run = (): void => void this._run();
    if (typeof requestAnimationFrame === 'function') {
      requestAnimationFrame(run);
    } else {
      run();
    }
  }

  private async _run(): Promise<void> {
    this._timer = null;
    if (this.isDisposed || this._running) {
      return;
    }
    // Before the task, not after it: what is asked for while it reads may not be in what it read.
    this._wanted = false;
    this._running = true;
    this._last = performance.now();
    const turn = (this._turn += 1);
    try {
      await this._task();
    } finally {
      if (turn === this._turn) {
        this._running = false;
        // The first run also loads and compiles what all others use.
        this._took = this._isFirst ? 0 : performance.now() - this._last;
        this._isFirst = false;
      }
    }
    if (turn === this._turn && this._wanted) {
      this.request(false, this._least);
    }
  }

  private _timer: ReturnType<typeof setTimeout> | null = null;
  private _due = 0;
  private _wanted = false;
  private _least = LEAST_INTERVAL;
  private _running = false;
  /** Number of the last run. */
  private _turn = 0;
  private _last = -Infinity;
  private _took = 0;
  private _isFirst = true;
  private _isSeen = true;
  isDisposed = false;
}
