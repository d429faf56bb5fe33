/** @jest-environment ./jest.environment.node.js */
import cases from '../../../protocol/fixtures/ranges.json';
import { inRanges, isInRanges, ProtocolError, rangesText, readRanges } from '..';

describe('texts of ranges', () => {
  it.each(cases.texts)('$text means what the golden cases say', ({ text, ranges, message }) => {
    if (message === undefined) {
      expect(readRanges(text, 'layers')).toEqual(ranges);
      return;
    }
    expect(() => readRanges(text, 'layers')).toThrow(new ProtocolError('bad-parameter', message));
    expect(inRanges(text, [1, 2, 3])).toEqual([]);
  });

  it.each(cases.numbers)('$numbers are written $text', ({ numbers, text }) => {
    expect(rangesText(numbers)).toBe(text);
  });

  it('hold numbers, and not what is not known', () => {
    expect(isInRanges(999_999_999, readRanges('0-999999999', 'layers'))).toBe(true);
    expect([null, 0, 5].map(value => isInRanges(value, [[1, 4]]))).toEqual([false, false, false]);
    expect(isInRanges(null, null)).toBe(true);
  });

  it('are bounded', () => {
    expect(() => readRanges('1,'.repeat(100_000) + '1', 'layers')).toThrow(ProtocolError);
  });
});
