import { readFileSync } from 'fs';
import { join } from 'path';
import * as fc from 'fast-check';
import { ALARM_SENTENCES } from '../instruments/monitor/views/alarm-sentences';
import { VERDICT_SENTENCES } from '../instruments/timeline/views/verdict-sentences';
import { translatorOf, type Catalogue } from '../page/language';
import { SLICES } from '../instruments/slices.generated';
import { registerSlices } from '../slice';
import { loadSentences, said } from '../views/shared/said';
import { translateBy, untranslated } from '../views/shared/translate';

const read = <T>(path: string): T => JSON.parse(readFileSync(join(__dirname, '../..', path), 'utf-8')) as T;
const { alarms, verdicts } = read<Record<'alarms' | 'verdicts', string[]>>(
  'protocol/fixtures/sentences.json'
);
const catalogue = read<Catalogue>('megalens/locale/zh_CN/LC_MESSAGES/megalens.json');
const chinese = translateBy(translatorOf('zh-CN', catalogue).load('megalens'));

/** What stays as it is in every language: terms, names of operations and files, and what a script named. */
const KEPT =
  /timeline='layers'|“.*?”|\(.*?'.*?'\)|\b(RMS|NaN|nan|inf|rank|span|stage|micro-batch|token|beta\d|UTC)\b|\b[GMTk]B\b|\b[mµ]?s\b|\w*(fp|float)\d\w*|\b(all_reduce|reduce_scatter|barrier|Float|BFloat16|Anomaly\w+|[A-Z_]{8,}|node|\w+\.py)\b|\d+e[-+]\d+/g;

beforeAll(async () => {
  registerSlices(SLICES);
  await loadSentences();
});

it.each([...alarms, ...verdicts])('says in Chinese: %s', sentence => {
  const words = said(sentence, chinese);
  expect(words.replace(KEPT, '')).not.toMatch(/[a-z]{2}/i);
  for (const number of sentence.match(/\d[\d.,]*\d|\d/g) ?? []) {
    expect(words).toContain(number);
  }
  expect(said(sentence, untranslated)).toBe(sentence);
});

it('leaves what others wrote as it came', () => {
  for (const text of ['It rose.', 'Loss is high and growing.', 'my rule: 3 of 4 %1', '']) {
    expect(said(text, chinese)).toBe(text);
  }
});

it('fills a sentence with whatever came, and changes nothing of it in English', () => {
  const value = fc.stringMatching(/^[\p{L}\d %.-]{1,20}$/u);
  fc.assert(
    fc.property(
      fc.constantFrom(...ALARM_SENTENCES, ...VERDICT_SENTENCES),
      fc.array(value, { minLength: 9, maxLength: 9 }),
      (sentence, values) => {
        const text = untranslated(sentence, ...values);
        expect(said(text, untranslated)).toBe(text);
      }
    )
  );
});
