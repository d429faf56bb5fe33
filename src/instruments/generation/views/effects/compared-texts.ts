import { formatInteger } from '../../../../charts';
import type { ITip } from '../../../../views/shared/tip';
import { positionName, type TokenTexts } from '../shared/token-axis';
import { quoted } from '../shared/token-text';
import type { Translate } from '../../../../views/shared/translate';

/** The clean text and the one that was written under the perturbation. */
export interface IComparedTexts {
  readonly clean: TokenTexts;
  readonly perturbed: TokenTexts;
  /** First position at which they differ; null where they do not, undefined where that is not known. */
  readonly divergence: number | null | undefined;
}

/** Name a position of the clean text, which both read. */
export const comparedName = ({ clean }: IComparedTexts, position: number, t: Translate): string =>
  positionName(position, clean, t);

/** What the two texts have after a position. */
export function nextLines(
  { clean, perturbed }: IComparedTexts,
  position: number,
  t: Translate
): ITip['lines'] {
  const [one, other] = [clean.get(position + 1), perturbed.get(position + 1)];
  return [
    ...(one === undefined ? [] : [{ name: t('clean text goes on'), value: quoted(one) }]),
    ...(other === undefined ? [] : [{ name: t('perturbed text goes on'), value: quoted(other) }])
  ];
}

/** Say where the texts part. */
export function divergenceWords({ clean, perturbed, divergence }: IComparedTexts, t: Translate): string {
  if (divergence === undefined) {
    return '';
  }
  if (divergence === null) {
    return t('The written texts are the same.');
  }
  const [one, other] = [clean.get(divergence), perturbed.get(divergence)];
  const where = formatInteger(divergence);
  return one === undefined || other === undefined
    ? t('The written texts part at position %1.', where)
    : t('The written texts part at position %1: %2, perturbed %3.', where, quoted(one), quoted(other));
}

/** The mark of the place at which the texts part, as rows of the charts. */
export function divergenceRows({ divergence }: IComparedTexts, color: string, t: Translate): object[] {
  return typeof divergence === 'number' ? [{ x: divergence, text: t('texts part'), color }] : [];
}
