import { COLORS, formatInteger, hexOf, mixed } from '../../../../charts';
import { rangesText } from '../../../../protocol/ranges';
import type { ProjectionOptions } from '../../../../protocol/views.generated';
import type { ITextPosition } from '../../../../store/run-link';
import { tokenText } from '../../../../views/shared/describe';
import type { Translate } from '../../../../views/shared/translate';
import type { IGeneration } from '../../store/generations';
import type { IPointLook, IPointLooks } from '../../../../views/kits/points/points-picture';
import type { IVectorToken } from './text-vectors';

/** Most letters of a text that names tokens, as the option's schema has it. */
const MOST_LETTERS = 20_000;

const keyOf = ({ generation, sequence, position }: ITextPosition): string =>
  `${generation}:${sequence}:${position}`;

/** Tokens that are looked at together. */
export class TokenGroup {
  constructor(tokens: Iterable<ITextPosition>) {
    this._tokens = new Map([...tokens].map(token => [keyOf(token), token]));
  }

  /** Read the option `group`, such as `2:0:4-5,2:1:7`. What is none is left out. */
  static read(text: string, known: readonly ITextPosition[]): TokenGroup {
    const ranges = new Map<string, (readonly [number, number])[]>();
    for (const part of text.split(',')) {
      const match = /^(\d{1,15}):(\d{1,9}):(\d{1,9})(?:-(\d{1,9}))?$/.exec(part);
      if (match) {
        const [, generation, sequence, first, last = first] = match;
        const key = `${Number(generation)}:${Number(sequence)}`;
        ranges.set(key, [...(ranges.get(key) ?? []), [Number(first), Number(last)]]);
      }
    }
    return new TokenGroup(
      known.filter(({ generation, sequence, position }) =>
        ranges.get(`${generation}:${sequence}`)?.some(([low, high]) => low <= position && position <= high)
      )
    );
  }

  get size(): number {
    return this._tokens.size;
  }

  get tokens(): readonly ITextPosition[] {
    return [...this._tokens.values()];
  }

  has(token: ITextPosition): boolean {
    return this._tokens.has(keyOf(token));
  }

  /** The group with a token more, or without it where it is in it. */
  toggled(token: ITextPosition): TokenGroup {
    return new TokenGroup(
      this.has(token) ? this.tokens.filter(each => keyOf(each) !== keyOf(token)) : [...this.tokens, token]
    );
  }

  /** As the option is written; null where that would be too long. */
  toText(): string | null {
    const positions = new Map<string, number[]>();
    for (const { generation, sequence, position } of this._tokens.values()) {
      const key = `${generation}:${sequence}`;
      positions.set(key, [...(positions.get(key) ?? []), position]);
    }
    const text = [...positions]
      .flatMap(([key, all]) =>
        rangesText(all)
          .split(',')
          .map(range => `${key}:${range}`)
      )
      .join(',');
    return text.length <= MOST_LETTERS ? text : null;
  }

  private readonly _tokens: ReadonlyMap<string, ITextPosition>;
}

/** Shapes of points: with colours they tell more texts apart, also for people who see few colours. */
const SHAPES = ['circle', 'square', 'triangle-up'] as const;
/** Colours that tell texts apart; the last of the palette, a grey, is left for all others. */
const HUES = COLORS.categorical.light.length - 1;
/** Most texts that have a look of their own. */
const MOST_SERIES = { prompt: HUES * SHAPES.length, token: 2 * HUES };
/** Numbers that the key of an ordered scale names. */
const MARKS = 5;
const POINT_COLORS_MOST_LETTERS = 26;

/** The look of a point of which nothing is known. */
const PLAIN: IPointLook = { color: COLORS.neutral, shape: 'circle' };

/**
 * Colour tokens.
 * @param by - What by: prompt and token text have looks of their own, position and step an ordered scale.
 */
export function pointColors(
  tokens: readonly IVectorToken[],
  generations: readonly IGeneration[],
  by: Required<ProjectionOptions>['color'],
  isDark: boolean,
  t: Translate
): IPointLooks {
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
  return letters.length <= POINT_COLORS_MOST_LETTERS
    ? letters.join('')
    : `${letters.slice(0, POINT_COLORS_MOST_LETTERS - 1).join('')}…`;
}

interface ISeriesWords {
  readonly title: string;
  readonly others: string;
  readonly isDark: boolean;
}

/** A look for each value: for the most frequent ones if asked for, else in order of appearance. */
function series(
  tokens: readonly IVectorToken[],
  valueOf: (token: IVectorToken) => string,
  nameOf: (token: IVectorToken, count: number) => string,
  most: number,
  byCount: boolean,
  { title, others, isDark }: ISeriesWords
): IPointLooks {
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
function ordered(numbers: readonly number[], title: string, isDark: boolean): IPointLooks {
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
