import type { Control } from './control';
import { faultSentence, faultText } from './fault-text';
import type { IStateActions } from './states';
import type { Translate } from './translate';

/** What stands in a toolbar whose controls could not be made: that it is so, and the way out. */
export function faultControls(reason: unknown, actions: IStateActions, t: Translate): Control[] {
  const title = faultSentence(reason);
  const button = (id: string, text: string, change: () => void): Control => ({
    kind: 'toggle',
    id,
    text,
    title,
    pressed: false,
    change
  });
  return [
    { kind: 'name', id: 'fault', text: t('These settings could not be shown'), title },
    button('fault-reset', t('Reset'), () => actions.reset()),
    button('fault-copy', t('Copy details'), () => void actions.copy(faultText('toolbar', reason)))
  ];
}
