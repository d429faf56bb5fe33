import { Validator, type OutputUnit, type Schema } from '@cfworker/json-schema';
import { MESSAGES_SCHEMA, type Message } from './messages.generated';
import { own } from './own';
import { ProtocolError } from './protocol-error';

/** Name of the WebSocket subprotocol. */
export const SUBPROTOCOL = 'megalens.v1';

/** `type` of a control message. */
export type MessageType = Message['type'];

/** The message whose `type` is `T`. */
export type MessageOf<T extends MessageType> = Extract<Message, { type: T }>;

const MAX_DEPTH = 32;
const MAX_CHARACTERS = 64 << 20;

const VALIDATORS: ReadonlyMap<string, Validator> = new Map(
  (MESSAGES_SCHEMA.oneOf ?? []).map(({ $ref }) => {
    const definition: Schema = own(MESSAGES_SCHEMA.$defs, String($ref).slice('#/$defs/'.length)) ?? {};
    return [String(typeOf(definition)), new Validator({ $ref, $defs: MESSAGES_SCHEMA.$defs }, '2020-12')];
  })
);

/** Every message type of the protocol. */
export const MESSAGE_TYPES: readonly string[] = [...VALIDATORS.keys()];

/**
 * Parse and check one text frame.
 *
 * @param text - The JSON text.
 * @param allowed - Message types that may come here; any when absent.
 * @throws ProtocolError `bad-message` when it is not JSON, not a known message or not to its schema; `too-large`;
 * `version-mismatch` for the hello of another version; `forbidden` when the type may not come here.
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
  checkMessage(value);
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
 *
 * @throws ProtocolError `bad-message` when it does not fit the schema or holds a non-finite number.
 */
export function encodeMessage(message: Message): string {
  checkMessage(message);
  return JSON.stringify(message);
}

/** Throw a `ProtocolError` unless the value fits the schema of its message type. */
export function checkMessage(value: unknown): asserts value is Message {
  const kind = isObject(value) && typeof value.type === 'string' ? value.type : undefined;
  const validator = kind === undefined ? undefined : VALIDATORS.get(kind);
  if (validator === undefined || !isObject(value)) {
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
  checkTree(value);
  let errors: OutputUnit[];
  try {
    errors = validator.validate(value).errors;
  } catch (error) {
    throw new ProtocolError('bad-message', `A ${kind} message could not be checked: ${String(error)}`);
  }
  if (errors.length > 0) {
    throw schemaError(String(kind), errors);
  }
}

function typeOf(definition: Schema): unknown {
  const type = definition.properties?.type;
  return typeof type === 'object' ? type.const : undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// Level by level, so that no nesting can exhaust the stack.
function checkTree(value: unknown): void {
  let level: unknown[] = [value];
  for (let depth = 0; depth < MAX_DEPTH; depth += 1) {
    const next: unknown[] = [];
    for (const parent of level) {
      if (typeof parent === 'number' && !Number.isFinite(parent)) {
        throw new ProtocolError(
          'bad-message',
          `${parent} is not JSON: non-finite numbers travel in data frames.`,
          { got: String(parent) }
        );
      }
      if (typeof parent === 'object' && parent !== null) {
        for (const child of Object.values(parent)) {
          next.push(child);
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

function schemaError(kind: string, errors: readonly OutputUnit[]): ProtocolError {
  const depth = (error: OutputUnit): number => error.instanceLocation.split('/').length;
  // The error that got furthest into the value says most; among equals the last is the innermost.
  let deepest = errors[0];
  for (const error of errors.slice(0, 1000)) {
    if (deepest === undefined || depth(error) >= depth(deepest)) {
      deepest = error;
    }
  }
  const field = (deepest?.instanceLocation ?? '#')
    .split('/')
    .slice(1)
    .map(part => decodeURIComponent(part).replace(/~1/g, '/').replace(/~0/g, '~'))
    .join('.')
    .slice(0, 300);
  return new ProtocolError(
    'bad-message',
    `A ${kind} message is wrong${field ? ` at ${field}` : ''}: ${(deepest?.error ?? '').slice(0, 500)}`,
    { field: field || undefined }
  );
}

function excerpt(value: unknown): string {
  const text = typeof value === 'string' ? value : typeof value === 'object' ? 'an object' : String(value);
  return text.slice(0, 200);
}
