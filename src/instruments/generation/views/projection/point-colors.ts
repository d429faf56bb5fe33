import { COLORS, formatInteger, hexOf, mixed } from '../../../../charts';
import type { ProjectionOptions } from '../../../../protocol/views.generated';
import type { IGeneration } from '../../store/generations';
import { tokenText } from '../../../../views/shared/describe';
import type { Translate } from '../../../../views/shared/translate';
import type { IVectorToken } from './text-vectors';

/** How a point looks. */
export interface IPointLook {
  readonly color: string;
  readonly shape: string;
}

/** How points look and what it means. */
export interface IPointColors {
  /** Of each token. */
  readonly looks: readonly IPointLook[];
  readonly key: readonly (IPointLook & { readonly text: string })[];
  readonly title: string;
}

/** Shapes of points: with the colours they tell more texts apart than colours can, also for who sees few colours. */
const SHAPES = ['circle', 'square', 'triangle-up'] as const;
/** Colours that tell texts apart; the last of the palette, a grey, is left for all others. */
const HUES = COLORS.categorical.light.length - 1;
/** Most texts that have a look of their own. */
const MOST_SERIES = { prompt: HUES * SHAPES.length, token: 2 * HUES };
/** Numbers that the key of an ordered scale names. */
const MARKS = 5;
const MOST_LETTERS = 26;

/** The look of a point of which nothing is known. */
const PLAIN: IPointLook = { color: '#888888', shape: 'circle' };

/**
 * Colour tokens.
 *
 * @param by - What by: prompt and token text have looks of their own, position and step an ordered scale.
 */
export function pointColors(
  tokens: readonly IVectorToken[],
  generations: readonly IGeneration[],
  by: Required<ProjectionOptions>['color'],
  isDark: boolean,
  t: Translate
): IPointColors {
  switch (by) {
    case 'prompt':
      return series(
        tokens,
        ({ generation, prompt }) => `${generation} ${prompt}`,
        ({ generation, prompt }) => promptName(generation, prompt, generations, t),
        MOST_SERIES.prompt,
        false,
        { title: t('prompt'), others: t('other prompts'), isDark }
      );
    case 'token':
      return series(
        tokens,
        ({ piece }) => piece,
        ({ piece }, count) => t('“%1”, %2 ×', tokenText(piece), formatInteger(count)),
        MOST_SERIES.token,
        true,
        { title: t('token'), others: t('other tokens'), isDark }
      );
    case 'position':
      return ordered(
        tokens.map(({ position }) => position),
        t('position'),
        isDark
      );
    case 'step':
      return ordered(
        tokens.map(({ step }) => step),
        t('step'),
        isDark
      );
  }
}

/** Name a prompt: its beginning, and its generation where there are several. */
export function promptName(
  generation: number,
  prompt: number,
  generations: readonly IGeneration[],
  t: Translate
): string {
  const text = generations.find(each => each.generation === generation)?.request?.prompts[prompt];
  const name = text === undefined ? t('prompt %1', formatInteger(prompt)) : `“${beginning(text)}”`;
  return generations.length > 1 ? t('generation %1: %2', formatInteger(generation), name) : name;
}

function beginning(text: string): string {
  const letters = [...text.replace(/\s+/g, ' ')];
  return letters.length <= MOST_LETTERS
    ? letters.join('')
    : `${letters.slice(0, MOST_LETTERS - 1).join('')}…`;
}

interface ISeriesWords {
  readonly title: string;
  readonly others: string;
  readonly isDark: boolean;
}

/** A look for each value; for the most frequent ones where that is asked for, else in the order in which they come. */
function series(
  tokens: readonly IVectorToken[],
  valueOf: (token: IVectorToken) => string,
  nameOf: (token: IVectorToken, count: number) => string,
  most: number,
  byCount: boolean,
  { title, others, isDark }: ISeriesWords
): IPointColors {
  const colors = isDark ? COLORS.categorical.dark : COLORS.categorical.light;
  const groups = new Map<string, { first: IVectorToken; count: number }>();
  for (const token of tokens) {
    const value = valueOf(token);
    const group = groups.get(value) ?? { first: token, count: 0 };
    group.count += 1;
    groups.set(value, group);
  }
  const order = byCount ? [...groups].sort(([, a], [, b]) => b.count - a.count) : [...groups];
  const looks = new Map<string, IPointLook>();
  order.slice(0, most).forEach(([value], at) =>
    looks.set(value, {
      color: colors[at % HUES] ?? PLAIN.color,
      shape: SHAPES[Math.floor(at / HUES)] ?? PLAIN.shape
    })
  );
  const rest: IPointLook = { color: colors[HUES] ?? PLAIN.color, shape: 'circle' };
  return {
    title,
    looks: tokens.map(token => looks.get(valueOf(token)) ?? rest),
    key: [
      ...order
        .slice(0, most)
        .map(([value, { first, count }]) => ({ ...(looks.get(value) ?? rest), text: nameOf(first, count) })),
      ...(order.length > most ? [{ ...rest, text: others }] : [])
    ]
  };
}

/** Looks along the ordered scale, from the least number to the greatest. */
function ordered(numbers: readonly number[], title: string, isDark: boolean): IPointColors {
  const stops = isDark ? COLORS.layers.dark : COLORS.layers.light;
  const low = numbers.reduce((least, each) => Math.min(least, each), Infinity);
  const high = numbers.reduce((most, each) => Math.max(most, each), -Infinity);
  const lookOf = (value: number): IPointLook => ({
    color: hexOf(mixed(stops, high > low ? (value - low) / (high - low) : 0)),
    shape: 'circle'
  });
  const marks = Array.from({ length: MARKS }, (_, at) => Math.round(low + ((high - low) * at) / (MARKS - 1)));
  return {
    title,
    looks: numbers.map(lookOf),
    key: [...new Set(marks)]
      .filter(Number.isFinite)
      .map(value => ({ ...lookOf(value), text: formatInteger(value) }))
  };
}
