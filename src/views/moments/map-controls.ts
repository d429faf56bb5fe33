import type { MomentsOptions } from '../../protocol/views.generated';
import type { Control } from '../shared/control';
import { chip } from '../shared/fields';
import { selectControl } from '../shared/select-control';
import type { Translate } from '../shared/translate';
import { alongOf, cellsChosen, isMap, mapRows } from './map-options';
import { columnWords, type MomentOptions } from './words';

type Choose = (options: Partial<MomentsOptions>) => void;

const ACROSS = ['rank', 'layer', 'stage', 'expert'] as const;

/** Choose what lies across. */
export function columnsControl(options: MomentOptions, choose: Choose, t: Translate): Control[] {
  return isMap(options.kind)
    ? [
        selectControl(
          'columns',
          t('Over'),
          options.columns,
          [
            { value: 'step', text: t('steps') },
            ...ACROSS.map(value => ({
              value,
              text: t('%1 at a step', columnWords(value, t)),
              disabled: mapRows({ ...options, columns: 'step' }).join() === value
            }))
          ],
          // What is chosen are cells of the map before.
          columns => choose({ columns, cells: [] })
        )
      ]
    : [];
}

/** Choose between colours without steps and bands. */
export function colorsControl(options: MomentOptions, choose: Choose, t: Translate): Control[] {
  return isMap(options.kind)
    ? [
        selectControl(
          'colors',
          t('Colours'),
          options.colors,
          { continuous: t('continuous'), sigma: t('mean ± 1, 2, 3 σ') },
          colors => choose({ colors })
        )
      ]
    : [];
}

/** Choose what the lines of cells go over, and take them away. */
export function cellControls(options: MomentOptions, choose: Choose, t: Translate): Control[] {
  const cells = cellsChosen(options).length;
  const own = [...mapRows(options), options.columns];
  return cells === 0
    ? []
    : [
        selectControl(
          'along',
          t('Lines over'),
          alongOf(options),
          (['step', ...ACROSS, 'name'] as const)
            .filter(value => value === 'step' || !own.includes(value))
            .map(value => ({ value, text: value === 'step' ? t('step') : columnWords(value, t) })),
          along => choose({ along })
        ),
        chip('cells', cells === 1 ? t('1 cell') : t('%1 cells', cells), t('Draw no lines of cells'), () =>
          choose({ cells: [] })
        )
      ];
}
