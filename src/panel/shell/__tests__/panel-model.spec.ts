/** @jest-environment ./jest.environment.node.js */
import { ClientError } from '../../../client/rest';
import { JOB } from './memory-job';
import { LIVE, OLD, setUp } from './memory-panel';
import { scalars } from './controlled-run';

describe('PanelModel', () => {
  it('chooses the newest live run by itself and opens it', async () => {
    const { model, host } = setUp();
    await model.ready();
    expect(model.runs.chosenId).toBe('run-1');
    expect(model.open?.source.name).toBe('gpt-demo');
    expect(host.remember).not.toHaveBeenCalled();
    model.runs.choose('run-0');
    expect(host.remember).toHaveBeenCalledWith('run-0');
    model.dispose();
  });

  it('keeps a choice made by hand when a newer run appears', async () => {
    const { model, runs } = setUp();
    await model.ready();
    model.runs.choose('run-0');
    runs.entries = [{ ...LIVE, id: 'run-2', started: 200 }, ...runs.entries];
    await model.runs.refresh();
    expect(model.runs.chosenId).toBe('run-0');
    expect(runs.released).toEqual(['run-1']);
    model.dispose();
  });

  it('lists runs that train first, and those of one name together, newest first', async () => {
    const { model, runs } = setUp();
    const old = (id: string, name: string, started: number) => ({ ...OLD, id, name, started });
    const lost = { ...LIVE, id: 'lost', name: 'lost', started: 900, stopped: true as const };
    runs.entries = [
      old('a', 'other', 500),
      old('b', 'gpt', 400),
      lost,
      { ...LIVE, id: 'c', name: 'gpt', started: 300 },
      old('d', 'other', 600)
    ];
    await model.runs.refresh();
    expect(model.runs.entries.map(({ id }) => id)).toEqual(['c', 'b', 'lost', 'd', 'a']);
    expect(model.runs.chosenId).toBe('c');
    model.dispose();
  });

  it('opens a view that is asked for while its run is being opened', async () => {
    const { model, opened } = setUp();
    await model.ready();
    // The buttons of the run before are there until the next one is.
    model.runs.choose('run-0');
    expect(model.open).toBeNull();
    await model.openView('statistics');
    expect(opened.map(([run]) => run)).toEqual(['run-0']);
    model.dispose();
  });

  it('comes back to the run that was chosen before a reload', async () => {
    const { model } = setUp();
    model.runs.restore('run-0');
    await model.ready();
    expect(model.open?.source.connection.kind).toBe('recorded');
    model.dispose();
  });

  it.each([
    ['offline', new Error('no route'), 'retry'],
    ['forbidden', new ClientError('refused', 'log in', { status: 403 }), 'reload-page'],
    ['missing', new ClientError('refused', 'not found', { status: 404 }), 'copy-enable']
  ])('says when the server is %s and offers one thing to do', async (_kind, fault, action) => {
    const { model, runs } = setUp();
    runs.fault = fault;
    await model.runs.refresh();
    expect(model.listNotice?.action?.id).toBe(action);
    model.dispose();
  });

  it('shows the two lines while there is no run', async () => {
    const { model, runs, host } = setUp();
    runs.entries = [];
    await model.runs.refresh();
    expect(model.listNotice?.code).toContain('megalens.trace(model)');
    await model.act('copy-snippet');
    expect(host.copy).toHaveBeenCalledWith(expect.stringContaining('import megalens'));
    model.dispose();
  });

  it('keeps the runs it knows while the server is away', async () => {
    const { model, runs } = setUp();
    await model.ready();
    runs.fault = new Error('no route');
    await model.runs.refresh();
    expect(model.runs.entries).toHaveLength(2);
    expect(model.open).not.toBeNull();
    model.dispose();
  });

  it.each([
    [{ kind: 'connecting' } as const, 'close-run'],
    [{ kind: 'reconnecting', attempt: 2, message: 'broke' } as const, 'close-run'],
    [{ kind: 'closed', reason: 'version', message: 'v2' } as const, 'copy-update'],
    [{ kind: 'closed', reason: 'forbidden', message: 'no' } as const, 'reload-page'],
    [{ kind: 'closed', reason: 'gone', message: 'gone' } as const, 'reopen'],
    [{ kind: 'live' } as const, 'trace-first']
  ])('has a sentence and an action for %j', async (connection, action) => {
    const { model, runs } = setUp();
    await model.ready();
    runs.opened.get('run-1')!.connection = connection;
    expect(model.runNotice?.action?.id).toBe(action);
    expect(model.runNotice?.sentence).toMatch(/[.…]$/);
    model.dispose();
  });

  it('offers the recording when the hub is gone and the server has one', async () => {
    const { model, runs } = setUp();
    await model.ready();
    const source = runs.opened.get('run-1')!;
    runs.entries = [{ ...LIVE, state: 'gone', folder: 'megalens-runs/run-1' }, OLD];
    source.connection = { kind: 'closed', reason: 'gone', message: '' };
    source.changed.emit({ kind: 'connection' });
    await model.runs.refresh();
    expect(model.runNotice?.action?.id).toBe('open-recording');
    await model.act('open-recording');
    expect(runs.released).toEqual(['run-1']);
    expect(model.open?.source).not.toBe(source);
    model.dispose();
  });

  it('shows what there is to watch of a training side by side, and nothing of a text where there is none', async () => {
    const { model, host } = setUp();
    await model.ready();
    await model.arrange('training');
    expect(host.tileViews).toHaveBeenLastCalledWith('run-1', [
      { view: 'scalars' },
      { view: 'health' },
      { view: 'timeline' }
    ]);
    model.dispose();
  });

  it('opens a view of a text on what is traced while one is written', async () => {
    const { model, runs } = setUp();
    await model.ready();
    const source = runs.opened.get('run-1')!;
    const compressor = { name: 'NoOp', params: {} };
    const flags = {
      MLP1_mat_mul: { compressor },
      HiddenStates: { compressor, phases: ['train' as const, 'generate' as const] }
    };
    source.hello = { ...source.hello!, config: { flags } };
    source.changed.emit({ kind: 'hello' });
    expect(model.viewOf('projection')?.options).toMatchObject({ flag: 'HiddenStates' });
    expect(model.viewOf('heatmap')?.options).toMatchObject({ flag: 'MLP1_mat_mul' });
    model.dispose();
  });

  it('opens the heatmap where the first non-finite entry was', async () => {
    const { model, runs, opened } = setUp();
    await model.ready();
    runs.opened.get('run-1')!.status = {
      type: 'status',
      state: 'training',
      step: 9,
      nonfinite: { count: 3, first: { step: 7, layer: 2, flag: 'MLP1_mat_mul' } }
    };
    await model.openNonFinite();
    expect(opened).toEqual([['run-1', { view: 'heatmap', flag: 'MLP1_mat_mul', layers: '2', step: 7 }]]);
    model.dispose();
  });

  it('writes the code of what it shows', async () => {
    const { model, runs } = setUp();
    await model.ready();
    const trace = model.open!.trace;
    trace.toggle('MLP1_mat_mul', true);
    trace.change('MLP1_mat_mul', { layers: '1-2' });
    await trace.submit();
    expect(model.code()).toBe(
      [
        'import megalens',
        'from megalens import Tile',
        '',
        'run = megalens.connect("run-1")',
        'run.configure(MLP1_mat_mul=Tile(tiles=96, reduction="mean"), layers="1-2")',
        ''
      ].join('\n')
    );
    expect(runs.opened.get('run-1')!.patches).toHaveLength(1);
    model.dispose();
  });

  it('writes the code of what is in force beyond what is traced, and of no pause', async () => {
    const { model, runs } = setUp();
    runs.hello = structuredClone(JOB);
    await model.ready();
    const { trace, control, perturb } = model.open!;
    trace.change('MLP1_mat_mul', { passes: ['forward', 'backward'], replicas: 'all' });
    await trace.submit();
    perturb.toggle('calculation', true);
    perturb.change('calculation', { layers: '2-3' });
    await perturb.arm();
    await control.setBudget(0.5);
    await control.setMode({ paused: true });
    expect(model.code().split('\n').slice(3)).toEqual([
      'run = megalens.connect("run-1")',
      'run.configure(MLP1_mat_mul=Tile(tiles=96), passes=["forward", "backward"], replicas="all")',
      'run.perturb({"calculation": {"kind": {"name": "noise1", "params": {"coefficient": 0.01}}, "layers": "2-3", "phases": ["train"]}}, seed=0, steps=100)',
      'run.budget("0.5%")',
      ''
    ]);
    model.dispose();
  });

  it('hands over the report that the server made', async () => {
    const { model, host } = setUp();
    await model.ready();
    await model.exportReport();
    expect(host.save).toHaveBeenCalledWith('gpt-demo.html', expect.any(Blob));
    model.dispose();
  });

  it('tells the server’s answer when a hub may not be reached', async () => {
    const { model, host } = setUp();
    await model.actions.connect();
    expect(host.tell).toHaveBeenCalledWith(
      'The hub could not be reached',
      expect.objectContaining({ message: 'This address is not allowed.' })
    );
    model.dispose();
  });

  it('asks the server for a hub by its address, token and dialect', async () => {
    const { model, host, runs } = setUp();
    const foreign = { dialect: 'T1' } as const;
    host.askHub.mockResolvedValue({ address: 'ws://127.0.0.1:5000', token: '', foreign });
    const connect = jest.spyOn(runs, 'connect').mockResolvedValue(OLD);
    await model.actions.connect();
    expect(connect).toHaveBeenCalledWith('ws://127.0.0.1:5000', '', foreign);
    expect(model.runs.chosenId).toBe('run-0');
    model.dispose();
  });

  it('reads the newest loss and thins its sparkline', async () => {
    const { model, runs } = setUp();
    await model.ready();
    const source = runs.opened.get('run-1')!;
    source.columns = scalars(
      Array.from({ length: 500 }, (_, i) => [i + 1, 'loss', 5 - i / 100] as const).concat([
        [500, 'tokens_per_second', 8700]
      ] as never)
    );
    const read = new Promise<void>(resolve => {
      model.open!.summary.changed.connect(() => resolve());
    });
    source.changed.emit({ kind: 'rows', stream: 'scalars', firstStep: 1, lastStep: 500 });
    await read;
    expect(model.open!.summary.loss).toMatchObject({ value: 5 - 4.99, unit: 'nats/byte', step: 500 });
    expect(model.open!.summary.tokensPerSecond?.value).toBe(8700);
    expect(model.open!.summary.spark.steps.length).toBeLessThanOrEqual(60);
    expect(model.open!.summary.spark.steps.at(-1)).toBe(500);
    model.dispose();
  });

  it('says why the scalars could not be read', async () => {
    const { model, runs } = setUp();
    await model.ready();
    const source = runs.opened.get('run-1')!;
    source.scalars = () => Promise.reject(new Error('The folder cannot be read.'));
    const read = new Promise<void>(resolve => {
      model.open!.summary.changed.connect(() => resolve());
    });
    source.changed.emit({ kind: 'rows', stream: 'scalars', firstStep: 1, lastStep: 1 });
    await read;
    expect(model.open!.summary.fault).toBe('The folder cannot be read.');
    model.dispose();
  });

  it('releases its run and stops asking when disposed, twice too', async () => {
    const { model, runs } = setUp();
    await model.ready();
    model.visible = true;
    model.dispose();
    model.dispose();
    expect(runs.released).toEqual(['run-1']);
    expect(model.runs.watching).toBe(false);
  });
});
