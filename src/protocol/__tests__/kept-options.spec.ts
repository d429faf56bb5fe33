/** @jest-environment ./jest.environment.node.js */
import fc from 'fast-check';
import { ProtocolError, fullViewOptions, keptViewOptions, viewDefaults } from '..';
import { name } from './hostile';

const VIEWS = ['overview', 'heatmap', 'trend', 'history', 'distribution', 'scalars', 'statistics'] as const;

it('saved options that can be read are read as they are', () => {
  const good = { view: 'heatmap', flag: 'F', step: 3, layers: '1-4' };
  expect(keptViewOptions(good)).toEqual({ options: fullViewOptions(good), dropped: [] });
});

it('of saved options that are garbage every good one is kept and the others have their defaults', () => {
  const saved = fc.tuple(
    fc.constantFrom(...VIEWS),
    fc.dictionary(
      fc.oneof(name(), fc.constantFrom('step', 'layers', 'kind', 'scale', 'where')),
      fc.jsonValue()
    )
  );
  fc.assert(
    fc.property(saved, ([view, garbage]) => {
      const { view: _view, flag: _flag, ...rest } = garbage;
      const { options, dropped } = keptViewOptions({ view, flag: 'F', ...rest });
      const full: Record<string, unknown> = { ...options };
      expect(fullViewOptions(options)).toEqual(options);
      const defaults = viewDefaults(view);
      dropped
        .filter(each => Object.hasOwn(defaults, each))
        .forEach(each => {
          expect(full[each]).toEqual(defaults[each]);
        });
      // Whatever was not dropped is as it was saved.
      Object.entries(rest)
        .filter(([each]) => !dropped.includes(each))
        .forEach(([each, value]) => expect(full[each]).toEqual(value));
    }),
    { numRuns: 300 }
  );
});

it('what names no view, or lacks its flag, is refused', () => {
  const refused = fc.oneof(
    fc.jsonValue(),
    fc.record({ view: name() }),
    fc.constantFrom({ view: 'heatmap' }, { view: 'heatmap', flag: 7 })
  );
  fc.assert(
    fc.property(refused, value => {
      expect(() => keptViewOptions(value)).toThrow(ProtocolError);
    })
  );
});

it('of a view whose instrument was left out are refused in a plain sentence', async () => {
  // A page of its own, to which no instrument came.
  await jest.isolateModulesAsync(async () => {
    const page = await import('..');
    expect(new Set(page.viewInfos().map(({ name }) => name))).toEqual(new Set(VIEWS));
    for (const read of [page.fullViewOptions, page.keptViewOptions]) {
      expect(() => read({ view: 'timeline', steps: [1, 2] })).toThrow(
        'The Timeline view is not part of this installation of Megalens: the instrument that draws it was left out.'
      );
    }
    expect(page.viewTitle({ view: 'timeline' })).toBe('Timeline');
  });
});
