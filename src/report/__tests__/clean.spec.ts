import { cleanPaths } from '../../views/shared/clean-paths';
import { cleaned } from '../clean';

describe('a text that is passed on', () => {
  it.each([
    ["Projection(vectors='/home/u/models/persona.npy')", "Projection(vectors='…/persona.npy')"],
    ['C:\\Users\\me\\x.npy', '…/x.npy'],
    ['~/runs/a', '…/a'],
    ['file:///home/u/x', '…/x'],
    ['nats/byte and 1/s', 'nats/byte and 1/s'],
    ['org/model', 'org/model']
  ])('loses the folders of absolute paths and nothing else: %s', (text, expected) => {
    expect(cleanPaths(text)).toBe(expected);
  });

  it('is found anywhere in a description', () => {
    expect(cleaned({ model: { name: '/home/u/GPT' }, warnings: ['in ~/runs/a'], step: 3 })).toEqual({
      model: { name: '…/GPT' },
      warnings: ['in …/a'],
      step: 3
    });
  });
});
