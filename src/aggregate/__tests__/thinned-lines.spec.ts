/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { thinLine } from '..';

interface ICase {
  readonly name: string;
  readonly points: number;
  readonly steps: readonly number[];
  readonly values: readonly (number | string)[];
  readonly starts: readonly number[];
  readonly kept: readonly number[];
  readonly begins: readonly number[];
}

const { thinned } = JSON.parse(
  readFileSync(join(__dirname, '../../../protocol/fixtures/lines/thinned.json'), 'utf8')
) as { thinned: ICase[] };

it.each(thinned.map((each): [string, ICase] => [each.name, each]))(
  'a line is thinned out as the server thins it out: %s',
  (_, { points, steps, values, starts, kept, begins }) => {
    const found = thinLine(Float64Array.from(steps), Float64Array.from(values, Number), starts, points);
    expect(Array.from(found.kept)).toEqual(kept);
    expect(found.starts).toEqual(begins);
  }
);
