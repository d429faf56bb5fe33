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
