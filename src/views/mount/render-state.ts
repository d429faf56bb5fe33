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
