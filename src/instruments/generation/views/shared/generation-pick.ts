import { formatInteger } from '../../../../charts';
import { sequencesOf, type IGeneration } from '../../store/generations';
import type { Control } from '../../../../views/shared/control';
import { numberField } from '../../../../views/shared/fields';
import { selectControl } from '../../../../views/shared/select-control';
import { tokenWords } from './token-text';
import type { Translate } from '../../../../views/shared/translate';

/** Generations that are offered by name; an older one is chosen by its number in the options. */
const MOST = 50;
/** Characters of a prompt that name its generation. */
const MOST_LETTERS = 40;

/** The beginning of a prompt, on one line. */
export function promptWords(
  generation: Pick<IGeneration, 'request' | 'sequences'>,
  sequence: number
): string {
  const letters = Array.from(tokenWords(sequencesOf(generation)[sequence]?.prompt ?? ''));
  return letters.length > MOST_LETTERS ? `${letters.slice(0, MOST_LETTERS).join('')}…` : letters.join('');
}

/** Name a generation: `3: The capital of`. */
export const generationName = (each: IGeneration): string =>
  [formatInteger(each.generation), promptWords(each, 0)].filter(Boolean).join(': ');

/**
 * The controls that choose a generation and a sequence of it. The sequence is left out where there is one.
 *
 * @param offered - By number.
 * @param shown - What is shown; undefined while nothing is.
 */
export function generationControls(
  offered: readonly IGeneration[],
  shown: IGeneration | undefined,
  { generation, sequence }: { readonly generation: number | null; readonly sequence: number },
  choose: (options: { generation?: number | null; sequence?: number }) => void,
  t: Translate
): Control[] {
  const newest = [...offered].reverse().slice(0, MOST);
  const numbers = new Set(newest.map(each => each.generation));
  const choices = [
    { value: '', text: t('newest') },
    ...newest.map(each => ({ value: String(each.generation), text: generationName(each) })),
    ...(generation === null || numbers.has(generation)
      ? []
      : [{ value: String(generation), text: formatInteger(generation) }])
  ];
  const count = shown?.sequences ?? 0;
  return [
    selectControl('generation', t('Generation'), String(generation ?? ''), choices, value =>
      choose({ generation: value === '' ? null : Number(value), sequence: 0 })
    ),
    ...(count < 2
      ? []
      : [
          numberField('sequence', t('Sequence'), sequence, [0, count - 1], value =>
            choose({ sequence: value })
          )
        ])
  ];
}
