import { formatInteger, formatNumber } from '../../../charts';
import { own } from '../../../protocol/records';
import { shortName } from '../../../views/shared/short-name';
import type { Translate } from '../../../views/shared/translate';
import { follows, moduleOf, type IAlarm, type Severity } from '../store/alarms';
import type { Change, RuleSettings } from './rule-settings';

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

/** Alarms of an edited rule in the recording, and as they would have been: `3 → 7`. Empty if not edited. */
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

/** Most parts of the way that a sentence tells. */
const MOST_PARTS = 4;
const MOST_LETTERS = 48;

export function severityWords(severity: Severity, t: Translate): string {
  return { critical: t('critical'), warning: t('warning'), note: t('note') }[severity];
}

export function directionWords(direction: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    parameters: t('parameters'),
    forward: t('forward pass'),
    loss: t('loss'),
    backward: t('backward pass'),
    reduction: t('gradient reduction'),
    optimizer: t('optimizer'),
    update: t('parameter update')
  };
  return own(words, direction) ?? direction;
}

/** Say where in the job and step an alarm is: `rank 3, micro-batch 0`; '' where it is of all. */
export function whereWords({ rank, microBatch }: IAlarm, t: Translate): string {
  return [
    ...(rank >= 0 ? [t('rank %1', rank)] : []),
    ...(microBatch >= 0 ? [t('micro-batch %1', microBatch)] : [])
  ].join(', ');
}

/** Name a part of a step and its module: `backward pass of layers.3.mlp.fc`, `loss`. */
function partWords(alarm: IAlarm, t: Translate): string {
  const [part, module] = [directionWords(alarm.direction, t), moduleOf(alarm)];
  return part === module ? part : t('%1 of %2', part, shortName(module, MOST_LETTERS));
}

/** Name the first anomaly: `First anomaly at step 1 240: backward pass of layers.3.mlp.fc, rank 1`. */
export function firstTitle(first: IAlarm, t: Translate): string {
  const where = whereWords(first, t);
  const title = t('First anomaly at step %1: %2', formatInteger(first.step), partWords(first, t));
  return where === '' ? title : `${title}, ${where}`;
}

/**
 * Say what the first anomaly is, what it should have been, what it reached next, how many alarms followed,
 * and with which samples.
 */
export function firstCaption(
  first: IAlarm,
  reached: readonly IAlarm[],
  followed: number,
  t: Translate
): string[] {
  const { statistic, name, value, expected } = first;
  const what = Number.isNaN(expected)
    ? t('%1 of %2: %3.', statistic, name, formatNumber(value))
    : t('%1 of %2: %3, expected %4.', statistic, name, formatNumber(value), formatNumber(expected));
  const parts = reached
    .slice(0, MOST_PARTS)
    .map(each =>
      [
        partWords(each, t),
        ...(each.rank !== first.rank && each.rank >= 0 ? [t('on rank %1', each.rank)] : []),
        ...(each.step !== first.step ? [t('at step %1', formatInteger(each.step))] : [])
      ].join(' ')
    );
  const more = reached.length - parts.length;
  return [
    first.sentence,
    what,
    ...(parts.length === 0
      ? []
      : [
          more > 0
            ? t('Next it reached %1, and %2 more.', parts.join(', then '), formatInteger(more))
            : t('Next it reached %1.', parts.join(', then '))
        ]),
    ...(followed === 0 ? [] : [followedWords(followed, t)]),
    ...(first.samples === '' ? [] : [t('Samples of that step: %1.', samplesText(first.samples))])
  ];
}

const followedWords = (followed: number, t: Translate): string =>
  followed === 1
    ? t('One more finding followed from the same cause.')
    : t('%1 more findings followed from the same cause.', formatInteger(followed));

/** Ids of samples as people read them; anybody's text, so only so much of it. */
function samplesText(samples: string): string {
  const text = samples
    .replace(/^\[|\]$/g, '')
    .replace(/["\p{C}]/gu, '')
    .replace(/,\s*/g, ', ');
  return text.length > 120 ? `${text.slice(0, 119)}…` : text;
}

/** Count alarms by severity: `2 critical, 14 warnings, 11 that followed`. */
export function countWords(alarms: readonly IAlarm[], t: Translate): string {
  const followed = alarms.filter(follows).length;
  const count = (severity: Severity): number => alarms.filter(each => each.severity === severity).length;
  const [critical, warnings, notes] = [count('critical'), count('warning'), count('note') - followed];
  const words = [
    ...(critical > 0 ? [t('%1 critical', formatInteger(critical))] : []),
    ...(warnings > 0 ? [warnings === 1 ? t('1 warning') : t('%1 warnings', formatInteger(warnings))] : []),
    ...(notes > 0 ? [notes === 1 ? t('1 note') : t('%1 notes', formatInteger(notes))] : []),
    ...(followed > 0 ? [t('%1 that followed', formatInteger(followed))] : [])
  ];
  return words.join(', ');
}

/** Value and expectation are told as a ratio from this on; nearer ones by the rule's own sentence. */
const APART = 1.1;

/** Say an alarm by its subject: `loss is 8.23, 3.1 × …`; where no number says it, by its rule's sentence. */
export function alarmWords(alarm: IAlarm, t: Translate): string {
  const { expected, name, sentence, statistic, value } = alarm;
  const where = whereWords(alarm, t);
  const short = shortName(name, MOST_LETTERS);
  const subject = statistic === '' || statistic === 'value' ? short : `${short} ${statistic}`;
  const placed = (words: string): string => (where === '' ? words : `${words}, ${where}`);
  const ratio = value / expected;
  if (!Number.isFinite(value)) {
    return t('%1 is %2', placed(subject), Number.isNaN(value) ? 'NaN' : value > 0 ? '∞' : '−∞');
  }
  const isApart = Number.isFinite(ratio) && (ratio >= APART || (ratio > 0 && ratio <= 1 / APART));
  return isApart
    ? t('%1 is %2, %3 × what was expected', placed(subject), formatNumber(value, 3), formatNumber(ratio, 2))
    : `${placed(short)}: ${sentence}`;
}
