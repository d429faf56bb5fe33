/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'fs';
import { join } from 'path';
import { pageTranslator, translatorOf, type Catalogue } from '../language';

const FILE = join(__dirname, '../../../megalens/locale/zh_CN/LC_MESSAGES/megalens.json');
const CHINESE = JSON.parse(readFileSync(FILE, 'utf-8')) as Catalogue;

it('speaks the language of a catalogue, with places and plurals, and makes no function of its formula', () => {
  const made = jest.spyOn(globalThis, 'Function');
  const { languageCode, load } = translatorOf('zh-CN', CHINESE);
  const trans = load('megalens');
  expect(languageCode).toBe('zh-CN');
  expect(trans.__('There is no view %1.', 'loss')).toBe('没有名为 loss 的视图。');
  expect(trans._n('%1 alarm', '%1 alarms', 3)).toMatch(/3.*告警/);
  expect(trans.__('A text that no catalogue has: %1', 'x')).toBe('A text that no catalogue has: x');
  expect(made).not.toHaveBeenCalled();
  made.mockRestore();
});

it('has a form for each plural of a language', () => {
  const catalogue = {
    '': { language: 'fr-FR' },
    '%1 step': ['%1 étape', '%1 étapes'],
    constructor: ['ctor']
  };
  const trans = translatorOf('fr-FR', catalogue).load('megalens');
  expect([0, 1, 2].map(n => trans._n('%1 step', '%1 steps', n))).toEqual(['0 étape', '1 étape', '2 étapes']);
  expect(trans._n('%1 rank', '%1 ranks', 0)).toBe('0 ranks');
  expect(trans.__('toString')).toBe('toString');
});

it('stays English where the browser asks for nothing else, or the catalogue cannot be had', async () => {
  const asked: string[] = [];
  const ask = (path: string): Promise<Response> => (asked.push(path), Promise.reject(new Error('gone')));
  expect((await pageTranslator('', ask)).load('megalens').__('Panel')).toBe('Panel');
  expect(asked).toEqual([]);
  expect((await pageTranslator('zh_CN', ask)).load('megalens').__('Panel')).toBe('Panel');
  expect(asked).toEqual(['megalens/static/locale/zh_CN']);
});
