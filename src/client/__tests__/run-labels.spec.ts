/** @jest-environment ./jest.environment.node.js */
import { runLabel, toldApart } from '../run-reader';

const DAY = 24 * 3600;
const run = (id: string, name: string, started: number) => ({ id, name, started });

describe('runs of one name', () => {
  it('are told apart by when they began, and others are not', () => {
    const told = toldApart([run('a', 'gpt', 1e9), run('b', 'gpt', 1e9 + DAY), run('c', 'bert', 1e9)]);
    expect([...told.keys()]).toEqual(['a', 'b']);
    expect(told.get('a')).not.toBe(told.get('b'));
    expect(told.get('a')).toMatch(/9/);
  });

  it('are told apart to the second where they began in one minute', () => {
    const told = toldApart([run('a', 'gpt', 1e9), run('b', 'gpt', 1e9 + 3)]);
    expect(new Set(told.values()).size).toBe(2);
  });

  it('are told apart by their id where nothing else differs', () => {
    const told = toldApart([run('a', 'gpt', 5), run('b', 'gpt', 5)]);
    expect([...told.values()]).toEqual(['a', 'b']);
  });

  it('are named with what tells them apart', () => {
    expect(runLabel({ name: 'gpt' })).toBe('gpt');
    expect(runLabel({ name: 'gpt', apart: '9 Sept, 01:46' })).toBe('gpt · 9 Sept, 01:46');
  });
});
