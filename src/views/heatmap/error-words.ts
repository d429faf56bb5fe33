import { formatInteger, formatNumber } from '../../charts';
import type { ITensorRow } from '../../store/source';
import { layerWords } from '../shared/layers';
import type { Translate } from '../shared/translate';

/** Rows whose compression error is not known, so that an older one is worth a look. */
export function unmeasured(rows: readonly ITensorRow[]): boolean {
  return rows.some(row => !Number.isFinite(row.compressionError));
}

/**
 * Say what the compressor lost, as a part of the tensor's rms, and of which step that is known.
 *
 * @param rows What is drawn, one row a layer.
 * @param measured The newest measured row of each layer; used where the drawn one was not measured and the compressor was the same.
 */
export function errorWords(
  rows: readonly ITensorRow[],
  measured: readonly ITensorRow[],
  t: Translate
): string[] {
  const known = rows.flatMap(row => {
    const older = measured.find(each => each.layer === row.layer && each.compressor === row.compressor);
    const from = Number.isFinite(row.compressionError) ? row : older;
    return from && Number.isFinite(from.compressionError) ? [from] : [];
  });
  const [first] = known;
  if (first === undefined) {
    return [];
  }
  const errors = known.map(row => row.compressionError);
  const [least, most] = [Math.min(...errors), Math.max(...errors)];
  const percent = (error: number): string => `${formatNumber(error * 100, 2)} %`;
  const steps = [...new Set(known.map(row => row.step))].sort((a, b) => a - b);
  const newest = steps[steps.length - 1] ?? 0;
  const shown = rows[0]?.step ?? 0;
  const of = known.length < rows.length ? t(', in %1', layerWords(known.map(row => row.layer))) : '';
  const when =
    newest === shown && steps.length === 1
      ? ''
      : steps.length === 1
        ? t(', as measured at step %1', formatInteger(newest))
        : t(', as measured at steps %1 to %2', formatInteger(steps[0] ?? 0), formatInteger(newest));
  if (most === 0) {
    return [t('The compressor kept the whole of the tensor%1.', of + when)];
  }
  const range =
    percent(least) === percent(most) ? percent(most) : t('%1 to %2', percent(least), percent(most));
  return [t('Lost to the compressor: %1 of the tensor’s rms%2.', range, of + when)];
}
