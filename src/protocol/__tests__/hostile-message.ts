import fc from 'fast-check';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import MESSAGES_SCHEMA from '#protocol/messages.schema.json';
import { name } from './hostile';

const folder = join(__dirname, '../../../protocol/fixtures/messages');

/** The golden messages. */
export const MESSAGES: readonly object[] = readdirSync(folder).map(
  file => JSON.parse(readFileSync(join(folder, file), 'utf8')) as object
);

/** Every name that the messages' schema knows: what a mutation may call a member. */
const MEMBERS = [...new Set(JSON.stringify(MESSAGES_SCHEMA).match(/"[a-z_]{2,24}"(?=:\{)/g) ?? [])].map(
  each => JSON.parse(each) as string
);

/** Values in the place of others: of every type, at and past every bound, and the worst of texts. */
const values = (): fc.Arbitrary<unknown> =>
  fc.oneof(
    fc.constantFrom<unknown>(
      null,
      true,
      false,
      0,
      -0,
      -1,
      1,
      0.5,
      1e-300,
      2 ** 31,
      2 ** 53,
      2 ** 60,
      1e300,
      '',
      [],
      {}
    ),
    name(),
    fc.constantFrom('\ud800', 'x\udfff', 'all', '1-4,7', 'a'.repeat(5000)),
    fc.constantFrom(100, 5000).map(many => Array.from({ length: many }, (_, at) => at)),
    fc
      .constantFrom(100, 5000)
      .map(many => Object.fromEntries(Array.from({ length: many }, (_, at) => [`k${at}`, at]))),
    fc.integer({ min: 20, max: 60 }).map(depth => {
      let nested: unknown = 1;
      for (let at = 0; at < depth; at += 1) {
        nested = at % 2 === 0 ? [nested] : { a: nested };
      }
      return nested;
    }),
    fc.constantFrom<unknown>(...MESSAGES)
  );

/** A message that follows the grammar but in one to three places: a value, a member's name, an entry more or less. */
export const mutatedMessage = (): fc.Arbitrary<object> =>
  fc
    .tuple(
      fc.constantFrom(...MESSAGES),
      fc.array(fc.tuple(fc.nat(), fc.nat(4), values(), fc.oneof(name(), fc.constantFrom(...MEMBERS))), {
        minLength: 1,
        maxLength: 3
      })
    )
    .map(([message, edits]) => edits.reduce<object>((now, edit) => mutated(now, ...edit), message));

function mutated(message: object, at: number, how: number, value: unknown, called: string): object {
  const copy = structuredClone(message);
  const holders: object[] = [copy];
  for (const holder of holders) {
    holders.push(...Object.values(holder).filter(each => typeof each === 'object' && each !== null));
  }
  const holder = holders[at % holders.length] ?? copy;
  const keys = Object.keys(holder);
  const key = keys[at % Math.max(1, keys.length)];
  const set = (name: string, to: unknown): void =>
    void Object.defineProperty(holder, name, {
      value: to,
      enumerable: true,
      configurable: true,
      writable: true
    });
  if (Array.isArray(holder)) {
    holder.splice(
      how === 1 ? at % (holder.length + 1) : 0,
      how === 2 ? 1 : 0,
      ...(how === 2 ? [] : [value, holder[0]])
    );
  } else if (key === undefined || how === 0) {
    set(called, value);
  } else if (how === 1) {
    Reflect.deleteProperty(holder, key);
  } else if (how === 2) {
    set(called, Reflect.get(holder, key));
  } else {
    set(key, value);
  }
  return copy;
}
