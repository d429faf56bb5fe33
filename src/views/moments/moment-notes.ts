import { AggregateError } from '../../aggregate';
import { formatInteger } from '../../charts';
import { ClientError } from '../../client/client-error';
import type { IMomentGroups } from '../../store/moment-source';
import type { Translate } from '../shared/translate';
import type { MomentReader } from './reader';
import { statsWords, type MomentOptions } from './words';

/** Why a question about groups was refused, wherever it was answered; null where that is not why it failed. */
export function refusalOf(reason: unknown): 'mixed' | 'invalid' | null {
  for (let error = reason; error instanceof Error; error = error.cause) {
    const code =
      error instanceof AggregateError
        ? error.code
        : error instanceof ClientError
          ? error.serverCode
          : undefined;
    if (code === 'mixed') {
      return 'mixed';
    }
    if (code === 'invalid' || code === 'bad-parameter') {
      return 'invalid';
    }
  }
  return null;
}

/** Where values first were not finite. */
interface IBadNote {
  readonly step: number;
  readonly name: string;
  readonly text: string;
}

/**
 * Find the first step and tensor with values that are not finite.
 *
 * @param total - The total of everything that matches the filter.
 * @returns Null where all are finite.
 */
export async function noteOfBad(
  reader: MomentReader,
  total: IMomentGroups,
  { stat, where, pattern, ratio }: MomentOptions,
  signal: AbortSignal,
  t: Translate
): Promise<IBadNote | null> {
  const at = total.nonFinite.findIndex((count, place) => count !== 0 || total.value[place] === Infinity);
  const step = total.step[at];
  if (step === undefined) {
    return null;
  }
  const measured = ratio === 'grad_to_param' ? 'grad' : stat;
  const tensors = await reader.groups(
    {
      stat: measured,
      statistic: 'nonfinite',
      by: ['name'],
      where: where ?? {},
      pattern,
      steps: [step, step]
    },
    signal
  );
  const first = tensors.nonFinite.findIndex(count => count !== 0);
  const name = tensors.keys[tensors.group[first] ?? -1]?.[0];
  if (first < 0 || name === undefined || name === null) {
    return null;
  }
  const more = tensors.nonFinite.reduce((sum, count) => sum + (count !== 0 ? 1 : 0), -1);
  const count = tensors.nonFinite[first] ?? NaN;
  const how = Number.isNaN(count) ? t('number not known') : formatInteger(count);
  const place = t(
    'First non-finite %1: step %2, %3 (%4).',
    statsWords(measured, t),
    formatInteger(step),
    name,
    how
  );
  return {
    step,
    name: String(name),
    text: more > 0 ? `${place} ${t('At that step in %1 more tensors.', formatInteger(more))}` : place
  };
}
