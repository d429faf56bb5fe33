/** @jest-environment ./jest.environment.node.js */
import { ProtocolError } from '../../../protocol/protocol-error';
import { TraceModel } from '../trace-model';
import { HELLO, ControlledRun } from '../../shell/__tests__/controlled-run';

const TILE = { name: 'Tile', params: { tiles: 96, reduction: 'mean' } };

function applied(trace: TraceModel): unknown {
  return trace.apply;
}

describe('TraceModel', () => {
  it('offers the flags of hello, in its order, and greys what the model lacks', () => {
    const trace = new TraceModel(new ControlledRun());
    expect(trace.rows.map(row => [row.info.name, row.available])).toEqual([
      ['MLP1_mat_mul', true],
      ['QKV_mat_mul', true],
      ['RawAttentionScore_mat_mul', false]
    ]);
  });

  it('switches a flag on with the first compressor that needs no answer', () => {
    const trace = new TraceModel(new ControlledRun());
    trace.toggle('MLP1_mat_mul', true);
    expect(trace.rows[0]?.setting?.compressor).toEqual(TILE);
    expect(trace.rows[0]?.edited).toBe(true);
    expect(trace.dirty).toBe(true);
  });

  it('applies nothing while layers are wrong, and says so in their row', async () => {
    const run = new ControlledRun();
    const trace = new TraceModel(run);
    trace.toggle('MLP1_mat_mul', true);
    trace.change('MLP1_mat_mul', { layers: '9-12' });
    expect(trace.rows[0]?.faults.get('layers')?.nearest).toBe('4');
    expect(trace.isWrong).toBe(true);
    await trace.submit();
    expect(run.patches).toEqual([]);
    trace.change('MLP1_mat_mul', { layers: '4' });
    expect(trace.rows[0]?.faults.size).toBe(0);
    expect(trace.isWrong).toBe(false);
  });

  it('offers what several flags are traced for together, with its size, and takes it whole', () => {
    const run = new ControlledRun();
    const [mlp, qkv] = run.hello!.flags;
    const attention = { ...qkv!, name: 'RawAttentionScore_mat_mul', axes: ['head', 'query', 'key'] };
    run.hello!.flags = [mlp!, qkv!, attention];
    const trace = new TraceModel(run);
    trace.toggle('QKV_mat_mul', true);
    expect(trace.presets.map(({ title }) => title)).toEqual([
      'Attention of the middle layers, cheap',
      'MLPs of the middle layers',
      'All that there is, rarely'
    ]);
    const [cheap] = trace.presets;
    trace.take(cheap!);
    expect(trace.estimate).toEqual({ bytes: cheap!.bytes, complete: cheap!.complete });
    expect(trace.rows.map(({ setting }) => setting && [setting.layers, setting.every])).toEqual([
      null,
      null,
      ['2-3', 10]
    ]);
  });

  it('sends only what differs, and goes from accepted to applied', async () => {
    const run = new ControlledRun();
    run.hello!.config.flags['QKV_mat_mul'] = { compressor: TILE, layers: '1-2' };
    const trace = new TraceModel(run);
    const states: unknown[] = [];
    trace.changed.connect(() => states.push(trace.apply));
    trace.toggle('MLP1_mat_mul', true);
    await trace.submit();
    expect(run.patches).toEqual([{ flags: { MLP1_mat_mul: { compressor: TILE } } }]);
    expect(states).toContainEqual({ kind: 'accepted', step: 1243 });
    expect(applied(trace)).toEqual({ kind: 'applied', step: 1243 });
    expect(trace.dirty).toBe(false);
    expect(Object.keys(trace.config.flags)).toEqual(['QKV_mat_mul', 'MLP1_mat_mul']);
  });

  it('takes its own answer not for that of another viewer', async () => {
    const trace = new TraceModel(new ControlledRun());
    trace.toggle('MLP1_mat_mul', true);
    await trace.submit();
    expect(trace.foreign).toBeNull();
  });

  it('tells who changed what when another viewer did, even under the same id', async () => {
    const run = new ControlledRun();
    const trace = new TraceModel(run);
    trace.toggle('MLP1_mat_mul', true);
    await trace.submit();
    run.hello!.config = trace.config;
    const message = run.configured({ flags: { MLP1_mat_mul: null } }, 'panel-1');
    run.changed.emit({
      kind: 'configured',
      message: { ...message, by: { name: 'kernel', version: '1', user: 'Ada' }, time: 1_790_000_100 }
    });
    expect(trace.foreign).toEqual({
      by: { name: 'kernel', version: '1', user: 'Ada' },
      time: 1_790_000_100,
      step: 1243,
      count: 1,
      flags: { MLP1_mat_mul: null }
    });
    trace.dismissForeign();
    expect(trace.foreign).toBeNull();
  });

  it('puts a refusal at the field and column that the hub named, and keeps the edits', async () => {
    const run = new ControlledRun();
    run.answer = () =>
      Promise.reject(
        new ProtocolError('bad-reduction', 'There is no function foo.', {
          field: 'flags.MLP1_mat_mul.compressor.params.reduction',
          column: 6
        })
      );
    const trace = new TraceModel(run);
    trace.toggle('MLP1_mat_mul', true);
    trace.changeParameter('MLP1_mat_mul', 'reduction', 'data.foo()');
    await trace.submit();
    expect(trace.rows[0]?.faults).toEqual(
      new Map([['compressor.params.reduction', { message: 'There is no function foo.', column: 6 }]])
    );
    expect(trace.rows[1]?.faults.size).toBe(0);
    expect(trace.dirty).toBe(true);
    trace.changeParameter('MLP1_mat_mul', 'reduction', 'max');
    expect(trace.rows[0]?.faults.size).toBe(0);
  });

  it('keeps an edit that was made while an Apply was under way', async () => {
    const run = new ControlledRun();
    const trace = new TraceModel(run);
    trace.toggle('MLP1_mat_mul', true);
    const answer = run.answer;
    run.answer = async (patch, accepted) => {
      trace.toggle('QKV_mat_mul', true);
      return answer(patch, accepted);
    };
    await trace.submit();
    expect(trace.rows.map(row => row.edited)).toEqual([false, true, false]);
  });

  it('forgets edits on revert and remembers a setting that was switched off and on', () => {
    const trace = new TraceModel(new ControlledRun());
    trace.toggle('MLP1_mat_mul', true);
    trace.change('MLP1_mat_mul', { every: 5, layers: '1-2' });
    trace.toggle('MLP1_mat_mul', false);
    expect(trace.dirty).toBe(false);
    trace.toggle('MLP1_mat_mul', true);
    expect(trace.rows[0]?.setting).toMatchObject({ every: 5, layers: '1-2' });
    trace.revert();
    expect(trace.rows[0]?.setting).toBeNull();
  });

  it('estimates the bytes of a step from what hello says', () => {
    const trace = new TraceModel(new ControlledRun());
    trace.toggle('MLP1_mat_mul', true);
    // 4 layers × (128 positions × 86 tiles × 4 bytes + the row itself)
    expect(trace.estimate).toEqual({ bytes: 4 * (128 * 86 * 4 + 192) + 2976, complete: true });
    trace.change('MLP1_mat_mul', { every: 2, layers: '3' });
    expect(trace.estimate.bytes).toBe((128 * 86 * 4 + 192 + 2976) / 2);
    trace.change('MLP1_mat_mul', { samples: null });
    expect(trace.estimate).toEqual({ bytes: 0, complete: false });
  });

  it('forecasts from what a step is measured to send, and warns of a flood', () => {
    const run = new ControlledRun();
    run.hello!.config = { flags: { MLP1_mat_mul: { compressor: { name: 'Empty' }, every: 2 } } };
    const one = 4 * 192 + 2976;
    // Eight micro-batches in each of the steps that send something.
    const recording = { state: 'on', bytes: 0, limit_bytes: 1e9 } as const;
    run.status = { type: 'status', state: 'training', step: 100, bytes_per_step: 8 * one, recording };
    const trace = new TraceModel(run);
    expect(trace.estimate.bytes).toBeCloseTo((8 * one) / 2);
    expect(trace.flood.isFlood).toBe(false);
    trace.change('MLP1_mat_mul', { every: 1, compressor: { name: 'NoOp' } });
    const bytes = 8 * (one + 4 * 128 * 512 * 4);
    expect(trace.estimate.bytes).toBeCloseTo(bytes);
    expect(trace.flood).toEqual({ isFlood: true, held: Math.floor(1e9 / bytes) });
    trace.change('MLP1_mat_mul', { every: 10 });
    expect(trace.flood.isFlood).toBe(false);
  });

  it('knows how long a step takes once a few have passed, anew where the training goes back', () => {
    const run = new ControlledRun();
    const tell = (step: number, time: number): void => {
      run.status = { type: 'status', state: 'training', step, time };
      run.changed.emit({ kind: 'status' });
    };
    const trace = new TraceModel(run);
    tell(10, 1000);
    tell(14, 1008);
    expect(trace.pace).toBeNull();
    tell(20, 1020);
    expect(trace.pace).toBe(2);
    tell(2, 1030);
    expect(trace.pace).toBeNull();
    tell(22, 1040);
    expect(trace.pace).toBe(0.5);
  });

  it('knows a flag’s size from the positions that another flag told', () => {
    const run = new ControlledRun();
    run.hello!.flags[1]!.bytes_per_layer = null;
    const trace = new TraceModel(run);
    trace.toggle('QKV_mat_mul', true);
    expect(trace.estimate).toEqual({ bytes: 4 * (128 * 64 * 3 * 4 + 3 * 192) + 2976, complete: true });
    run.hello!.flags[0]!.bytes_per_layer = null;
    expect(trace.estimate).toEqual({ bytes: 0, complete: false });
  });

  it('takes no changes when the run is recorded or over', () => {
    const run = new ControlledRun();
    const trace = new TraceModel(run);
    expect(trace.writable).toBe(true);
    run.status = { type: 'status', state: 'finished', step: 3 };
    expect(trace.writable).toBe(false);
    run.status = null;
    run.connection = { kind: 'recorded' };
    expect(trace.writable).toBe(false);
  });

  it('lets go of the source when disposed, twice too', () => {
    const run = new ControlledRun();
    const trace = new TraceModel(run);
    let told = 0;
    trace.changed.connect(() => told++);
    trace.dispose();
    trace.dispose();
    run.hello = structuredClone(HELLO);
    run.changed.emit({ kind: 'hello' });
    expect(told).toBe(0);
  });
});
