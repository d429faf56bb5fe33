// Both ways of everything that the explorer does with merged groups. Reads `<way> <what>` from stdin, runs it once, answers one JSON line.
import { answerLines, exactSum, load, tidy } from './node-side.mjs';

const [KEYS, STEPS] = process.argv.slice(2).map(Number);

/** Merged groups as the explorer has them: layers at steps. */
function groupsOf(shift) {
  const length = KEYS * STEPS;
  const column = read => Float64Array.from({ length }, (_, at) => read(Math.floor(at / STEPS), at % STEPS));
  const zero = new Float64Array(length);
  return {
    keys: Array.from({ length: KEYS }, (_, key) => [key]),
    group: Uint32Array.from({ length }, (_, at) => Math.floor(at / STEPS)),
    step: column((_, step) => 1 + step),
    samples: new Float64Array(length).fill(-1),
    value: column((key, step) => 2 + shift + Math.sin(key * 7919 + step)),
    count: new Float64Array(length).fill(1000),
    nonFinite: zero,
    error: zero,
    scaled: new Uint8Array(length),
    groupsTotal: KEYS,
    stepsTotal: STEPS
  };
}

try {
  const { divide, shapeGroups, topGroups } = await load('src/aggregate/index.ts');
  const { groupTable, tableCsv, aq } = await load('src/aggregate/group-table.ts');
  const { compareLines } = await load('src/views/shared/lines/compare.ts');
  const { cellsOf } = await load('src/views/statistics/map-cells.ts');
  const question = { stat: 'grad', statistic: 'l2', by: ['layer'] };
  const [own, other] = [groupsOf(0), groupsOf(1)];
  const lines = groups =>
    groups.keys.map((key, at) => {
      const cut = name => groups[name].subarray(at * STEPS, (at + 1) * STEPS);
      return {
        key: String(key),
        isFaint: false,
        starts: [],
        x: cut('step'),
        step: cut('step'),
        value: cut('value'),
        error: cut('error'),
        count: cut('count'),
        nonFinite: cut('nonFinite')
      };
    });
  const [a, b] = [groupTable(own, ['layer']), groupTable(other, ['layer'])];
  const both = [
    ['layer', 'step'],
    ['layer', 'step']
  ];
  const beside = b.select({ layer: 'layer', step: 'step', value: 'other' });
  const [ownLines, otherLines] = [lines(own), lines(other)];
  const steps = Array.from({ length: STEPS }, (_, step) => 1 + step);
  const first = table =>
    table
      .groupby('layer')
      .derive({ first: 'd => op.is_finite(d.value) ? d.value : null' })
      .derive({ first: 'd => op.fill_up(d.first, NaN)' })
      .derive({ value: 'd => d.value / op.first_value(d.first)' });
  const ways = {
    'loop ratio of two stats': () => divide(own, other).value,
    'arquero ratio of two stats': () =>
      a.join(beside, both).derive({ value: 'd => d.value / d.other' }).array('value'),
    'loop difference of two runs': () =>
      compareLines(ownLines, otherLines, 'difference').lines.flatMap(line => [...line.value]),
    'arquero difference of two runs': () =>
      a.join(beside, both).derive({ value: 'd => d.other - d.value' }).array('value'),
    'loop against the first value': () => shapeGroups(own, { ...question, show: 'relative' }).value,
    'arquero against the first value': () => first(a).array('value'),
    'loop trailing mean of 20': () => shapeGroups(own, { ...question, smoothing: 20 }).value,
    'arquero trailing mean of 20': () =>
      a
        .groupby('layer')
        .derive({ value: aq.rolling('d => op.mean(d.value)', [-19, 0]) })
        .array('value'),
    'loop largest 40 series': () => topGroups(own, 40).value,
    'arquero largest 40 series': () =>
      a
        .semijoin(
          a
            .groupby('layer')
            .rollup({ size: 'd => op.max(op.abs(d.value))' })
            .orderby(aq.desc('size'))
            .slice(0, 40),
          'layer'
        )
        .array('value'),
    'loop map of layer × step': () => cellsOf(own, own.step, steps, { hatch: false, bridge: false }).values,
    'arquero map of layer × step': () => {
      const wide = a.groupby('layer').pivot('step', 'value', { limit: Infinity });
      return wide
        .columnNames()
        .slice(1)
        .flatMap(name => wide.array(name));
    },
    'loop rows in order of value': () => {
      const rows = Array.from(own.step.keys()).sort((x, y) => own.value[y] - own.value[x] || x - y);
      return rows.slice(0, 100).map(row => own.value[row]);
    },
    'arquero rows in order of value': () => a.orderby(aq.desc('value')).array('value').slice(0, 100),
    'loop comma-separated values': () => {
      const text = Array.from(own.step, (step, at) =>
        [own.group[at], step, own.samples[at], own.value[at], own.count[at], 0, 0].join(',')
      ).join('\n');
      return [text.length > 0 ? KEYS * STEPS : 0];
    },
    'arquero comma-separated values': () => [tableCsv(a).split('\n').length - 2]
  };
  await answerLines(ways, values => ({ sum: exactSum(values) }));
} finally {
  tidy();
}
