import { Signal } from '@lumino/signaling';
import type { IMegalensRuns } from '../../tokens';
import type { DemoState } from '../../client/runs-api';

/** Between two looks at a demo that starts or runs, ms. */
const LOOK_EVERY = 1000;

/**
 * The demo training that an empty panel offers. It asks the server once when the panel is shown and then only
 * while there is something to follow, so that a panel without a demo costs nothing.
 */
export class DemoModel {
  /** @param appeared - Called when the demo's run is live, so that the list shows it at once. */
  constructor(
    private readonly runs: Pick<IMegalensRuns, 'demo'>,
    private readonly appeared: () => void
  ) {}

  readonly changed = new Signal<this, void>(this);

  get state(): DemoState {
    return this._state;
  }

  /** Whether the panel is looked at. */
  set watching(on: boolean) {
    if (on !== this._watching && !this._disposed) {
      this._watching = on;
      clearTimeout(this._timer);
      if (on) {
        void this._ask('look');
      }
    }
  }

  /** Start the demo. Never rejects: what went wrong is in `state`. */
  async start(): Promise<void> {
    this._take({ kind: 'starting' });
    await this._ask('start');
  }

  /** End the demo. Never rejects. */
  async stop(): Promise<void> {
    await this._ask('stop');
  }

  /** Stop asking. Safe twice. */
  dispose(): void {
    this._disposed = true;
    this._watching = false;
    clearTimeout(this._timer);
    Signal.clearData(this);
  }

  private async _ask(request: 'look' | 'start' | 'stop'): Promise<void> {
    clearTimeout(this._timer);
    const turn = ++this._turn;
    let state: DemoState;
    try {
      state = await this.runs.demo(request);
    } catch (error) {
      // The list of runs says what is wrong with the server; only what a person asked for is answered here.
      state =
        request === 'look'
          ? this._state
          : { kind: 'failed', message: error instanceof Error ? error.message : String(error) };
    }
    if (turn !== this._turn || this._disposed) {
      return;
    }
    this._take(state);
    if (this._watching && (state.kind === 'starting' || state.kind === 'running')) {
      this._timer = setTimeout(() => void this._ask('look'), LOOK_EVERY);
    }
  }

  private _take(state: DemoState): void {
    const appeared = state.kind === 'running' && this._state.kind !== 'running';
    if (JSON.stringify(state) !== JSON.stringify(this._state)) {
      this._state = state;
      this.changed.emit();
    }
    if (appeared) {
      this.appeared();
    }
  }

  private _state: DemoState = { kind: 'off' };
  private _watching = false;
  private _disposed = false;
  private _turn = 0;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}
