/** @jest-environment ./jest.environment.node.js */
/**
 * What the page reads of what others wrote: the same hostile values as `tests/fuzz`, from `protocol/fixtures/hostile.json`. `MEGALENS_FUZZ_CASES`
 * says how many cases of each surface, `MEGALENS_FUZZ_SEED` which; a failure prints its seed and path, and the same seed finds it again.
 */
import fc from 'fast-check';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { AggregateError } from '../aggregate/moment-merge';
import { readRanges } from '../aggregate/moment-keys';
import { readDerive, readFilter } from '../aggregate/table-expression';
import { ProtocolError, decodeMessage, fullViewOptions, viewDefaults, viewInfos } from '../protocol';
import VIEWS_SCHEMA from '#protocol/views.schema.json';
import { savedPicture, withPicture } from '../widgets/saved-picture';
import { readViewJson } from '../widgets/view-json';

const CASES = Number(process.env['MEGALENS_FUZZ_CASES'] ?? 500);
const SECONDS = 2;
const SEED = Number(process.env['MEGALENS_FUZZ_SEED'] ?? 23);
const folder = join(__dirname, '../../protocol/fixtures');

interface IHostile {
  readonly texts: string[];
  readonly names: string[];
  readonly numbers: number[];
  readonly others: unknown[];
  readonly patterns: string[];
  readonly expressions: string[];
  readonly repeated: [string, number][];
}

const HOSTILE = JSON.parse(readFileSync(join(folder, 'hostile.json'), 'utf8')) as IHostile;
const messages = readdirSync(join(folder, 'messages')).map(name =>
  readFileSync(join(folder, 'messages', name), 'utf8')
);
const definitions: Record<string, { properties?: object }> = VIEWS_SCHEMA.$defs ?? {};
const words: string[] = [
  ...new Set([
    ...Object.values(definitions).flatMap(({ properties }) => Object.keys(properties ?? {})),
    ...HOSTILE.names
  ])
];

const text = fc.oneof(
  fc.constantFrom(...HOSTILE.texts, ...HOSTILE.names, ...HOSTILE.patterns, ...HOSTILE.expressions),
  fc.constantFrom(...HOSTILE.repeated).map(([piece, times]) => piece.repeat(times))
);
const value: fc.Arbitrary<unknown> = fc.oneof(
  { maxDepth: 4 },
  text,
  fc.constantFrom(...HOSTILE.numbers, NaN),
  fc.constantFrom(...HOSTILE.others),
  fc.array(text, { maxLength: 3 })
);
/** Objects as JSON makes them: `__proto__` is a name like any other. */
const object = (
  names: readonly string[],
  values: fc.Arbitrary<unknown>
): fc.Arbitrary<Record<string, unknown>> =>
  fc
    .array(fc.tuple(fc.oneof(fc.constantFrom(...names), text), values), { maxLength: 4 })
    .map(entries => Object.fromEntries(entries));

const options = fc
  .tuple(fc.constantFrom(...viewInfos()), object(words, value), fc.boolean())
  .map(([{ name }, changes, whole]) => ({
    view: name,
    ...(whole ? viewDefaults(name) : {}),
    flag: 'HiddenStates',
    ...changes
  }));
const saved = fc.oneof(
  value,
  fc
    .tuple(
      options,
      object(['format', 'run', 'options', 'model_id'], value),
      object(['id', 'name', 'folder', 'kind'], value)
    )
    .map(([given, changes, run]) => ({
      format: 1,
      run: { id: 'a', name: 'b', folder: null, ...run },
      options: given,
      ...changes
    }))
);

/** A JSON text with some of its characters changed, or with one of its values replaced by a hostile one. */
const message = fc
  .tuple(
    fc.constantFrom(...messages),
    fc.nat(),
    fc.nat(12),
    fc.oneof(
      text,
      value.map(each => JSON.stringify(each) ?? '')
    )
  )
  .map(([source, at, length, piece]) => {
    const values = [...source.matchAll(/"[^"]*"(?!\s*:)|-?\d+(\.\d+)?|true|false|null/g)];
    const hit = values[at % Math.max(1, values.length)];
    const place = length > 8 || hit === undefined ? at % source.length : hit.index;
    const end = length > 8 || hit === undefined ? place + length : place + hit[0].length;
    return source.slice(0, place) + piece + source.slice(end);
  });

const COLUMNS = { step: 'number', value: 'number', name: 'text' } as const;
const PIECES = [
  'd.',
  'value',
  'op.',
  'max(',
  ')',
  '(',
  ' + ',
  ' = ',
  '; ',
  ' && ',
  ' > ',
  '1e999',
  '`',
  '${',
  '"',
  '\\',
  '[0]',
  '=>',
  '/a/',
  '?.',
  '...',
  'd.name',
  '-',
  '!'
];
const line = fc.oneof(
  text,
  fc.array(fc.oneof(fc.constantFrom(...PIECES), text), { maxLength: 8 }).map(pieces => pieces.join('')),
  fc
    .array(fc.constantFrom(...PIECES), { maxLength: 10 })
    .map(pieces => `share = d.value / op.max(d.value)${pieces.join('')}`)
);

/** Tell the case that failed in a few lines: an input may have a hundred thousand characters. */
function reporter<T>({
  failed,
  counterexample,
  errorInstance,
  seed,
  counterexamplePath
}: fc.RunDetails<[T]>): void {
  if (failed) {
    const input = JSON.stringify(counterexample).slice(0, 1000);
    const cause = errorInstance instanceof Error ? errorInstance.stack : String(errorInstance);
    throw new Error(
      `seed ${seed}, path ${counterexamplePath}: ${String(cause).slice(0, 3000)}\ninput: ${input}`
    );
  }
}

/** Run cases; each is taken or refused by one of the errors, within two seconds. Returns how many were taken. */
function takes<T>(
  inputs: fc.Arbitrary<T>,
  read: (input: T) => void,
  refusals: readonly (new (...of: never[]) => Error)[]
): number {
  let taken = 0;
  fc.assert(
    fc.property(inputs, input => {
      const began = performance.now();
      try {
        read(input);
        taken += 1;
      } catch (error) {
        if (!refusals.some(kind => error instanceof kind)) {
          throw error;
        }
      }
      expect(performance.now() - began).toBeLessThan(SECONDS * 1000);
    }),
    { numRuns: CASES, seed: SEED, endOnFailure: true, reporter }
  );
  return taken;
}

afterEach(() => {
  // Nothing that was read may have changed what every object has.
  expect(Object.keys(Object.prototype)).toEqual([]);
  expect(({} as Record<string, unknown>)['constructor']).toBe(Object);
});

it('takes or refuses any options of a view', () => {
  const taken = takes(
    fc.oneof({ weight: 9, arbitrary: options as fc.Arbitrary<unknown> }, value),
    given => {
      const full = fullViewOptions(given);
      expect(viewInfos().map(({ name }) => name)).toContain(full.view);
      expect(Object.getPrototypeOf(full)).toBe(Object.prototype);
      expect(JSON.parse(JSON.stringify(full))).toEqual(full);
    },
    [ProtocolError]
  );
  expect(taken).toBeGreaterThan(0);
});

it('takes or refuses any view that a notebook holds', () => {
  const taken = takes(
    saved,
    given => {
      const { run, modelId } = readViewJson(given);
      expect(typeof run.id).toBe('string');
      expect(modelId === null || typeof modelId === 'string').toBe(true);
    },
    [ProtocolError]
  );
  expect(taken).toBeGreaterThan(0);
});

it('finds a picture in any output of a cell, or none', () => {
  const html = fc.oneof(
    value,
    fc.array(fc.oneof(text, fc.constantFrom('<svg', '</svg>', '<figcaption>', '<svg>$&</svg>')), {
      maxLength: 5
    })
  );
  takes(
    fc.tuple(html, text),
    ([given, svg]) => {
      const data = { 'text/html': given } as Parameters<typeof savedPicture>[0];
      const found = savedPicture(data);
      expect(found === null || (found.startsWith('<svg') && found.endsWith('</svg>'))).toBe(true);
      withPicture(data, svg);
    },
    []
  );
});

it('takes or refuses any control message', () => {
  const taken = takes(message, given => void decodeMessage(given), [ProtocolError]);
  expect(taken).toBeGreaterThan(0);
});

it('writes any line below a table anew, or refuses it', () => {
  const taken = takes(
    line,
    given => {
      for (const read of [() => readDerive(given, COLUMNS), () => [readFilter(given, COLUMNS)]]) {
        for (const { code } of read()) {
          // Nothing but columns, numbers, texts, operators and known functions.
          expect(code).toMatch(/^d => /);
          expect(code.replace(/"(\\.|[^"\\])*"/g, '""')).not.toMatch(
            /[`;{}]|=>.*=>|constructor|__proto__|import|this/
          );
        }
      }
    },
    [AggregateError]
  );
  expect(taken).toBeGreaterThanOrEqual(0);
});

it('takes or refuses any ranges', () => {
  takes(
    fc.oneof(text, fc.stringMatching(/^[0-9,-]{0,20}$/)),
    given => void readRanges(given, 'layers')?.(3),
    [AggregateError, ProtocolError]
  );
});
