/** @jest-environment ./jest.environment.node.js */
import fc from 'fast-check';
import { own, withOwn } from '../records';
import { HOSTILE_NAMES, names } from './hostile';

it('an empty object has nothing under any name', () => {
  HOSTILE_NAMES.forEach(name => {
    expect(own({}, name)).toBeUndefined();
    expect(own(undefined, name)).toBeUndefined();
  });
});

it('whatever is put under a name is found under it, and nothing else is', () => {
  fc.assert(
    fc.property(names(2, 6), ([first = '', ...others]) => {
      const full = others.reduce<Record<string, number>>((all, name, at) => withOwn(all, name, at), {});
      expect(own(full, first)).toBeUndefined();
      others.forEach((name, at) => expect(own(full, name)).toBe(at));
      expect(Object.getPrototypeOf(full)).toBe(Object.prototype);
      // JSON carries it there and back.
      const back: Record<string, number> = JSON.parse(JSON.stringify(full));
      others.forEach((name, at) => expect(own(back, name)).toBe(at));
      const empty = others.reduce<Record<string, number>>((all, name) => withOwn(all, name, undefined), back);
      expect(Object.keys(empty)).toEqual([]);
    })
  );
});
