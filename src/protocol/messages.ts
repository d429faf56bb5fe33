import MESSAGES_SCHEMA from '#protocol/messages.schema.json';
import type { Message } from './messages.generated';
import { own } from './records';
import { ProtocolError } from './protocol-error';
import { kindsBy, type IMisfit } from './schema-check';
import { isWhole } from './texts';

export const SUBPROTOCOL = 'megalens.v2';

export type MessageType = Message['type'];

export type MessageOf<T extends MessageType> = Extract<Message, { type: T }>;

/** What a message may have at most, as protocol/README.md says: levels, characters, values. */
const MAX_DEPTH = 32;
const MAX_CHARACTERS = 16 << 20;
const MAX_VALUES = 2_000_000;
const MAX_MEMBERS = 1 << 16;

/** How JSON writes half a character. */
const ESCAPED_HALF = /\\u[dD][89a-fA-F]/;

const KINDS = kindsBy('type', MESSAGES_SCHEMA);

export const MESSAGE_TYPES: readonly string[] = [...KINDS.keys()];

/**
 * Parse and check one text frame.
 *
 * @param allowed - Message types that may come here; any when absent.
 * @throws ProtocolError `bad-message` when it is not JSON, not a known message or not to its schema;
 * `too-large`; `version-mismatch` for the hello of another version; `forbidden` when the type may not come
 * here.
 */
export function decodeMessage<T extends MessageType = MessageType>(
  text: string,
  allowed?: readonly T[]
): MessageOf<T> {
  if (text.length > MAX_CHARACTERS) {
    throw new ProtocolError(
      'too-large',
      `A message has ${text.length} characters; at most ${MAX_CHARACTERS} are read.`
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new ProtocolError(
      'bad-message',
      `A message is not JSON: ${error instanceof Error ? error.message : error}`
    );
  }
  checkMessage(value, isWhole(text) && !ESCAPED_HALF.test(text));
  if (allowed !== undefined && !(allowed as readonly string[]).includes(value.type)) {
    throw new ProtocolError('forbidden', `A ${value.type} message may not be sent here.`, {
      expected: allowed.join(', '),
      got: value.type
    });
  }
  return value as MessageOf<T>;
}

/**
 * Return the JSON text of a message after checking it.
 * @throws ProtocolError `bad-message` when it does not fit the schema or holds a non-finite number.
 */
export function encodeMessage(message: Message): string {
  checkMessage(message);
  return JSON.stringify(message);
}

/**
 * Throw a `ProtocolError` unless the value fits the schema of its type. `isTextWhole`: its texts were checked
 * before.
 */
export function checkMessage(value: unknown, isTextWhole = false): asserts value is Message {
  const kind = isObject(value) && typeof value.type === 'string' ? value.type : undefined;
  const check = kind === undefined ? undefined : KINDS.get(kind)?.check;
  if (check === undefined || !isObject(value)) {
    throw new ProtocolError('bad-message', 'A message must be a JSON object with a known type.', {
      field: 'type',
      expected: MESSAGE_TYPES.join(', '),
      got: excerpt(isObject(value) ? value.type : value)
    });
  }
  if (kind === 'hello' && 'protocol' in value && value.protocol !== SUBPROTOCOL) {
    throw new ProtocolError(
      'version-mismatch',
      `The hub speaks ${excerpt(value.protocol)}; this client speaks ${SUBPROTOCOL}. Update the older side.`,
      { expected: SUBPROTOCOL, got: excerpt(value.protocol) }
    );
  }
  checkTree(value, isTextWhole);
  const found = check(value) ?? repeated(value);
  if (found !== null) {
    throw misfitError(String(kind), found);
  }
}

/** Lists of a message in which an entry is found by its name or number, and so must not come twice. */
const NAMED: ReadonlyMap<string, string> = new Map([
  ['flags', 'name'],
  ['compressors', 'name'],
  ['sites', 'name'],
  ['kinds', 'name'],
  ['ranks', 'rank']
]);

// Two flags of one name could neither be told apart nor be drawn.
function repeated(value: Record<string, unknown>): IMisfit | null {
  for (const [member, list] of Object.entries(value)) {
    const by = NAMED.get(member);
    if (by !== undefined && Array.isArray(list)) {
      const seen = new Set<unknown>();
      for (const [at, entry] of list.entries()) {
        const called = isObject(entry) ? own(entry, by) : undefined;
        if (called !== undefined && seen.has(called)) {
          return { path: [member, String(at), by], words: `comes twice: ${excerpt(called)}` };
        }
        seen.add(called);
      }
    }
    // Kinds lie in sites, ranks in the layout.
    const inner = member === 'sites' && Array.isArray(list) ? list : member === 'layout' ? [list] : [];
    for (const [at, each] of inner.entries()) {
      const found = isObject(each) ? repeated(each) : null;
      if (found !== null) {
        return {
          path: [member, ...(member === 'sites' ? [String(at)] : []), ...found.path],
          words: found.words
        };
      }
    }
  }
  return null;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// Level by level, so that no nesting can exhaust the stack. Ends at the first bound that is passed.
function checkTree(value: unknown, isTextWhole: boolean): void {
  let level: unknown[] = [value];
  let count = 0;
  for (let depth = 0; depth < MAX_DEPTH; depth += 1) {
    const next: unknown[] = [];
    for (const parent of level) {
      if (typeof parent === 'string') {
        checkWhole(parent, isTextWhole);
      } else if (typeof parent === 'number' && !Number.isFinite(parent)) {
        throw new ProtocolError(
          'bad-message',
          `${parent} is not JSON: non-finite numbers travel in data frames.`,
          { got: String(parent) }
        );
      } else if (Array.isArray(parent)) {
        count += parent.length;
        checkCount(count);
        parent.forEach(child => next.push(child));
      } else if (isObject(parent)) {
        let members = 0;
        // Of a million members Object.entries would take seconds.
        for (const name in parent) {
          count += 1;
          members += 1;
          checkCount(members > MAX_MEMBERS ? Infinity : count);
          checkWhole(name, isTextWhole);
          next.push(own(parent, name));
        }
      }
    }
    if (next.length === 0) {
      return;
    }
    level = next;
  }
  throw new ProtocolError('bad-message', `A message is nested deeper than ${MAX_DEPTH} levels.`);
}

function checkCount(count: number): void {
  if (count > MAX_VALUES) {
    throw new ProtocolError(
      'bad-message',
      `A message has more than ${MAX_VALUES} values, or an object of more than ${MAX_MEMBERS} members.`
    );
  }
}

function checkWhole(text: string, isKnown: boolean): void {
  if (!isKnown && !isWhole(text)) {
    throw new ProtocolError('bad-message', 'A text of a message has half a character (a lone surrogate).');
  }
}

function misfitError(kind: string, { path, words }: IMisfit): ProtocolError {
  const field = path.join('.').slice(0, 300);
  return new ProtocolError(
    'bad-message',
    `A ${kind} message is wrong${field ? ` at ${field}` : ''}: it ${words.slice(0, 500)}.`,
    { field: field || undefined }
  );
}

function excerpt(value: unknown): string {
  const text = typeof value === 'string' ? value : typeof value === 'object' ? 'an object' : String(value);
  return text.slice(0, 200);
}
