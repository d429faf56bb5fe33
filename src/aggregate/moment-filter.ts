import { RE2JS, RE2JSSyntaxException } from 're2js';
import { ProtocolError } from '../protocol/protocol-error';
import { isInRanges, readRanges as parseRanges } from '../protocol/ranges';
import type { ITensorName } from '../protocol/tensor-name';
import { isWhole } from '../protocol/texts';
import type { MomentFilter } from '../store/moment-source';
import { AggregateError } from './aggregate-error';

/** Most characters of a pattern, as the schema of options says too; the instructions that it becomes with its repeats written out each run once a character of a name. */
export const MOST_CHARACTERS = 500;
const MOST_INSTRUCTIONS = 2000;

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

/** Whether a number is among those that a text of ranges names; null is not known. */
export type InRanges = (value: number | null) => boolean;

/** The parts of a tensor's name that a filter may name. */
export const WORDS = ['stack', 'family', 'kind', 'module_type', 'item_type', 'role'] as const;

/**
 * Read a text of ranges such as '0-3,7'.
 *
 * @param field - Its name, for the error.
 * @returns null for a text that leaves nothing out: 'all', or none.
 */
export function readRanges(text: string | undefined, field: string): InRanges | null {
  try {
    const ranges = text === undefined ? null : parseRanges(text, field);
    return ranges && (value => isInRanges(value, ranges));
  } catch (error) {
    throw error instanceof ProtocolError ? new AggregateError(error.message) : error;
  }
}

/**
 * Read a regular expression that a person wrote: it means the same in page, kernel and server.
 *
 * @param field - What it is, for the error.
 */
export function readPattern(text: string, field: string): Pattern {
  try {
    return new Pattern(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new AggregateError(
      `The ${field} is no regular expression that can be used here: ${why}. Names are searched in linear time, so it can neither look ahead or behind nor refer back to what a group found.`
    );
  }
}

/**
 * What of a filter speaks of names: whether a tensor takes part.
 *
 * @param where - The filter; rank and stage, which a name does not say, are for the rows.
 */
export function nameFilter(where: MomentFilter = {}): (text: string, name: ITensorName) => boolean {
  const layer = readRanges(where.layer, 'layer');
  const expert = readRanges(where.expert, 'expert');
  const pattern = where.name === undefined ? null : readPattern(where.name, "filter's pattern");
  const words = WORDS.flatMap(column => {
    const wanted: readonly (string | null)[] | undefined = where[column];
    return wanted === undefined ? [] : [{ column, wanted: new Set(wanted) }];
  });
  return (text, name) =>
    (layer?.(name.layer) ?? true) &&
    (expert?.(name.expert) ?? true) &&
    words.every(({ column, wanted }) => wanted.has(name[column])) &&
    (pattern?.test(text) ?? true);
}

/**
 * What of a filter speaks of rows: whether a row takes part.
 *
 * @param rows - Ranks and stages; -1 is not known.
 */
export function rowFilter(
  rows: { readonly rank: Int32Array; readonly stage: Int32Array },
  where: MomentFilter = {}
): (row: number) => boolean {
  const [ranks, stages] = [readRanges(where.rank, 'rank'), readRanges(where.stage, 'stage')];
  const known = (value = -1): number | null => (value < 0 ? null : value);
  return row => (ranks?.(known(rows.rank[row])) ?? true) && (stages?.(known(rows.stage[row])) ?? true);
}
