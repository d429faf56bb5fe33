import { rangesText } from '../../../../protocol/ranges';
import type { ITextPosition } from '../../../../store/run-link';

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
