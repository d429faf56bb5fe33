import { formatInteger, formatNumber, SigmaScale, type ColorScale } from '../../charts';
import type { IMomentIndex, MomentColumn } from '../../store/moment-source';
import { lockedWords } from '../shared/controls';
import type { Translate } from '../shared/translate';
import { omittedWords, optionWords, trustWords } from './captions';
import type { DrawnMap } from './drawn-map';
import { mapRows } from './map-options';
import { tensorOf } from './one-tensor';
import { columnWords, type MomentOptions } from './words';

/** Say of which ranks, and of which tensors by their names, a map is. */
function whereWords({ where }: Pick<MomentOptions, 'where'>, t: Translate): string[] {
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
function bandWords(scale: ColorScale, t: Translate): string[] {
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

/** What the caption of a map is about. */
export interface IMapSubject {
  readonly map: DrawnMap;
  readonly scale: ColorScale;
  /** Groups without a place among the columns. */
  readonly left: number;
  readonly locked: readonly [number, number] | null;
  readonly by: readonly MomentColumn[];
  readonly index: IMomentIndex | null;
  /** Name of the run. */
  readonly name: string;
}

/** Say what of a map is not literal. */
export function mapCaption(
  options: MomentOptions,
  { map, scale, left, locked, by, index, name }: IMapSubject,
  t: Translate
): string[] {
  const { groups, cells } = map;
  return [
    ...whereWords(options, t),
    ...bandWords(scale, t),
    ...leftWords(left, options.columns, t),
    ...(cells.merged
      ? [
          t(
            'A column stands for several steps: the one that is not finite or farthest from the middle of its row is drawn.'
          )
        ]
      : []),
    ...omittedWords(groups, mapRows(options).join() === 'item_type' ? t('item types') : t('rows'), t),
    ...(options.runs.length > 0
      ? [t('This map shows %1 only; choose lines, or layers at a step, to compare.', name)]
      : []),
    ...optionWords(options, index, t),
    ...lockedWords(locked, [cells.values], t),
    ...(map.isUnfinished ? [t('Cells in which values are not finite are hatched.')] : []),
    ...trustWords(groups, { ...options, by: [...by] }, t)
  ];
}
