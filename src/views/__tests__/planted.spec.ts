/** @jest-environment ./jest.environment.node.js */
import type { ViewOptions } from '../../protocol/views.generated';
import { MemoryRun, rowOf } from '../../store/__tests__/memory-run';
import { countNaming, seriesWords } from '../shared/change-words';
import { untranslated } from '../shared/translate';
import { readView } from '../still';
import { histogramRow } from './histogram-row';

/** Steps 0, 10, … 990. */
const STEPS = Array.from({ length: 100 }, (_, at) => at * 10);

/** The course of layer 1 and of the loss; null is a step without any row. */
type Course = (step: number) => number | null;

/** A run in which layer 1 and the loss take a course, with noise of 0.4 %; other layers stay at 1. */
function runOf(course: Course): MemoryRun {
  const run = new MemoryRun();
  run.connection = { kind: 'recorded' };
  run.units = { loss: 'nats' };
  for (const step of STEPS) {
    const told = course(step);
    if (told === null) {
      continue;
    }
    const noise = 1 + 0.004 * Math.sin(step * 12.9898);
    for (const layer of [0, 1, 2]) {
      const value = (layer === 1 ? told : 1) * noise;
      if (layer === 1) {
        run.rows.push(rowOf({ ...histogramRow(step, [value, value]), flag: 'HiddenStates', layer }));
      }
      const isBad = !Number.isFinite(value);
      run.rows.push(
        rowOf({
          ...{ step, layer, shape: [1, 2, 1], values: Float32Array.of(value, value) },
          nanCount: Number.isNaN(value) ? 2 : 0,
          infCount: value === Infinity ? 2 : 0
        })
      );
      const moments = isBad ? { std: 0, mean: 0, nan: 990, count: 10 } : { std: value };
      run.moments?.add({ step, name: `layers.${layer}.w`, ...moments });
    }
    run.numbers.push({ step, name: 'loss', value: told * noise });
  }
  return run;
}

const TREND = { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'kept_rms' } as const;
const MOMENTS = { view: 'statistics', stat: 'grad', statistic: 'rms' } as const;
const VIEWS: Readonly<Record<string, ViewOptions>> = {
  trend: TREND,
  'trend as a map': { ...TREND, kind: 'heatmap' },
  history: { view: 'history', flag: 'MLP1_mat_mul', statistic: 'kept_rms' },
  distribution: { view: 'distribution', flag: 'HiddenStates' },
  'quantiles of a distribution': { view: 'distribution', flag: 'HiddenStates', kind: 'quantiles' },
  scalars: { view: 'scalars' },
  'lines of groups': { ...MOMENTS, kind: 'lines', by: ['layer'] },
  'map of tensors': { ...MOMENTS, kind: 'map', by: ['name'] },
  'map of layers': { ...MOMENTS, kind: 'layer_map' }
};

const STAYED = /stayed (between|about the same)/;

/** An event, its course, and what every sentence about it must say. */
const EVENTS: Readonly<Record<string, readonly [course: Course, ...RegExp[]]>> = {
  spike: [
    step => (step === 610 ? 8.2 : 2.6),
    /rose from 2\.6\S* (at step 600 )?to 8\.2\S* (at step 610|between step 600 and 610)/,
    /was back at step 620/
  ],
  dip: [
    step => (step === 610 ? 0.4 : 2.6),
    /fell from 2\.6\S* (at step 600 )?to 0\.40?\S* (at step 610|between step 600 and 610)/,
    /was back at step 620/
  ],
  'spike at the end': [step => (step === 990 ? 8.2 : 2.6), /rose from 2\.6\S* to 8\.\d/, /980 and 990/],
  'spike at the beginning': [step => (step === 0 ? 8.2 : 2.6), /fell from 8\.2\S* to 2\.\d/, /0 and 10\b/],
  jump: [step => (step < 600 ? 2 : 4), /rose from (2|1\.99)\S* to (3\.9|4)\S*/, /between step 590 and 600/],
  drift: [step => 2 + step / 250, /rose from 2\S* to 5\.[79]\S*/, /between step \d+ and 9[49]0/],
  'drift with a spike': [
    step => 2 + step / 250 + (step === 500 ? 9 : 0),
    /rose from 2\S* to 5\.[79]\S*/,
    /On the way it rose from \S+ at step 490 to 12\.\d+ at step 500, and was back at step 5\d0/
  ],
  'fall with a spike': [
    step => 2 + 8 * Math.exp(-step / 100) + (step === 700 ? 2 : 0),
    /fell from (10|9)\S* to (2|1\.99)\S*/,
    /On the way it rose from \S+ at step 690 to (4|3\.9)\S* at step 700, and was back at step 710/
  ],
  gap: [step => (step > 300 && step < 500 ? null : 2.6), STAYED, /no value between step 300 and 500/],
  NaN: [step => (step === 610 ? NaN : 2.6), /^(loss is NaN|Not finite) first at step 610/, STAYED],
  'NaN to the end': [step => (step >= 610 ? NaN : 2.6), /^(loss is NaN|Not finite) from step 610 on/, STAYED],
  infinity: [step => (step >= 610 ? Infinity : 2.6), /^(loss is ∞|Not finite) from step 610 on/],
  plateau: [() => 2.6, STAYED, /(to|and) 2\.61/, /from step 0 to 990/],
  constant: [step => (step < 0 ? 0 : 2.6), STAYED]
};

const CASES = Object.entries(EVENTS).flatMap(([event, [course, ...facts]]) =>
  Object.entries(VIEWS).map(([view, options]) => [event, view, course, options, facts] as const)
);

it.each(CASES)('%s is told by %s', async (event, view, course, options, facts) => {
  const [still] = await readView(runOf(course), options);
  const words = still?.summary.replace(/\u202f/g, ' ') ?? '';
  for (const fact of facts) {
    expect(words).toMatch(fact);
  }
  if (!/gap|plateau|constant/.test(event)) {
    expect(words).toMatch(
      view === 'scalars' ? /^loss / : /in (layer 1|layers\.1\.w|the (median|99? % quantile))[ ,.]/
    );
  }
  if (/plateau|gap|constant/.test(event)) {
    expect(words).not.toMatch(/rose|fell|On the way/);
  }
  // Four significant digits.
  expect(words).not.toMatch(/\d\.\d{4,}/);
});

/** Letters of two lines of a tile: the narrowest has about so many. */
const TWO_LINES = 90;

it.each(['spike', 'dip', 'jump', 'drift with a spike', 'fall with a spike', 'NaN'])(
  'the first words of the overview tell of a %s, whose rest is cut where there is no room',
  async event => {
    const [course, ...facts] = EVENTS[event]!;
    const { source } = facts[/with/.test(event) ? 1 : 0]!;
    const said = new RegExp(source.replace('On the way it', '').replace(/, and.*/, ''));
    for (const isTensor of [false, true]) {
      const run = runOf(course);
      run.moments = isTensor ? undefined : run.moments;
      const stills = await readView(run, { view: 'overview' });
      const [loss, map] = stills.map(({ summary }) => summary.replace(/\u202f/g, ' ').slice(0, TWO_LINES));
      expect(loss).toMatch(said);
      expect(map).toMatch(said);
    }
  }
);

it('a spike of a small series is told beside the move of a large one', () => {
  const steps = STEPS;
  const told = [
    { layer: 0, where: 'a', steps, values: steps.map(step => 100 + step) },
    { layer: 1, where: 'b', steps, values: steps.map(step => (step === 300 ? 0.9 : 0.1)) }
  ];
  expect(seriesWords('rms', told, countNaming(untranslated), untranslated)).toMatch(
    /^rms rose from 140 to 1.050 between step 40 and 950 in a\. In b it rose from 0\.1 at step 290 to 0\.9 at step 300, and was back at step 310\.$/
  );
});

it('what goes somewhere and ends elsewhere is told with its end', () => {
  const values = STEPS.map(step => (step < 500 ? 1 : 5 + 4 * Math.exp(-(step - 500) / 100)));
  const told = [{ layer: 0, where: 'a', steps: STEPS, values }];
  expect(seriesWords('rms', told, countNaming(untranslated), untranslated)).toMatch(
    /^rms rose from 1 to 5\.\S+ between step 490 and 730 in a\. On the way it rose from 1 at step 490 to 9 at step 500, and came to 5\.\d+ at step 730\.$/
  );
});

it('a line that is measured in another way from the next step on has no gap there', () => {
  const told = [{ layer: 0, where: 'a', steps: [1, 2, 3, 4], values: [1, 1, 1, 1], starts: [3] }];
  expect(seriesWords('rms', told, countNaming(untranslated), untranslated)).toBe(
    'rms stayed at 1 from step 1 to 4 in a.'
  );
});

it('of tensors and layers at one step, what is not finite is told first, with its place', async () => {
  const run = runOf(step => (step === 990 ? NaN : 2.6));
  const [map] = await readView(run, { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' });
  expect(map?.summary).toMatch(
    /^Cells that are not finite: 2, first in layer 1 at position 0, tile 0\. At step/
  );
  const [layers] = await readView(run, { ...MOMENTS, kind: 'layers', by: ['layer'] });
  expect(layers?.summary).toMatch(/^Not finite in layer 1 \(all tensors\)\. The largest magnitude, /);
});
