import { grads } from '../../../../store/__tests__/memory-moments';
import { IAlarm } from '../../store/alarms';
import { ALARM_COUNTS } from '../rule-settings';
import { BROKEN, alarm, alarmRow } from '../../__tests__/alarm-rows';
import { HELLO, MemoryRun } from '../../../../store/__tests__/memory-run';
import type { Hello } from '../../../../protocol/messages.generated';
import type { HealthOptions } from '../../../../protocol/views.generated';
import { readView } from '../../../../views/still';
import type { IView } from '../../../../views/view';
import { settled, showView, state, tableRows, texts } from '../../../../views/__tests__/page';

let run: MemoryRun;
let view: IView;

beforeEach(() => {
  run = new MemoryRun();
});

async function show(options: Partial<HealthOptions> = {}): Promise<void> {
  view = await showView(run, { view: 'health', ...options });
  await settled();
}

const titles = (): string[] => texts('.jp-MegalensView-title').filter(Boolean);
/** A rule with a number of each kind, as a run announces it. */
const CONFIGURABLE = {
  monitor: {
    title: 'Rules',
    schema: {
      properties: {
        rules: {
          properties: {
            jump: {
              title: 'Jump',
              description: 'Values are suddenly larger.',
              properties: {
                on: { type: 'boolean', title: 'On' },
                threshold: { type: 'number', title: 'Threshold', minimum: 2, maximum: 1000 },
                steps: { type: 'integer', title: 'Steps', minimum: 1 }
              }
            },
            own: { title: 'own', properties: { on: { type: 'boolean', title: 'On' } } }
          }
        }
      }
    }
  }
};

const RULES = { jump: { on: true, threshold: 10, steps: 3 }, own: { on: true } };

/** What a run says of itself that rules judge. */
const judged = (settings: object = {}): Hello => ({
  ...HELLO,
  configurable: CONFIGURABLE,
  config: { ...HELLO.config, instruments: { monitor: { rules: RULES, muted: [], ...settings } } }
});

it('says which line judges a run that nobody judges', async () => {
  await show();
  expect(state()).toBe('No alarms are judged. In the training script:');
  expect(texts('.jp-MegalensState pre')[0]).toBe('monitor = megalens.monitor(model, optimizer)');
});

it('says of a run that nobody judged where values were not finite first', async () => {
  run.log({ step: 7, name: 'decoder.layers.1.mlp.linear_fc1.weight', stat: 'grad', count: 3, nan: 5 });
  await show();
  const none = 'No alarms are judged. In the training script:';
  expect(state()).toBe(`Not finite first at step 7 in decoder.layers.1.mlp.linear_fc1.weight. ${none}`);
  run.units = { loss: 'nats' };
  run.numbers = [2, 5, 6].map(step => ({ step, name: 'loss', value: step < 5 ? 2 : NaN }));
  run.changed.emit({ kind: 'rows', stream: 'scalars', firstStep: 6, lastStep: 6 });
  await settled();
  expect(state()).toBe(`Not finite first at step 5 in loss. ${none}`);
});

it('says for how many steps a judged run is healthy', async () => {
  run.status = {
    type: 'status',
    step: 4120,
    state: 'training',
    instruments: { monitor: { judged: 4120 } }
  } as never;
  await show();
  expect(state()).toBe('Healthy for 4 120 steps.');
  alarm(run, ...BROKEN.slice(0, 1));
  await settled();
  expect(titles()[0]).toBe('Healthy for 4 120 steps');
});

it('names the first anomaly in the order of the computation, what it should have been, what it reached next, and the samples', async () => {
  alarm(run, ...BROKEN);
  await show();
  expect(titles()[0]).toBe(
    'First anomaly at step 4: forward pass of decoder.layers.1.mlp.linear_fc1, rank 1, micro-batch 1'
  );
  expect(texts('.jp-MegalensView-caption')[0]).toBe(
    'Values are lost. NaN values of decoder.layers.1.mlp.linear_fc1/output0: 12, expected 0. ' +
      'Next it reached loss on rank 0, then backward pass of decoder.layers.1.mlp.linear_fc1. Samples of that step: a1, a2. Alarms that lie close together are one mark, the larger the more they are.'
  );
  expect(tableRows(0).map(row => row.slice(0, 3))).toEqual([
    ['4', 'forward pass', 'decoder.layers.1.mlp.linear_fc1/output0'],
    ['4', 'loss', 'loss'],
    ['4', 'backward pass', 'decoder.layers.1.mlp.linear_fc1.weight']
  ]);
});

it('draws the tensor of an alarm over the steps around it, and that of another one that is clicked at', async () => {
  run.log(...grads(3, 6));
  alarm(
    run,
    alarmRow({ step: 4 }),
    alarmRow({ step: 5, name: 'decoder.layers.2.mlp.linear_fc1.weight', place: 4 })
  );
  await show();
  expect(titles().join()).toContain('decoder.layers.1.mlp.linear_fc1.weight');
  const [, second] = [...document.querySelectorAll<HTMLButtonElement>('.jp-MegalensTable td button')].filter(
    each => each.textContent === 'decoder.layers.2.mlp.linear_fc1.weight'
  );
  (
    second ??
    document.querySelectorAll<HTMLButtonElement>('.jp-MegalensTable tbody tr:nth-child(2) td button')[0]
  )?.click();
  await settled();
  expect(view.options).toMatchObject({ name: 'decoder.layers.2.mlp.linear_fc1.weight', step: 5 });
  expect(titles().join()).toContain('decoder.layers.2.mlp.linear_fc1.weight');
});

it('draws a mark for each layer and step, with a shape of its own for each severity', async () => {
  alarm(run, ...BROKEN);
  await show();
  expect(
    document.querySelectorAll(
      '.jp-MegalensPlot .mark-symbol[aria-roledescription] path, .jp-MegalensPlot .mark-symbol path'
    ).length
  ).toBeGreaterThanOrEqual(3);
  expect(view.summary()).toContain('2 critical, 1 warning, 1 note, steps 2 to 4.');
});

it('draws the one critical alarm of 5,000 over 100,000 steps on top, where it is', async () => {
  const at = (each: number): Partial<IAlarm> => ({
    step: 20 * each,
    severity: each === 3085 ? 'critical' : 'warning'
  });
  alarm(run, ...Array.from({ length: 5000 }, (_, each) => at(each)));
  const [{ recipe } = {}] = await readView(run, { view: 'health' });
  const marks = recipe?.datasets['marks'] ?? [];
  expect(marks.length).toBeLessThanOrEqual(301);
  expect(marks.filter(({ shape }) => shape === 'triangle-up')).toEqual([marks.at(-1)]);
  expect(Math.abs(Number(marks.at(-1)?.['x']) - 61_700)).toBeLessThan(100_000 / 300);
});

it('groups ten thousand alarms by rule and module, the gravest first', async () => {
  const many = Array.from({ length: 10_000 }, (_, at) =>
    alarmRow({
      step: 1 + Math.floor(at / 20),
      place: at,
      rule: at % 2 === 0 ? 'jump' : 'drift',
      severity: at === 5001 ? 'critical' : 'warning',
      name: `decoder.layers.${at % 4}.mlp.linear_fc1.weight`
    })
  );
  alarm(run, ...many);
  await show();
  expect(tableRows(1).map(row => [...row.slice(0, 3), row[3]])).toEqual([
    ['critical', 'drift', 'decoder.layers.1.mlp.linear_fc1', '2 500'],
    ['warning', 'jump', 'decoder.layers.0.mlp.linear_fc1', '2 500'],
    ['warning', 'jump', 'decoder.layers.2.mlp.linear_fc1', '2 500'],
    ['warning', 'drift', 'decoder.layers.3.mlp.linear_fc1', '2 500']
  ]);
  expect(document.querySelectorAll('.jp-MegalensPlot .mark-symbol path').length).toBeLessThan(1500);
});

it('leaves muted alarms out, and says how many', async () => {
  run.hello = judged({ muted: [{ rule: 'non*' }, { rule: 'jump', name: 'loss' }] });
  run.status = { type: 'status', step: 9, state: 'training' } as never;
  alarm(run, ...BROKEN);
  await show();
  expect(titles()[0]).toBe('Healthy for 9 steps, muted alarms left out');
  expect(texts('.jp-MegalensView-caption')[0]).toBe('Muted alarms that are not shown: 3.');
});

it('shows a rule alone, and all again', async () => {
  alarm(run, ...BROKEN);
  await show({ rule: 'drift' });
  expect(texts('.jp-MegalensNote span')[0]).toBe('1 of 4 alarms are chosen.');
  document.querySelector<HTMLButtonElement>('.jp-MegalensNote button')?.click();
  await settled();
  expect(view.options).toMatchObject({ rule: null });
  expect(document.querySelector('.jp-MegalensNote')).toBeNull();
});

it('shows an alarm that arrives', async () => {
  await show();
  alarm(run, ...BROKEN);
  await settled();
  expect(titles()[0]).toContain('First anomaly at step 4');
  expect(tableRows(0)).toHaveLength(3);
});

/** A loss that leaves its level at step 4, with what followed from it, and another cause. */
const FOLLOWED = [
  alarmRow({ step: 4, rule: 'loss', stat: 'scalar', direction: 'loss', name: 'loss', cause: 4 }),
  alarmRow({ step: 9, rule: 'drift', severity: 'note', cause: 4 }),
  alarmRow({ step: 10, rule: 'drift', severity: 'note', cause: 4, place: 2 }),
  alarmRow({ step: 9, rule: 'dead', cause: 9, place: 7, name: 'decoder.layers.0.mlp.linear_fc1.weight' }),
  alarmRow({ step: 2, rule: 'nonfinite', severity: 'note', name: 'decoder.layers.3.mlp.linear_fc1.weight' })
];

it('names a lone step as one', async () => {
  alarm(run, alarmRow({ step: 4 }));
  await show();
  expect(view.summary()).toContain('1 warning, at step 4.');
});

it('says how many findings followed from the first anomaly, and what each follows from', async () => {
  alarm(run, ...FOLLOWED);
  await show();
  const caption = texts('.jp-MegalensView-caption').join(' ');
  expect(caption).toContain('2 more findings followed from the same cause.');
  expect(caption).toContain('Next it reached backward pass of decoder.layers.1.mlp.linear_fc1 at step 9.');
  expect(view.summary()).toContain('2 warnings, 1 note, 2 that followed, steps 2 to 10.');
  // The way is of the first cause alone.
  expect(tableRows(0).map(row => row[0])).toEqual(['4', '9']);
  const list = tableRows(1);
  expect(list.map(row => [row[1], row[3], row[7]])).toEqual([
    ['loss', '1', ''],
    ['dead', '1', ''],
    ['nonfinite', '1', ''],
    ['drift', '2', 'loss, step 4']
  ]);
});

const field = (id: string): HTMLInputElement => {
  const found = document.querySelector<HTMLInputElement>(`[data-field="${id}"]`);
  if (!found) {
    throw new Error(`there is no field ${id}`);
  }
  return found;
};
const type = async (id: string, value: string): Promise<void> => {
  field(id).value = value;
  field(id).dispatchEvent(new Event('change'));
  await settled();
};
const pressed = async (label: string): Promise<void> => {
  [...document.querySelectorAll('button')].find(each => each.textContent === label)?.click();
  await settled();
};
const rulesTable = (): string[][] =>
  tableRows(document.querySelectorAll('.jp-MegalensTable table').length - 1);
const rulesCaption = (): string => texts('.jp-MegalensHealth-rules .jp-MegalensView-caption')[0] ?? '';

describe('rules of a run', () => {
  const asked: { rules: Record<string, unknown> }[] = [];

  beforeEach(() => {
    asked.length = 0;
    run.hello = judged();
    run.answerTo(ALARM_COUNTS, ({ settings }) => {
      asked.push(settings as (typeof asked)[number]);
      const { jump } = (settings as { rules: { jump: { threshold: number } } }).rules;
      return Promise.resolve({ steps: 1200, whole: true, rules: { jump: jump.threshold < 10 ? 7 : 3 } });
    });
  });

  it('stand below in fields with their bounds, where nothing is wrong too', async () => {
    await show();
    expect(state()).toBe('Healthy: no alarm.');
    expect(rulesTable().map(row => [row[1], row[4]])).toEqual([
      ['Jump', 'Values are suddenly larger.'],
      ['own', '']
    ]);
    const { value, min, max, step } = field('jump.threshold');
    expect([value, min, max, step]).toEqual(['10', '2', '1000', 'any']);
    expect([field('jump.steps').step, field('jump.steps').max]).toEqual(['1', '']);
    expect(field('own.on').checked).toBe(true);
  });

  it('count the alarms that an edited number would have given, and no other rule', async () => {
    await show();
    await type('jump.threshold', '6');
    expect(rulesTable()[0]?.[2]).toBe('3 → 7');
    expect(asked).toEqual([
      { rules: { jump: RULES.jump, own: { on: false } }, muted: [] },
      { rules: { jump: { ...RULES.jump, threshold: 6 }, own: { on: false } }, muted: [] }
    ]);
    expect(rulesCaption()).toContain('Counted in 1 200 recorded steps');
    expect(run.patches).toEqual([]);
    await pressed('Revert');
    expect(field('jump.threshold').value).toBe('10');
    expect(rulesTable()[0]?.[2]).toBe('');
  });

  it('refuse what is out of bounds in the field', async () => {
    await show();
    await type('jump.threshold', '1');
    await type('jump.steps', '1.5');
    expect(asked).toEqual([]);
    expect(document.querySelector('.jp-MegalensHealth-rules .jp-MegalensNote')).toBeNull();
  });

  it('keep the focus and what is being typed while news come', async () => {
    await show();
    field('jump.threshold').focus();
    field('jump.threshold').value = '12';
    run.changed.emit({ kind: 'hello' });
    await settled();
    expect(document.activeElement).toBe(field('jump.threshold'));
    expect(field('jump.threshold').value).toBe('12');
    field('jump.threshold').dispatchEvent(new Event('change'));
    await settled();
    expect(field('jump.threshold').className).toContain('jp-mod-edited');
    expect(document.activeElement).toBe(field('jump.threshold'));
  });

  it('keep the focus and what is being typed when the first alarm brings the panes above', async () => {
    await show();
    field('jump.threshold').focus();
    field('jump.threshold').value = '12';
    alarm(run, ...BROKEN);
    await settled();
    expect(titles().length).toBeGreaterThan(3);
    expect(document.activeElement).toBe(field('jump.threshold'));
    expect(field('jump.threshold').value).toBe('12');
    // It still is the last of them.
    const parts = [...document.querySelectorAll('.jp-MegalensMoments-pane')];
    expect(parts[parts.length - 1]?.className).toContain('jp-MegalensHealth-rules');
  });

  it('let a press end where it began, whatever comes meanwhile', async () => {
    await show();
    const jump = field('jump.on');
    jump.dispatchEvent(new Event('pointerdown', { bubbles: true }));
    await type('jump.threshold', '12');
    expect(field('jump.on')).toBe(jump);
    window.dispatchEvent(new Event('pointerup'));
    await settled();
    expect(field('jump.on')).not.toBe(jump);
  });

  it('keep the elements of what stays as it is, and press what was told last', async () => {
    await show();
    const [jump, own] = [field('jump.on'), field('own.on')];
    await type('jump.threshold', '12');
    expect(field('jump.on')).not.toBe(jump);
    expect(field('own.on')).toBe(own);
    own.click();
    await settled();
    expect(field('own.on').checked).toBe(false);
    expect(field('jump.threshold').value).toBe('12');
  });

  it('are put in force by Apply, which says from which step on, or why not', async () => {
    await show();
    await type('jump.threshold', '6');
    await pressed('Apply');
    expect(run.patches).toEqual([
      { flags: {}, instruments: { monitor: { rules: { jump: { threshold: 6 } } } } }
    ]);
    expect(rulesCaption()).toContain('In force since step 1.');
    run.configure = () => Promise.reject(new Error('jump.threshold must be a number, got 6.'));
    await type('jump.threshold', '7');
    await pressed('Apply');
    expect(rulesCaption()).toContain('Nothing was changed. jump.threshold must be a number, got 6.');
    expect(field('jump.threshold').value).toBe('7');
  });

  it('of a recording can be tried and not applied', async () => {
    run.connection = { kind: 'recorded' };
    alarm(run, ...BROKEN);
    await show();
    await type('jump.threshold', '6');
    expect(rulesTable()[0]?.[2]).toBe('3 → 7');
    const apply = [...document.querySelectorAll('button')].find(each => each.textContent === 'Apply');
    expect(apply?.disabled).toBe(true);
    expect(texts('.jp-MegalensHealth-rules .jp-MegalensNote span')[0]).toContain(
      'Only a run that trains now takes settings'
    );
    expect(document.querySelector('[data-field^="mute"]')).toBeNull();
  });

  it('are told as numbers where nobody judges, as in a report', async () => {
    run.connection = { kind: 'recorded' };
    run.answerTo(ALARM_COUNTS, undefined);
    await show();
    expect(document.querySelector('[data-field]')).toBeNull();
    expect(rulesTable()[0]?.slice(0, 4)).toEqual(['on', 'Jump', '', 'Threshold 10, Steps 3']);
  });

  it('say that nothing is recorded, and what went wrong', async () => {
    run.answerTo(ALARM_COUNTS, () => Promise.resolve(null));
    await show();
    await type('jump.threshold', '6');
    expect(rulesCaption()).toBe('Nothing of this run is recorded, so no alarms are counted.');
    run.answerTo(ALARM_COUNTS, () => Promise.reject(new Error('The server is busy.')));
    await type('jump.threshold', '5');
    expect(rulesCaption()).toBe('The alarms could not be counted. The server is busy.');
  });

  it('are muted in a module or everywhere, and heard again', async () => {
    alarm(run, ...BROKEN);
    await show();
    await pressed('Here');
    expect(run.patches.at(-1)?.instruments?.['monitor']).toEqual({
      muted: [
        { rule: 'nonfinite', name: 'decoder.layers.1.mlp.linear_fc1.*' },
        { rule: 'nonfinite', name: 'decoder.layers.1.mlp.linear_fc1/*' }
      ]
    });
    await pressed('Rule');
    expect(run.patches.at(-1)?.instruments?.['monitor']).toEqual({ muted: [{ rule: 'nonfinite' }] });
    run.hello = judged({ muted: [{ rule: 'nonfinite' }, { rule: 'drift', name: '*' }] });
    run.changed.emit({ kind: 'hello' });
    await settled();
    await settled();
    expect(titles()).toContain('Muted');
    const muted = tableRows([...document.querySelectorAll('.jp-MegalensTable table')].length - 2);
    expect(muted.map(row => row.slice(0, 3))).toEqual([
      ['nonfinite', '*', '2'],
      ['drift', '*', '1']
    ]);
    await pressed('Unmute');
    expect(run.patches.at(-1)?.instruments?.['monitor']).toEqual({ muted: [{ rule: 'drift', name: '*' }] });
  });
});
