import { RE2JS, RE2JSSyntaxException } from 're2js';
import { isWhole } from '../protocol/whole-text';

/** Most characters of a pattern, and most instructions that it becomes with its repeats written out: each runs once a character of a name. */
const [MOST_CHARACTERS, MOST_INSTRUCTIONS] = [500, 2000];

/** A pattern that cannot be used, and why: the end of a sentence. */
export class PatternError extends Error {
  override readonly name = 'PatternError';
}

/**
 * A regular expression that is looked for somewhere in names, in time linear in the name whatever it is. RE2 says what it means, in page, kernel and server;
 * `protocol/fixtures/patterns.json` holds them to it.
 */
export class Pattern {
  /** @throws PatternError */
  constructor(text: string) {
    if (text.length > MOST_CHARACTERS) {
      throw new PatternError(`it must have at most ${MOST_CHARACTERS} characters, got ${text.length}`);
    }
    if (!isWhole(text)) {
      throw new PatternError('it holds half a character');
    }
    this._expression = compiled(text);
    if (this._expression.programSize() > MOST_INSTRUCTIONS) {
      throw new PatternError('with its repeats written out it is too long');
    }
  }

  /** Whether it is found in a name. */
  test(name: string): boolean {
    return this._expression.test(name);
  }

  /** What its groups find in a name, empty for one that took no part; the whole of what is found where there are none; null where nothing is. */
  find(name: string): string[] | null {
    const found = this._expression.matcher(name);
    if (!found.find()) {
      return null;
    }
    const groups = Array.from({ length: found.groupCount() }, (_, at) => found.group(at + 1) ?? '');
    return groups.length > 0 ? groups : [found.group() ?? ''];
  }

  /** What it finds, a point between what its groups find. */
  capture(name: string): string | null {
    return this.find(name)?.join('.') ?? null;
  }

  private readonly _expression: RE2JS;
}

function compiled(text: string): RE2JS {
  try {
    return RE2JS.compile(text);
  } catch (error) {
    throw new PatternError(
      error instanceof RE2JSSyntaxException
        ? `${error.getDescription()}${error.getPattern() === null ? '' : `, at ${error.getPattern()}`}`
        : String(error)
    );
  }
}
