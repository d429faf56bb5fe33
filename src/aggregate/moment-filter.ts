import { ProtocolError } from '../protocol/protocol-error';
import { isInRanges, readRanges as parseRanges } from '../protocol/ranges';
import type { ITensorName } from '../protocol/tensor-name';
import type { MomentFilter } from '../store/moment-source';
import { AggregateError } from './aggregate-error';
import { Pattern } from './pattern';

/** Whether a number is among those that a text of ranges names; null is not known. */
export type InRanges = (value: number | null) => boolean;

const WORDS = ['stack', 'family', 'kind', 'module_type', 'item_type', 'role'] as const;

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
