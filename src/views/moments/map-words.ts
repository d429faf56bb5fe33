import { formatInteger, formatNumber, SigmaScale, type ColorScale } from '../../charts';
import type { MomentColumn } from '../../store/moment-source';
import type { Translate } from '../shared/translate';
import { tensorOf } from './one-tensor';
import { columnWords, type MomentOptions } from './words';

/** Say of which ranks, and of which tensors by their names, a map is. */
export function whereWords({ where }: Pick<MomentOptions, 'where'>, t: Translate): string[] {
  const { rank = 'all', name } = where ?? {};
  const tensor = name === undefined ? null : tensorOf(name);
  return [
    ...(rank === 'all'
      ? []
      : [/^\d+$/.test(rank) ? t('Of rank %1 only.', rank) : t('Of ranks %1 only.', rank)]),
    ...(name === undefined
      ? []
      : [tensor === null ? t('Of tensors whose names have ‘%1’ only.', name) : t('Of %1 only.', tensor)])
  ];
}

/** Say what bands of colours are. */
export function bandWords(scale: ColorScale, t: Translate): string[] {
  if (!(scale instanceof SigmaScale)) {
    return [];
  }
  return scale.transform === 'log'
    ? [
        t(
          'A colour says how many standard deviations (σ) the logarithm of a cell lies from their mean, %1.',
          formatNumber(scale.mean, 3)
        )
      ]
    : [
        t(
          'A colour says how many standard deviations (σ) a cell lies from the mean of all, %1.',
          formatNumber(scale.mean, 3)
        )
      ];
}

/** Say how much has no place among the columns. */
export function leftWords(left: number, column: MomentColumn | 'step', t: Translate): string[] {
  return left === 0 || column === 'step'
    ? []
    : [t('Groups without a %1 are left out: %2.', columnWords(column, t), formatInteger(left))];
}
