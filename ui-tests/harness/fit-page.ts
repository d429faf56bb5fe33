import { nullTranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import type { Status } from '../../src/protocol/messages.generated';
import { HELLO, scalars } from '../../src/panel/shell/__tests__/controlled-run';
import { LIVE, MemoryRuns, OLD } from '../../src/panel/shell/__tests__/memory-panel';
import { PanelModel } from '../../src/panel/shell/panel-model';
import { MegalensPanel } from '../../src/panel/shell/panel-widget';
import { RunsTableWidget } from '../../src/panel/table/runs-table-widget';
import { toldApart } from '../../src/client/run-reader';
import { quietHost } from './quiet-host';

/** The chosen run's status, with figures that a test may change. */
const status = (step: number, overhead: number): Status =>
  ({
    type: 'status',
    state: 'training',
    step,
    producers: [],
    viewers: 1,
    overhead: { percent: overhead, low: overhead - 0.2, high: overhead + 0.2 },
    probes: { expected: 12, fired: 12, missing: [] },
    bytes_per_step: 42_000 + step,
    dropped: { producer: 0, viewer: 0, recorder: 0 },
    nonfinite: { count: 0 },
    recording: { state: 'on', bytes: 3e6 }
  }) as unknown as Status;

/** A thousand recorded runs with three outliers, the last of the list, as the server compares them. */
function addMany(runs: MemoryRuns): void {
  const steps = Array.from({ length: 120 }, (_, at) => (at + 1) * 80);
  const loss = (at: number, by: number): number => 2 + 6 * Math.exp(-at / 30) + by;
  const course = (id: number, why: 'not-finite' | 'short' | 'far' | 'usual', by: number) => {
    const until = why === 'short' ? 30 : why === 'not-finite' ? 70 : steps.length;
    const lows = steps.map((_, at) =>
      at < until ? loss(at, by) - 0.05 * Math.abs(Math.sin(at * 7 + id)) : null
    );
    const highs = lows.map(each => (each === null ? null : each + 0.06));
    const far = { distance: Math.abs(by), final: loss(until, by), badAt: why === 'not-finite' ? 5601 : null };
    return { id: `many-${id}`, why, low: lows, high: highs, ...far };
  };
  const usual = Array.from({ length: 997 }, (_, at) => course(at, 'usual', (at % 21) / 50 - 0.2));
  runs.compared = {
    name: 'loss',
    names: ['loss', 'grad_norm'],
    steps,
    quantiles: [-0.2, -0.1, 0, 0.1, 0.2].map(by => steps.map((_, at) => loss(at, by))),
    counts: steps.map((_, at) => (at < 30 ? 1000 : at < 70 ? 999 : 998)),
    runs: [
      course(997, 'not-finite', 0.6),
      course(998, 'short', -0.4),
      course(999, 'far', 1.8),
      ...usual.sort((a, b) => b.distance - a.distance)
    ]
  };
  runs.entries = [
    ...Array.from({ length: 1000 }, (_, at) => ({
      ...OLD,
      id: `many-${at}`,
      name: `sweep-${String(at).padStart(4, '0')}`,
      started: 1_780_000_000 - at * 600,
      ended: 1_780_000_000 - at * 600 + 500,
      step: 9600,
      bytes: 4e6,
      tags: [at % 2 === 0 ? 'adam' : 'muon']
    })),
    ...runs.entries
  ];
}

/** A panel, or a table, as somebody has it open: some runs of one name, one of them live with every line of figures. */
async function open(): Promise<void> {
  const runs = new MemoryRuns();
  const started = (days: number): number => 1_790_000_000 - days * 86_400;
  const entries = [
    { ...LIVE, started: started(0), bytes: 212e6 },
    {
      ...OLD,
      id: 'run-a',
      name: 'gpt-demo',
      started: started(1),
      ended: started(1) + 4000,
      step: 4000,
      bytes: 3e9,
      tags: ['baseline']
    },
    {
      ...OLD,
      id: 'run-b',
      name: 'gpt-demo',
      started: started(2),
      ended: null,
      state: 'gone' as const,
      step: 958,
      bytes: 80e6
    },
    {
      ...OLD,
      id: 'run-c',
      name: 'llama-8b-tp2-pp2-long-name',
      started: started(3),
      ended: started(3) + 90_000,
      step: 120_000,
      bytes: 12e9,
      notes: 'warmup 200'
    },
    {
      ...OLD,
      id: 'run-d',
      name: 'bert',
      started: started(4),
      ended: started(4) + 600,
      step: 300,
      bytes: 4e6,
      kind: undefined
    }
  ];
  const apart = toldApart(entries);
  runs.entries = entries.map(entry => ({
    ...entry,
    ...(apart.has(entry.id) ? { apart: apart.get(entry.id)! } : {})
  }));
  entries.forEach(({ id }, at) =>
    runs.summed.set(id, {
      loss: { name: 'loss', step: 40, value: at === 2 ? NaN : 1.62 + at / 7 },
      settings: new Map<string, string | number>([
        ['model.layers', at === 3 ? 32 : 4],
        ['model.hidden', 128 * (at + 1)],
        ['layout.tp', at === 3 ? 2 : 1],
        ['versions.torch', '2.7']
      ])
    })
  );
  const names = [
    'MLP1_mat_mul',
    'MLP2_mat_mul',
    'QKV_mat_mul',
    'HiddenStates',
    'RawAttentionScore_mat_mul',
    'ContextLayer_mat_mul'
  ];
  runs.hello = {
    ...HELLO,
    flags: names.map((name, at) => ({ ...HELLO.flags[at % 2]!, name })),
    config: {
      flags: Object.fromEntries(
        names.slice(0, 3).map(name => [name, { compressor: { name: 'Tile', params: { tiles: 96 } } }])
      )
    },
    controls: ['pause', 'perturb'],
    sites: [{ name: 'weight', title: 'Weights', layers: [0], kinds: [] }]
  };
  const model = new PanelModel(runs, quietHost, nullTranslator.load('megalens'));
  const isTable = location.hash === '#table' || location.hash === '#many';
  if (location.hash === '#many') {
    addMany(runs);
  }
  const widget = isTable ? new RunsTableWidget(model, runs) : new MegalensPanel(model);
  Widget.attach(widget, document.body);
  await model.ready();
  const source = runs.opened.get('run-1')!;
  const show = (step: number, loss: number, overhead: number): void => {
    source.columns = scalars([
      [step - 2, 'loss', 2],
      [step, 'loss', loss],
      [step, 'held_out_loss', loss + 0.1],
      [step, 'tokens_per_second', 8000 + 500 * loss]
    ]);
    source.status = status(step, overhead);
    source.changed.emit({ kind: 'rows', stream: 'scalars', firstStep: 0, lastStep: step });
    source.changed.emit({ kind: 'status' });
  };
  show(1240, 1.62, 0.6);
  Object.assign(window, { show, model });
  widget.update();
}

void open();
