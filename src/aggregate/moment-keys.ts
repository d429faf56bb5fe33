import { RE2JS, RE2JSSyntaxException } from 're2js';
import { compareNatural, isWhole } from '../protocol/texts';
import { parseName, type ITensorName } from '../protocol/tensor-name';
import type { MomentColumn, MomentKey, MomentFilter } from '../store/row-moments';
import { ProtocolError } from '../protocol/protocol-error';
import { isInRanges, readRanges as parseRanges } from '../protocol/ranges';
import { AggregateError } from './moment-merge';
import type { MomentTable } from './moment-table';
import type { MomentGroupsRequest } from '../protocol/requests.generated';

/** Which rows of a module take part in one side of a gain. */
export type Side = 'input' | 'output';

export interface INameCodes {
  /** Code of each name; -1 where it takes no part. */
  readonly code: Int32Array;
  /** What the columns of names say for each code, in order; rank and stage, which rows say, are null. */
  readonly keys: readonly MomentKey[];
}

type NameColumn = Exclude<MomentColumn, 'rank' | 'stage' | 'capture'>;

// A view asks the same grouping again for every step range, statistic and step that comes.
const MOST_KNOWN = 8;
const KNOWN = new WeakMap<MomentTable, { readonly named: number; readonly codes: Map<string, INameCodes> }>();

/**
 * Code the names of a table by the columns of a query: once for each name, never for each row, and once for
 * each way to ask.
 *
 * @param side - Take names of this role only, and modules' names for theirs.
 * @throws AggregateError `mixed` when a group would hold both inputs and outputs, which hold the same values
 * twice.
 */
export function codeNames(table: MomentTable, query: MomentGroupsRequest, side: Side | null): INameCodes {
  const { by, pattern, where, mixed } = query;
  const { rank: _rank, stage: _stage, ...names } = where ?? {};
  const asked = JSON.stringify([by, by.includes('capture') ? pattern : null, names, mixed, side]);
  const before = KNOWN.get(table);
  const known =
    before?.named === table.named ? before : { named: table.named, codes: new Map<string, INameCodes>() };
  KNOWN.set(table, known);
  const found = known.codes.get(asked) ?? codeAnew(table, query, side);
  known.codes.delete(asked);
  known.codes.set(asked, found);
  for (const oldest of known.codes.keys()) {
    if (known.codes.size <= MOST_KNOWN) {
      break;
    }
    known.codes.delete(oldest);
  }
  return found;
}

function codeAnew(table: MomentTable, query: MomentGroupsRequest, side: Side | null): INameCodes {
  const { role: _, ...anyRole } = query.where ?? {};
  const matches = nameFilter(side === null ? query.where : anyRole);
  const capture = captureOf(query);
  const code = new Int32Array(table.names.length).fill(-1);
  const codes = new Map<string, number>();
  const keys: MomentKey[] = [];
  const roles: number[] = [];
  table.names.forEach((full, id) => {
    const parsed = table.parsed(id);
    if (table.present[id] !== 1 || (side !== null && parsed.role !== side)) {
      return;
    }
    const text = side === null ? full : moduleOf(full);
    const name = side === null ? parsed : parseName(text);
    const captured = capture?.(text) ?? null;
    if (!matches(text, name) || (capture !== null && captured === null)) {
      return;
    }
    const key = query.by.map(column => valueOf(column, text, name, captured));
    const group = JSON.stringify(key);
    const known = codes.get(group) ?? keys.length;
    if (known === keys.length) {
      codes.set(group, known);
      keys.push(key);
      roles.push(0);
    }
    code[id] = known;
    roles[known] = (roles[known] ?? 0) | (parsed.role === 'input' ? 1 : parsed.role === 'output' ? 2 : 0);
  });
  const mixed = roles.indexOf(3);
  if (mixed >= 0 && query.mixed !== true && (table.stat === 'activation' || table.stat === 'dgrad')) {
    const which = query.by.length === 0 ? 'The total' : `The group ${describe(keys[mixed] ?? [])}`;
    throw new AggregateError(
      `${which} would hold both inputs and outputs of modules, in which the same values count twice. ` +
        'Choose one role in the filter, group by role, or allow that they are mixed.',
      'mixed'
    );
  }
  const order = keys.map((_, at) => at).sort((a, b) => compareKeys(keys[a] ?? [], keys[b] ?? []));
  const newCode = new Int32Array(keys.length);
  order.forEach((at, to) => {
    newCode[at] = to;
  });
  return { code: code.map(at => (at < 0 ? -1 : (newCode[at] ?? -1))), keys: order.map(at => keys[at] ?? []) };
}

/** Name of the module of which a tensor is an input or an output. */
export function moduleOf(name: string): string {
  return name.slice(0, Math.max(0, Math.max(name.lastIndexOf('/'), name.lastIndexOf('.'))));
}

/**
 * Bounds the time of a match, as the options' schema does: a pattern's instructions each run once a character
 * of a name.
 */
export function compareKeys(a: MomentKey, b: MomentKey): number {
  for (let at = 0; at < a.length; at += 1) {
    const [left, right] = [a[at] ?? null, b[at] ?? null];
    if (left === right) {
      continue;
    }
    if (left === null || right === null) {
      return left === null ? 1 : -1;
    }
    const order =
      typeof left === 'number' && typeof right === 'number'
        ? left - right
        : compareNatural(String(left), String(right));
    if (order !== 0) {
      return order;
    }
  }
  return 0;
}

function captureOf(query: MomentGroupsRequest): ((name: string) => string | null) | null {
  if (!query.by.includes('capture')) {
    return null;
  }
  if (!query.pattern) {
    throw new AggregateError(
      "Grouping by what a pattern finds needs a pattern, such as 'layers\\.(\\d+)\\.(\\w+)', and none came."
    );
  }
  const pattern = readPattern(query.pattern, 'pattern');
  return name => pattern.capture(name);
}

function valueOf(
  column: MomentColumn,
  text: string,
  name: ITensorName,
  captured: string | null
): string | number | null {
  switch (column) {
    case 'capture':
      return captured;
    case 'rank':
    case 'stage':
      return null;
    case 'name':
      return text;
    default:
      return name[column satisfies NameColumn];
  }
}

function describe(key: MomentKey): string {
  return key.map(value => value ?? 'none').join(' · ');
}

/**
 * Most characters of a pattern, as the schema of options says too; the instructions that it becomes with its
 * repeats written out each run once a character of a name.
 */
export const MOST_CHARACTERS = 500;
const MOST_INSTRUCTIONS = 2000;

/** A pattern that cannot be used, and why: the end of a sentence. */
export class PatternError extends Error {
  override readonly name = 'PatternError';
}

/**
 * A regular expression that is looked for somewhere in names, in time linear in the name whatever it is. RE2
 * says what it means, in page, kernel and server; `protocol/fixtures/patterns.json` holds them to it.
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

  test(name: string): boolean {
    return this._expression.test(name);
  }

  /**
   * What its groups find in a name, empty for one that took no part; the whole of what is found where there
   * are none; null where nothing is.
   */
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
type InRanges = (value: number | null) => boolean;

/** The parts of a tensor's name that a filter may name. */
export const WORDS = ['stack', 'family', 'kind', 'module_type', 'item_type', 'role'] as const;

/** Read a text of ranges such as '0-3,7'; null for one that leaves nothing out: 'all', or none. */
export function readRanges(text: string | undefined, field: string): InRanges | null {
  try {
    const ranges = text === undefined ? null : parseRanges(text, field);
    return ranges && (value => isInRanges(value, ranges));
  } catch (error) {
    throw error instanceof ProtocolError ? new AggregateError(error.message) : error;
  }
}

/** Read a regular expression that a person wrote: it means the same in page, kernel and server. */
export function readPattern(text: string, field: string): Pattern {
  try {
    return new Pattern(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new AggregateError(
      `The ${field} is no regular expression that can be used here: ${why}. ` +
        'Names are searched in linear time, so it can neither look ahead or behind ' +
        'nor refer back to what a group found.'
    );
  }
}

/**
 * Whether a tensor takes part by its name; rank and stage, which a name does not have, are for `rowFilter`.
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

/** Whether a row takes part by its rank and stage; -1 is not known. */
export function rowFilter(
  rows: { readonly rank: Int32Array; readonly stage: Int32Array },
  where: MomentFilter = {}
): (row: number) => boolean {
  const [ranks, stages] = [readRanges(where.rank, 'rank'), readRanges(where.stage, 'stage')];
  const known = (value = -1): number | null => (value < 0 ? null : value);
  return row => (ranks?.(known(rows.rank[row])) ?? true) && (stages?.(known(rows.stage[row])) ?? true);
}
