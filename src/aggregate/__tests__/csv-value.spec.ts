/** @jest-environment ./jest.environment.node.js */
import { aq } from '../arquero';
import { csvCell, csvValue } from '../../protocol/texts';
import { tableCsv } from '../group-table';

it.each(
  [
  '=1+1', '+1+1', '-1+1', '@SUM(A1)', '\t=1', '\r=1', ' =1', '"=1', "'=1", '\n=1', '"" +cmd|x', '＝1', '-', '-weight', '\tx'
] /* prettier-ignore */
)('puts an apostrophe before %j, which a spreadsheet would run', text => {
  expect(csvValue(text)).toBe(`'${text}`);
  expect(csvCell(text)).toMatch(/^"?'/);
  expect(tableCsv(aq.table({ name: [text] })).split('name\n')[1]).toMatch(/^"?'/);
});

it.each([-1.5, 0, 1e300, -1e-300, '-1.5', '+2', '-.5e-7', '1e5', 'layers.1-2', 'a=b', '', 'q@k'])(
  'leaves %j alone',
  value => {
    expect(csvCell(value)).toBe(String(value));
    expect(tableCsv(aq.table({ name: [value] }))).toBe(`name\n${value}\n`);
  }
);

it('writes numbers that are not finite as pandas reads them, and quotes what holds a comma, a quote or a line', () => {
  expect([NaN, Infinity, -Infinity, null].map(csvCell)).toEqual(['nan', 'inf', '-inf', '']);
  expect(csvCell('a,"b"\r')).toBe('"a,""b""\r"');
});
