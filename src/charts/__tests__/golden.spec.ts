/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ColorScale, legend, type Transform } from '../color-scale';
import { formatNumber } from '../format';

interface INumberCase {
  value: number | string;
  digits: number;
  text: string;
}

interface IScaleCase {
  name: string;
  extent: [number, number];
  transform: Transform;
  values: number[];
  domain: [number, number];
  signed: boolean;
  entries: number[];
  colors: string[];
  legend: string[];
  first: string;
}

const folder = join(__dirname, '../../../protocol/fixtures/pictures');
const read = <T>(name: string): T => JSON.parse(readFileSync(join(folder, name), 'utf8')) as T;
const WORDS = { lowest: 'lowest', highest: 'highest', notFinite: 'not finite' };

describe('pictures of the report and of the live views', () => {
  it.each(read<INumberCase[]>('numbers.json'))(
    'write $value with $digits digits as $text',
    ({ value, digits, text }) => {
      expect(formatNumber(Number(value), digits)).toBe(text);
    }
  );

  it.each(read<IScaleCase[]>('scales.json'))('give $name values the same colours', golden => {
    const scale = new ColorScale(golden.extent, golden.transform);
    expect(scale.domain).toEqual(golden.domain);
    expect(scale.signed).toBe(golden.signed);
    expect(golden.values.map(value => scale.entry(value))).toEqual(golden.entries);
    expect(golden.values.map(value => scale.colorAt(scale.entry(value) / 255))).toEqual(golden.colors);
    const strip = legend(scale, false, WORDS);
    expect(strip.params.legendText).toEqual(golden.legend);
    expect(strip.rows[0]?.color).toBe(golden.first);
  });
});
