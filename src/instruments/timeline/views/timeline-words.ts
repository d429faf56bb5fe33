import { formatInteger, formatNumber, timeWords } from '../../../charts';
import { own } from '../../../protocol/records';
import type { Translate } from '../../../views/shared/translate';
import type { ICulprit } from '../client/timeline-api';

/** What records spans, in a training script. */
export const SNIPPET = "megalens.trace(model, timeline='phases')";

/** Say what costs time: of several ranks who makes the others wait. */
export function culpritWords(culprit: ICulprit, ranks: number, t: Translate): string {
  return ranks === 1 ? aloneWords(culprit, t) : culprit.sentence;
}

/** Say what costs time where a rank is alone: which part of a step took longer than in other steps. */
function aloneWords({ kind, first, last, slower, priceMs }: ICulprit, t: Translate): string {
  const when =
    first === last
      ? t('Step %1', formatInteger(first))
      : t('Steps %1 to %2', formatInteger(first), formatInteger(last));
  const by = `${formatNumber(100 * slower, 3)} %`;
  const words: Readonly<Record<string, string>> = {
    device: t('%1: computing took %2 longer than in other steps.', when, by),
    host: t('%1: pauses took %2 of the time of computing.', when, by),
    data: t('%1: waiting for data took %2 of the time of computing.', when, by)
  };
  const what = own(words, kind) ?? t('%1: it took %2 longer than a step usually does.', when, by);
  return Number.isFinite(priceMs)
    ? `${what} ${t('Without that a step is %1 shorter.', timeWords(priceMs))}`
    : what;
}
