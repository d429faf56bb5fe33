import { formatInteger } from '../../../../charts';
import { own } from '../../../../protocol/own';
import type { Translate } from '../../../../views/shared/translate';
import type { Change, RuleSettings } from './rule-settings';

/** What became of a change. */
export function appliedWords(change: Change, t: Translate): string {
  switch (change.kind) {
    case 'none':
      return '';
    case 'sent':
      return t('Asking the run…');
    case 'accepted':
      return t('Applies at step %1.', formatInteger(change.step));
    case 'applied':
      return t('In force since step %1.', formatInteger(change.step));
    case 'refused':
      return t('Nothing was changed. %1', change.message);
  }
}

/** How many alarms of a rule there were in the recording, and how many there would have been: `3 → 7`. Empty for a rule that nobody edited. */
export function countedWords({ counts, edited }: RuleSettings, rule: string, t: Translate): string {
  if (!edited.includes(rule)) {
    return '';
  }
  switch (counts.kind) {
    case 'counting':
      return t('counting…');
    case 'counted': {
      const [before, after] = [counts.inForce, counts.edited].map(each => own(each.rules, rule) ?? 0);
      return t('%1 → %2', formatInteger(before ?? 0), formatInteger(after ?? 0));
    }
    default:
      return '–';
  }
}
