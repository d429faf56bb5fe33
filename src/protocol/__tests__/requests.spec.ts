/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ISchema, schemaCheck } from '../schema-check';

interface ICase {
  readonly request: string;
  readonly value: unknown;
  readonly refused?: string;
}

const read = <T>(path: string): T =>
  JSON.parse(readFileSync(join(__dirname, '../../../protocol', path), 'utf8')) as T;
const { $defs: requests = {} } = read<ISchema>('requests.schema.json');
const views = read<ISchema>('views.schema.json');

// A reference from one file to the other is a path in it.
const partOf = (reference: string): unknown =>
  reference
    .split('/')
    .slice(1)
    .reduce<unknown>((node, name) => Object(node)[name], views);
const references = JSON.stringify(requests).match(/views\.schema\.json#[^"]+/g) ?? [];
const definitions = {
  ...views.$defs,
  ...requests,
  ...Object.fromEntries(
    references.map((each): [string, ISchema] => [each.slice('#/$defs/'.length), Object(partOf(each))])
  )
};

it.each(read<readonly ICase[]>('fixtures/requests.json'))(
  '$request $value',
  ({ request, value, refused }) => {
    const misfit = schemaCheck({ $ref: `#/$defs/${request}` }, definitions)(value);
    expect(misfit === null).toBe(refused === undefined);
  }
);

it('has no name that the views have too', () => {
  expect(Object.keys(requests).filter(name => name in (views.$defs ?? {}))).toEqual([]);
});
