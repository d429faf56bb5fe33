/** @jest-environment ./jest.environment.node.js */
import { schemaCheck, type ISchema } from '../schema-check';
import { addView } from '../view-info';
import { fullViewOptions } from '../view-options';

const fits = (schema: ISchema, value: unknown): boolean => schemaCheck(schema)(value) === null;

it.each([
  ['oneOf', { oneOf: [{ type: 'string' }, { type: 'number', minimum: 2 }] }, ['a', 2], [1, null]],
  ['oneOf with two that fit', { oneOf: [{ type: 'number' }, { const: 2 }] }, [1], [2]],
  ['allOf', { allOf: [{ minimum: 1 }, { maximum: 3 }] }, [1, 3, 'a'], [0, 4]],
  ['exclusive bounds', { exclusiveMinimum: 0, exclusiveMaximum: 1 }, [0.5, 'a'], [0, 1, -1]],
  ['multiples', { multipleOf: 0.1 }, [0.3, 0, -7, 'a'], [0.25, 0.1001]],
  [
    'entries that come once',
    { uniqueItems: true },
    [[], [1, 2], ['a', ['a']]],
    [
      [1, 1],
      [[2], [2]]
    ]
  ],
  ['own definitions', { $ref: '#/$defs/A', $defs: { A: { enum: ['x', null] } } }, ['x', null], ['y', 'A']],
  ['remarks', { title: 'a', format: 'uri', 'x-view': {}, $comment: 'b' }, [1, 'a', null], []]
])('understands %s', (_name, schema: ISchema, right: unknown[], wrong: unknown[]) => {
  expect(right.filter(value => !fits(schema, value))).toEqual([]);
  expect(wrong.filter(value => fits(schema, value))).toEqual([]);
});

const INFO = {
  title: 'A',
  summary: 'a',
  label: 'a',
  command: 'a:a',
  offer: [],
  needs: { streams: [], flag: false }
};

it('tells who brings a view which word of its schema is not understood', () => {
  const options = { type: 'object', properties: { a: { not: { type: 'string' } } } };
  expect(() => addView({ ...INFO, name: 'strange', options })).toThrow(
    /must use only the words .*multipleOf, got not/
  );
  expect(() => fullViewOptions({ view: 'strange' })).toThrow('no such view');
});

it.each([
  [{ view: 'heatmap', flag: 'a', layers: 7 }, 'layers', /layers must be of type string, got 7\./],
  [{ view: 'heatmap', flag: 'a', other: 1 }, 'other', /other is not known here\./],
  [{ view: 'heatmap' }, undefined, /it lacks the member flag\./],
  [{ view: 'statistics', by: ['layer', 'layer'] }, 'by', /by must not have an entry twice\./]
])('names the option that is wrong in %j', (options, field, words) => {
  const error: unknown = expect.objectContaining({
    message: expect.stringMatching(words),
    code: 'bad-parameter',
    field
  });
  expect(() => fullViewOptions(options)).toThrow(error as Error);
});
