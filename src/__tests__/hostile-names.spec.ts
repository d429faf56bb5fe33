import fc from 'fast-check';
import { panelCode } from '../panel/shell/panel-code';
import { ControlledRun, HELLO } from '../panel/shell/__tests__/controlled-run';
import { LIVE } from '../panel/shell/__tests__/memory-panel';
import { TraceModel } from '../panel/trace/trace-model';
import { SummaryModel } from '../panel/summary/summary-model';
import { scalarLines } from '../aggregate/read-scalars';
import { decodeFrame, encodeFrame, frameTable, fullViewOptions, own, readableStreams } from '../protocol';
import type { DeclaredStream, Hello } from '../protocol/messages.generated';
import { HOSTILE_NAMES, name, names } from '../protocol/__tests__/hostile';
import { fewScalars, scalarBytes } from '../report/page-data';
import { RowStore, ScalarStore, TensorStore } from '../store';
import { MemoryRun, rowOf } from '../store/__tests__/memory-run';
import { python, toCode } from '../views/code';
import { mountView } from '../views/registry';

/** What a run says that has flags, compressors and parameters of these names. */
function helloOf(flags: readonly string[], parameter = 'tiles'): Hello {
  const [like = HELLO.flags[0]!] = HELLO.flags;
  const schema = {
    type: 'object',
    properties: Object.fromEntries([[parameter, { type: 'integer', default: 1 }]])
  };
  return {
    ...structuredClone(HELLO),
    flags: flags.map(each => ({ ...like, name: each })),
    compressors: flags.map(each => ({ name: each, title: each, description: '', schema }))
  };
}

function scalarTable(all: readonly string[]) {
  const of = <T>(value: (at: number) => T): T[] => all.map((_, at) => value(at));
  const columns = {
    step: of(at => at),
    time: of(at => at),
    rank: of(() => 0),
    name: all,
    value: of(at => at + 0.5),
    unit: all
  };
  return frameTable(decodeFrame(encodeFrame('scalars', columns, { step: 1 })));
}

describe('whatever its names are', () => {
  it('a flag is listed, switched on, given parameters, applied, switched off and written as code', async () => {
    await fc.assert(
      fc.asyncProperty(names(2, 5), name(), async (flags, parameter) => {
        const run = new ControlledRun(helloOf(flags, parameter));
        const trace = new TraceModel(run);
        expect(trace.rows.map(({ info, setting }) => [info.name, setting])).toEqual(
          flags.map(each => [each, null])
        );
        const [first = ''] = flags;
        trace.toggle(first, true);
        trace.changeParameter(first, parameter, 7);
        await trace.submit();
        expect(trace.apply.kind).toBe('applied');
        expect(Object.keys(run.patches[0]?.flags ?? {})).toEqual([first]);
        expect(Object.keys(trace.config.flags)).toEqual([first]);
        const setting = trace.rows[0]?.setting;
        expect(own(setting?.compressor.params, parameter)).toBe(7);
        expect(trace.rows.slice(1).every(row => row.setting === null && !row.edited)).toBe(true);
        const code = panelCode(LIVE, trace.config, [], run.hello?.compressors ?? []);

        expect(code).toContain(`{${python(parameter)}: 7}`);
        trace.changeParameter(first, parameter, undefined);
        expect(own(trace.rows[0]?.setting?.compressor.params, parameter)).toBeUndefined();
        trace.toggle(first, false);
        await trace.submit();
        expect(trace.config.flags).toEqual({});
        trace.dispose();
      }),
      { numRuns: 25 }
    );
  });

  it('a change by another viewer is told by the flags that differ', () => {
    fc.assert(
      fc.property(names(2, 4), ([mine = '', theirs = '']) => {
        const run = new ControlledRun(helloOf([mine, theirs]));
        run.hello!.config = { flags: { [mine]: { compressor: { name: 'Tile' } } } };
        const trace = new TraceModel(run);
        const config = { flags: { ...run.hello!.config.flags, [theirs]: { compressor: { name: 'Tile' } } } };
        const message = { type: 'configured', id: 'x', applied: true, step: 1, config } as const;
        run.changed.emit({ kind: 'configured', message });
        expect(Object.keys(trace.foreign?.flags ?? {})).toEqual([theirs]);
        trace.dispose();
      }),
      { numRuns: 40 }
    );
  });

  it('a scalar is kept, drawn, thinned for a report and read back with its own unit', () => {
    fc.assert(
      fc.property(names(), all => {
        const store = new ScalarStore(1e6);
        store.append(scalarTable(all), false);
        const check = (columns: ReturnType<ScalarStore['columns']>): void => {
          expect(Object.keys(columns.units).sort()).toEqual([...all].sort());
          scalarLines(columns, {}).forEach(line => expect(line.unit).toBe(line.name));
        };
        const columns = store.columns();
        check(columns);
        check(structuredClone(columns));
        check(fewScalars(columns)!);
        expect(scalarBytes({ ...columns, units: {} }).length).toBeGreaterThan(0);
        // Of a name that was never sent there is nothing.
        expect(store.columns(['valueOf-not']).name).toEqual([]);
      }),
      { numRuns: 40 }
    );
  });

  it('a summary shows a scalar’s unit, and none where there is none', async () => {
    const run = new ControlledRun();
    run.columns = {
      step: Float64Array.of(1),
      time: Float64Array.of(1),
      value: Float64Array.of(1),
      name: ['constructor_loss'],
      units: {}
    };
    const summary = new SummaryModel(run);
    await new Promise(done => summary.changed.connect(done));
    expect(summary.loss).toEqual({ name: 'constructor_loss', value: 1, unit: '', step: 1 });
    summary.dispose();
  });

  it('a tensor is kept and found by flag and part, and by no other', () => {
    fc.assert(
      fc.property(names(2, 6), ([missing = '', ...flags]) => {
        const store = new TensorStore(1e7);
        flags.forEach((flag, at) => store.add(rowOf({ flag, part: flag, step: at + 1 })));
        expect(store.query({ flag: missing }).rows).toEqual([]);
        expect(store.shapeOf(missing)).toMatchObject({ parts: [], layers: [] });
        flags.forEach((flag, at) => {
          expect(store.steps(flag)).toEqual([at + 1]);
          expect(store.shapeOf(flag).parts).toEqual([flag]);
          expect(store.query({ flag, part: flag }).rows).toHaveLength(1);
        });
      }),
      { numRuns: 25 }
    );
  });

  it('a declared stream and its columns are kept as rows', () => {
    const column = fc.constantFrom('constructor', 'valueof', 'length', 'then', 'name', 'prototype');
    const stream = fc.constantFrom('constructor', 'prototype', 'then', 'length');
    fc.assert(
      fc.property(stream, fc.uniqueArray(column, { maxLength: 4 }), (title, columns) => {
        const declared: DeclaredStream = {
          title,
          policy: { keep: 'newest', identity: columns },
          fields: [{ name: 'step', type: 'int64' }, ...columns.map(each => ({ name: each, type: 'utf8' }))]
        };
        const streams = readableStreams({ [title]: declared });
        const rows = Object.fromEntries([['step', [1]], ...columns.map(each => [each, ['x']])]);
        const frame = decodeFrame(encodeFrame(title, rows, { step: 1 }, streams));
        const store = new RowStore(streams.get(title)!);
        store.append(frameTable(frame, streams), false);
        const found = store.rows({ where: Object.fromEntries(columns.map(each => [each, 'x'])) });
        expect(found.length).toBe(1);
        expect(Object.keys(found.columns)).toEqual(['step', ...columns]);
      })
    );
  });

  it('a view’s options keep them and are written as code', () => {
    fc.assert(
      fc.property(name(), flag => {
        fc.pre(flag !== '');
        const options = fullViewOptions({ view: 'heatmap', flag });
        expect(options).toMatchObject({ flag, layers: expect.any(String) });
        expect(toCode(options)).toBe(`run.heatmap(${python(flag)})`);
      })
    );
  });
});

it('scalars of every such name are drawn in one picture', async () => {
  const run = new MemoryRun();
  run.connection = { kind: 'recorded' };
  run.units = Object.fromEntries(HOSTILE_NAMES.map(each => [each, each]));
  run.numbers = [1, 2].flatMap(step =>
    HOSTILE_NAMES.map((each, at) => ({ step, name: each, value: at + step }))
  );
  const node = document.createElement('div');
  document.body.append(node);
  const view = await mountView(
    node,
    run,
    { view: 'scalars', names: [...HOSTILE_NAMES] },
    { renderer: 'svg' }
  );
  await view.settled();
  for (const step of [3, 4]) {
    run.numbers = [...run.numbers, ...HOSTILE_NAMES.map((each, at) => ({ step, name: each, value: at }))];
    run.changed.emit({ kind: 'rows', stream: 'scalars', firstStep: step, lastStep: step });
    await view.settled();
  }
  expect(node.querySelector('.jp-MegalensView')?.getAttribute('data-state')).toBe('drawn');
  const svg = await view.toSVG();
  ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'valueOf'].forEach(each =>
    expect(svg).toContain(each)
  );
  view.dispose();
}, 30_000);
